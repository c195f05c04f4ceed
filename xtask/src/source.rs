// SPDX-License-Identifier: Apache-2.0
//! Rust text as tokens: enough to find modules, paths, functions and assignments, also inside of macros.
//!
//! A whole parser is not needed and would be slow: `check` reads 140,000 lines in a build without optimisation.
//! Comments and the insides of literals are no tokens, so no rule finds its pattern there.

/// What kind of text a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or a keyword.
    Word,
    /// A string, character or number.
    Literal,
    /// Punctuation: one character, or a joined one of [`JOINED`].
    Sign,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Its text; a literal's with its quotes.
    pub text: &'a str,
    /// Its line, from 1.
    pub line: usize,
    /// What it is.
    pub kind: Kind,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// Punctuation that is read as one token. Assignments must be told from comparisons, paths from types.
const JOINED: [&str; 16] = [
    "::", "==", "=>", "<=", ">=", "!=", "->", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "..",
];

/// The tokens of `text`.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < text.len() {
        let (length, kind) = token(&text[at..]);
        if let Some(kind) = kind {
            found.push(Token {
                text: &text[at..at + length],
                line,
                kind,
            });
        }
        line += text.as_bytes()[at..at + length].iter().filter(|b| **b == b'\n').count();
        at += length;
    }
    found
}

/// Length of what `rest` begins with, and its kind; no kind for spaces, comments and lifetimes.
fn token(rest: &str) -> (usize, Option<Kind>) {
    let bytes = rest.as_bytes();
    match bytes[0] {
        b if b.is_ascii_whitespace() => (bytes.iter().take_while(|b| b.is_ascii_whitespace()).count(), None),
        b'/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), None),
        b'/' if rest.starts_with("/*") => (comment(bytes), None),
        b'"' => (string(bytes, 0), Some(Kind::Literal)),
        b'\'' => quote(rest),
        b if b.is_ascii_digit() => (
            bytes
                .iter()
                .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
                .count(),
            Some(Kind::Literal),
        ),
        b if is_word_byte(b) => word(rest),
        _ => {
            let joined = JOINED.iter().find(|sign| rest.starts_with(**sign));
            let length = joined.map_or_else(|| rest.chars().next().map_or(1, char::len_utf8), |sign| sign.len());
            (length, Some(Kind::Sign))
        }
    }
}

fn is_word_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii()
}

/// A word, or a literal that begins with one of the prefixes `b`, `c`, `r` and their pairs.
fn word(rest: &str) -> (usize, Option<Kind>) {
    let bytes = rest.as_bytes();
    let length = bytes.iter().take_while(|b| is_word_byte(**b)).count();
    let after = bytes.get(length).copied();
    match (&rest[..length], after) {
        ("r" | "br" | "cr", Some(b'"' | b'#')) => {
            raw_string(bytes, length).map_or((length, Some(Kind::Word)), |end| (end, Some(Kind::Literal)))
        }
        ("b" | "c", Some(b'"')) => (string(bytes, length), Some(Kind::Literal)),
        ("b", Some(b'\'')) => {
            let (end, _) = quote(&rest[length..]);
            (length + end, Some(Kind::Literal))
        }
        _ => (length, Some(Kind::Word)),
    }
}

/// Length of a block comment; these nest.
fn comment(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(bytes.len())
}

/// Length of a string whose opening quote is at `start`.
fn string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Length of a raw string whose marks begin at `start`; none for a raw identifier.
fn raw_string(bytes: &[u8], start: usize) -> Option<usize> {
    let marks = bytes[start..].iter().take_while(|b| **b == b'#').count();
    let open = start + marks;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', marks));
    let inside = &bytes[open + 1..];
    let end = inside.windows(close.len()).position(|window| window == close);
    Some(end.map_or(bytes.len(), |end| open + 1 + end + close.len()))
}

/// A character or a lifetime; the latter is no token.
fn quote(rest: &str) -> (usize, Option<Kind>) {
    let mut inside = rest[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), Some(_)) => {
            let end = rest[3..].find('\'').map_or(rest.len(), |end| end + 4);
            (end, Some(Kind::Literal))
        }
        (Some(c), Some('\'')) => (c.len_utf8() + 2, Some(Kind::Literal)),
        _ => {
            let bytes = rest.as_bytes();
            (1 + bytes[1..].iter().take_while(|b| is_word_byte(**b)).count(), None)
        }
    }
}

