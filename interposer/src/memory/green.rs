// SPDX-License-Identifier: Apache-2.0
//! Which contexts are green contexts that were converted: their memory is the primary context's.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use partage_abi::types::CuDevice;

/// Converted contexts at a time. A device has no use for more green contexts than it has groups of multiprocessors.
const PLACES: usize = 256;
/// A place holds a handle, a user-space address, and above it the device's ordinal plus one.
const HANDLE_BITS: u32 = 48;
const HANDLE: u64 = (1 << HANDLE_BITS) - 1;

/// The converted contexts of this process. All-zero memory is "none".
pub struct Green {
    places: [AtomicU64; PLACES],
    /// Places that were ever in use.
    used: AtomicUsize,
}

impl Green {
    /// The context whose end frees what is allocated in `context`.
    ///
    /// `primary` is the primary context of each ordinal, 0 where the program did not retain it.
    pub fn home(&self, primary: &[AtomicU64], context: u64) -> u64 {
        if self.used.load(Ordering::Acquire) == 0 {
            return context;
        }
        self.place_of(context).map_or(context, |place| {
            let ordinal = (place.load(Ordering::Relaxed) >> HANDLE_BITS).saturating_sub(1);
            // A primary context that nobody knows: the record stays until the process ends.
            let primary = primary.get(ordinal as usize);
            primary.map_or(0, |primary| primary.load(Ordering::Relaxed))
        })
    }

    /// The handle is another context's, or nobody's, from now on.
    pub fn forget(&self, context: u64) {
        if let Some(place) = self.place_of(context) {
            place.store(0, Ordering::Release);
        }
    }

    /// Is it a converted one?
    pub fn is_converted(&self, context: u64) -> bool {
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
