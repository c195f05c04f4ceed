// SPDX-License-Identifier: Apache-2.0
//! The real `partaged` on a simulated machine (or on none), met by real processes over its sockets.
//!
//! `client_process` is no test of its own: the others start this program again as a client, steered over its standard
//! input (`client.rs`).

mod adoption;
mod attached;
mod audit;
mod client;
mod configured;
mod floods;
mod hostile;
mod inherited;
mod jobs;
mod overhead;
mod rig;
mod rights;
mod views;
