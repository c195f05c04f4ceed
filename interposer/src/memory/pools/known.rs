// SPDX-License-Identifier: Apache-2.0
//! Memory that a pool is known to hold, so that a call that gets it again need not ask the driver.

use partage_protocol::pool::GRANULE;

use crate::guest::sys;

/// What is known of one pool. All-zero memory is "nothing".
#[derive(Clone, Copy)]
pub struct Blocks {
    /// A page of [`Known`]; null before the first.
    page: *mut Known,
    /// Which of them count: 1 to 511, and 0 before the first.
    since: u64,
    /// Blocks that streams freed a moment ago; none with 0 bytes.
    freed: [Freed; FREED],
}

/// A block that a stream freed: the driver hands it to the same stream again, before the free has happened, and no
/// other call has come in between. It is one that its pool is known to hold.
#[derive(Clone, Copy)]
pub struct Freed {
    /// Its stream, never a thread's default one, of which there are many.
    pub stream: u64,
    /// Its address.
    pub address: u64,
    /// Its length in bytes, at least.
    pub bytes: u64,
}

impl Freed {
    /// No block.
    const NONE: Self = Self {
        stream: 0,
        address: 0,
        bytes: 0,
    };
}

/// Blocks remembered for each pool.
const FREED: usize = 4;

/// Memory that a pool handed out, and holds as long as no reading shows it to be smaller: an address, and in one word
/// the bytes that were allocated there last (a multiple of 512) and when that was.
#[repr(C)]
struct Known {
    address: u64,
    bytes_and_since: u64,
}

const PAGE: usize = 4096;
const KNOWN: usize = PAGE / size_of::<Known>();
const SINCE: u64 = GRANULE - 1;

impl Blocks {
    /// Nothing is known.
    pub const NONE: Self = Self {
        page: core::ptr::null_mut(),
        since: 0,
        freed: [Freed::NONE; FREED],
    };

    /// What streams freed they may not get again.
    pub fn forget_freed(&mut self) {
        self.freed = [Freed::NONE; FREED];
    }

    /// A block that a stream was said to free is still held.
    pub fn never_freed(&mut self, address: u64) {
        for freed in &mut self.freed {
            if freed.address == address {
                *freed = Freed::NONE;
            }
        }
    }

    /// The pool is gone.
    pub fn give_back(&mut self) {
        // Whoever goes through all places must not find what belonged to a pool that is gone.
        self.forget_freed();
        let page = core::mem::replace(&mut self.page, core::ptr::null_mut());
        if !page.is_null() {
            // SAFETY: the entry's page, which nothing leads to any more.
            unsafe { sys::unmap(page.cast(), PAGE) };
        }
    }

    fn place(&mut self, address: u64) -> Option<&mut Known> {
        // Fibonacci hashing: the low bits of addresses are all zero.
        let index = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % KNOWN;
        // SAFETY: null, or a page of this entry's, within it, which this entry alone leads to.
        unsafe { (!self.page.is_null()).then(|| &mut *self.page.add(index)) }
    }

    /// Does the pool hold these bytes as of its last reading? If so, they are what is allocated there now.
    pub fn knows(&mut self, address: u64, bytes: u64) -> bool {
        let since = self.since;
        let found = self.place(address).filter(|known| {
            known.address == address
                && known.bytes_and_since & SINCE == since
                && known.bytes_and_since & !SINCE >= bytes
        });
        let Some(place) = found else { return false };
        place.bytes_and_since = bytes & !SINCE | since;
        true
    }

    /// Remembers bytes that the pool holds as of its last reading.
    pub fn know(&mut self, address: u64, bytes: u64) {
        if self.page.is_null() {
            // Without memory for it, every call reads.
            self.page = sys::map_private(PAGE).map_or(core::ptr::null_mut(), <*mut core::ffi::c_void>::cast);
            self.since = 1;
            if !self.page.is_null() {
                sys::advise(self.page.cast(), PAGE, libc::MADV_DONTFORK);
            }
        }
        let since = self.since;
        if let Some(place) = self.place(address) {
            *place = Known {
                address,
                bytes_and_since: bytes & !SINCE | since,
            };
        }
    }

    /// A stream frees a block, if it is one that is known.
    pub fn free(&mut self, stream: u64, address: u64) {
        let since = self.since;
        let Some(bytes) = self
            .place(address)
            .filter(|known| known.address == address)
            .map(|known| known.bytes_and_since)
            .filter(|bytes| bytes & SINCE == since)
        else {
            return;
        };
        if let Some(place) = self.freed.iter_mut().find(|freed| freed.bytes == 0) {
            *place = Freed {
                stream,
                address,
                bytes: bytes & !SINCE,
            };
        }
    }

    /// A block of at least so many bytes that a stream freed and may have again. Whatever else was freed is no longer
    /// certain when there is none: the driver serves the call from wherever it likes.
    pub fn take_freed(&mut self, stream: u64, bytes: u64) -> Option<Freed> {
        let found = self
            .freed
            .iter_mut()
            .filter(|freed| freed.stream == stream && freed.bytes >= bytes)
            .min_by_key(|freed| freed.bytes);
        match found {
            Some(place) => {
                let freed = core::mem::replace(place, Freed::NONE);
                self.knows(freed.address, bytes).then_some(freed)
            }
            None => {
                self.freed = [Freed::NONE; FREED];
                None
            }
        }
    }

    /// The pool is smaller than it was.
    pub fn forget(&mut self) {
        self.freed = [Freed::NONE; FREED];
        if self.page.is_null() {
            return;
        }
        self.since += 1;
        if self.since > SINCE {
            // SAFETY: the entry's page, which this entry alone leads to.
            unsafe { core::ptr::write_bytes(self.page.cast::<u8>(), 0, PAGE) };
            self.since = 1;
        }
    }
}
