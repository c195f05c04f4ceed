// SPDX-License-Identifier: Apache-2.0
//! The subcommands, a file each: what it asks, and what it prints.

pub mod about;
mod audit;
pub mod broker;
pub mod config;
pub mod container;
pub mod demo;
pub mod doctor;
pub mod events;
pub mod get;
mod get_gpu;
pub mod install;
pub mod man;
pub mod metrics;
pub mod ps;
pub mod queue;
pub mod quota;
pub mod residence;
pub mod run;
pub mod set;
pub mod sim;
pub mod snapshot;
pub mod status;
pub mod status_check;
pub mod stop;
mod user;
pub mod verify;
pub mod why;
