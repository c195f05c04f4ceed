// SPDX-License-Identifier: Apache-2.0
//! What an operation does, and how long it takes on the device.
//!
//! An operation of a context that has failed does nothing and takes no time, but completes: whoever waits for it
//! then learns the context's error. *Transit*: the wake that this thread holds, and whose seat a request may have been
//! announced for that it has not handed in yet (see the timeline).

pub mod copy;
mod fill;
mod host;
mod kernel;
pub mod words;

use std::sync::{Arc, Mutex, PoisonError};

use partage_machine::timeline::{Ask, Engine, FULL, Seat};

use super::order::OpId;
use super::pool::{self, Hold};
use crate::event::Event;
use crate::graph::user_object::Objects;
use crate::memory::{Allocation, Binding};
use crate::state::{Context, driver};

pub use copy::{Copy, End, Side};
pub use fill::Fill;
pub use host::HostCall;
pub use kernel::KernelLaunch;
pub use words::WordStep;

/// One operation.
#[derive(Clone)]
pub enum Op {
    /// Only a place in the order.
    Nothing,
    /// A kernel.
    Kernel(Box<KernelLaunch>),
    /// A copy.
    Copy(Box<Copy>),
    /// A memory set.
    Fill(Fill),
    /// A function of the program.
    Host(HostCall),
    /// The end of what precedes a recorded event.
    Record {
        /// The event.
        event: Arc<Event>,
        /// Which of its recordings.
        recording: u64,
    },
    /// Waits and writes of words in memory, in this order.
    Words(Vec<WordStep>),
    /// The free of memory that the program has given up, or that a graph frees.
    Free(Arc<Allocation>),
    /// A graph's allocation.
    Allocate(Arc<Allocation>),
    /// Memory is put behind addresses of a graph.
    Map(Arc<[Binding]>),
    /// The end of a launch that kept objects of the program.
    LetGo(Arc<Mutex<Objects>>),
}

impl Op {
    /// Whether the multiprocessors carry it out.
    pub fn computes(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Fill(_))
    }

    /// Whether it takes no time on the device and waits for nobody.
    pub fn is_instant(&self) -> bool {
        match self {
            Self::Nothing | Self::Record { .. } => true,
            Self::Words(steps) => !steps.iter().any(|step| matches!(step, WordStep::Wait { .. })),
            _ => false,
        }
    }

    /// What it will ask of the device, if it only takes time there.
    pub fn ask(&self, priority: i32) -> Option<Ask> {
        match self {
            Self::Kernel(launch) => launch.ask(priority),
            _ => None,
        }
    }
}

/// Where an operation runs.
pub struct Place<'a> {
    /// Whose it is.
    pub context: &'a Arc<Context>,
    /// Its context's seat on the device.
    pub seat: &'a Arc<Seat>,
    /// The operation.
    pub op: OpId,
    /// Priority of its stream.
    pub priority: i32,
    /// The wake in transit.
    pub transit: &'a mut Option<Hold>,
}

impl Op {
    /// Carries it out and returns the device time at which it ended; `time` is when what it waited for had ended.
    pub fn run(&self, context: &Arc<Context>, op: OpId, priority: i32, time: u64, transit: &mut Option<Hold>) -> u64 {
        let Ok(lanes) = context.queue.lanes(context) else {
            match self {
                Self::Record { event, recording } => event.complete(*recording, time),
                other => other.keep_books(context),
            }
            return time;
        };
        let seat = &lanes.seat;
        let mut place = Place {
            context,
            seat,
            op,
            priority,
            transit,
        };
        let is_sound = context.check().is_ok();
        match self {
            Self::Kernel(launch) if is_sound => launch.run(&mut place),
            Self::Copy(copy) if is_sound => copy.run(&mut place),
            Self::Fill(fill) if is_sound => fill.run(&mut place),
            Self::Words(steps) if is_sound => match words::run(steps, &mut place) {
                false if time > 0 => time,
                _ => seat.clock(),
            },
            Self::Host(call) => {
                pool::settle(place.transit);
                call.run(context);
                seat.clock()
            }
            Self::Record { event, recording } => {
                let at = if time > 0 { time } else { seat.clock() };
                event.complete(*recording, at);
                at
            }
            Self::LetGo(_) => {
                // The destructor is the program's: it may take as long as a host function.
                pool::settle(place.transit);
                self.keep_books(context);
                seat.clock()
            }
            other => {
                other.keep_books(context);
                if time > 0 { time } else { seat.clock() }
            }
        }
    }
}

impl Op {
    /// What is done about memory also when the context has failed: nothing else would do it.
    fn keep_books(&self, context: &Context) {
        let Ok(driver) = driver() else { return };
        match self {
            Self::Free(allocation) => driver.memory.end_free(driver, allocation),
            Self::Allocate(allocation) => driver.memory.enter_planned(allocation),
            Self::Map(bindings) => {
                for binding in bindings.iter() {
                    if let Err(code) = driver.memory.map_span(driver, binding) {
                        context.stick(code);
                    }
                }
            }
            Self::LetGo(objects) => {
                let objects = std::mem::take(&mut *objects.lock().unwrap_or_else(PoisonError::into_inner));
                objects.release();
            }
            _ => {}
        }
    }
}

impl Place<'_> {
    /// Occupies an engine; see [`pool::occupy`]. Returns the device time at which it ended.
    fn occupy(
        &mut self,
        engine: Engine,
        need_ns: Option<u64>,
        demand: u64,
        effects: impl FnOnce() -> Option<u64>,
    ) -> u64 {
        pool::settle_others(self.transit, self.seat);
        let ask = Ask {
            engine,
            need_ns,
            demand: demand.clamp(1, FULL) as u32,
            priority: self.priority,
        };
        pool::occupy(self, ask, effects).ended
    }
}
