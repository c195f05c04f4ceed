// SPDX-License-Identifier: Apache-2.0
//! The device memory a kernel may touch, as the launcher presents it.

/// One contiguous piece of accessible device memory.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First device address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Where the interpreter reaches the byte at `address`.
    pub host: *mut u8,
}

impl Region {
    /// A region that contains no address.
    pub const EMPTY: Self = Self {
        address: 0,
        bytes: 0,
        host: std::ptr::null_mut(),
    };

    /// Where the interpreter reaches `bytes` bytes at `address`, if this region holds all of them.
    #[inline(always)]
    pub fn locate(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.address);
        // SAFETY: the offset lies inside the region, which is one mapping.
        (offset < self.bytes && bytes <= self.bytes - offset).then(|| unsafe { self.host.add(offset as usize) })
    }
}

/// Device memory during a launch. A region once handed out stays accessible until the launch returns.
pub trait DeviceMemory: Sync {
    /// The live allocation that contains `address`.
    fn region(&self, address: u64) -> Option<Region>;

    /// Where the interpreter reaches `bytes` bytes at `address`; `None` unless one allocation holds all of them.
    fn resolve(&self, address: u64, bytes: u64) -> Option<*mut u8> {
        self.region(address)?.locate(address, bytes)
    }
}
