// SPDX-License-Identifier: Apache-2.0
//! The slow path: finds out where a launch stands, and waits with it while the gate is closed.
//!
//! A closed gate is waited for as a futex in the broker's page, a step at a time, so that a broker that died is
//! noticed: one that has not looked at its gates for [`HEARTBEAT_NS`] at two looks in a row lets everybody pass, until
//! it looks again (`PARTAGE_TIME_FAIL=closed` waits on). A signal that ends the process ends it here too; after a
//! caught one the wait goes on.

use core::sync::atomic::Ordering;

use partage_protocol::gate::{
    self, Entered, GATES_COPIES, HEARTBEAT_NS, MEASURED, NEEDS_FENCE, OPEN, ThreadSlot, TimePage, UNBOUNDED,
};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::page::{BrokerPage, ClientFile, GrantLine};

use super::depth;
use super::passage::{CROWDS, Passage};
use crate::attachment;
use crate::devices;
use crate::guest::errno;
use crate::guest::sys;
use crate::hold::process::{self, Gates};
use crate::hold::thread_tag::ThreadTag;
use crate::hold::waiting::{Waiting, count_out};
use crate::hold::{self, Hold, own_slot};
use crate::marks::{self, Marked};
use crate::real::Library;
use crate::session;
use crate::state::{self, Phase, State};
use crate::stream::work::{Kind, Work};
use crate::stream::{self, StreamName, is_captured};

/// Longest wait without a look at the broker's heartbeat, in nanoseconds.
const HEARTBEAT_LOOK_NS: u64 = 100_000_000;

/// Lets a launch pass when it may.
#[cold]
#[inline(never)]
pub fn enter(real: &Library, work: Work) -> Passage {
    errno::preserving(|| pass(real, &work).unwrap_or(Passage::FREE))
}

/// The driver was called: what the passage left to be done.
#[cold]
#[inline(never)]
pub fn leave(real: &Library, rest: u32) {
    errno::preserving(|| {
        let Some(state) = state::get() else { return };
        let Some(file) = attachment::of(state).client_file() else {
            return;
        };
        if let Some(marked) = Marked::of(rest)
            && let Some(page) = file.time.devices.get(marked.device)
        {
            marks::after(page, real, marked);
        }
        leave_crowds(file, rest & CROWDS);
    });
}

fn leave_crowds(file: &ClientFile, devices: u32) {
    for crowd in in_mask(&file.time.crowd, devices) {
        crowd.fetch_sub(1, Ordering::Release);
    }
}

fn in_mask<T>(all: &[T], mask: u32) -> impl Iterator<Item = &T> {
    all.iter()
        .enumerate()
        .filter(move |(index, _)| mask.checked_shr(*index as u32).unwrap_or(0) & 1 != 0)
        .map(|(_, item)| item)
}

/// What a launch has to do with.
struct Place<'a> {
    state: &'static State,
    gates: &'static Gates,
    broker: &'a BrokerPage,
    file: &'a ClientFile,
}

/// `None`: nothing holds this launch.
fn pass(real: &Library, work: &Work) -> Option<Passage> {
    let state = state::get()?;
    if state.phase() == Phase::Fresh {
        // A forked child, or a program whose cuInit we did not see.
        session::ensure(state, false);
    }
    if state.phase() != Phase::Attached {
        return None;
    }
    let place = Place {
        state,
        gates: process::get()?,
        broker: attachment::of(state).broker_page()?,
        file: attachment::of(state).client_file()?,
    };
    place.arrive();
    if let Kind::Together(params, count) = work.kind
        && count > 1
    {
        return place.stand_together(real, work.stream.is_per_thread, params, count);
    }
    let device = place.device_of(real, work.stream)?;
    place.find_way(device);
    let line = place.broker.devices.get(device)?;
    let flags = line.gate_flags.load(Ordering::Relaxed);
    let (gates_copies, is_measured) = (flags & GATES_COPIES != 0, flags & MEASURED != 0);
    let may_be_across = matches!(work.kind, Kind::Across | Kind::Unified(..));
    let is_inside = !(may_be_across && is_measured) || work.kind.is_inside(real);
    if is_measured && !is_inside {
        // What waits for a copy engine does not occupy the device.
        marks::settle_stream(state, real, work.stream);
    }
    if !gates_copies && (!is_inside || matches!(work.kind, Kind::Across)) {
        return None;
    }
    // Before any wait: a thread that is counted as waiting is found by its slot.
    let slot = place.slot();
    if is_measured && is_inside && line.depth_ns.load(Ordering::Relaxed) != UNBOUNDED {
        depth::wait(state, (line, place.file), device, real, work);
    }
    let mut wait = Wait::new(&place, device)?;
    let mut is_judged = false;
    loop {
        match place.step(slot, line, device) {
            (Entered::Passed, mut passage) => {
                drop(wait);
                if is_measured && is_inside {
                    let page = place.file.time.devices.get(device)?;
                    passage.rest |=
                        marks::before(state, (place.broker, page), device, real, work).map_or(0, Marked::bits);
                }
                return Some(passage);
            }
            (Entered::Closed(word), _) => {
                if !is_judged && (!gates_copies && !work.kind.is_inside(real) || is_captured(state, real, work.stream))
                {
                    return None;
                }
                if is_measured && !is_judged {
                    // What has no mark would count as work for as long as this thread stands here.
                    marks::settle_all(state, real);
                }
                is_judged = true;
                if wait.step(line, word) == Waited::InVain {
                    return None;
                }
            }
        }
    }
}

