// SPDX-License-Identifier: Apache-2.0
//! What clients, broker and command line say to each other: bytes in, bytes out, no sockets.
//!
//! Two languages share one SEQPACKET socket, told apart by a packet's first four bytes: fixed binary messages
//! between the interposer and the broker ([`message`]), and JSON documents between the command line and the broker
//! ([`admin`], cut into packets by [`frame`]). Beside the socket, each client shares two pages with the broker
//! ([`page`]), on which the reservation protocol ([`reservation`]) runs without a message in the common case.

pub use partage_wire::{gate, hold, message, page, pool, reservation, threads, units, without_broker};

pub mod admin;
pub mod aliases;
pub mod denied;
pub mod driver_place;
pub mod frame;
pub mod job_ledger;
pub mod labels;
pub mod private_broker;
pub mod request;
pub mod shown;
pub mod size;
pub mod snapshot;
pub mod summary;
pub mod terms;
pub mod time_aliases;
pub mod utc;
