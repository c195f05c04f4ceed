// SPDX-License-Identifier: Apache-2.0
//! What a restore does with one file, or why not: a function of how it was saved, what lies there, who writes to it and
//! what was asked for.
//!
//! | now | appended to only | copied | any other |
//! |---|---|---|---|
//! | as saved | - | - | - |
//! | written at its length | said | put back | said; refused where it is written in place |
//! | longer | cut | put back | cut; refused where it is written in place |
//! | shorter | goes on at its end | put back | refused |
//! | gone | made empty | made from the copy | refused |
//! | another file | goes on at its end | put aside, and made from the copy | refused |
//!
//! That is `cut`. Where others can write to a file too, none is cut or put back: a job that only appends goes on at
//! the end (a script that logs by `>>` restores its job so), any other is refused. With `keep` nothing is changed and
//! no file is made but an empty one to append to; with `refuse` every difference refuses. *Appended to only*: CRIU
//! takes it with any length, and no other.

use std::cmp::Ordering;

use partage_protocol::size::format_bytes;
use partage_protocol::snapshot::{FilesMode, OpenFile, Writes};

use super::now::{Now, Seen, Writer};
use super::words::typed;

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It is as it has to be.
    Nothing,
    /// It is left as it is, and people are told so.
    Leave(Left),
    /// It becomes as long as it was; what is behind that is kept.
    Cut,
    /// It gets back what it held; what it holds is kept.
    PutBack,
    /// It is made: from its copy, or empty where there is none.
    Make,
    /// The same from its copy, once what is there has another name.
    Replace,
}

/// Why a file is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The job appends to another file of the name.
    Other,
    /// Another file of the name and of the length is taken for it.
    Taken,
    /// The job appends to what is shorter than it was.
    Shorter,
    /// The job appends to what is longer than it was.
    Longer,
    /// The job appends to what others can write to, too.
    Shared,
    /// It was written at its length, and nobody knows what it held.
    Written,
}

/// Why nothing is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing is there.
    Gone,
    /// Something else than a file is there.
    Odd,
    /// Another file is there, of that length.
    Other(u64),
    /// It is shorter.
    Shorter(u64),
    /// It is longer, and is to be left so.
    Longer(u64),
    /// It was written in place, and was not copied.
    Written,
    /// Its permissions are these.
    Mode(u32),
    /// It would be changed, and these write to it.
    Writers {
        /// Who.
        list: Vec<Writer>,
        /// It can be left as it is.
        can_stay: bool,
    },
    /// It differs, and nothing may.
    Differs,
}

/// What is to be done with a file.
pub(super) fn judge(file: &OpenFile, seen: &Seen, mode: FilesMode, writers: &[Writer]) -> Result<Action, Refusal> {
    let action = match mode {
        FilesMode::Cut => cut(file, seen.now)?,
        FilesMode::Keep => keep(file, seen.now)?,
        FilesMode::Refuse => return refuse(file, seen),
    };
    let action = match action {
        Action::Cut if file.any_length && !writers.is_empty() => Action::Leave(Left::Shared),
        action => action,
    };
    if matches!(action, Action::Cut | Action::PutBack | Action::Replace) && !writers.is_empty() {
        return Err(Refusal::Writers {
            list: writers.to_vec(),
            can_stay: keep(file, seen.now).is_ok(),
        });
    }
    match action {
        // It is made with those that it had.
        Action::Replace => {}
        _ => same_mode(file, seen)?,
    }
    Ok(action)
}

/// CRIU compares the permissions.
fn same_mode(file: &OpenFile, seen: &Seen) -> Result<(), Refusal> {
    match seen.now {
        Now::Same { .. } | Now::Other(_) if seen.mode != file.mode => Err(Refusal::Mode(seen.mode)),
        _ => Ok(()),
    }
}

