// SPDX-License-Identifier: Apache-2.0
//! The broker's parts, as a library so that tests can drive them without a process.
//!
//! Read in this order: [`state_driver`] (the owner of all state), [`server`] (the loop around it), [`clients`],
//! [`ledger`] and [`pages`] (where the reservation words lie), [`host`] (devices and processes), [`timekeeper`] (the thread that moves the gates).

pub mod attach;
pub mod clients;
pub mod config;
pub mod connection;
pub mod deaths;
pub mod devices;
pub mod directory;
pub mod ended;
pub mod error;
pub mod events;
pub mod flood;
pub mod foreign;
pub mod host;
pub mod inherited;
pub mod invariants;
pub mod ledger;
pub mod log;
pub mod notify;
pub mod pages;
pub mod records;
pub mod requests;
pub mod server;
pub mod signals;
pub mod socket;
pub mod state_driver;
pub mod testing;
pub mod timekeeper;
mod times;
pub mod users;
