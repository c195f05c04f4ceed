// SPDX-License-Identifier: Apache-2.0
//! The formats on the wire and in the shared pages: the part of the protocol that the preloaded library uses.
//!
//! A crate of its own and not a feature of `partage-protocol`: Cargo unifies features over a workspace build, and a
//! `no_std` library would then be linked against the standard library that the command line asked for.
#![no_std]

pub mod aliases;
pub mod frame;
pub mod gate;
pub mod hold;
pub mod message;
pub mod page;
pub mod pool;
pub mod reservation;
pub mod threads;
pub mod units;
pub mod without_broker;
