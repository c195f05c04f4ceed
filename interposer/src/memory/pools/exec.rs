// SPDX-License-Identifier: Apache-2.0
//! Executable graphs with allocations, by handle.

use partage_records::Entry;
use partage_records::graph::{DEVICES, Need, Needs};

/// An executable graph that takes memory when it is launched.
#[derive(Clone, Copy)]
pub struct Exec {
    /// Its handle.
    pub handle: u64,
    /// What a launch takes at most.
    pub needs: Needs,
    /// What graphs had reserved on each of these devices after the last launch; 0 before the first.
    pub reserved: [u64; DEVICES],
    /// It has grown when it was not expected to.
    pub is_unsteady: bool,
}

impl Entry for Exec {
    const NONE: Self = Self {
        handle: 0,
        needs: [Need { ordinal: 0, bytes: 0 }; DEVICES],
        reserved: [0; DEVICES],
        is_unsteady: false,
    };
    fn key(&self) -> u64 {
        self.handle
    }
}
