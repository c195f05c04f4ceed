// SPDX-License-Identifier: Apache-2.0
//! The hold in front of every hooked call ([`hold`](partage_protocol::hold)): what a hook does first and last.
//!
//! ```text
//!   hook ── outermost? ── no ──► inside already? ── yes ──────────────────────────► driver
//!             │ yes                     │ no: a signal's handler, in a wait of its thread
//!             ▼                         ▼
//!           inside := 1, hold open? ── no ──► inside := 0, counted in `wants`, waits a step ──┐
//!             │ yes                ▲                                                          │
//!           driver, inside := 0    └──────────────────────────────────────────────────────────┘
//! ```
//! A thread stands here with no lock of ours, but for a first `cuInit`. What becomes of a thread without a slot, of one
//! that jumps out or dies, of a handler and of a forked child: `docs/decisions/0013-the-hold.md`.

pub mod early;
pub mod nvml;
pub mod outsiders;
pub mod own_slot;
pub mod path;
pub mod process;
pub mod thread_tag;
pub mod waiting;

use core::sync::atomic::{Ordering, fence};

use partage_protocol::gate::{HEARTBEAT_NS, ThreadSlot};
use partage_protocol::hold::{self, Entered, HARD, ties::UNCOUNTED};
use partage_protocol::page::{BrokerPage, ClientFile};

use crate::attachment;
use crate::guard;
use crate::guest::errno;
use crate::guest::sys;
use crate::hold::path::fast_path;
use crate::hold::process::Gates;
use crate::state::{self, State};

/// Longest wait without a look at the broker's heartbeat, in nanoseconds.
const STEP_NS: u64 = 100_000_000;

/// What a hook has to undo.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Held(u32);

impl Held {
    /// A call from inside another hook, which says that the thread is inside.
    pub const NESTED: Self = Self(0);
    /// A call from inside another hook that stood here by itself.
    pub const NESTED_BY_ITSELF: Self = Self(1);
    /// The outermost hook.
    pub(super) const OUTERMOST: Self = Self(2);

    /// Does the call come from the program?
    #[inline(always)]
    pub fn is_outermost(self) -> bool {
        self == Self::OUTERMOST
    }
}

/// A hook begins, which stands at `here`.
#[inline(never)]
pub fn begin(here: usize) -> Held {
    if !guard::enter_at(here) {
        return begin_nested();
    }
    pass();
    Held::OUTERMOST
}

/// The hook ends.
#[inline(never)]
pub fn end(held: Held) {
    if held == Held::OUTERMOST {
        leave();
        guard::leave();
    } else if held == Held::NESTED_BY_ITSELF {
        leave_nested();
    }
}

/// The thread, in the outermost hook, passes the hold. [`leave`] undoes it.
#[inline(always)]
pub fn pass() {
    let path = fast_path();
    if let Some(offset) = thread_tag::below_end(guard::time_word().wrapping_add(path.hold_key.load(Ordering::Acquire)))
        && hold::enter_shortly(&path.slot(offset).inside, path.hold())
    {
        return;
    }
    pass_slowly();
}

/// The thread is inside no more.
#[inline(always)]
pub fn leave() {
    let path = fast_path();
    match thread_tag::below_end(guard::time_word().wrapping_add(path.hold_key.load(Ordering::Acquire))) {
        Some(offset) => hold::leave(&path.slot(offset).inside),
        None => leave_slowly(),
    }
}

#[cold]
#[inline(never)]
fn pass_slowly() {
    errno::preserving(|| {
        let (Some(state), Some(gates)) = (state::get(), process::get()) else {
            return;
        };
        match Hold::of(state, gates) {
            Some(hold) => {
                early::forget(gates, hold.file);
                hold.pass();
            }
            None => {
                if !early::enter(state, gates)
                    && let Some(hold) = Hold::of(state, gates)
                {
                    hold.pass();
                }
            }
        }
    });
}

#[cold]
#[inline(never)]
fn leave_slowly() {
    errno::preserving(|| {
        let (Some(state), Some(gates)) = (state::get(), process::get()) else {
            return;
        };
        if let Some(hold) = Hold::of(state, gates) {
            hold.leave();
        }
        early::leave(state, gates);
    });
}

