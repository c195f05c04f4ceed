// SPDX-License-Identifier: Apache-2.0
//! Lanes of a warp that share a program counter, what they wait for, and how they go on.

/// One call that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) return_to: u32,
    pub(super) site: u32,
    pub(super) function: u32,
    pub(super) base: u32,
    pub(super) local: u32,
}

/// What a group waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    Ready,
    /// A barrier of the block; with it the barrier site.
    Barrier(u32, u32),
    /// Other lanes of the warp.
    Members,
}

/// Lanes with one program counter.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    /// Offset of the frame in bytes.
    pub(super) base: u32,
    /// Offset of the function's part of local memory.
    pub(super) local: u32,
    pub(super) function: u32,
    pub(super) stack: Vec<Frame>,
    pub(super) wait: Wait,
    /// When it last ran.
    pub(super) turn: u64,
}

impl Group {
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.pc == other.pc && self.base == other.base && self.stack == other.stack
    }
}

/// Arrivals at a barrier of the block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Barrier {
    /// Threads that have arrived.
    pub arrived: u32,
    /// The same, a whole warp counting 32 even when it has fewer threads.
    pub arrived_rounded: u32,
    /// Number of threads asked for, 0 for all.
    pub wanted: u32,
    /// Threads whose predicate holds.
    pub held: u32,
    /// Threads of which a predicate was taken.
    pub asked: u32,
}

/// Barriers of a block.
pub type Barriers = [Barrier; 16];

/// How a group goes on after a control instruction.
pub(super) enum Next {
    /// With the next instruction; nothing else changed.
    On,
    /// Program counter, lanes or frame changed.
    Moved,
    /// It rests where it is.
    Rest,
    /// No lane is left.
    Gone,
}