fn cut(file: &OpenFile, now: Now) -> Result<Action, Refusal> {
    let is_copied = file.copy.is_some();
    let is_in_place = file.writes == Writes::InPlace;
    match now {
        Now::Odd => Err(Refusal::Odd),
        Now::Gone if is_copied || file.any_length => Ok(Action::Make),
        Now::Gone => Err(Refusal::Gone),
        Now::Other(_) if file.any_length => Ok(Action::Leave(Left::Other)),
        Now::Other(_) if is_copied => Ok(Action::Replace),
        Now::Other(bytes) => Err(Refusal::Other(bytes)),
        Now::Same { is_as_saved: true, .. } => Ok(Action::Nothing),
        Now::Same { .. } if is_copied => Ok(Action::PutBack),
        Now::Same { bytes, .. } if bytes < file.bytes && file.any_length => Ok(Action::Leave(Left::Shorter)),
        Now::Same { bytes, .. } if bytes < file.bytes => Err(Refusal::Shorter(bytes)),
        Now::Same { .. } if is_in_place => Err(Refusal::Written),
        Now::Same { bytes, .. } if bytes > file.bytes => Ok(Action::Cut),
        Now::Same { .. } => Ok(Action::Leave(Left::Written)),
    }
}

fn keep(file: &OpenFile, now: Now) -> Result<Action, Refusal> {
    match now {
        Now::Odd => Err(Refusal::Odd),
        Now::Gone if file.any_length => Ok(Action::Make),
        Now::Gone => Err(Refusal::Gone),
        Now::Other(_) if file.any_length => Ok(Action::Leave(Left::Other)),
        Now::Other(bytes) if bytes == file.bytes => Ok(Action::Leave(Left::Taken)),
        Now::Other(bytes) => Err(Refusal::Other(bytes)),
        Now::Same { is_as_saved: true, .. } => Ok(Action::Nothing),
        Now::Same { bytes, .. } if bytes == file.bytes => Ok(Action::Leave(Left::Written)),
        Now::Same { bytes, .. } if file.any_length => Ok(Action::Leave(match bytes < file.bytes {
            true => Left::Shorter,
            false => Left::Longer,
        })),
        Now::Same { bytes, .. } if bytes < file.bytes => Err(Refusal::Shorter(bytes)),
        Now::Same { bytes, .. } => Err(Refusal::Longer(bytes)),
    }
}

fn refuse(file: &OpenFile, seen: &Seen) -> Result<Action, Refusal> {
    match seen.now {
        Now::Odd => Err(Refusal::Odd),
        Now::Gone => Err(Refusal::Gone),
        Now::Other(bytes) => Err(Refusal::Other(bytes)),
        Now::Same { is_as_saved: true, .. } => same_mode(file, seen).map(|()| Action::Nothing),
        Now::Same { .. } => Err(Refusal::Differs),
    }
}

impl Refusal {
    /// What it means to people: why, and what to do.
    pub(super) fn words(&self, file: &OpenFile, mode: FilesMode) -> (String, String) {
        let (path, had) = (&file.path, format_bytes(file.bytes));
        let back = format!("put the file back that was there, or restore another generation (--generation N): {path}");
        let made = format!(
            "truncate -s {} {}, and restore with --files keep",
            file.bytes,
            typed(path)
        );
        match self {
            Self::Gone => (
                format!("{path} is gone; the job had it open, with {had}"),
                format!("{back}; or have another file taken for it: {made}"),
            ),
            Self::Odd => (format!("{path} is no file now; it was one of {had}"), back),
            Self::Other(bytes) => another(file, *bytes, &back, &made),
            Self::Shorter(bytes) => {
                let bytes = format_bytes(*bytes);
                (
                    format!("{path} has {bytes}, and had {had} when the job was saved"),
                    back,
                )
            }
            Self::Longer(bytes) => (
                format!(
                    "{path} has {}, and had {had} when the job was saved: a program that does not append (>>) can only \
                     go on there",
                    format_bytes(*bytes)
                ),
                "without --files keep it is cut to that length, and what is behind it is kept in a file".to_owned(),
            ),
            Self::Written => (
                format!("{path} was written since the job was saved; it was too large to be copied (--files-max)"),
                match mode {
                    FilesMode::Cut => format!("{back}; --files keep takes it as it is, if it has its length"),
                    FilesMode::Keep | FilesMode::Refuse => back,
                },
            ),
            Self::Mode(now) => (
                format!(
                    "{path} has mode {now:o}, and had {:o} when the job was saved",
                    file.mode
                ),
                format!("chmod {:o} {path}", file.mode),
            ),
            Self::Writers { list, can_stay } => {
                let list: Vec<String> = list
                    .iter()
                    .map(|one| format!("{} (pid {})", one.name, one.pid))
                    .collect();
                let hint = match can_stay {
                    true => "end what writes to it first; --files keep leaves the file as it is",
                    false => "end what writes to it first",
                };
                let list = list.join(", ");
                (
                    format!(
                        "{path} was changed since the job was saved, and {list} can write to it, too: it is not changed"
                    ),
                    hint.to_owned(),
                )
            }
            Self::Differs => (
                format!("{path} was changed since the job was saved"),
                "without --files refuse it becomes what it was, and what was written since is kept in a file"
                    .to_owned(),
            ),
        }
    }
}