impl Place<'_> {
    /// What is done once, and what a thread has left over.
    fn arrive(&self) {
        process::join(self.gates);
        // The process may have become a client inside this very call.
        hold::arrive(self.state);
        // A signal's handler left a wait by a long jump: this thread waits no more.
        let mut tag = self.tag();
        if tag.waits_for().is_some() {
            count_out(self.gates, self.file, self.file.time.threads.get(tag.slot()));
            tag.set_waits_for(None);
            tag.keep();
        }
    }

    /// This thread's tag.
    fn tag(&self) -> ThreadTag {
        ThreadTag::read(self.gates.generation.load(Ordering::Relaxed))
    }

    /// From now on launches of a process with one device need not come here.
    fn find_way(&self, device: usize) {
        let is_only = attachment::of(self.state).ordinals.known.load(Ordering::Acquire) == 2;
        if !is_only || self.gates.is_fenced.load(Ordering::Relaxed) {
            return;
        }
        if let Some(fast_path) = process::fast_path().filter(|path| !path.is_known())
            && let Some(line) = self.broker.devices.get(device)
        {
            let generation = self.gates.generation.load(Ordering::Relaxed);
            fast_path.set(generation, &self.file.time.threads, line, device);
            fast_path.publish();
        }
    }

    /// The slot of the device on which a stream's work runs. `None`: not shared.
    fn device_of(&self, real: &Library, stream: StreamName) -> Option<usize> {
        if attachment::of(self.state).ordinals.known.load(Ordering::Acquire) == 0 {
            devices::learn(self.state, real);
        }
        let ordinal = stream::device_of(self.state, real, stream)?;
        devices::slot_of_device(self.state, real, ordinal)
    }

    /// This thread's slot. `None`: living threads have them all.
    fn slot(&self) -> Option<&ThreadSlot> {
        own_slot::take(self.gates, self.file)
    }

    /// One look at the gate.
    fn step(&self, slot: Option<&ThreadSlot>, line: &GrantLine, device: usize) -> (Entered, Passage) {
        match slot {
            Some(slot) => {
                let needs_fence = line.gate_flags.load(Ordering::Relaxed) & NEEDS_FENCE != 0;
                let is_fenced = needs_fence || self.gates.is_fenced.load(Ordering::Relaxed);
                let entered = gate::enter(&slot.word, &line.gate, device as u32, is_fenced);
                if entered == Entered::Passed {
                    slot.launches.fetch_add(1, Ordering::Relaxed);
                }
                (entered, Passage::through(&slot.word))
            }
            None => match self.join_crowds(1_u32.wrapping_shl(device as u32)) {
                Ok(passage) => (Entered::Passed, passage),
                Err((word, _)) => (Entered::Closed(word), Passage::FREE),
            },
        }
    }

    /// Passes several gates at once, counted in the crowd of each; or none, and answers which is closed.
    fn join_crowds(&self, devices: u32) -> Result<Passage, (u32, usize)> {
        for crowd in in_mask(&self.file.time.crowd, devices) {
            // Read before written by the broker, after its barrier: this order needs no other side.
            crowd.fetch_add(1, Ordering::SeqCst);
        }
        core::sync::atomic::fence(Ordering::SeqCst);
        let lines = self.broker.devices.iter().enumerate();
        let closed = lines
            .filter(|(index, _)| devices >> (index & 31) & 1 != 0)
            .find_map(|(index, line)| {
                let word = line.gate.load(Ordering::Acquire);
                (word & OPEN == 0).then_some((word, index))
            });
        match closed {
            None => Ok(Passage {
                word: core::ptr::null(),
                rest: devices,
            }),
            Some(closed) => {
                leave_crowds(self.file, devices);
                Err(closed)
            }
        }
    }

    /// Kernels that wait for each other on several devices: all gates have to be open at the same time.
    fn stand_together(
        &self,
        real: &Library,
        is_per_thread: bool,
        params: *const partage_abi::types::CudaLaunchParams,
        count: u32,
    ) -> Option<Passage> {
        let mut mask = 0_u32;
        for index in 0..(count as usize).min(state::MAX_ORDINALS) {
            // SAFETY: by the contract of the entry point there are `count` of them.
            let handle = unsafe { (&raw const (*params.add(index)).hStream).read() };
            if let Some(device) = self.device_of(real, StreamName { handle, is_per_thread }) {
                mask |= 1_u32.wrapping_shl(device as u32);
            }
        }
        if mask == 0 {
            return None;
        }
        loop {
            let (word, device) = match self.join_crowds(mask) {
                Ok(passage) => {
                    for (line, page) in in_mask(&self.broker.devices, mask).zip(in_mask(&self.file.time.devices, mask))
                    {
                        if line.gate_flags.load(Ordering::Relaxed) & MEASURED != 0 {
                            marks::unlaned(page);
                        }
                    }
                    return Some(passage);
                }
                Err(closed) => closed,
            };
            let line = self.broker.devices.get(device)?;
            if Wait::new(self, device)?.step(line, word) == Waited::InVain {
                return None;
            }
        }
    }
}

