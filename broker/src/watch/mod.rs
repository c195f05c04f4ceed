// SPDX-License-Identifier: Apache-2.0
//! Output for people and service managers: events, the log, readiness, and users by their names.

pub mod audit_budget;
pub mod audit_log;
pub mod events;
pub mod flood;
pub mod local_accounts;
pub mod log;
pub mod notify;
pub mod other_brokers;
pub mod program;
pub mod services;
mod turns;
pub mod users;
pub mod watchdog;
