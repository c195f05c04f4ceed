// SPDX-License-Identifier: Apache-2.0
//! How many blocks of a kernel a multiprocessor holds at once: pure arithmetic on what both have.

use partage_machine::Device;

use crate::function::Function;

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Threads of one.
    pub threads: u32,
    /// Blocks of one.
    pub blocks: u32,
    /// Shared memory of one in bytes.
    pub shared: u32,
    /// Shared memory that the system takes for each block in bytes.
    pub reserved: u32,
    /// Registers of one.
    pub registers: u32,
    /// Threads that run together.
    pub warp: u32,
}

/// What a block needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Threads.
    pub threads: u32,
    /// Shared memory in bytes, static and dynamic.
    pub shared: u32,
    /// Registers of a thread.
    pub registers: u32,
}

/// Registers are given to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is given in units of this many bytes.
const SHARED_UNIT: u32 = 128;

impl Limits {
    /// Those of a device.
    pub fn of(device: &Device) -> Self {
        let value = |attribute| {
            device
                .attribute(attribute)
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(0)
        };
        // CU_DEVICE_ATTRIBUTE_*: multiprocessors, and per multiprocessor threads, blocks, shared memory, registers.
        Self {
            multiprocessors: value(16),
            threads: value(39),
            blocks: value(106),
            shared: value(81),
            reserved: value(111),
            registers: value(82),
            warp: value(10).max(1),
        }
    }

    /// Blocks that one multiprocessor holds.
    pub fn blocks(&self, demand: &Demand) -> u32 {
        let warps = demand.threads.div_ceil(self.warp);
        if warps == 0 {
            return 0;
        }
        let by_threads = self.threads / self.warp / warps;
        let shared = self.shared_of(demand.shared);
        let by_shared = self.shared.checked_div(shared).unwrap_or(u32::MAX);
        let per_warp = (demand.registers * self.warp).next_multiple_of(REGISTER_UNIT);
        let by_registers = self.registers.checked_div(per_warp * warps).unwrap_or(u32::MAX);
        self.blocks.min(by_threads).min(by_shared).min(by_registers)
    }

    /// The most dynamic shared memory that a block may have for `blocks` of them to fit.
    pub fn dynamic_shared(&self, fixed: u32, blocks: u32) -> u32 {
        let each = self.shared.checked_div(blocks).unwrap_or(0) / SHARED_UNIT * SHARED_UNIT;
        each.saturating_sub(self.reserved).saturating_sub(fixed)
    }

    fn shared_of(&self, bytes: u32) -> u32 {
        bytes
            .saturating_add(self.reserved)
            .div_ceil(SHARED_UNIT)
            .saturating_mul(SHARED_UNIT)
    }
}

impl Demand {
    /// Of a block of a kernel.
    pub fn of(function: &Function, threads: u32, dynamic_shared: u32) -> Self {
        Self {
            threads,
            shared: function.static_shared().saturating_add(dynamic_shared),
            registers: function.registers(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Limits = Limits {
        multiprocessors: 132,
        threads: 2048,
        blocks: 32,
        shared: 233_472,
        reserved: 1024,
        registers: 65_536,
        warp: 32,
    };

    fn blocks(threads: u32, shared: u32, registers: u32) -> u32 {
        H200.blocks(&Demand {
            threads,
            shared,
            registers,
        })
    }

    #[test]
    fn each_resource_limits_in_turn() {
        assert_eq!(blocks(32, 0, 16), 32, "blocks");
        assert_eq!(blocks(1024, 0, 16), 2, "threads");
        assert_eq!(blocks(1000, 0, 16), 2, "whole warps");
        assert_eq!(
            blocks(128, 48 << 10, 16),
            4,
            "shared memory, with what the system takes"
        );
        assert_eq!(blocks(1024, 0, 64), 1, "registers");
        assert_eq!(blocks(1024, 0, 128), 0, "more registers than there are");
        assert_eq!(blocks(0, 0, 16), 0);
    }

    #[test]
    fn dynamic_shared_memory_is_the_most_that_keeps_the_blocks() {
        for count in 1..=16 {
            let bytes = H200.dynamic_shared(1000, count);
            assert!(blocks(64, 1000 + bytes, 16) >= count);
            assert!(blocks(64, 1000 + bytes + SHARED_UNIT, 16) < count || count == 0);
        }
    }
}
