// SPDX-License-Identifier: Apache-2.0
//! The broker's parts, as a library so that tests can drive them without a process.
//!
//! Read in this order: [`driver`] (what happens comes in, and the policy decides), [`site`] (what all of it knows),
//! `residence` (jobs whose memory leaves its devices), [`server`] (the loop around them), [`state`] (clients, files and
//! where the reservation words lie), [`host`] (devices and processes), [`helper`] (processes that may hang),
//! [`dispatcher`] (the thread that moves the gates), [`views`] (the thread that answers `ps` and its like), [`watch`]
//! (events and log), [`metrics`] (what a monitoring system reads).

pub mod clock;
pub mod config;
pub mod dispatcher;
pub mod driver;
pub mod error;
pub mod helper;
pub mod history;
pub mod host;
pub mod invariants;
mod kept_file;
pub mod kind;
pub mod metrics;
pub mod peer;
mod registration;
mod residence;
pub mod server;
pub mod site;
pub mod snapshot;
pub mod state;
pub mod testing;
pub mod views;
pub mod watch;
