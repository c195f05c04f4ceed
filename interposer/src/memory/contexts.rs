// SPDX-License-Identifier: Apache-2.0
//! In which context memory ends: its own, but for green contexts, whose memory is that of their device's primary one.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use partage_abi::types::CuDevice;

use crate::guest::wiped::Wiped;
use partage_abi::MAX_ORDINALS;

/// Converted contexts at a time. A device has no use for more green contexts than it has groups of multiprocessors.
const PLACES: usize = 256;
/// A place holds a handle, a user-space address, and above it the device's ordinal plus one.
const HANDLE_BITS: u32 = 48;
const HANDLE: u64 = (1 << HANDLE_BITS) - 1;

/// The contexts of this process that others' memory hangs on. All-zero memory is "none".
pub struct Contexts {
    /// The primary context of each ordinal, once the program retained it.
    pub primary: [AtomicU64; MAX_ORDINALS],
    /// Green contexts that were converted.
    places: [AtomicU64; PLACES],
    /// Places that were ever in use.
    used: AtomicUsize,
}

// SAFETY: all-zero memory is a value: atomic numbers, and null.
static CONTEXTS: Wiped<Contexts> = unsafe { Wiped::new() };

/// This process's; `None` when the machine has no page left for them.
pub fn get() -> Option<&'static Contexts> {
    CONTEXTS.get()
}

impl Contexts {
    /// The context whose end frees what is allocated in `context`.
    pub fn home(&self, context: u64) -> u64 {
        if self.used.load(Ordering::Acquire) == 0 {
            return context;
        }
        self.place_of(context).map_or(context, |place| {
            let ordinal = (place.load(Ordering::Relaxed) >> HANDLE_BITS).saturating_sub(1);
            // A primary context that nobody knows: the record stays until the process ends.
            let primary = self.primary.get(ordinal as usize);
            primary.map_or(0, |primary| primary.load(Ordering::Relaxed))
        })
    }

    /// The handle is another context's, or nobody's, from now on.
    pub fn forget(&self, context: u64) {
        if let Some(place) = self.place_of(context) {
            place.store(0, Ordering::Release);
        }
    }

    /// Is it a device's primary context, of those that are known?
    pub fn is_primary(&self, context: u64) -> bool {
        self.primary
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == context)
    }

    /// Is it a green context that was converted?
    pub fn is_green(&self, context: u64) -> bool {
        self.place_of(context).is_some()
    }

    fn place_of(&self, context: u64) -> Option<&AtomicU64> {
        let used = self.used.load(Ordering::Acquire);
        let is_it = |place: &&AtomicU64| {
            let value = place.load(Ordering::Relaxed);
            value != 0 && value & HANDLE == context
        };
        self.places.iter().take(used).find(is_it)
    }

    /// Notes a conversion. `false`: there are too many.
    pub fn note(&self, context: u64, device: CuDevice) -> bool {
        let value = u64::from(device.unsigned_abs() + 1) << HANDLE_BITS | context & HANDLE;
        if let Some(place) = self.place_of(context) {
            place.store(value, Ordering::Release);
            return true;
        }
        let take = |place: &AtomicU64| {
            place
                .compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(index) = self.places.iter().position(take) else {
            return false;
        };
        self.used.fetch_max(index + 1, Ordering::AcqRel);
        true
    }
}
