// SPDX-License-Identifier: Apache-2.0
//! What one node does; also the form in which work is submitted to a stream, so that capturing it needs no second
//! description.

use std::sync::Arc;

use partage_abi::types::CuResult;

use super::Graph;
use super::exec::Exec;
use crate::event::Event;
use crate::executor::Op;
use crate::executor::op::{Copy, Fill, HostCall, KernelLaunch, WordStep};
use crate::memory::Allocation;
use crate::state::{Answer, Context};
use crate::stream::Stream;

/// Types of nodes as the driver numbers them (`CU_GRAPH_NODE_TYPE_*`).
pub mod kind {
    /// A kernel.
    pub const KERNEL: i32 = 0;
    /// A copy.
    pub const MEMCPY: i32 = 1;
    /// A memory set.
    pub const MEMSET: i32 = 2;
    /// A function of the program.
    pub const HOST: i32 = 3;
    /// A graph.
    pub const GRAPH: i32 = 4;
    /// Nothing.
    pub const EMPTY: i32 = 5;
    /// A wait for an event of outside.
    pub const WAIT_EVENT: i32 = 6;
    /// The recording of an event.
    pub const EVENT_RECORD: i32 = 7;
    /// An allocation.
    pub const MEM_ALLOC: i32 = 10;
    /// A free.
    pub const MEM_FREE: i32 = 11;
    /// Stream memory operations.
    pub const BATCH_MEM_OP: i32 = 12;
}

/// What a node does.
#[derive(Clone)]
pub enum Work {
    /// Launches a kernel.
    Kernel(Box<KernelLaunch>),
    /// Copies, on a context's device if one was named.
    Copy(Box<Copy>, Option<Arc<Context>>),
    /// Sets memory, on a context's device if one was named.
    Fill(Fill, Option<Arc<Context>>),
    /// Calls a function.
    Host(HostCall),
    /// Runs a graph.
    Child(Arc<Graph>),
    /// Does nothing.
    Empty,
    /// Waits for an event recorded outside.
    Wait(Arc<Event>),
    /// Records an event for outside.
    Record(Arc<Event>),
    /// Waits for and writes words.
    Words(Vec<WordStep>),
    /// Allocates memory whose address is known already.
    Allocate(Arc<Allocation>),
    /// Frees memory that a graph allocated.
    Free(Arc<Allocation>),
}

impl Work {
    /// Its type as the driver numbers it.
    pub fn kind(&self) -> i32 {
        match self {
            Self::Kernel(_) => kind::KERNEL,
            Self::Copy(..) => kind::MEMCPY,
            Self::Fill(..) => kind::MEMSET,
            Self::Host(_) => kind::HOST,
            Self::Child(_) => kind::GRAPH,
            Self::Empty => kind::EMPTY,
            Self::Wait(_) => kind::WAIT_EVENT,
            Self::Record(_) => kind::EVENT_RECORD,
            Self::Words(_) => kind::BATCH_MEM_OP,
            Self::Allocate(_) => kind::MEM_ALLOC,
            Self::Free(_) => kind::MEM_FREE,
        }
    }

    /// Whether it allocates or frees.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// The same work for another node: a graph inside is copied.
    pub fn copy(&self) -> Answer<Self> {
        match self {
            Self::Child(graph) => Ok(Self::Child(graph.copy(true)?)),
            other => Ok(other.clone()),
        }
    }

    /// The operation that does it, where it is a single one. A recording is numbered by its event when it is launched.
    pub fn op(&self) -> Option<Op> {
        Some(match self {
            Self::Kernel(launch) => Op::Kernel(launch.clone()),
            Self::Copy(copy, _) => Op::Copy(copy.clone()),
            Self::Fill(fill, _) => Op::Fill(*fill),
            Self::Host(call) => Op::Host(*call),
            Self::Words(steps) => Op::Words(steps.clone()),
            Self::Allocate(allocation) => Op::Allocate(Arc::clone(allocation)),
            Self::Free(allocation) => Op::Free(Arc::clone(allocation)),
            Self::Empty | Self::Wait(_) => Op::Nothing,
            Self::Child(_) | Self::Record(_) => return None,
        })
    }

    /// The context whose device does it, if that is not the stream's.
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Self::Kernel(launch) => Some(&launch.context),
            Self::Copy(_, context) | Self::Fill(_, context) => context.as_ref(),
            _ => None,
        }
    }

    /// Submits it to a stream that is not captured.
    pub fn submit(self, stream: &Arc<Stream>) -> Answer {
        match &self {
            Self::Child(graph) => Exec::of(graph, 0)?.launch(stream),
            Self::Record(event) => stream.record_now(event),
            Self::Wait(event) => stream.submit(Op::Nothing, &event.recorded()).map(drop),
            _ => {
                let op = self.op().ok_or(CuResult::NOT_SUPPORTED)?;
                stream.submit(op, &[]).map(drop)
            }
        }
    }
}
