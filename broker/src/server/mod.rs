// SPDX-License-Identifier: Apache-2.0
//! Sockets, descriptors and time around the state driver.
//!
//! `event_loop.rs` has the thread's loop; `accept.rs`, `packets.rs`, `flow.rs` and `perform.rs` have its parts: new
//! connections, incoming packets, outgoing packets, and effects. `limits.rs` bounds what one user can cost; `foreign/`
//! keeps other processes' descriptors off the loop; `given.rs` takes a service manager's sockets.

mod accept;
pub mod connection;
pub mod event_loop;
mod flow;
pub mod foreign;
pub mod given;
pub mod limits;
mod packets;
mod perform;
pub mod socket;
mod token;
