// SPDX-License-Identifier: Apache-2.0
//! Device memory that no call names: contexts, modules, local memory, heaps. The broker measures it, and what takes the
//! job beyond its limit is undone again.
//!
//! ```text
//!   context:  announce ── room? ── no ──► OUT_OF_MEMORY, the driver is not called
//!                │ yes          ├── not the job's device ──► INVALID_DEVICE, broker or not
//!                │              └── a broker is there and does not serve ──► OUT_OF_MEMORY
//!             make ── refused ──► measure (the room that was kept is released) ──► the driver's code
//!                │ made
//!   module:   load ── the device's free memory fell by enough to matter
//!                │
//!             measure ── within the limit ──► done
//!                └────── beyond ──► undo, measure again ──► OUT_OF_MEMORY
//!
//!   context ended ──► measure, so that its memory is free to the program before the call returns
//! ```
//! Only an attached process measures: where nobody is there, the next broker measures before it admits anything. While
//! a broker is there and does not serve, no context is made: it may have promised the memory to others. Code is loaded
//! meanwhile, because the device's free memory also falls by what others do. No
//! [`Operation`](crate::memory::words::Operation) is under way during any of this, or nothing could be measured.

use partage_abi::types::{CuDevice, CuResult};
use partage_protocol::message::{MEASURE_AFTER, MEASURE_BEFORE, MEASURE_ENDED, NOTICE_OVERHEAD};
use partage_protocol::reservation::Denial;

use crate::attachment;
use crate::guest::errno;
use crate::memory::pools;
use crate::memory::sharing;
use crate::real::Library;
use crate::real::call;
use crate::session::{self, Excess};
use crate::socket::Refusal;
use crate::state::{Phase, State};

/// A change of the device's free memory that is measured at once: what drivers take at a time.
const LARGE: u64 = 2 << 20;
/// Or this part of the device, where that is less.
const LARGE_PART: u64 = 1024;

/// This process's state and the slot of a device, while a broker can measure it.
fn attached(real: &Library, device: CuDevice) -> Option<(&'static State, usize)> {
    sharing::slot_of(real, device).filter(|(state, _)| state.phase() == Phase::Attached)
}

/// Measures; what pools keep and nobody uses makes room before anything is denied.
fn measure(state: &'static State, slot: usize, stage: u32) -> Result<(), Excess> {
    errno::preserving(|| {
        let excess = match session::measure(state, slot, stage) {
            Err(excess) if excess.denial != Denial::NoBroker && pools::make_room(state, slot) > 0 => excess,
            result => return result,
        };
        session::measure(state, slot, stage).map_err(|again| Excess {
            // The second time nothing was made since the measurement before.
            needed: excess.needed.max(again.needed),
            ..again
        })
    })
}

fn notice(state: &State, slot: usize, grew: i64) {
    errno::preserving(|| session::notice(state, NOTICE_OVERHEAD, slot, grew as u64));
}

/// A context that is about to be made, and for which the job has room.
pub struct Announced {
    state: &'static State,
    slot: usize,
}

/// Asks for room for a context. `None`: nobody measures. An error is the code that the program gets instead.
#[inline(never)]
pub fn announce(real: &Library, device: CuDevice) -> Result<Option<Announced>, CuResult> {
    if sharing::is_foreign(real, device) {
        return Err(CuResult::INVALID_DEVICE);
    }
    let Some((state, slot)) = sharing::slot_of(real, device) else {
        return Ok(None);
    };
    let (slot, room) = match state.phase() {
        Phase::Attached => (slot, measure(state, slot, MEASURE_BEFORE)),
        Phase::Standalone if state.is_counted() => match errno::preserving(|| attend(state)) {
            // It has numbered the slots anew.
            Ok(()) => {
                let Some((_, slot)) = sharing::slot_of(real, device) else {
                    return Ok(None);
                };
                (slot, measure(state, slot, MEASURE_BEFORE))
            }
            Err(Refusal::Absent | Refusal::Barred) => return Ok(None),
            Err(_) => (slot, Err(Excess::unmeasured(state, slot))),
        },
        _ => return Ok(None),
    };
    match room {
        Ok(()) => Ok(Some(Announced { state, slot })),
        Err(excess) => {
            excess.explain(state, slot, "a context");
            Err(CuResult::OUT_OF_MEMORY)
        }
    }
}

/// [`session::attend`]; a broker that came learns what was charged before.
#[cold]
fn attend(state: &State) -> Result<(), Refusal> {
    session::attend(state)?;
    session::cover_earlier_use(state);
    Ok(())
}

