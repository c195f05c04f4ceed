// SPDX-License-Identifier: Apache-2.0
//! Splits PTX text into tokens that remember their line and column.
//!
//! A dot word (`.global`, `.x`, `.L2::128B`) is one token, so that opcodes, directives and special-register
//! components need no white-space rules in the parser.

use crate::error::ParseError;
use crate::place::Place;

/// One token of PTX text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// Identifier, register, label or opcode.
    Word(&'a str),
    /// A word with a leading dot; the dot is not included.
    Dot(&'a str),
    /// Integer literal; true when written with a `U` suffix.
    Integer(u64, bool),
    /// `0f` literal, or none.
    Single(u32),
    /// `0d` literal or decimal floating literal, as bits of a double.
    Double(u64),
    /// Quoted text without the quotes.
    Text(&'a str),
    /// Any other single character.
    Mark(u8),
    /// End of the text.
    End,
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn is_word_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

/// Tokens that are split off at a time.
const STEP: usize = 1024;
/// Tokens that can be looked back at.
const BACK: usize = 8;
/// Tokens that can be looked ahead at.
const AHEAD: usize = 8;

/// The tokens of a text, of which a few at a time are split off: all those of a large text together take ten times
/// the text's memory, and clearing that takes longer than reading it. After the text, and after what is none, stand
/// [`Token::End`]s.
pub struct Tokens<'a> {
    lexer: Lexer<'a>,
    window: Vec<(Token<'a>, Place)>,
    at: usize,
    error: Option<ParseError>,
}

impl<'a> Tokens<'a> {
    /// Those of `text`.
    pub fn new(text: &'a str) -> Self {
        let mut tokens = Self {
            lexer: Lexer {
                text,
                bytes: text.as_bytes(),
                at: 0,
                line: 1,
                line_start: 0,
            },
            window: Vec::with_capacity(BACK + STEP + AHEAD),
            at: 0,
            error: None,
        };
        tokens.fill();
        tokens
    }

    /// The token `ahead` of the current one, at most [`AHEAD`].
    #[inline]
    pub fn peek(&self, ahead: usize) -> (Token<'a>, Place) {
        self.window[self.at + ahead]
    }

    /// Goes on by so many tokens, at most [`AHEAD`].
    #[inline]
    pub fn step(&mut self, count: usize) {
        self.at += count;
        if self.at + AHEAD >= self.window.len() {
            self.fill();
        }
    }

    /// The last few tokens before the current one, the latest first.
    pub fn back(&self) -> impl Iterator<Item = Token<'a>> {
        self.window[..self.at].iter().rev().take(BACK).map(|token| token.0)
    }

    /// What is wrong with the text, if the end that was read is not its own.
    pub fn error(&self) -> Option<&ParseError> {
        self.error.as_ref()
    }

    #[cold]
    fn fill(&mut self) {
        let kept = self.at.saturating_sub(BACK);
        self.window.drain(..kept);
        self.at -= kept;
        let wanted = self.at + AHEAD + STEP;
        while self.window.len() < wanted {
            let place = self.lexer.place();
            let found = match &self.error {
                Some(_) => Ok((Token::End, place)),
                None => self.lexer.next(),
            };
            match found {
                Ok(found) => self.window.push(found),
                Err(error) => self.error = Some(error),
            }
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<(Token<'a>, Place), ParseError> {
        self.skip_blank()?;
        let place = self.place();
        Ok((self.token(place)?, place))
    }

    fn place(&self) -> Place {
        Place {
            line: self.line,
            column: (self.at - self.line_start) as u32 + 1,
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn newline(&mut self) {
        self.line += 1;
        self.line_start = self.at + 1;
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'\n', _) => {
                    self.newline();
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'/', b'/') => {
                    while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), ParseError> {
        let start = self.place();
        self.at += 2;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'*', b'/') => {
                    self.at += 2;
                    return Ok(());
                }
                (b'\n', _) => self.newline(),
                _ => {}
            }
            self.at += 1;
        }
        Err(ParseError::syntax(start, "comment is not closed"))
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.at < self.bytes.len() && accept(self.bytes[self.at]) {
            self.at += 1;
        }
        // Only ASCII bytes are accepted by any caller, so both ends are character boundaries.
        self.text.get(start..self.at).unwrap_or("")
    }

    fn token(&mut self, place: Place) -> Result<Token<'a>, ParseError> {
        if self.at >= self.bytes.len() {
            return Ok(Token::End);
        }
        let first = self.peek(0);
        if is_word_start(first) {
            return Ok(Token::Word(self.take_while(is_word_part)));
        }
        if first.is_ascii_digit() {
            return self.number(place);
        }
        if first == b'.' && is_word_part(self.peek(1)) {
            self.at += 1;
            let start = self.at;
            loop {
                self.take_while(is_word_part);
                if (self.peek(0), self.peek(1)) != (b':', b':') {
                    break;
                }
                self.at += 2;
            }
            return Ok(Token::Dot(self.text.get(start..self.at).unwrap_or("")));
        }
        if first == b'"' {
            self.at += 1;
            let text = self.take_text();
            if self.peek(0) != b'"' {
                return Err(ParseError::syntax(place, "text is not closed"));
            }
            self.at += 1;
            return Ok(Token::Text(text));
        }
        if !first.is_ascii_graphic() {
            // A module image is often handed over with its terminating zero.
            if self.bytes[self.at..].iter().all(|byte| *byte == 0) {
                self.at = self.bytes.len();
                return Ok(Token::End);
            }
            return Err(ParseError::syntax(place, format!("unexpected byte 0x{first:02x}")));
        }
        self.at += 1;
        Ok(Token::Mark(first))
    }

    fn take_text(&mut self) -> &'a str {
        let start = self.at;
        while self.at < self.bytes.len() && !matches!(self.bytes[self.at], b'"' | b'\n') {
            self.at += if self.bytes[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at = self.at.min(self.bytes.len());
        self.text.get(start..self.at).unwrap_or("")
    }

    fn number(&mut self, place: Place) -> Result<Token<'a>, ParseError> {
        let bad = |what: &str| ParseError::syntax(place, format!("{what} is not a number"));
        if self.peek(0) == b'0' && matches!(self.peek(1), b'f' | b'F' | b'd' | b'D') {
            let double = matches!(self.peek(1), b'd' | b'D');
            self.at += 2;
            let digits = self.take_while(|byte| byte.is_ascii_hexdigit());
            let bits = u64::from_str_radix(digits, 16).map_err(|_| bad(digits))?;
            return match (double, digits.len()) {
                (true, 16) => Ok(Token::Double(bits)),
                (false, 8) => Ok(Token::Single(bits as u32)),
                _ => Err(bad(digits)),
            };
        }
        let (radix, skip) = match (self.peek(0), self.peek(1)) {
            (b'0', b'x' | b'X') => (16, 2),
            (b'0', b'b' | b'B') => (2, 2),
            (b'0', b'0'..=b'7') => (8, 1),
            _ => (10, 0),
        };
        self.at += skip;
        let start = self.at;
        let digits = self.take_while(|byte| byte.is_ascii_hexdigit() && (radix == 16 || byte.is_ascii_digit()));
        let fraction = radix == 10 && self.peek(0) == b'.' && self.peek(1).is_ascii_digit();
        if fraction || (radix == 10 && matches!(self.peek(0), b'e' | b'E')) {
            return self.decimal(start, place);
        }
        let value = u64::from_str_radix(digits, radix).map_err(|_| bad(digits))?;
        let unsigned = matches!(self.peek(0), b'u' | b'U');
        self.at += usize::from(unsigned);
        if is_word_start(self.peek(0)) {
            let rest = self.take_while(is_word_part);
            return Err(bad(&format!("{digits}{rest}")));
        }
        Ok(Token::Integer(value, unsigned))
    }

    fn decimal(&mut self, start: usize, place: Place) -> Result<Token<'a>, ParseError> {
        let is_sign = |at: usize, bytes: &[u8]| {
            matches!(bytes.get(at), Some(b'+' | b'-')) && matches!(bytes[at - 1], b'e' | b'E')
        };
        while self.at < self.bytes.len()
            && (self.peek(0).is_ascii_digit()
                || matches!(self.peek(0), b'.' | b'e' | b'E')
                || is_sign(self.at, self.bytes))
        {
            self.at += 1;
        }
        let digits = self.text.get(start..self.at).unwrap_or("");
        let value: f64 = digits
            .parse()
            .map_err(|_| ParseError::syntax(place, format!("{digits} is not a number")))?;
        Ok(Token::Double(value.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tokens up to the end.
    fn tokens(text: &str) -> Result<Vec<(Token<'_>, Place)>, ParseError> {
        let mut tokens = Tokens::new(text);
        let mut found = vec![tokens.peek(0)];
        while found[found.len() - 1].0 != Token::End {
            tokens.step(1);
            found.push(tokens.peek(0));
        }
        match tokens.error() {
            Some(error) => Err(error.clone()),
            None => Ok(found),
        }
    }

    #[test]
    fn a_long_text_is_read_in_steps_that_nobody_sees() {
        let text: String = (0..5000).map(|number| format!("w{number} , ")).collect();
        let found = kinds(&text);
        assert_eq!(found.len(), 10_001);
        for (number, pair) in found.chunks_exact(2).enumerate() {
            assert_eq!(pair, [Token::Word(&format!("w{number}")), Token::Mark(b',')]);
        }
        let mut tokens = Tokens::new(&text);
        for _ in 0..9000 {
            tokens.step(1);
        }
        let before: Vec<_> = tokens.back().collect();
        assert_eq!(
            (tokens.peek(0).0, tokens.peek(2).0),
            (Token::Word("w4500"), Token::Word("w4501"))
        );
        assert_eq!(
            before[..4],
            [
                Token::Mark(b','),
                Token::Word("w4499"),
                Token::Mark(b','),
                Token::Word("w4498")
            ]
        );
    }

    fn kinds(text: &str) -> Vec<Token<'_>> {
        tokens(text).unwrap().into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn opcode_and_operands_are_split() {
        assert_eq!(
            kinds("ld.global.L2::128B.v2.f32 {%f1, %f2}, [%rd1+-4];"),
            vec![
                Token::Word("ld"),
                Token::Dot("global"),
                Token::Dot("L2::128B"),
                Token::Dot("v2"),
                Token::Dot("f32"),
                Token::Mark(b'{'),
                Token::Word("%f1"),
                Token::Mark(b','),
                Token::Word("%f2"),
                Token::Mark(b'}'),
                Token::Mark(b','),
                Token::Mark(b'['),
                Token::Word("%rd1"),
                Token::Mark(b'+'),
                Token::Mark(b'-'),
                Token::Integer(4, false),
                Token::Mark(b']'),
                Token::Mark(b';'),
                Token::End,
            ]
        );
    }

    #[test]
    fn every_form_of_number_is_read() {
        assert_eq!(
            kinds("10 0x1F 0b101 017 7U 0f3F800000 0d3FF0000000000000 1.5 2e3"),
            vec![
                Token::Integer(10, false),
                Token::Integer(31, false),
                Token::Integer(5, false),
                Token::Integer(15, false),
                Token::Integer(7, true),
                Token::Single(0x3F80_0000),
                Token::Double(0x3FF0_0000_0000_0000),
                Token::Double(1.5f64.to_bits()),
                Token::Double(2000f64.to_bits()),
                Token::End,
            ]
        );
    }

    #[test]
    fn places_count_lines_through_comments() {
        let found = tokens("// a\n/* b\n */ ret;\0\0").unwrap();
        assert_eq!(found[0], (Token::Word("ret"), Place { line: 3, column: 5 }));
        assert_eq!(found.last().unwrap().0, Token::End);
    }

    #[test]
    fn unclosed_comment_names_where_it_began() {
        let error = tokens("ret;\n  /* x").unwrap_err();
        assert_eq!((error.line, error.column), (2, 3));
    }
}
