// SPDX-License-Identifier: Apache-2.0
//! How a job writes to a file, by its descriptors and mappings.

use partage_protocol::snapshot::Writes;

/// `O_APPEND` as `/proc/PID/fdinfo` says it.
const APPEND: u32 = libc::O_APPEND.cast_unsigned();
/// A descriptor that only names a file.
const PATH: u32 = libc::O_PATH.cast_unsigned();
/// The bits of reading and writing.
const ACCESS: u32 = libc::O_ACCMODE.cast_unsigned();

/// One way in which a process has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Open.
    Open {
        /// The flags of `open`.
        flags: u32,
        /// Where the next byte goes.
        position: u64,
    },
    /// Mapped.
    Mapped {
        /// What is written there is written to the file.
        is_written: bool,
    },
}

impl Hold {
    /// What `/proc/PID/fdinfo/N` says of a descriptor.
    pub(super) fn parse(fdinfo: &str) -> Option<Self> {
        let value = |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Self::Open {
            flags: u32::from_str_radix(value("flags:")?, 8).ok()?,
            position: value("pos:")?.parse().ok()?,
        })
    }

    /// Can it write?
    pub(super) const fn can_write(self) -> bool {
        match self {
            Self::Open { flags, .. } => flags & PATH == 0 && flags & ACCESS != libc::O_RDONLY.cast_unsigned(),
            Self::Mapped { is_written } => is_written,
        }
    }

    /// Does it only append?
    const fn only_appends(self) -> bool {
        match self {
            Self::Open { flags, .. } => flags & (APPEND | ACCESS) == APPEND | libc::O_WRONLY.cast_unsigned(),
            Self::Mapped { .. } => false,
        }
    }

    /// May it write before the file's end, whose length is `bytes`?
    const fn writes_in_place(self, bytes: u64) -> bool {
        match self {
            _ if !self.can_write() => false,
            Self::Open { flags, .. } if flags & APPEND != 0 => false,
            Self::Open { flags, position } => flags & ACCESS == libc::O_RDWR.cast_unsigned() || position < bytes,
            Self::Mapped { .. } => true,
        }
    }

    const fn appends(self) -> bool {
        matches!(self, Self::Open { flags, .. } if flags & APPEND != 0)
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub writes: Writes,
    pub is_mapped: bool,
    pub position: u64,
    pub any_length: bool,
}

/// How processes that have a file so write to it; none: they do not.
pub(super) fn of(holds: &[Hold], bytes: u64) -> Option<Use> {
    let writers: Vec<Hold> = holds.iter().copied().filter(|hold| hold.can_write()).collect();
    if writers.is_empty() {
        return None;
    }
    let writes = if writers.iter().any(|hold| hold.writes_in_place(bytes)) {
        Writes::InPlace
    } else if writers.iter().all(|hold| hold.appends()) {
        Writes::Append
    } else {
        Writes::Onward
    };
    let positions = writers.iter().filter_map(|hold| match hold {
        Hold::Open { position, .. } => Some(*position),
        Hold::Mapped { .. } => None,
    });
    Some(Use {
        writes,
        is_mapped: writers.iter().any(|hold| matches!(hold, Hold::Mapped { .. })),
        position: positions.max().unwrap_or(0),
        any_length: holds.iter().all(|hold| hold.only_appends()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(flags: i32, position: u64) -> Hold {
        Hold::Open {
            flags: flags.cast_unsigned(),
            position,
        }
    }

    #[test]
    fn a_file_is_written_as_its_least_careful_descriptor_may() {
        use libc::{O_APPEND, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
        let written = Hold::Mapped { is_written: true };
        let read = Hold::Mapped { is_written: false };
        // A log by `>>`, read by nobody; the same read, or mapped, by the job; `a+`.
        let table: [(&[Hold], Writes, bool); 12] = [
            (&[open(O_WRONLY | O_APPEND, 0)], Writes::Append, true),
            (
                &[open(O_WRONLY | O_APPEND, 9), open(O_RDONLY, 0)],
                Writes::Append,
                false,
            ),
            (&[open(O_WRONLY | O_APPEND, 9), read], Writes::Append, false),
            (&[open(O_RDWR | O_APPEND, 9)], Writes::Append, false),
            // `>`, at its end and before it.
            (&[open(O_WRONLY, 9)], Writes::Onward, false),
            (&[open(O_WRONLY, 10)], Writes::Onward, false),
            (&[open(O_WRONLY, 8)], Writes::InPlace, false),
            (
                &[open(O_WRONLY, 9), open(O_WRONLY | O_APPEND, 0)],
                Writes::Onward,
                false,
            ),
            // A database, and what is mapped.
            (&[open(O_RDWR, 9)], Writes::InPlace, false),
            (&[written], Writes::InPlace, false),
            (&[open(O_WRONLY | O_APPEND, 9), written], Writes::InPlace, false),
            (&[read, open(O_WRONLY, 9)], Writes::Onward, false),
        ];
        for (holds, writes, any_length) in table {
            let used = of(holds, 9).expect("written");
            assert_eq!((used.writes, used.any_length), (writes, any_length), "{holds:?}");
            assert_eq!(used.is_mapped, holds.contains(&written));
        }
        for holds in [&[open(O_RDONLY, 0)][..], &[read], &[open(O_PATH | O_RDWR, 0)], &[]] {
            assert_eq!(of(holds, 9), None, "{holds:?}");
        }
    }

    #[test]
    fn the_kernels_words_about_a_descriptor_are_read() {
        let text = "pos:\t1234\nflags:\t0102001\nmnt_id:\t29\nino:\t7\n";
        let hold = Hold::parse(text).expect("read");
        assert_eq!(hold, open(libc::O_WRONLY | libc::O_APPEND | 0o100_000, 1234));
        assert!(hold.can_write() && hold.only_appends());
        assert_eq!(Hold::parse("pos: 1\n"), None);
    }
}
