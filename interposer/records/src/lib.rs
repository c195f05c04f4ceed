// SPDX-License-Identifier: Apache-2.0
//! What one process holds of a device's memory: the tables and rules behind charges and refunds, as pure code. And
//! whose client it is.
//!
//! No driver is called here, nothing is shared, no lock is taken: the interposer does all three around it. A crate of
//! its own, because the interposer (a `no_std` library that aborts where tests unwind) cannot be tested by itself.
//! The interposer's rules hold: no panic is reachable in a release build, memory comes from [`Pages`] and never from
//! the program's allocator.
#![no_std]

pub mod array;
pub mod attachment;
pub mod exchange;
pub mod graph;
pub mod physical;
pub mod raise;
pub mod refusals;
mod table;

pub use table::{Entry, Pages, Table};
