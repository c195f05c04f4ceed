// SPDX-License-Identifier: Apache-2.0
//! What the driver says of a source: how much it holds, and how much of that programs use.

use core::ffi::c_void;

use partage_abi::types::{CuMemoryPool, CuResult};
use partage_abi::values::{
    CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
};

use super::table::{Kind, Source};
use crate::real::call;
use crate::real::{self, Library};

/// What a driver said about a pool.
pub enum Reading {
    /// Bytes.
    Bytes(u64),
    /// There is no such pool any more.
    Gone,
    /// It did not say.
    Unknown,
}

impl Source {
    /// A pool by its handle.
    pub fn pool(real: &Library, pool: CuMemoryPool) -> Self {
        Self::of(real, Kind::Pool, pool.0 as u64)
    }

    /// The memory of graphs on a device.
    pub fn graph(real: &Library, ordinal: i32) -> Self {
        Self::of(real, Kind::Graph, ordinal as u64)
    }

    fn of(real: &Library, kind: Kind, number: u64) -> Self {
        Self {
            kind,
            number,
            is_second: core::ptr::eq(real, &raw const real::SECOND_DRIVER),
        }
    }

    /// Its driver.
    pub fn library(&self) -> &'static Library {
        if self.is_second {
            &real::SECOND_DRIVER
        } else {
            &real::DRIVER
        }
    }

    /// Bytes that it holds of its device.
    pub fn reserved(&self) -> Reading {
        self.read(
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        )
    }

    /// Bytes of those that programs hold. `None`: the driver did not say.
    pub fn used(&self) -> Option<u64> {
        match self.read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) {
            Reading::Bytes(bytes) => Some(bytes),
            Reading::Gone | Reading::Unknown => None,
        }
    }

    /// Bytes that it holds and nobody uses, while it holds no more than is charged for it.
    pub fn idle_of(&self, charged: u64) -> u64 {
        match (self.reserved(), self.used()) {
            (Reading::Bytes(reserved), Some(used)) if reserved <= charged => reserved.saturating_sub(used),
            _ => 0,
        }
    }

    fn read(&self, of_pool: i32, of_graph: i32) -> Reading {
        let mut bytes = 0_u64;
        let into: *mut c_void = (&raw mut bytes).cast();
        let result = match self.kind {
            Kind::Pool => call!(self.library(), cuMemPoolGetAttribute(self.handle(), of_pool, into)),
            Kind::Graph => call!(
                self.library(),
                cuDeviceGetGraphMemAttribute(self.number as i32, of_graph, into)
            ),
        };
        if result.is_success() {
            Reading::Bytes(bytes)
        } else if self.kind == Kind::Pool && (result == CuResult::INVALID_VALUE || result == CuResult::INVALID_HANDLE) {
            Reading::Gone
        } else {
            Reading::Unknown
        }
    }

    /// Has the driver give back what nobody uses.
    pub fn trim(&self) {
        // A driver that refuses has given nothing back, which the next reading shows.
        let _ = match self.kind {
            Kind::Pool => call!(self.library(), cuMemPoolTrimTo(self.handle(), 0)),
            Kind::Graph => call!(self.library(), cuDeviceGraphMemTrim(self.number as i32)),
        };
    }

    fn handle(&self) -> CuMemoryPool {
        CuMemoryPool(self.number as *mut c_void)
    }
}
