// SPDX-License-Identifier: Apache-2.0
//! What a broker's welcome means for a process that may have been a client before.

/// What the welcome does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The first one: its pages are mapped, once in the life of the process.
    Attach,
    /// A broker takes the process back under its id: the pages stay what they are.
    Reattach,
    /// A parked process gets pages again, perhaps under another id: as a restored one it is another process.
    Return,
    /// It is for nobody, for another client, or without pages where they are needed.
    Refuse,
}

/// The transition for a process with the id `own` (0: none yet), by a welcome for the id `given` that came with the
/// files of both pages or without. A parked process has an id and no pages.
pub fn welcomed(own: u64, given: u64, has_files: bool, is_parked: bool) -> Transition {
    match own {
        _ if given == 0 => Transition::Refuse,
        _ if is_parked && has_files => Transition::Return,
        _ if is_parked => Transition::Refuse,
        0 if has_files => Transition::Attach,
        0 => Transition::Refuse,
        own if own == given => Transition::Reattach,
        _ => Transition::Refuse,
    }
}
