// SPDX-License-Identifier: Apache-2.0
//! The dispatcher between real pages and the real scheduler, with a clock and a kernel of the test's own.

mod gates;
mod reports;
mod sampling;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_protocol::gate::OPEN;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};
use partage_scheduling::Terms;

use super::gates::Dispatcher;
use super::kernel::Kernel;
use super::message::{Joined, Message};
use crate::state::pages::PagePair;

pub const MS: u64 = 1_000_000;
pub const DEVICE: DeviceUuid = DeviceUuid {
    is_mig: false,
    bytes: [7; 16],
};

/// Counts what is asked of it.
#[derive(Clone, Default)]
pub struct Bench(pub Rc<Inner>);

#[derive(Default)]
pub struct Inner {
    pub barriers: Cell<u32>,
    /// The client whose gate is looked at when a barrier is asked for, and at how many barriers it was closed.
    pub watched: RefCell<Option<Arc<PagePair>>>,
    pub closed: Cell<u32>,
    pub wakes: Cell<u32>,
    pub has_no_barrier: Cell<bool>,
    pub stopped: RefCell<BTreeSet<u32>>,
    pub asked: Cell<u32>,
    /// What each question for the time spent adds to it.
    pub cost_ns: Cell<u64>,
    pub spent_ns: Cell<u64>,
    /// The time after a sample, where it is later than what was said before.
    pub now_ns: Cell<u64>,
}

impl Kernel for Bench {
    fn heavy_barrier(&self) -> bool {
        self.0.barriers.set(self.0.barriers.get() + 1);
        let is_closed = self.0.watched.borrow().as_ref().is_some_and(|pages| !is_open(pages));
        self.0.closed.set(self.0.closed.get() + u32::from(is_closed));
        !self.0.has_no_barrier.get()
    }
    fn wake(&self, _word: &AtomicU32) {
        self.0.wakes.set(self.0.wakes.get() + 1);
    }
    fn is_stopped(&self, pid: u32) -> bool {
        self.0.asked.set(self.0.asked.get() + 1);
        self.0.stopped.borrow().contains(&pid)
    }
    fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }
    fn spent_ns(&self) -> u64 {
        self.0.spent_ns.set(self.0.spent_ns.get() + self.0.cost_ns.get());
        self.0.spent_ns.get()
    }
}

/// New pages of a client, and the message that it came with them.
pub fn joined(client: u64, job: u64) -> (Arc<PagePair>, Message) {
    let (pages, _descriptors) = PagePair::create(ClientId(client), 1).expect("pages");
    let pages = Arc::new(pages);
    let joined = Joined {
        client: ClientId(client),
        job: JobId(job),
        pid: client as u32,
        devices: vec![DEVICE],
        pages: Arc::clone(&pages),
    };
    (pages, Message::Joined(joined))
}

pub fn join(dispatcher: &mut Dispatcher<Bench>, now: u64, client: u64, job: u64) -> Arc<PagePair> {
    let (pages, joined) = joined(client, job);
    dispatcher.take(now, joined);
    pages
}

pub fn terms(dispatcher: &mut Dispatcher<Bench>, now: u64, job: u64, terms: Terms) {
    let (job, devices) = (JobId(job), vec![DEVICE]);
    dispatcher.take(now, Message::Terms { job, devices, terms });
}

pub fn is_open(pages: &PagePair) -> bool {
    pages.broker().devices[0].gate.load(Ordering::SeqCst) & OPEN != 0
}

/// Shows work in flight that has begun, or none.
pub fn show_busy(pages: &PagePair, is_busy: bool) {
    let lane = &pages.time().devices[0].lanes[0];
    lane.stream.store(1, Ordering::SeqCst);
    let submitted = lane.submitted.load(Ordering::SeqCst);
    if is_busy {
        if lane.ended.load(Ordering::SeqCst) == submitted {
            lane.submitted.store(submitted + 1, Ordering::SeqCst);
            lane.begun.store(submitted + 1, Ordering::SeqCst);
        }
    } else {
        lane.begun.store(submitted, Ordering::SeqCst);
        lane.ended.store(submitted, Ordering::SeqCst);
    }
}
