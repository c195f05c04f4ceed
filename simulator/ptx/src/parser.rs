// SPDX-License-Identifier: Apache-2.0
//! Reads PTX text into a [`Source`]; recursive descent, one token of look-ahead.
//!
//! Debug sections, `.file`, `.loc` and `.pragma` are skipped. Every error names line and column.

mod declaration;
mod expression;
mod statement;

use crate::error::{ParseError, Result};
use crate::lexer::{Token, Tokens};
use crate::place::Place;
use crate::syntax::Source;

/// Nesting of blocks and initialisers beyond which text is refused: real modules nest two or three deep, and the
/// parser must not overflow its own stack on garbage.
const DEEPEST: u32 = 64;

/// Reads a whole module.
pub fn parse(text: &str) -> Result<Source<'_>> {
    let mut parser = Parser {
        tokens: Tokens::new(text),
        depth: 0,
    };
    let read = parser.module();
    // The parser saw an end there, and may have complained of it.
    match parser.tokens.error() {
        Some(error) if parser.peek() == Token::End => Err(error.clone()),
        _ => read,
    }
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.peek(0).0
    }

    fn ahead(&self) -> Token<'a> {
        self.tokens.peek(1).0
    }

    fn place(&self) -> Place {
        self.tokens.peek(0).1
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if token != Token::End {
            self.tokens.step(1);
        }
        token
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T> {
        let found = match self.peek() {
            Token::Word(word) => word.to_owned(),
            Token::Dot(word) => format!(".{word}"),
            Token::Integer(value, _) => value.to_string(),
            Token::Mark(byte) => (byte as char).to_string(),
            Token::Text(text) => format!("\"{text}\""),
            Token::Single(_) | Token::Double(_) => "a number".to_owned(),
            Token::End => "the end of the text".to_owned(),
        };
        Err(ParseError::syntax(
            self.place(),
            format!("expected {wanted}, found {found}"),
        ))
    }

    fn is_mark(&self, mark: u8) -> bool {
        self.peek() == Token::Mark(mark)
    }

    fn accept(&mut self, mark: u8) -> bool {
        let found = self.is_mark(mark);
        self.tokens.step(usize::from(found));
        found
    }

    fn expect(&mut self, mark: u8) -> Result<()> {
        if self.accept(mark) {
            Ok(())
        } else {
            self.wrong(&format!("'{}'", mark as char))
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Token::Word(word) => {
                self.tokens.step(1);
                Ok(word)
            }
            _ => self.wrong("a name"),
        }
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ParseError::syntax(self.place(), "nested too deep"));
        }
        Ok(())
    }

    fn module(&mut self) -> Result<Source<'a>> {
        let mut source = Source::default();
        let mut versioned = false;
        loop {
            match self.peek() {
                Token::End => break,
                Token::Dot("version") => {
                    self.tokens.step(1);
                    source.version = self.version()?;
                    versioned = true;
                }
                Token::Dot("target") => {
                    self.tokens.step(1);
                    source.target = self.word()?;
                    while self.accept(b',') {
                        self.word()?;
                    }
                }
                Token::Dot("address_size") => {
                    self.tokens.step(1);
                    match self.next() {
                        Token::Integer(64, _) => {}
                        _ => return Err(ParseError::unsupported(self.place(), "an address size other than 64")),
                    }
                }
                Token::Dot("file" | "section" | "pragma" | "loc" | "alias") => self.skip_directive()?,
                Token::Mark(b'@') if matches!(self.ahead(), Token::Dot(_) | Token::Word(_)) => self.skip_directive()?,
                Token::Mark(b';') => self.tokens.step(1),
                Token::Dot(_) if versioned => self.declaration(&mut source)?,
                _ if !versioned => return self.wrong(".version"),
                _ => return self.wrong("a directive"),
            }
        }
        if versioned { Ok(source) } else { self.wrong(".version") }
    }

    fn version(&mut self) -> Result<(u32, u32)> {
        let place = self.place();
        match (self.next(), self.peek()) {
            (Token::Integer(major, _), Token::Dot(minor)) => {
                self.tokens.step(1);
                let minor = minor.parse().map_err(|_| ParseError::syntax(place, "not a version"))?;
                Ok((major as u32, minor))
            }
            (Token::Double(bits), _) => {
                let tenths = (f64::from_bits(bits) * 10.0).round();
                Ok(((tenths / 10.0) as u32, (tenths % 10.0) as u32))
            }
            _ => Err(ParseError::syntax(place, "expected a version such as 8.0")),
        }
    }

    /// Skips a directive that runs to a semicolon, a closed brace or the end of its line.
    fn skip_directive(&mut self) -> Result<()> {
        let line = self.place().line;
        let braced = self.peek() == Token::Dot("section");
        self.tokens.step(1);
        if braced {
            while !matches!(self.peek(), Token::Mark(b'{') | Token::End) {
                self.tokens.step(1);
            }
            while !matches!(self.peek(), Token::Mark(b'}') | Token::End) {
                self.tokens.step(1);
            }
            return self.expect(b'}');
        }
        while self.place().line == line && self.peek() != Token::End {
            if self.next() == Token::Mark(b';') {
                break;
            }
        }
        Ok(())
    }
}

/// Refuses text that is not PTX. Names need not be declared: they may be in another text that is linked to this one.
pub fn check_syntax(text: &str) -> Result<()> {
    parse(text).map(|_| ())
}
