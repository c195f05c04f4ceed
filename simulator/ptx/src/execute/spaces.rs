// SPDX-License-Identifier: Apache-2.0
//! The memory of a running warp: which space an address lies in, and where that is.

use crate::memory::{DeviceMemory, Region};

/// Start of the window of shared memory among generic addresses.
pub const SHARED_WINDOW: u64 = 1 << 56;
/// Start of the window of local memory.
pub const LOCAL_WINDOW: u64 = 2 << 56;
/// Start of the window of kernel parameters.
pub const PARAM_WINDOW: u64 = 3 << 56;
/// Addresses of functions, `x16` apart.
pub const FUNCTION_WINDOW: u64 = 4 << 56;

/// Recently used regions that are looked at before the launcher is asked.
const CACHED: usize = 8;

/// Memory of the running warp.
pub struct Spaces {
    /// Recently used regions of device memory.
    cache: [Region; CACHED],
    /// The entry that is replaced next.
    victim: usize,
    /// Device memory.
    device: *const (dyn DeviceMemory + 'static),
    /// Shared memory of the block.
    pub shared: *mut u8,
    /// Its length.
    pub shared_bytes: u64,
    /// Local memory of lane 0; the other lanes follow.
    pub local: *mut u8,
    /// Local memory of one lane in bytes.
    pub local_bytes: u64,
    /// Parameters of the kernel.
    pub parameters: *const u8,
    /// Their length.
    pub parameter_bytes: u64,
}

impl Spaces {
    /// Spaces without block or warp. The device memory must outlive the value.
    pub fn new(device: &dyn DeviceMemory, parameters: &[u8]) -> Self {
        // SAFETY: only the lifetime changes; `Spaces` lives in the worker, which ends before the launch returns.
        let device = unsafe {
            std::mem::transmute::<*const (dyn DeviceMemory + '_), *const (dyn DeviceMemory + 'static)>(device)
        };
        Self {
            cache: [Region::EMPTY; CACHED],
            victim: 0,
            device,
            shared: std::ptr::null_mut(),
            shared_bytes: 0,
            local: std::ptr::null_mut(),
            local_bytes: 0,
            parameters: parameters.as_ptr(),
            parameter_bytes: parameters.len() as u64,
        }
    }

    /// Device memory from a remembered region, or else from the launcher.
    #[inline(always)]
    pub fn device(&mut self, address: u64, bytes: u64) -> Option<*mut u8> {
        for region in &self.cache {
            if let Some(host) = region.locate(address, bytes) {
                return Some(host);
            }
        }
        self.device_uncached(address, bytes)
    }

    #[cold]
    fn device_uncached(&mut self, address: u64, bytes: u64) -> Option<*mut u8> {
        // SAFETY: the launcher's memory outlives the launch.
        let region = unsafe { (*self.device).region(address)? };
        self.cache[self.victim] = region;
        self.victim = (self.victim + 1) % CACHED;
        region.locate(address, bytes)
    }

    /// Where a lane's access lands.
    #[inline(always)]
    pub fn locate<S: SpaceTag>(&mut self, address: u64, lane: usize, bytes: u64) -> Option<*mut u8> {
        let within = |offset: u64, limit: u64| offset < limit && bytes <= limit - offset;
        match S::SPACE {
            SHARED => within(address, self.shared_bytes).then(|| self.shared.wrapping_add(address as usize)),
            LOCAL => within(address, self.local_bytes).then(|| {
                self.local
                    .wrapping_add(lane * self.local_bytes as usize + address as usize)
            }),
            PARAM => {
                within(address, self.parameter_bytes).then(|| self.parameters.cast_mut().wrapping_add(address as usize))
            }
            GENERIC if address >= SHARED_WINDOW => match address >> 56 {
                1 => self.locate::<Shared>(address - SHARED_WINDOW, lane, bytes),
                2 => self.locate::<Local>(address - LOCAL_WINDOW, lane, bytes),
                3 => self.locate::<Param>(address - PARAM_WINDOW, lane, bytes),
                _ => None,
            },
            _ => self.device(address, bytes),
        }
    }
}

/// Number of the space of generic addresses.
pub const GENERIC: u8 = 0;
/// Number of global memory.
pub const GLOBAL: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 3;
const PARAM: u8 = 4;

/// A state space as a type, so that each has its own handlers.
pub trait SpaceTag {
    /// Which.
    const SPACE: u8;
}
macro_rules! spaces {
    ($($(#[$doc:meta])* $name:ident = $space:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl SpaceTag for $name {
            const SPACE: u8 = $space;
        }
    )*};
}
spaces! {
    /// Generic addresses.
    Generic = GENERIC;
    /// Global and constant memory.
    Global = GLOBAL;
    /// Shared memory.
    Shared = SHARED;
    /// Local memory.
    Local = LOCAL;
    /// Kernel parameters.
    Param = PARAM;
}
