// SPDX-License-Identifier: Apache-2.0
//! Carries out what programs submit to streams: in the right order, on worker threads, in device time.
//!
//! [`order`] knows what waits for what; [`Seen`] what events have told a stream; [`pool`] runs what is ready; [`queue`]
//! holds a context's lanes and its seat on the device timeline; [`op`] says what an operation does and how long it
//! takes.
//!
//! Lock order: a context's queue, then the pool's state, then a device's timeline. None is held while an operation
//! runs or while anybody waits for one.

pub mod op;
pub mod order;
pub mod pool;
pub mod queue;
mod seen;

pub use op::Op;
pub use order::{Kind, LaneId, OpId};
pub use queue::Queue;
pub use seen::Seen;
