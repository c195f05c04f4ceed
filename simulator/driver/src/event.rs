// SPDX-License-Identifier: Apache-2.0
//! Events: places in the order of operations, with the device time at which they were reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use partage_abi::types::{CuEvent, CuResult};

use crate::context::{Context, current};
use crate::executor::place::is_worker;
use crate::executor::{OpId, Seen};
use crate::handles::{HandleKind, Handles};
use crate::state::Answer;

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
}

impl Event {
    /// Makes an event of the current context. INVALID_VALUE for unknown flags, or for interprocess with timing.
    pub fn create(flags: u32) -> Answer<Arc<Self>> {
        let context = current()?;
        let is_wrong = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if flags & !CREATE_FLAGS != 0 || is_wrong {
            return Err(CuResult::INVALID_VALUE);
        }
        let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
        let make = |handle| {
            Arc::new(Self {
                handle: CuEvent(handle),
                key,
                flags,
                context,
                state: Mutex::default(),
            })
        };
        EVENTS.insert_with(make).ok_or(CuResult::OUT_OF_MEMORY)
    }

    /// The event behind a handle. INVALID_HANDLE for one that is null, stale or made up.
    pub fn find(handle: CuEvent) -> Answer<Arc<Self>> {
        crate::state::driver()?;
        if is_worker() {
            return Err(CuResult::NOT_PERMITTED);
        }
        EVENTS.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// Ends the handle, and tells what it was; a recording under way is still reached.
    pub fn remove(handle: CuEvent) -> Answer<Arc<Self>> {
        crate::state::driver()?;
        EVENTS.remove(handle.0).ok_or(CuResult::INVALID_HANDLE)
    }

    /// Begins a recording and gives its number.
    pub fn begin_recording(&self) -> u64 {
        let mut state = self.lock();
        state.recording += 1;
        state.reached = None;
        state.op = None;
        state.seen = Seen::default();
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
