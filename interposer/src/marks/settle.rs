// SPDX-License-Identifier: Apache-2.0
//! The ends of batches that the program's own waits, questions and destructions ask for.

use core::sync::atomic::Ordering;

use partage_abi::types::{CuGraphExec, CuResult, CuStream};
use partage_protocol::gate::LANES;

use super::book::{self, ORPHAN, REFUSED, UNKNOWN};
use super::lane::Side;
use super::name::Name;
use super::timers;
use crate::attachment;
use crate::devices;
use crate::guard;
use crate::guest::errno;
use crate::real::Library;
use crate::state::{self, State};
use crate::stream;
use crate::stream::work::graph_name;
use crate::stream::{StreamName, device_of, is_captured};

/// An executable graph does something else from now on, or is gone.
pub fn graph_changed(exec: CuGraphExec) {
    if let Some(books) = book::marking() {
        books.lengths.forget(graph_name(exec));
    }
}

/// Ends the batch of marks in a stream that the program is about to wait for, ask for, or have others wait for. Called
/// in the outermost hook only.
#[inline]
pub fn settle(real: &Library, handle: CuStream, is_per_thread: bool) {
    if book::marking().is_some() {
        settle_handle(real, StreamName { handle, is_per_thread });
    }
}

#[cold]
#[inline(never)]
fn settle_handle(real: &Library, stream: StreamName) {
    if let Some(state) = state::get() {
        errno::preserving(|| settle_stream(state, real, stream));
    }
}

/// The program is about to wait for a stream, to ask for it, or to have others wait: what was launched there so far
/// gets its mark.
#[cold]
#[inline(never)]
pub fn settle_stream(state: &'static State, real: &Library, stream: StreamName) {
    if is_captured(state, real, stream) {
        return;
    }
    let name = Name::of(real, stream);
    each_side(state, |side| {
        if side.own.owner.load(Ordering::Relaxed) == name.key {
            side.end(real);
        }
    });
}

/// As [`settle_stream`], for every stream that this thread may mark: while nothing was captured in this process, any;
/// later only those into which it launched last itself, because another thread may be capturing its own.
#[cold]
#[inline(never)]
pub fn settle_all(state: &'static State, real: &Library) {
    let was_captured = stream::was_captured(state);
    each_side(state, |side| {
        let own = side.own;
        let is_mine = own.launcher.load(Ordering::Relaxed) == guard::thread_key();
        // Another thread's default stream cannot be named here.
        let is_nameable = is_mine || !(was_captured || side.is_per_thread());
        if is_nameable && !(was_captured && is_captured(state, real, side.stream())) {
            side.end(real);
        }
    });
}

/// What a synchronisation waits for, between its two moments.
pub struct Settled {
    /// The launches without a lane that had been counted before, and on which device.
    unlaned: Option<(&'static State, usize, u64)>,
}

impl Settled {
    /// Before the driver is called: ends the batches in what it waits for, a stream or the current context.
    #[inline]
    pub fn begin(real: &Library, waited_for: Option<StreamName>) -> Self {
        match book::marking().and_then(|_| state::get()) {
            Some(state) => errno::preserving(|| Self::settle(state, real, waited_for)),
            None => Self { unlaned: None },
        }
    }

    #[cold]
    #[inline(never)]
    fn settle(state: &'static State, real: &Library, waited_for: Option<StreamName>) -> Self {
        match waited_for {
            Some(stream) => settle_stream(state, real, stream),
            None => settle_all(state, real),
        }
        let unlaned = || {
            let stream = waited_for.unwrap_or(StreamName::plain(CuStream::NULL));
            let device = devices::slot_of_device(state, real, device_of(state, real, stream)?)?;
            let key = book::get()?.devices.get(device)?.unlaned.load(Ordering::Relaxed);
            let waits_for_all = waited_for.is_none_or(|stream| Name::of(real, stream).key == key);
            let count = attachment::of(state)
                .client_file()?
                .time
                .devices
                .get(device)?
                .unlaned
                .load(Ordering::Acquire);
            (key != 0 && waits_for_all).then_some((state, device, count))
        };
        Self { unlaned: unlaned() }
    }

    /// It has waited.
    #[inline]
    pub fn end(self, result: CuResult) {
        if let Some((state, device, count)) = self.unlaned.filter(|_| result.is_success())
            && let (Some(file), Some(book)) = (
                attachment::of(state).client_file(),
                book::get().and_then(|books| books.devices.get(device)),
            )
            && let Some(page) = file.time.devices.get(device)
        {
            page.unlaned_ended.fetch_max(count, Ordering::AcqRel);
            if page.unlaned.load(Ordering::Acquire) == count {
                book.unlaned.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// A stream is about to be destroyed or captured: its lane ends with what is in it.
pub fn orphan(real: &Library, stream: StreamName) {
    if let Some(state) = book::marking().and_then(|_| state::get()) {
        errno::preserving(|| leave_lane(state, real, stream));
    }
}

#[cold]
#[inline(never)]
fn leave_lane(state: &'static State, real: &Library, stream: StreamName) {
    let name = Name::of(real, stream);
    each_side(state, |side| {
        if side.own.owner.load(Ordering::Relaxed) == name.key {
            if !is_captured(state, real, stream) {
                side.end(real);
            }
            side.own.owner.store(ORPHAN, Ordering::Release);
        }
    });
}

/// A context is gone, and with it its work and perhaps the registration of the page.
pub fn context_ended(state: &State, context: u64) {
    let (Some(file), Some(books)) = (attachment::of(state).client_file(), book::get()) else {
        return;
    };
    for (book, page) in books.devices.iter().zip(&file.time.devices) {
        if book.registered_in.load(Ordering::Relaxed) == context {
            book.registered_in.store(0, Ordering::Relaxed);
            book.address.store(UNKNOWN, Ordering::Release);
        }
        timers::forget(&book.timers, context);
        for side in (0..LANES).filter_map(|lane| book.side(page, lane, 0)) {
            let own = side.own;
            if own.owner.load(Ordering::Relaxed) != 0 && own.context.load(Ordering::Relaxed) == context {
                side.write_off();
                own.owner.store(ORPHAN, Ordering::Release);
            }
        }
    }
}

/// No device is to write into our pages any more: their registration ends, until the next mark needs one. A batch that
/// has no end yet gets one only then.
pub fn let_go(real: &Library) {
    let (Some(file), Some(books)) = (
        state::get().and_then(|state| attachment::of(state).client_file()),
        book::marking(),
    ) else {
        return;
    };
    for (book, page) in books.devices.iter().zip(&file.time.devices) {
        book.let_go(real, page);
    }
}

/// Shows every lane that somebody has on a device whose page is registered.
fn each_side(state: &'static State, mut show: impl FnMut(Side<'_>)) {
    let (Some(file), Some(books)) = (attachment::of(state).client_file(), book::get()) else {
        return;
    };
    for (book, page) in books.devices.iter().zip(&file.time.devices) {
        let address = book.address.load(Ordering::Acquire);
        if address <= REFUSED {
            continue;
        }
        for lane in 0..LANES {
            if let Some(side) = book.side(page, lane, address)
                && side.own.owner.load(Ordering::Relaxed) != 0
            {
                show(side);
            }
        }
    }
}
