// SPDX-License-Identifier: Apache-2.0
//! Descriptors that we keep inside a program which does not know of them.
//!
//! They get high numbers (a program counts on the low ones: shells reuse 10, daemons close 3 to 20), are close-on-exec,
//! and are compared with what they were before each use: a program that closes every descriptor it does not know may
//! since have opened a file of its own under our number.

use core::ffi::c_int;

use crate::guest::sys;

/// Where we would like our descriptors: above what programs use, below `FD_SETSIZE`, so that the kernel's table stays
/// small.
const PREFERRED: u64 = 900;

/// One kept descriptor. All-zero memory is "none": we never keep 0, 1 or 2.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Kept {
    fd: c_int,
    device: u64,
    inode: u64,
}

impl Kept {
    /// None.
    pub const NONE: Self = Self {
        fd: 0,
        device: 0,
        inode: 0,
    };

    /// Takes over `fd`: moves it to a high number and remembers what it refers to. `None`, with `fd` closed, when
    /// there is no place for it.
    pub fn take(fd: c_int) -> Option<Self> {
        let limit = sys::descriptor_limit();
        let minimum = PREFERRED.min(limit / 4 * 3).max(3) as c_int;
        let moved = sys::duplicate_above(fd, minimum);
        let kept = match c_int::try_from(moved) {
            Ok(high) if high > 2 => {
                sys::close(fd);
                high
            }
            _ if fd > 2 => fd,
            _ => {
                sys::close(fd);
                return None;
            }
        };
        let (device, inode) = sys::identity(kept)?;
        Some(Self {
            fd: kept,
            device,
            inode,
        })
    }

    /// The number, if it still refers to what was kept.
    pub fn fd(&self) -> Option<c_int> {
        (self.fd > 2 && sys::identity(self.fd) == Some((self.device, self.inode))).then_some(self.fd)
    }

    /// Closes it, unless the number is no longer ours, and forgets it.
    pub fn close(&mut self) {
        if let Some(fd) = self.fd() {
            sys::close(fd);
        }
        *self = Self::NONE;
    }
}
