// SPDX-License-Identifier: Apache-2.0
//! Carries out what programs submit to streams: in the right order, on worker threads, in device time.
//!
//! From the lowest layer up, each names only those before it:
//! - [`order`] knows what waits for what, [`Seen`] what events have told a stream;
//! - [`queue`] holds a context's lanes and its seat on the device timeline; contexts are made of that;
//! - [`place`] is where an operation runs, [`op`] says what it does and how long it takes;
//! - [`pool`] holds what was submitted, [`chain`] what is on the timeline, [`lanes`] makes and ends a context's lanes;
//! - [`run`] carries out one operation, [`workers`] all of them. Streams and graphs are made of that.
//!
//! Lock order: a context's queue, then the pool's state, then a device's timeline. None is held while an operation
//! runs or while anybody waits for one.

mod chain;
pub mod lanes;
pub mod op;
pub mod order;
pub mod place;
pub mod pool;
pub mod queue;
mod run;
mod seen;
pub mod workers;

pub use op::Op;
pub use order::{Kind, LaneId, OpId};
pub use queue::Queue;
pub use seen::Seen;
