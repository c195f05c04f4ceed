// SPDX-License-Identifier: Apache-2.0
//! The rows of the runtime, by what they are about.

pub mod device;
pub mod event;
pub mod graph;
pub mod launch;
pub mod library;
pub mod memory;
pub mod pool;
pub mod stream;
pub mod transfer;

/// All chapters' rows.
pub const ALL: &[&[crate::rows::Row]] = &[
    device::ROWS,
    event::ROWS,
    graph::ROWS,
    launch::ROWS,
    library::ROWS,
    memory::ROWS,
    pool::ROWS,
    stream::ROWS,
    transfer::ROWS,
];
