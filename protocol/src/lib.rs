// SPDX-License-Identifier: Apache-2.0
//! What clients, broker and command line say to each other: bytes in, bytes out, no sockets.
//!
//! Two languages share one SEQPACKET socket, told apart by a packet's first four bytes: fixed binary messages
//! between the interposer and the broker ([`message`]), and JSON documents between the command line and the broker
//! ([`admin`], cut into packets by [`frame`]). Beside the socket, each client shares two pages with the broker
//! ([`page`]), on which the reservation protocol ([`reservation`]) runs without a message in the common case.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod admin;
#[cfg(feature = "std")]
pub mod frame;
#[cfg(feature = "std")]
pub mod job_ledger;
pub mod message;
pub mod page;
pub mod reservation;
#[cfg(feature = "std")]
pub mod size;
pub mod units;
