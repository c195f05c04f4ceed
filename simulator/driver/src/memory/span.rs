// SPDX-License-Identifier: Apache-2.0
//! Addresses of graphs, and what allocation nodes ask for.

use std::sync::{Arc, Mutex, Weak};

use partage_abi::types::{CuMemAccessDesc, CuMemPoolProps, CuResult};

use super::lock::lock;
use super::space::LARGE_PAGE;
use super::windows::{Windows, windows};
use crate::state::Answer;

/// Addresses of one graph.
#[derive(Debug)]
pub struct Span {
    pub(super) device: usize,
    /// Where it is in the space.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The slab behind it, or that will be when what was launched so far has run.
    pub(super) slab: Mutex<Option<u64>>,
    /// Lives as long as the instantiated graph that uses it.
    lease: Mutex<Weak<()>>,
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Ok(windows) = windows() {
            windows.give_managed(self.offset, self.bytes);
        }
    }
}

impl Span {
    /// Takes addresses for so many bytes of a device.
    pub(super) fn new(windows: &Windows, device: usize, cost: u64) -> Answer<Arc<Self>> {
        let bytes = cost
            .checked_next_multiple_of(LARGE_PAGE)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        Ok(Arc::new(Self {
            device,
            offset: windows.take_managed(bytes)?,
            bytes,
            slab: Mutex::default(),
            lease: Mutex::default(),
        }))
    }

    /// An instantiated graph uses it as long as `lease` lives.
    pub fn set_lease(&self, lease: &Arc<()>) {
        *lock(&self.lease) = Arc::downgrade(lease);
    }

    /// Whether an instantiated graph uses it.
    pub(super) fn has_lease(&self) -> bool {
        lock(&self.lease).strong_count() > 0
    }

    /// Whether a slab is behind it.
    pub(super) fn has_slab(&self, slab: u64) -> bool {
        *lock(&self.slab) == Some(slab)
    }
}

/// What an allocation node is asked for with.
pub struct Wish {
    /// The machine device.
    pub device: usize,
    /// That device as the program numbers it.
    pub ordinal: i32,
    /// Bytes.
    pub bytes: u64,
    /// Whose kernels reach it, one bit per machine device.
    pub reach: u32,
    /// As asked for.
    pub properties: CuMemPoolProps,
    /// As asked for.
    pub access: Vec<CuMemAccessDesc>,
}

/// A span, and the parts of it that are in use: start and end.
pub type Occupied = (Arc<Span>, Vec<(u64, u64)>);
