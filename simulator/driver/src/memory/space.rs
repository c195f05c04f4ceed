// SPDX-License-Identifier: Apache-2.0
//! The addresses: one reservation of twice the length of all windows. The lower half is what programs see and stays
//! without any access, so that the CPU faults on it as on a real device pointer; only where the program maps host
//! memory and asks for access does it get any. The upper half is where the driver maps the same bytes.
//!
//! The layout of the lower half is the windows of the devices in order, then the window for addresses that programs
//! manage themselves (`cuMemAddressReserve`, imported memory).

use std::fs::File;
use std::os::fd::AsRawFd;

use partage_abi::types::CuResult;
use partage_machine::Device;

use crate::state::Answer;

/// Alignment of windows and of large allocations: the page size of the device's address translation.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Lengths of the window that programs manage themselves, of which the first is taken that there is room for: a program
/// with a sanitizer has not many addresses left.
const MANAGED_WINDOWS: [u64; 3] = [1 << 40, 1 << 38, 1 << 36];

/// One window, as offsets from the start of the space.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its start.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The reserved addresses.
#[derive(Debug)]
pub struct Space {
    base: u64,
    half: u64,
    windows: Vec<Window>,
}

impl Space {
    /// Reserves the addresses for these devices. OUT_OF_MEMORY when the process may not have them (`ulimit -v`).
    pub fn reserve(devices: &[Device]) -> Answer<Self> {
        let reserved = MANAGED_WINDOWS
            .iter()
            .find_map(|bytes| Self::reserve_with(devices, *bytes));
        reserved.ok_or(CuResult::OUT_OF_MEMORY)
    }

    fn reserve_with(devices: &[Device], managed: u64) -> Option<Self> {
        let mut start = 0;
        let mut windows = Vec::new();
        for device in devices {
            // Twice the memory: holes between allocations never make a device look full.
            let bytes = (device.memory.max(1 << 30) * 2).next_multiple_of(LARGE_PAGE);
            windows.push(Window { start, bytes });
            start += bytes;
        }
        windows.push(Window { start, bytes: managed });
        let half = start + managed;
        let length = (half * 2 + LARGE_PAGE) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh reservation without access, kept for the life of the process.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        // A child has no device memory: its addresses mean nothing there.
        // SAFETY: the reservation just made.
        unsafe { libc::madvise(at, length, libc::MADV_DONTFORK) };
        Some(Self {
            base: (at as u64).next_multiple_of(LARGE_PAGE),
            half,
            windows,
        })
    }

    /// The window of a device.
    pub fn window(&self, device: usize) -> Window {
        self.windows[device]
    }

    /// The window for addresses that programs manage.
    pub fn managed_window(&self) -> Window {
        self.windows[self.windows.len() - 1]
    }

    /// The visible address at an offset.
    pub fn visible(&self, offset: u64) -> u64 {
        self.base + offset
    }

    /// The offset of a visible address; `None` when it is not one.
    pub fn offset(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.base).filter(|offset| *offset < self.half)
    }

    /// Whether an address is one of either half.
    pub fn holds(&self, address: u64) -> bool {
        let half = self.half.saturating_mul(2);
        address.checked_sub(self.base).is_some_and(|offset| offset < half)
    }

    /// Where the driver reaches the byte at an offset.
    pub fn alias(&self, offset: u64) -> *mut u8 {
        (self.base + self.half + offset) as *mut u8
    }

    /// Lets the driver reach `bytes` of `file`, from `from` on, at the alias of `offset`. All multiples of a page.
    pub fn map(&self, offset: u64, file: &File, from: u64, bytes: u64) -> Answer {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces a part of our own reservation, whose old content nobody uses.
        let at = unsafe {
            libc::mmap(
                self.alias(offset).cast(),
                bytes as usize,
                protection,
                flags,
                file.as_raw_fd(),
                from as i64,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(at, bytes as usize, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Puts private memory, all zero, at the alias of `offset`. Both multiples of a page.
    pub fn own(&self, offset: u64, bytes: u64) -> Answer {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces a part of our own reservation, whose old content nobody uses.
        unsafe {
            let at = libc::mmap(self.alias(offset).cast(), bytes as usize, protection, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(CuResult::OUT_OF_MEMORY);
            }
            libc::madvise(at, bytes as usize, libc::MADV_DONTFORK);
        }
        Ok(())
    }

    /// Takes the driver's access to `bytes` at the alias of `offset` away again.
    pub fn unmap(&self, offset: u64, bytes: u64) {
        self.clear(self.alias(offset), bytes);
    }

    fn clear(&self, at: *mut u8, bytes: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: puts the bare reservation back over a mapping of ours.
        unsafe {
            let at = libc::mmap(at.cast(), bytes as usize, libc::PROT_NONE, flags, -1, 0);
            if at != libc::MAP_FAILED {
                libc::madvise(at, bytes as usize, libc::MADV_DONTFORK);
            }
        }
    }

    /// Lets the program's CPU code reach the same bytes at the visible address: host memory is its own too.
    pub fn show(&self, offset: u64, file: &File, from: u64, bytes: u64, is_writable: bool) -> Answer {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: replaces a part of the lower half that a mapping of host memory of the program covers.
        let at = unsafe {
            libc::mmap(
                self.visible(offset) as *mut libc::c_void,
                bytes as usize,
                protection,
                flags,
                file.as_raw_fd(),
                from as i64,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(at, bytes as usize, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Takes the CPU code's access to `bytes` at a visible address away again.
    pub fn hide(&self, offset: u64, bytes: u64) {
        self.clear(self.visible(offset) as *mut u8, bytes);
    }

    /// Gives the blocks behind `start..end` (offsets of whole pages, mapped) back to the file system. They read zero.
    pub fn punch(&self, start: u64, end: u64) {
        if start < end {
            // SAFETY: a part of a shared file mapping of ours that no live allocation covers. A file system without
            // holes keeps the blocks; nothing depends on their going.
            unsafe { libc::madvise(self.alias(start).cast(), (end - start) as usize, libc::MADV_REMOVE) };
        }
    }
}