/// What is said of another file of that length.
fn another(file: &OpenFile, bytes: u64, back: &str, made: &str) -> (String, String) {
    let hint = match bytes.cmp(&file.bytes) {
        Ordering::Less => format!("{back}; or have this one taken for it: {made}"),
        Ordering::Equal => format!("{back}; --files keep takes this one for it"),
        // Its end would be lost.
        Ordering::Greater => back.to_owned(),
    };
    let (bytes, had) = (format_bytes(bytes), format_bytes(file.bytes));
    let message = format!(
        "{} is another file now, of {bytes}; the job had one of {had} open",
        file.path
    );
    (message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(bytes: u64, is_as_saved: bool) -> Now {
        Now::Same { bytes, is_as_saved }
    }

    /// Every kind of file: by `>>`, `a+`, `>`, written in place with a copy and without.
    fn kinds() -> Vec<(&'static str, OpenFile)> {
        let file = |writes, any_length, copy: Option<&str>| OpenFile {
            path: "/data/x".to_owned(),
            bytes: 10,
            mode: 0o644,
            writes,
            any_length,
            copy: copy.map(str::to_owned),
            ..OpenFile::default()
        };
        vec![
            ("appended", file(Writes::Append, true, None)),
            ("read too", file(Writes::Append, false, None)),
            ("onward", file(Writes::Onward, false, None)),
            ("copied", file(Writes::InPlace, false, Some("files/open-0"))),
            ("large", file(Writes::InPlace, false, None)),
        ]
    }

    const NOW: [Now; 7] = [
        Now::Gone,
        Now::Odd,
        Now::Other(10),
        Now::Same {
            bytes: 10,
            is_as_saved: true,
        },
        Now::Same {
            bytes: 10,
            is_as_saved: false,
        },
        Now::Same {
            bytes: 12,
            is_as_saved: false,
        },
        Now::Same {
            bytes: 8,
            is_as_saved: false,
        },
    ];

    fn seen(now: Now) -> Seen {
        Seen {
            now,
            mode: 0o644,
            key: None,
        }
    }

    /// What `cut` does with each kind, for each thing of [`NOW`].
    fn rows_of_cut() -> [(&'static str, [Result<Action, Refusal>; 7]); 5] {
        use Action::{Cut, Leave, Make, Nothing, PutBack, Replace};
        use Left::{Other, Shorter, Written};
        use Refusal as No;
        let odd = || Err(No::Odd);
        let other = || Err(No::Other(10));
        [
            (
                "appended",
                [
                    Ok(Make),
                    odd(),
                    Ok(Leave(Other)),
                    Ok(Nothing),
                    Ok(Leave(Written)),
                    Ok(Cut),
                    Ok(Leave(Shorter)),
                ],
            ),
            (
                "read too",
                [
                    Err(No::Gone),
                    odd(),
                    other(),
                    Ok(Nothing),
                    Ok(Leave(Written)),
                    Ok(Cut),
                    Err(No::Shorter(8)),
                ],
            ),
            (
                "onward",
                [
                    Err(No::Gone),
                    odd(),
                    other(),
                    Ok(Nothing),
                    Ok(Leave(Written)),
                    Ok(Cut),
                    Err(No::Shorter(8)),
                ],
            ),
            (
                "copied",
                [
                    Ok(Make),
                    odd(),
                    Ok(Replace),
                    Ok(Nothing),
                    Ok(PutBack),
                    Ok(PutBack),
                    Ok(PutBack),
                ],
            ),
            (
                "large",
                [
                    Err(No::Gone),
                    odd(),
                    other(),
                    Ok(Nothing),
                    Err(No::Written),
                    Err(No::Written),
                    Err(No::Shorter(8)),
                ],
            ),
        ]
    }

    #[test]
    fn the_table_of_cut() {
        for ((kind, file), (name, row)) in kinds().iter().zip(&rows_of_cut()) {
            assert_eq!(kind, name);
            for (now, expected) in NOW.iter().zip(row) {
                assert_eq!(
                    &judge(file, &seen(*now), FilesMode::Cut, &[]),
                    expected,
                    "{kind} {now:?}"
                );
            }
        }
    }

    #[test]
    fn the_table_of_keep() {
        use Action::{Leave, Make, Nothing};
        use Left::{Longer, Other, Shorter, Taken, Written};
        use Refusal as No;
        for (kind, file) in kinds() {
            for now in NOW.into_iter().chain([Now::Other(12)]) {
                let expected = match (kind, now) {
                    (_, Now::Odd) => Err(No::Odd),
                    ("appended", Now::Gone) => Ok(Make),
                    (_, Now::Gone) => Err(No::Gone),
                    ("appended", Now::Other(_)) => Ok(Leave(Other)),
                    (_, Now::Other(10)) => Ok(Leave(Taken)),
                    (_, Now::Other(bytes)) => Err(No::Other(bytes)),
                    (_, Now::Same { is_as_saved: true, .. }) => Ok(Nothing),
                    (_, Now::Same { bytes: 10, .. }) => Ok(Leave(Written)),
                    ("appended", Now::Same { bytes: 12, .. }) => Ok(Leave(Longer)),
                    ("appended", _) => Ok(Leave(Shorter)),
                    (_, Now::Same { bytes: 12, .. }) => Err(No::Longer(12)),
                    (_, Now::Same { bytes, .. }) => Err(No::Shorter(bytes)),
                };
                assert_eq!(
                    judge(&file, &seen(now), FilesMode::Keep, &[]),
                    expected,
                    "{kind} {now:?}"
                );
            }
        }
    }

    #[test]
    fn only_a_file_that_is_as_saved_passes_a_refusing_restore() {
        for (kind, file) in kinds() {
            for now in NOW {
                let judged = judge(&file, &seen(now), FilesMode::Refuse, &[]);
                assert_eq!(judged == Ok(Action::Nothing), now == same(10, true), "{kind} {now:?}");
                assert_eq!(judged.is_ok(), now == same(10, true), "{kind} {now:?}");
            }
        }
    }

    /// Whatever a file is and whatever is asked for: nothing is changed that others write to, or that `keep` is to
    /// keep; what CRIU compares is as it was afterwards; a refusal says the file and what to do.
    #[test]
    fn what_holds_for_every_file() {
        let writer = Writer {
            pid: 7,
            name: "tee".to_owned(),
        };
        for mode in [FilesMode::Cut, FilesMode::Keep, FilesMode::Refuse] {
            for ((kind, file), now) in kinds().into_iter().flat_map(|kind| NOW.map(|now| (kind.clone(), now))) {
                for others in [&[][..], std::slice::from_ref(&writer)] {
                    let judged = judge(&file, &seen(now), mode, others);
                    let text = format!("{kind} {now:?} {mode:?} {others:?}: {judged:?}");
                    let is_changed = matches!(judged, Ok(Action::Cut | Action::PutBack | Action::Replace));
                    assert!(!is_changed || others.is_empty() && mode == FilesMode::Cut, "{text}");
                    let is_shared = judged == Ok(Action::Leave(Left::Shared));
                    let would_cut = judge(&file, &seen(now), mode, &[]) == Ok(Action::Cut);
                    assert_eq!(
                        is_shared,
                        kind == "appended" && !others.is_empty() && would_cut,
                        "{text}"
                    );
                    let length = match (&judged, now) {
                        (Err(_), _) => None,
                        (Ok(Action::Cut | Action::PutBack | Action::Replace), _) => Some(10),
                        (Ok(Action::Make), _) => Some(if file.copy.is_some() { 10 } else { 0 }),
                        (Ok(_), Now::Same { bytes, .. } | Now::Other(bytes)) => Some(bytes),
                        (Ok(_), _) => panic!("{text}"),
                    };
                    assert!(file.any_length || length.is_none_or(|length| length == 10), "{text}");
                    if let Err(refusal) = judged {
                        let (message, hint) = refusal.words(&file, mode);
                        assert!(message.starts_with("/data/x ") && !hint.is_empty(), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn permissions_that_criu_would_refuse_are_refused_before() {
        for (kind, file) in kinds() {
            for mode in [FilesMode::Cut, FilesMode::Keep, FilesMode::Refuse] {
                let seen = Seen {
                    mode: 0o600,
                    ..seen(same(10, true))
                };
                assert_eq!(
                    judge(&file, &seen, mode, &[]),
                    Err(Refusal::Mode(0o600)),
                    "{kind} {mode:?}"
                );
            }
        }
    }
}