impl Announced {
    /// Measures what the driver made, or that it made nothing. `Some`: it has to go.
    #[inline(never)]
    pub fn judge(self, result: CuResult) -> Option<Beyond> {
        let Self { state, slot } = self;
        let excess = measure(state, slot, MEASURE_AFTER).err()?;
        result.is_success().then_some(Beyond { state, slot, excess })
    }
}

/// What was made and takes the job beyond its limit: it is to be undone, then [`removed`](Self::removed).
pub struct Beyond {
    state: &'static State,
    slot: usize,
    excess: Excess,
}

impl Beyond {
    /// It was undone: measures that, and says so.
    #[cold]
    #[inline(never)]
    pub fn removed(mut self, what: &str) -> CuResult {
        let _ = measure(self.state, self.slot, MEASURE_AFTER);
        // The job's use was measured with it.
        self.excess.job_used = self.excess.job_used.saturating_sub(self.excess.needed);
        self.excess.explain(self.state, self.slot, what);
        CuResult::OUT_OF_MEMORY
    }
}

/// Says that what contexts hold on a device may have changed. `None`: on some device.
#[inline(never)]
pub fn may_have_changed(real: &Library, device: Option<CuDevice>) {
    match device.map(|device| attached(real, device)) {
        Some(Some((state, slot))) => notice(state, slot, 0),
        // A device that is not shared.
        Some(None) => {}
        None => {
            let state = crate::state::get().filter(|state| state.phase() == Phase::Attached);
            let Some(state) = state else { return };
            for slot in 0..attachment::of(state).job().map_or(0, |job| job.devices().len()) {
                notice(state, slot, 0);
            }
        }
    }
}

/// A context ended: what it held is measured at once, so that the program sees and gets it. `None`: on some device.
#[inline(never)]
pub fn context_ended(real: &Library, device: Option<CuDevice>) {
    let slots = match device.map(|device| attached(real, device)) {
        Some(Some((state, slot))) => Some((state, slot..slot + 1)),
        // A device that is not shared.
        Some(None) => None,
        None => crate::state::get()
            .filter(|state| state.phase() == Phase::Attached)
            .map(|state| {
                (
                    state,
                    0..attachment::of(state).job().map_or(0, |job| job.devices().len()),
                )
            }),
    };
    let Some((state, slots)) = slots else { return };
    for slot in slots {
        let _ = errno::preserving(|| session::measure(state, slot, MEASURE_ENDED));
    }
}

/// The current context's device around a call that loads or unloads code, or sets a limit: its free memory before.
pub struct Watched {
    state: &'static State,
    slot: usize,
    free: u64,
    /// A fall that matters, in bytes.
    large: i64,
}

impl Watched {
    /// `None`: no context is current, or its device is not shared.
    #[inline(never)]
    pub fn begin(real: &Library) -> Option<Self> {
        let mut device: CuDevice = 0;
        if !call!(real, cuCtxGetDevice(&raw mut device)).is_success() {
            return None;
        }
        let (state, slot) = attached(real, device)?;
        let (free, total) = memory(real)?;
        let large = LARGE.min(total / LARGE_PART).max(1) as i64;
        Some(Self {
            state,
            slot,
            free,
            large,
        })
    }

    /// By how much free memory fell since; negative when it rose. Others on the device move it too: a guess that only
    /// decides whether it is worth a measurement.
    fn fell(&self, real: &Library) -> Option<i64> {
        let (free, _) = memory(real)?;
        Some((self.free as i64).wrapping_sub(free as i64))
    }

    /// Tells the broker if anything changed: what was unloaded is free again.
    #[inline(never)]
    pub fn tell(&self, real: &Library) {
        if let Some(fell) = self.fell(real).filter(|fell| *fell != 0) {
            notice(self.state, self.slot, fell);
        }
    }

    /// Measures what was loaded, if it took enough to matter. `Some`: it has to go.
    #[inline(never)]
    pub fn judge(&self, real: &Library, result: CuResult) -> Option<Beyond> {
        let fell = self.fell(real)?;
        if !result.is_success() || fell < self.large {
            if fell != 0 {
                notice(self.state, self.slot, fell);
            }
            return None;
        }
        let excess = measure(self.state, self.slot, MEASURE_AFTER).err()?;
        Some(Beyond {
            state: self.state,
            slot: self.slot,
            excess,
        })
    }
}

/// Free and total bytes of the current context's device.
fn memory(real: &Library) -> Option<(u64, u64)> {
    let (mut free, mut total): (usize, usize) = (0, 0);
    call!(real, cuMemGetInfo_v2(&raw mut free, &raw mut total))
        .is_success()
        .then_some((free as u64, total as u64))
}