/// A call from inside another hook begins.
#[cold]
#[inline(never)]
pub fn begin_nested() -> Held {
    let Some((hold, place)) = nested_place() else {
        // The outermost call was counted as early, or there is nobody who would hold it.
        return Held::NESTED;
    };
    if place.is_inside() && !hold.is_noted_outside(place) {
        return Held::NESTED;
    }
    errno::preserving(|| hold.pass());
    Held::NESTED_BY_ITSELF
}

/// Such a call ends that stood at the hold by itself. A borrowed place is the outermost hook's to give back.
#[cold]
#[inline(never)]
pub fn leave_nested() {
    if let Some((_, place)) = nested_place() {
        hold::leave(&place.inside);
    }
}

fn nested_place() -> Option<(Hold, &'static ThreadSlot)> {
    let gates = process::get()?;
    let hold = Hold::of(state::get()?, gates)?;
    let place = errno::preserving(|| own_slot::known(gates, hold.file))?;
    Some((hold, place))
}

/// This process has become a client inside the calling hook: the call stands at the hold like any later one.
#[cold]
#[inline(never)]
pub fn arrive(state: &'static State) {
    if let Some(gates) = process::get()
        && guard::is_inside()
        && let Some(hold) = Hold::of(state, gates)
        && !own_slot::known(gates, hold.file).is_some_and(ThreadSlot::is_inside)
    {
        early::forget(gates, hold.file);
        hold.pass();
    }
}

/// The hold of this process.
#[derive(Clone, Copy)]
pub struct Hold {
    gates: &'static Gates,
    state: &'static State,
    broker: &'static BrokerPage,
    file: &'static ClientFile,
}

impl Hold {
    /// `None`: it is no client.
    pub fn of(state: &'static State, gates: &'static Gates) -> Option<Self> {
        Some(Self {
            gates,
            state,
            broker: attachment::of(state).broker_page()?,
            file: attachment::of(state).client_file()?,
        })
    }

    /// The calling process's.
    pub fn of_process() -> Option<Self> {
        Self::of(state::get()?, process::get()?)
    }

    /// Waits for something else than the hold, outside, and stands at the hold after it.
    pub fn aside<R>(&self, wait: impl FnOnce() -> R) -> R {
        if let Some(place) = own_slot::known(self.gates, self.file) {
            hold::leave(&place.inside);
        }
        let result = wait();
        self.pass();
        result
    }

    /// Stands at the hold if it has closed since the thread passed it.
    pub fn give_way(&self) {
        if hold::is_closed(self.broker.head.hold.load(Ordering::Relaxed)) {
            self.aside(|| ());
        }
    }

    /// A call of NVML passes: at once, unless the process is being saved.
    pub fn pass_in_nvml(&self) {
        process::join(self.gates);
        let word = &self.broker.head.hold;
        loop {
            let found = match self.place() {
                Some(place) => hold::enter_nvml(&place.inside, word),
                None => {
                    fence(Ordering::SeqCst);
                    let word = word.load(Ordering::Acquire);
                    if hold::is_parked(word) {
                        Entered::Held(word)
                    } else {
                        Entered::Passed
                    }
                }
            };
            let Entered::Held(seen) = found else { return };
            self.gates.start_thread(self.state);
            self.wait(seen, &mut 0);
        }
    }

    /// The call has ended: the thread's place says so.
    pub(super) fn leave(&self) {
        if let Some(place) = own_slot::known(self.gates, self.file) {
            if self.is_borrowed(place) {
                own_slot::give_back(place);
            } else {
                hold::leave(&place.inside);
            }
        }
    }

