// SPDX-License-Identifier: Apache-2.0
//! What this process knows of its marks: whose the lanes are, and where the device sees their words.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use partage_abi::types::{CuContext, CuDevicePtr, CuResult};
use partage_abi::values::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE};
use partage_gpu_time::length::Lengths;
use partage_protocol::gate::{self, LANES, MARKS_BYTES, TimePage};
use partage_protocol::message::MAX_DEVICES;

use super::lane::{LaneBook, Side};
use super::name::Name;
use super::timers::{TIMERS, Timer};
use crate::guard;
use crate::guest::lock::Lock;
use crate::guest::wiped::Wiped;
use crate::real::{Library, call};
use crate::state::State;
use crate::stream::relaxed;

/// What a forked child has to find out anew. All-zero memory is "nothing yet".
pub struct Books {
    /// A launch was marked once.
    pub is_marking: AtomicBool,
    /// A device each.
    pub devices: [Book; MAX_DEVICES],
    /// How long units take.
    pub lengths: Lengths,
}

// SAFETY: all-zero memory is a value: atomic numbers, and null.
static BOOKS: Wiped<Books> = unsafe { Wiped::new() };

/// This process's; `None` when the machine has no page left for them.
pub fn get() -> Option<&'static Books> {
    BOOKS.get()
}

/// The same, once a launch was marked.
#[inline]
pub fn marking() -> Option<&'static Books> {
    BOOKS.at_hand().filter(|books| books.is_marking.load(Ordering::Relaxed))
}

/// The owner of a lane whose stream is gone, or will be captured: it belongs to nobody once its work has retired.
pub const ORPHAN: u64 = u64::MAX;

/// What this process knows of the marks on one device. All-zero memory is "none yet".
pub struct Book {
    /// Guards who owns which lane; never held over a call of the driver.
    turn: Lock,
    /// One of the constants below, or where the device sees the page.
    pub address: AtomicU64,
    /// The context in which the page was registered.
    pub registered_in: AtomicU64,
    /// The stream of all launches without a lane since the last synchronisation; 0: none, [`ORPHAN`]: several.
    pub unlaned: AtomicU64,
    /// Launches into all lanes.
    pub entered: AtomicU64,
    pub lanes: [LaneBook; LANES],
    pub timers: [Timer; TIMERS],
}

/// In [`Book::address`]: not registered yet; somebody is at it; the driver will not.
pub const UNKNOWN: u64 = 0;
const BUSY: u64 = 1;
/// There: the driver will not.
pub const REFUSED: u64 = 2;

impl Book {
    /// A launch of a stream has no lane.
    pub fn unlaned_by(&self, key: u64) {
        let former = self.unlaned.load(Ordering::Relaxed);
        let now = if former == 0 || former == key { key } else { ORPHAN };
        self.unlaned.store(now, Ordering::Relaxed);
    }

    /// Where the device sees the page; registers it at the first need.
    pub fn address(&self, state: &State, real: &Library, page: &TimePage, context: u64) -> Option<u64> {
        let known = self.address.load(Ordering::Acquire);
        if known == UNKNOWN
            && self
                .address
                .compare_exchange(UNKNOWN, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            let found = relaxed(state, real, || register(real, page));
            self.registered_in.store(context, Ordering::Relaxed);
            self.address.store(found.unwrap_or(REFUSED), Ordering::Release);
            return found;
        }
        (known > REFUSED).then_some(known)
    }

    /// Ends the registration of the page, once what writes to it is done.
    pub fn let_go(&self, real: &Library, page: &TimePage) {
        if self.address.load(Ordering::Acquire) <= REFUSED {
            return;
        }
        let mut context = CuContext(self.registered_in.load(Ordering::Relaxed) as *mut c_void);
        if !call!(real, cuCtxPushCurrent_v2(context)).is_success() {
            return;
        }
        let _ = call!(real, cuCtxSynchronize());
        let memory = core::ptr::from_ref(page).cast_mut().cast();
        if call!(real, cuMemHostUnregister(memory)).is_success() {
            self.registered_in.store(0, Ordering::Relaxed);
            self.address.store(UNKNOWN, Ordering::Release);
        }
        let _ = call!(real, cuCtxPopCurrent_v2(&raw mut context));
    }

    /// Finds the lane of a stream, or gives it one, and counts a launch into it. `None`: work is in flight in all.
    pub fn enter(&self, page: &TimePage, name: &Name) -> Option<usize> {
        let _turn = self.turn.hold();
        let owner = |lane: &LaneBook| lane.owner.load(Ordering::Relaxed);
        let own = self.lanes.iter().position(|lane| owner(lane) == name.key);
        let index = own.or_else(|| {
            let index = self.lanes.iter().zip(&page.lanes).position(|(own, lane)| {
                owner(own) == 0 || !lane.is_in_flight() && own.marker.load(Ordering::Acquire) == 0
            })?;
            self.lanes.get(index)?.give(name);
            Some(index)
        })?;
        let (own, lane) = (self.lanes.get(index)?, page.lanes.get(index)?);
        lane.stream
            .store((name.stream.handle.0 as u64).wrapping_add(1), Ordering::Relaxed);
        lane.unmarked.fetch_add(1, Ordering::AcqRel);
        own.entered.fetch_add(1, Ordering::AcqRel);
        self.entered.fetch_add(1, Ordering::AcqRel);
        own.launcher.store(guard::thread_key(), Ordering::Relaxed);
        Some(index)
    }

    /// Adds work to what was given to a lane. Answers what had been given before. Threads that launch into one stream
    /// take turns.
    pub fn count(&self, side: &Side<'_>, work: gate::Work) -> gate::Work {
        let _turn = self.turn.hold();
        let before = side.own.total.read();
        side.own.total.write(before.plus(work));
        before
    }

    /// Both sides of a lane.
    pub fn side<'a>(&'a self, page: &'a TimePage, index: usize, address: u64) -> Option<Side<'a>> {
        let (own, lane, ends) = (self.lanes.get(index)?, page.lanes.get(index)?, page.ends.get(index)?);
        let offset = (core::ptr::from_ref(lane) as u64).wrapping_sub(core::ptr::from_ref(page) as u64);
        Some(Side {
            own,
            lane,
            ends,
            address: address.wrapping_add(offset),
        })
    }
}

fn register(real: &Library, page: &TimePage) -> Option<u64> {
    let memory = core::ptr::from_ref(page).cast_mut().cast();
    let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    let mut address: CuDevicePtr = 0;
    let result = call!(real, cuMemHostRegister_v2(memory, MARKS_BYTES, flags));
    // An earlier context may have left it registered.
    if !result.is_success() && result != CuResult::HOST_MEMORY_ALREADY_REGISTERED {
        return None;
    }
    call!(real, cuMemHostGetDevicePointer_v2(&raw mut address, memory, 0))
        .is_success()
        .then_some(address)
        .filter(|address| *address > REFUSED)
}
