// SPDX-License-Identifier: Apache-2.0
//! What an operation does, and how long it takes on the device.
//!
//! An operation of a context that has failed does nothing and takes no time, but completes: whoever waits for it
//! then learns the context's error.

pub mod copy;
mod fill;
mod host;
mod kernel;
pub mod words;

use std::sync::{Arc, Mutex};

use partage_machine::timeline::Ask;

use super::order::OpId;
use crate::event::{Elsewhere, Event};
use crate::graph::user_object::Objects;
use crate::memory::{Allocation, Binding};

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
    /// A wait for what another process recorded.
    Elsewhere(Arc<Elsewhere>),
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
    /// What a stream does to come after the latest recording of an event, and what must be complete before.
    pub fn after(event: &Event) -> (Self, Vec<OpId>) {
        match event.elsewhere() {
            Some(elsewhere) => (Self::Elsewhere(Arc::new(elsewhere)), Vec::new()),
            None => (Self::Nothing, event.recorded()),
        }
    }

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