/// `tokens` without what is compiled for tests alone; nothing of a file that is a test as a whole.
pub fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if let Some((end, is_inner)) = test_attribute(tokens, at) {
            if is_inner {
                return Vec::new();
            }
            at = item_end(tokens, end);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The end of `#[cfg(test)]` at `at`, and whether it is `#![cfg(test)]`.
fn test_attribute(tokens: &[Token<'_>], at: usize) -> Option<(usize, bool)> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text);
    let is_inner = text(at) == "#" && text(at + 1) == "!";
    let open = at + 1 + usize::from(is_inner);
    if text(at) != "#" || text(open) != "[" || text(open + 1) != "cfg" {
        return None;
    }
    let end = closing(tokens, open)?;
    let words: Vec<_> = tokens[open..end].iter().map(|token| token.text).collect();
    (words.contains(&"test") && !words.contains(&"not")).then_some((end + 1, is_inner))
}

/// The token after the item, field or statement that begins at `at`, its other attributes included.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    const ITEMS: [&str; 16] = [
        "pub",
        "fn",
        "mod",
        "use",
        "impl",
        "struct",
        "enum",
        "const",
        "static",
        "type",
        "trait",
        "unsafe",
        "extern",
        "macro_rules",
        "async",
        "let",
    ];
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        at = closing(tokens, at + 1).map_or(tokens.len(), |end| end + 1);
    }
    let Some(first) = tokens.get(at) else { return at };
    let is_item = ITEMS.contains(&first.text);
    let is_use = tokens[at..].iter().take(8).any(|token| token.text == "use");
    while let Some(token) = tokens.get(at) {
        match token.text {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            "{" if !is_use => return closing(tokens, at).map_or(tokens.len(), |end| end + 1),
            "(" | "[" | "{" => at = closing(tokens, at).map_or(tokens.len(), |end| end + 1),
            _ => at += 1,
        }
    }
    at
}

/// The token that closes the bracket at `open`.
pub fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// The line of its `fn`.
    pub line: usize,
    /// Lines from its `fn` to its closing brace.
    pub lines: usize,
}

/// Every function of `tokens`, those within others too.
pub fn functions<'a>(tokens: &[Token<'a>]) -> Vec<Function<'a>> {
    let mut found = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        if pair[0].text != "fn" || !pair[1].is_word() {
            continue;
        }
        let mut at = i + 2;
        let body = loop {
            match tokens.get(at).map(|token| token.text) {
                Some("{") => break closing(tokens, at),
                Some("(" | "[") => at = closing(tokens, at).map_or(tokens.len(), |end| end + 1),
                Some(";" | ")" | "]" | "}") | None => break None,
                Some(_) => at += 1,
            }
        };
        if let Some(end) = body {
            found.push(Function {
                name: pair[1].text,
                line: pair[0].line,
                lines: tokens[end].line - pair[0].line + 1,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn literals_and_comments_hide_what_they_hold() {
        let text = r##"a("x::y", 'c', '\'', b'\\', r#"q"w"#) /* b /* c */ d */ // e
            fn f<'a>(z: &'a str) {}"##;
        let found = texts(text);
        assert!(
            ["x", "y", "b", "d", "e", "q", "w"]
                .iter()
                .all(|word| !found.contains(word))
        );
        assert_eq!(
            found.iter().filter(|word| **word == "a").count(),
            1,
            "no lifetime is a word"
        );
        assert!(found.contains(&"f"));
        assert_eq!(
            texts("r#type b::c 1.5e3 'x'"),
            ["r", "#", "type", "b", "::", "c", "1", ".", "5e3", "'x'"]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let found = tokens("a\n\"x\ny\"\n/* \n */ b");
        assert_eq!(found.last().map(|token| (token.text, token.line)), Some(("b", 5)));
    }

    #[test]
    fn tests_are_left_out_whatever_item_they_are() {
        let text = "fn a() {} #[cfg(test)] use x::{y, z}; #[cfg(test)] #[expect(x)] fn b<A, B>() { c(); }
            struct S { #[cfg(test)] d: Vec<u8>, e: u8 } #[cfg(not(test))] fn f() {} #[cfg(all(test, unix))] mod g { h }
            #[cfg(test)] mod i; fn j() { #[cfg(test)] self.k(); l(); }";
        let all = tokens(text);
        let kept: Vec<_> = without_tests(&all).iter().map(|token| token.text).collect();
        assert!(
            ["x", "y", "z", "b", "c", "d", "g", "h", "i", "k"]
                .iter()
                .all(|word| !kept.contains(word))
        );
        assert!(["a", "S", "e", "f", "j", "l"].iter().all(|word| kept.contains(word)));
        assert!(without_tests(&tokens("#![cfg(test)] fn a() {}")).is_empty());
    }

    #[test]
    fn functions_are_measured_from_their_name_to_their_brace() {
        let text = "fn a(\n  x: [u8; 2],\n) -> impl Fn(u8) {\n  fn b() {}\n}\ntrait T { fn c(); }\ntype F = fn(u8);";
        let found: Vec<_> = functions(&tokens(text))
            .iter()
            .map(|f| (f.name, f.line, f.lines))
            .collect();
        assert_eq!(found, [("a", 1, 5), ("b", 4, 1)]);
    }
}