/// How one step of a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// Look again.
    Enough,
    /// Nobody is there to open: pass.
    InVain,
}

/// A thread that may have to wait for a gate. Nothing is counted before its first step.
struct Wait<'a> {
    state: &'static State,
    gates: &'static Gates,
    broker: &'a BrokerPage,
    file: &'a ClientFile,
    page: &'a TimePage,
    device: usize,
    standing: Option<Waiting<'a>>,
    /// Looks in a row that found no heartbeat.
    dead_looks: u32,
}

impl<'a> Wait<'a> {
    fn new(place: &Place<'a>, device: usize) -> Option<Self> {
        Some(Self {
            state: place.state,
            gates: place.gates,
            broker: place.broker,
            file: place.file,
            page: place.file.time.devices.get(device)?,
            device,
            standing: None,
            dead_looks: 0,
        })
    }

    /// Waits until the word changes, or a step long.
    fn step(&mut self, line: &GrantLine, word: u32) -> Waited {
        let time = self.gates;
        let heartbeat = self.broker.head.heartbeat_ns.load(Ordering::Relaxed);
        let fails_open = !self.state.settings().time_fails_closed;
        if self.state.phase() != Phase::Attached {
            return Waited::InVain;
        }
        if fails_open && heartbeat.wrapping_add(1) == time.dead_heartbeat.load(Ordering::Relaxed) {
            // Nobody has looked since the last thread waited in vain.
            self.page.failed_open.fetch_add(1, Ordering::Relaxed);
            return Waited::InVain;
        }
        if self.standing.is_none() {
            self.standing = Waiting::begin(self.file, self.device);
        }
        // Nobody has to wait for a thread that stands here; it stands at the hold before it looks at the gate again.
        let wait = || sys::wait_on_shared(&line.gate, word, HEARTBEAT_LOOK_NS);
        match Hold::of(self.state, time) {
            Some(hold) => hold.aside(wait),
            None => wait(),
        }
        let now = self.standing.as_mut().map_or_else(sys::now_ns, Waiting::count);
        if self.state.machine_time(now).saturating_sub(heartbeat) <= HEARTBEAT_NS
            || line.gate.load(Ordering::Acquire) != word
        {
            self.dead_looks = 0;
            return Waited::Enough;
        }
        // One look may fall into a moment when everybody was stopped.
        self.dead_looks = self.dead_looks.saturating_add(1);
        if self.dead_looks == 2 {
            self.page.failed_open.fetch_add(1, Ordering::Relaxed);
        }
        if self.dead_looks >= 2 && fails_open {
            time.dead_heartbeat.store(heartbeat.wrapping_add(1), Ordering::Relaxed);
            return Waited::InVain;
        }
        Waited::Enough
    }
}

const _: () = assert!(MAX_DEVICES <= 16);
