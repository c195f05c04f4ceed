// SPDX-License-Identifier: Apache-2.0
//! What a managed host's programs may do while its broker is away, as the broker writes it down for them.
//!
//! The file [`NAME`] lies beside the clients' socket and stays there when the broker is gone. That it is there says
//! that the host is managed: memory is *closed* until the broker is back. A line may open it for some, the first line
//! that is about a process decides:
//!
//! ```text
//! user 1000 open
//! group 100 closed
//! all open
//! ```
//! Numbers are those of the broker's user namespace: a process of another one is met by `all` alone.

/// The file's name.
pub const NAME: &str = "without-broker";
/// The most of it that is read, in bytes. A line that is cut counts for nothing.
pub const MOST_BYTES: usize = 4096;

/// What a process is known by. `None`: it is in another user namespace.
pub type Who<'a> = Option<(u32, &'a [u32])>;

/// May a process have memory while nobody answers? What cannot be read is no permission.
#[must_use]
pub fn is_open(text: &[u8], who: Who<'_>) -> bool {
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return false;
    };
    let lines = text.get(..end).unwrap_or(&[]).split(|byte| *byte == b'\n');
    let mut words = lines.filter_map(|line| said(line, who));
    words.next().unwrap_or(false)
}

/// What a line says about a process, if it is about it.
fn said(line: &[u8], who: Who<'_>) -> Option<bool> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let is_meant = match words.next()? {
        b"all" => true,
        kind => {
            let number = number(words.next()?)?;
            let (uid, groups) = who?;
            (kind == b"user" && uid == number) || (kind == b"group" && groups.contains(&number))
        }
    };
    let is_open = match words.next()? {
        b"open" => true,
        b"closed" => false,
        _ => return None,
    };
    (is_meant && words.next().is_none()).then_some(is_open)
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_about_a_process_decides_and_silence_is_closed() {
        let text = b"user 1000 open\ngroup 100 closed\ngroup 7 open\n";
        assert!(is_open(text, Some((1000, &[100]))));
        assert!(!is_open(text, Some((1001, &[7, 100]))));
        assert!(is_open(text, Some((1001, &[7]))));
        assert!(!is_open(text, Some((1001, &[8]))));
        assert!(!is_open(text, None), "numbers of another user namespace mean nothing");
        assert!(is_open(b"user 5 closed\nall open\n", None));
        assert!(!is_open(b"user 5 closed\nall open\n", Some((5, &[]))));
    }

    #[test]
    fn what_cannot_be_read_is_no_permission() {
        for text in [
            &b""[..],
            b"all open",
            b"all opened\n",
            b"all\n",
            b"user open\n",
            b"user 4294967296 open\n",
            b"all open now\n",
            b"\0\xff\n",
        ] {
            assert!(!is_open(text, Some((0, &[0]))), "{text:?}");
        }
    }
}
