// SPDX-License-Identifier: Apache-2.0
//! The policy's tests, in one program: each of its own would be built with the whole host again.

#[path = "host/acts.rs"]
mod acts;
mod host;

mod admission;
mod advice;
mod audit;
mod backfill;
mod clients;
mod every_reachable_state;
mod lazy;
mod limits;
mod measured_time;
mod overhead;
mod promises_every_state;
mod queue_cost;
mod random_hosts;
mod settings;
mod targets;
mod terms;
mod time_audit;
