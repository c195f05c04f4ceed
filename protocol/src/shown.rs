// SPDX-License-Identifier: Apache-2.0
//! Text that other people chose, as it may be put on a terminal.

/// The text without characters that could steer a terminal (escape sequences, cursor moves, a changed direction of
/// writing): a `?` stands for each.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// Control characters of both kinds, and the marks that turn the direction of writing or hide what they surround.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sequence_and_no_hidden_mark_is_left() {
        assert_eq!(
            shown("a\x1b[2Jb\nc\u{9b}31m d\u{202e}e\u{200b} é…"),
            "a?[2Jb?c?31m d?e? é…"
        );
    }
}
