// SPDX-License-Identifier: Apache-2.0
//! Contents of files: copied as a whole or from a place on, and compared.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use partage_protocol::snapshot::{END_BYTES, Sum};

use super::super::content::copy_content;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Makes a file hold what another one holds: by sharing its blocks where the file system can, else with its holes.
pub(super) fn whole(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open for the call, which takes nothing else.
    let shared = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    if shared == 0 {
        // What it had beyond the other's end is not shared away.
        return to.set_len(from.metadata()?.len());
    }
    // What is a hole there may have been written here.
    to.set_len(0)?;
    copy_content(from, to)
}

/// Copies a file's bytes from `start` on up to `end`; answers how many there were.
pub(super) fn tail(from: &File, (start, end): (u64, u64), to: &File) -> io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut at = start;
    while at < end {
        let most = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
        match from.read_at(&mut piece[..most], at)? {
            0 => break,
            count => {
                to.write_all_at(&piece[..count], at - start)?;
                at += count as u64;
            }
        }
    }
    Ok(at - start)
}

/// The sum of what a file holds before the byte `end`.
pub(super) fn end_sum(file: &File, end: u64) -> io::Result<u64> {
    let start = end.saturating_sub(END_BYTES);
    let mut piece = vec![0; usize::try_from(end - start).unwrap_or(0)];
    file.read_exact_at(&mut piece, start)?;
    let mut sum = Sum::default();
    sum.add(&piece);
    Ok(sum.finish())
}

/// Do two files hold the same?
pub(super) fn are_equal(one: &File, other: &File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut first, mut second) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    loop {
        let count = one.read_at(&mut first, at)?;
        if count == 0 {
            return Ok(true);
        }
        match other.read_exact_at(&mut second[..count], at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if first[..count] != second[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn what_is_copied_is_equal_and_what_is_changed_is_not() {
        let folder = Scratch::new("copy");
        let make = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).expect("written");
            File::options().read(true).write(true).open(path).expect("there")
        };
        let long: Vec<u8> = (0..PIECE as u32 * 2 + 7).map(|at| at.to_le_bytes()[0]).collect();
        let (one, other) = (
            make("one", &long),
            make("other", b"something longer that was there before"),
        );
        assert!(!are_equal(&one, &other).expect("read"));
        whole(&one, &other).expect("copied");
        assert!(are_equal(&one, &other).expect("read"));
        other.write_all_at(b"x", PIECE as u64 + 3).expect("written");
        assert!(!are_equal(&one, &other).expect("read"));
        let rest = make("rest", b"");
        let end = long.len() as u64;
        assert_eq!(tail(&one, (5, end), &rest).expect("copied"), end - 5);
        assert_eq!(std::fs::read(folder.path().join("rest")).expect("there"), long[5..]);
        // A shorter one over a longer one, whose holes were written there.
        let short = make("short", b"");
        short.set_len(3).expect("a hole");
        whole(&short, &other).expect("copied");
        assert_eq!(std::fs::read(folder.path().join("other")).expect("there"), [0; 3]);
    }
}
