// SPDX-License-Identifier: Apache-2.0
//! The engine: carries out the passages of jobs whose memory leaves their devices or comes back.
//!
//! ```text
//!   suspend ──► facts.rs: anything in the way? ──► each process asked for its state ──► Passage::begin
//!   migrate ──► the same, with a target
//!   resume ──► the policy's queue ──► Action::Come ────────────────────────────────────► Passage::begin
//!   a record of the broker before, a process of an away job that ended ────────────────► Passage::recover
//!                                              │
//!                  ┌───────────────────────────▼──────────────────────────┐
//!                  │ next_step ──► steps.rs begins it ──► waits.rs ──► take │ at each turn of the loop
//!                  └───────────────────────────┬──────────────────────────┘
//!                                              ▼ outcome: events, and the answer to each command that waits
//! ```
//! What a passage decides is the policy's (`policy/src/residence/`); here is what its steps do: hold words in the
//! clients' pages (`holds.rs`), the driver's calls by a helper of the job's user (an effect, answered by
//! [`StateDriver::), looks of NVML, the books, the
//! record on disk. One step of one job is under way at a time, and nothing here waits.

mod answers;
mod behind;
mod code;
mod commands;
mod device_map;
mod drains;
mod dumping;
mod engine;
mod facts;
mod holds;
mod idle;
mod idle_jobs;
mod leaving;
mod maps;
mod moves;
mod periodic;
mod periodic_jobs;
mod recovering;
mod restoring;
mod saving;
mod steps;
mod turns;
mod waits;
mod way;
mod writing;
mod written;

pub(crate) use engine::Engine;
pub(crate) use restoring::{has_needs, owe};
pub(crate) use saving::may_save;
