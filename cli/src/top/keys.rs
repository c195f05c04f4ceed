// SPDX-License-Identifier: Apache-2.0
//! The keys that a terminal sends, out of its bytes.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Char(char),
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Return.
    Enter,
    /// Escape, alone.
    Escape,
    /// Backspace.
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Stop,
    /// Ctrl-L.
    Redraw,
}

/// The keys in `bytes`, which a terminal sent at once. What is no key here is left out.
pub fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        let (key, length) = match first {
            0x1b => sequence(after),
            b'\r' | b'\n' => (Some(Key::Enter), 0),
            0x7f | 0x08 => (Some(Key::Backspace), 0),
            0x03 => (Some(Key::Interrupt), 0),
            0x1a => (Some(Key::Stop), 0),
            0x0c => (Some(Key::Redraw), 0),
            _ => letter(rest),
        };
        keys.extend(key);
        rest = after.get(length..).unwrap_or_default();
    }
    keys
}

/// One letter at the beginning, and its bytes beyond the first.
fn letter(bytes: &[u8]) -> (Option<Key>, usize) {
    let begins = (1..=bytes.len().min(4)).find_map(|length| std::str::from_utf8(&bytes[..length]).ok());
    let letter = begins.and_then(|text| text.chars().next());
    let key = letter.filter(|letter| !letter.is_control()).map(Key::Char);
    (key, letter.map_or(0, |letter| letter.len_utf8() - 1))
}

/// What follows an escape: a key and its bytes. `ESC [ 5 ~`, `ESC [ A`, `ESC O A`, with modifiers `ESC [ 1 ; 5 A`.
fn sequence(after: &[u8]) -> (Option<Key>, usize) {
    match after {
        [b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            let Some(end) = end else { return (None, after.len()) };
            let number = rest[..end].split(|byte| *byte == b';').next().unwrap_or_default();
            let key = match (rest[end], number) {
                (b'A', _) => Some(Key::Up),
                (b'B', _) => Some(Key::Down),
                (b'H', _) | (b'~', b"1" | b"7") => Some(Key::Home),
                (b'F', _) | (b'~', b"4" | b"8") => Some(Key::End),
                (b'~', b"5") => Some(Key::PageUp),
                (b'~', b"6") => Some(Key::PageDown),
                _ => None,
            };
            (key, end + 2)
        }
        _ => (Some(Key::Escape), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_out_of_bytes() {
        assert_eq!(keys(b"q"), [Key::Char('q')]);
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[5~\x1b[1;5A"),
            [Key::Up, Key::Down, Key::PageUp, Key::Up]
        );
        assert_eq!(keys("é/".as_bytes()), [Key::Char('é'), Key::Char('/')]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(
            keys(b"\x1b[200~x\x03\x1a\r\x7f"),
            [Key::Char('x'), Key::Interrupt, Key::Stop, Key::Enter, Key::Backspace]
        );
    }

    #[test]
    fn broken_sequences_end() {
        assert_eq!(keys(b"\x1b["), []);
        assert_eq!(keys(b"\xff\xfe\x00a"), [Key::Char('a')]);
        assert_eq!(keys(b"\xc3"), []);
    }
}