    /// Passes, at once or in the end.
    pub fn pass(&self) {
        process::join(self.gates);
        self.find_way();
        let word = &self.broker.head.hold;
        let mut dead_looks = 0;
        loop {
            // Looked up again at each look: a handler that ran meanwhile may have given a borrowed one back.
            let place = self.place();
            let found = match place {
                Some(place) => {
                    // Left from a launch that was left by a jump.
                    hold::leave(&place.word);
                    hold::enter(&place.inside, word)
                }
                None => self.enter_uncounted(),
            };
            let Entered::Held(seen) = found else {
                return self.passed(place);
            };
            // Whatever becomes of the broker meanwhile, the next one finds this process.
            self.gates.start_thread(self.state);
            if let Some(place) = place {
                own_slot::count_in(self.file, place);
            }
            if self.wait(seen, &mut dead_looks) {
                return self.pass_in_vain();
            }
        }
    }

    /// The thread's slot, or a place that it borrows.
    fn place(&self) -> Option<&'static ThreadSlot> {
        own_slot::take(self.gates, self.file).or_else(|| own_slot::borrow(&self.file.time.spare))
    }

    /// Was the thread found outside under the word of now? Its words are left from a call that it left by a jump then.
    fn is_noted_outside(&self, place: &ThreadSlot) -> bool {
        let word = self.broker.head.hold.load(Ordering::Acquire);
        if !hold::is_closed(word) {
            return false;
        }
        // Whoever is about to note it finds that it came in meanwhile.
        let judging = hold::judging(word);
        let _ = place
            .out
            .compare_exchange(judging, 0, Ordering::SeqCst, Ordering::Relaxed);
        place.out.load(Ordering::SeqCst) == word
    }

    fn is_borrowed(&self, place: &ThreadSlot) -> bool {
        self.file
            .time
            .spare
            .as_ptr_range()
            .contains(&core::ptr::from_ref(place))
    }

    fn passed(&self, place: Option<&ThreadSlot>) {
        if let Some(place) = place {
            own_slot::count_out(self.file, place);
        }
    }

    /// More threads are inside than there are places: nobody can tell any more who is, and the broker knows that before
    /// this thread looks at the hold.
    fn enter_uncounted(&self) -> Entered {
        self.file.page.head.ties.fetch_or(UNCOUNTED, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let word = self.broker.head.hold.load(Ordering::Acquire);
        if hold::is_closed(word) {
            Entered::Held(word)
        } else {
            Entered::Passed
        }
    }

    /// One step of a wait. `true`: the hold is soft, and nobody is there to open it.
    fn wait(&self, word: u32, dead_looks: &mut u32) -> bool {
        let head = &self.broker.head;
        let heartbeat = head.heartbeat_ns.load(Ordering::Relaxed);
        let dead = &self.gates.dead_heartbeat;
        let is_hard = word & HARD != 0;
        if !is_hard && heartbeat.wrapping_add(1) == dead.load(Ordering::Relaxed) {
            return true;
        }
        sys::wait_on_shared(&head.hold, word, STEP_NS);
        let now = self.state.machine_time(sys::now_ns());
        if is_hard || head.hold.load(Ordering::Acquire) != word || now.saturating_sub(heartbeat) <= HEARTBEAT_NS {
            *dead_looks = 0;
            return false;
        }
        // One look may fall into a moment when everybody was stopped.
        *dead_looks = dead_looks.saturating_add(1);
        if *dead_looks < 2 {
            return false;
        }
        dead.store(heartbeat.wrapping_add(1), Ordering::Relaxed);
        true
    }

    /// Goes on although the hold is soft. Whoever hardens it looks again at who is inside.
    fn pass_in_vain(&self) {
        let place = self.place();
        self.passed(place);
        match place {
            Some(place) => {
                place.out.store(0, Ordering::Release);
                place.inside.store(1, Ordering::Release);
            }
            None => {
                self.file.page.head.ties.fetch_or(UNCOUNTED, Ordering::AcqRel);
            }
        }
        fence(Ordering::SeqCst);
    }

    /// From now on calls of this process need not come here while the hold is open.
    fn find_way(&self) {
        if self.gates.is_fenced.load(Ordering::Relaxed) {
            return;
        }
        if let Some(path) = process::fast_path().filter(|path| path.hold_key.load(Ordering::Relaxed) == 0) {
            let generation = self.gates.generation.load(Ordering::Relaxed);
            path.set_hold(generation, &self.file.time.threads, &self.broker.head.hold);
            path.publish();
        }
    }
}
