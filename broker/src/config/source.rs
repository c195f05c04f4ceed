// SPDX-License-Identifier: Apache-2.0
//! One file's text: turns the parser's byte ranges into lines and columns.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use partage_policy::{At, Written};
use toml::Spanned;

use super::error::ConfigError;
use super::nearest::with_nearest;

/// The file that is merged: what is wrong in it is said with its name.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Line and column of a byte, both from 1 on.
    fn place(self, byte: usize) -> (usize, usize) {
        let end = (0..=byte.min(self.text.len()))
            .rev()
            .find(|end| self.text.is_char_boundary(*end));
        let before = &self.text[..end.unwrap_or(0)];
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
    }

    /// Where something is written, as `why` and refusals name it.
    pub(super) fn at(self, span: &Range<usize>) -> At {
        At {
            file: self.path.display().to_string(),
            line: self.place(span.start).0,
        }
    }

    /// `max.mem: …`, at this place.
    pub(super) fn wrong(self, span: Range<usize>, key: &str, why: impl Display) -> ConfigError {
        self.wrong_at(span.start, format!("{key}: {why}"))
    }

    fn wrong_at(self, byte: usize, why: String) -> ConfigError {
        let (line, column) = self.place(byte);
        ConfigError::Wrong {
            path: self.path.to_owned(),
            line,
            column,
            why,
        }
    }

    /// What the parser says, in our words where we have some.
    pub(super) fn syntax(self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let mut why = with_nearest(error.message());
        // The parser does not say which.
        if why == "duplicate key" {
            let key = self.text.get(span.clone()).unwrap_or_default();
            why = format!("{why} `{key}`");
        }
        self.wrong_at(span.start, why)
    }

    /// A text that is read as a value.
    pub(super) fn read<T, E: Display>(
        self,
        key: &str,
        text: &Spanned<String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        parse(text.get_ref()).map_err(|why| self.wrong(text.span(), key, why))
    }

    /// A value of a preset or rule, with its words and its place.
    pub(super) fn written<T>(self, span: &Range<usize>, value: T) -> Written<T> {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let words: Vec<&str> = raw.split_whitespace().collect();
        let text = words.join(" ");
        Written {
            value,
            text: text.trim_matches(['"', '\'']).to_owned(),
            at: self.at(span),
        }
    }
}

/// The one of these that has this word.
pub(super) fn one_of<T: Copy>(
    source: Source<'_>,
    key: &str,
    text: &Spanned<String>,
    (all, word): (&[T], fn(T) -> &'static str),
) -> Result<T, ConfigError> {
    let known = all.iter().copied().find(|value| word(*value) == text.get_ref());
    known.ok_or_else(|| {
        let words: Vec<&str> = all.iter().copied().map(word).collect();
        let why = format!("{:?} is not one of {}", text.get_ref(), words.join(", "));
        source.wrong(text.span(), key, why)
    })
}
