// SPDX-License-Identifier: Apache-2.0
//! Events: places in the order of operations, with the device time at which they were reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_abi::types::{CuEvent, CuResult};
use partage_machine::events::SharedEvent;

use crate::context::{Context, current};
use crate::executor::place::is_worker;
use crate::executor::{OpId, Seen};
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, driver};

/// `CU_EVENT_DISABLE_TIMING`.
pub const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
pub const INTERPROCESS: u32 = 4;
/// All flags of `cuEventCreate`: blocking synchronisation, and the two above.
const CREATE_FLAGS: u32 = 7;

static EVENTS: Handles<Event> = Handles::new(HandleKind::Event);
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

/// One event.
pub struct Event {
    /// What the program calls it.
    pub handle: CuEvent,
    /// Unique in the process, never reused.
    pub key: u64,
    /// As created.
    pub flags: u32,
    /// The context it was created in.
    pub context: Arc<Context>,
    /// True for one that another process made.
    is_opened: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often it was recorded.
    recording: u64,
    /// The operation of the last recording.
    op: Option<OpId>,
    /// What the last recording comes after.
    seen: Seen,
    /// Device time at which the last recording was reached.
    reached: Option<u64>,
    /// What other processes have of it.
    shared: Option<Arc<SharedEvent>>,
    /// Recordings that were not reached yet, each with its number among those of all processes.
    told: Vec<(u64, u64)>,
    /// The latest of its recordings in this process, by that number.
    own_latest: u64,
}

/// The latest recording of an event, made by another process.
pub struct Elsewhere {
    /// The event.
    pub event: Arc<SharedEvent>,
    /// Which of its recordings.
    pub number: u64,
}

impl Event {
    /// Makes an event of the current context. INVALID_VALUE for unknown flags, or for interprocess with timing.
    pub fn create(flags: u32) -> Answer<Arc<Self>> {
        let is_wrong = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if flags & !CREATE_FLAGS != 0 || is_wrong {
            return Err(CuResult::INVALID_VALUE);
        }
        Self::enter(flags, None)
    }

    /// Makes an event of the current context that stands for another process's.
    pub fn open(shared: SharedEvent) -> Answer<Arc<Self>> {
        Self::enter(INTERPROCESS | DISABLE_TIMING, Some(Arc::new(shared)))
    }

    fn enter(flags: u32, shared: Option<Arc<SharedEvent>>) -> Answer<Arc<Self>> {
        let context = current()?;
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        let make = |handle| {
            Arc::new(Self {
                handle: CuEvent(handle),
                key,
                flags,
                context,
                is_opened: shared.is_some(),
                state: Mutex::new(State {
                    shared,
                    ..State::default()
                }),
            })
        };
        EVENTS.insert_with(make).ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// The event behind a handle. INVALID_HANDLE for one that is null, stale or made up.
    pub fn find(handle: CuEvent) -> Answer<Arc<Self>> {
        driver()?;
        if is_worker() {
            return Err(CuResult::NOT_PERMITTED);
        }
        EVENTS.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// Ends the handle, and tells what it was; a recording under way is still reached.
    pub fn remove(handle: CuEvent) -> Answer<Arc<Self>> {
        driver()?;
        EVENTS.remove(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// What other processes open it by. INVALID_HANDLE for one that was not made for them, or not by this process.
    pub fn share(&self) -> Answer<u64> {
        if self.flags & INTERPROCESS == 0 || self.is_opened {
            return Err(CuResult::INVALID_HANDLE);
        }
        let machine = driver()?.machine();
        let mut state = self.lock();
        if let Some(shared) = &state.shared {
            return Ok(shared.id());
        }
        let made = machine.make_event().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        let id = made.id();
        state.shared = Some(Arc::new(made));
        // Often it was recorded before.
        if state.recording > 0 {
            state.tell();
            if state.reached.is_some() {
                let recording = state.recording;
                state.tell_reached(recording);
            }
        }
        Ok(id)
    }

    /// Nobody else has it any more: the process leaves the machine.
    pub fn keep_to_itself(&self) {
        let mut state = self.lock();
        (state.shared, state.own_latest) = (None, 0);
        state.told.clear();
    }

    /// Its latest recording, if another process made it.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        let state = self.lock();
        let event = state.shared.as_ref()?;
        let number = event.latest();
        (number > state.own_latest).then(|| Elsewhere {
            event: Arc::clone(event),
            number,
        })
    }

    /// Begins a recording and gives its number.
    pub fn begin_recording(&self) -> u64 {
        let mut state = self.lock();
        state.recording += 1;
        state.reached = None;
        state.op = None;
        state.seen = Seen::default();
        state.tell();
        state.recording
    }

    /// Says which operation reaches a recording.
    pub fn set_op(&self, recording: u64, op: OpId) {
        let mut state = self.lock();
        if state.recording == recording {
            state.op = Some(op);
        }
    }

    /// Says what a recording comes after.
    pub fn set_seen(&self, recording: u64, seen: Seen) {
        let mut state = self.lock();
        if state.recording == recording {
            state.seen = seen;
        }
    }

    /// What its last recording comes after.
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// A recording was reached.
    pub fn complete(&self, recording: u64, time: u64) {
        let mut state = self.lock();
        if state.recording == recording {
            state.reached = Some(time);
        }
        state.tell_reached(recording);
    }

    /// The operation of its last recording, if it was recorded.
    pub fn recorded(&self) -> Vec<OpId> {
        self.lock().op.into_iter().collect()
    }

    /// Device time at which its last recording was reached, if it was.
    pub fn reached(&self) -> Option<u64> {
        self.lock().reached
    }

    /// Whether it was ever recorded outside a capture.
    pub fn is_recorded(&self) -> bool {
        self.lock().recording > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Other processes hear that it is recorded.
    fn tell(&mut self) {
        if let Some(shared) = &self.shared {
            self.own_latest = shared.record();
            self.told.push((self.recording, self.own_latest));
        }
    }

    /// Other processes hear that a recording was reached.
    fn tell_reached(&mut self, recording: u64) {
        let Some(shared) = &self.shared else { return };
        if let Some(place) = self.told.iter().position(|(own, _)| *own == recording) {
            shared.reach(self.told.swap_remove(place).1);
        }
    }
}

/// Whether the process has an event of another one.
pub fn has_opened() -> bool {
    EVENTS.all().iter().any(|event| event.is_opened)
}

/// No process has an event of this one any more, nor this one another's. Precondition: nothing that was submitted is
/// left.
pub fn keep_all_to_itself() {
    EVENTS.all().iter().for_each(|event| event.keep_to_itself());
}
