// SPDX-License-Identifier: Apache-2.0
//! Who may use a device's time, as a pure function: [`Scheduler::step`]`(now, event) -> commands`.
//!
//! No clock, no I/O, no `unsafe`. The caller looks at the devices as often as [`Scheduler::wants_observation`] asks,
//! tells what it saw, and carries the commands out before it looks again.
//!
//! Terms (the rest in docs/glossary.md). *Unit*: a kernel or graph, which runs to its end. *Member*: a job on
//! a device (`JobOnDevice`); *seat*: one of its clients there (`ClientOnDevice`). *Wants*: has work on the device or a
//! thread at its gate. *Charge*: device time taken from a job's account, measured (`charge`). *Lag*: device time that a
//! job is owed beside those that want the device too (`share`). *Slack*: by how much a job may be ahead before it is
//! kept away. Units: nanoseconds, parts per million.
//!
//! A client at a gate:
//! ```text
//!                 Open                                   launch                 retired
//!   closed ─────────────────────────────► open, idle ─────────────► busy ───────────────────► open, idle
//!    ▲  ▲                                    │ Close                  │ Close
//!    │  └────────────────────────────────────┘                        ▼
//!    │                        retired                              draining ──── drain timeout ───► not draining
//!    └──────────────────────────────────────────────────────────────┘ ▲          (others go on)         │
//!                                                                      └──────────── retires again ─────┘
//! ```
//! A device's regime:
//! ```text
//!               two jobs want it without pause (0.25 s), or one must have it alone
//!   Overlap ────────────────────────────────────────────────────────────────────────────► Turns
//!   several gates open;                                                   one job's gates open;
//!   who is ahead by the slack is closed                                   drain, then the next
//!      ▲                                                                                    │
//!      └────────────────────────────────────────────────────────────────────────────────────┘
//!        fewer than two such jobs (after 1 s), turns leave the device idle (0.25 s), a drain does not end (at once)
//! ```
//! The service-error bound. For every job that wants the device without pause over an interval, the device time that it
//! is charged differs from its share of what is charged to all by at most
//!
//! ```text
//!   Turns:    quantum + depth + one unit + one observation interval      (5 ms + 0.5 ms + unit + 0.1 ms)
//!   Overlap:  slack   + depth + one unit + one observation interval      (4 ms + 0.5 ms + unit + 0.2 ms)
//! ```
//! (slack: a quarter of the longest unit, at most 25 ms, where that is more)
//! at each end of the interval, and what it is charged differs from what it used by what has not retired yet, where the
//! device time of retired work is known; otherwise by half an observation interval for each hand-over (Turns), or by
//! what samples of overlapping work can tell (Overlap, see `charge`). A job's cap is exceeded in no period by more than
//! depth + one unit + one observation interval, and what was exceeded is paid by the next periods. An observation that
//! comes late by more than a quarter of a second is the exception: gates stood open because nobody was there to close
//! them, so it is charged as if that quarter had been all, whoever's gates they were. Nothing waits for
//! ever: a drain ends after its timeout, a job of a lower class gets the floor, a gang that is torn goes on for a
//! moment, a bound on the work in flight that keeps that work from ending is lifted.
#![forbid(unsafe_code)]

mod cap;
mod check;
mod class;
mod command;
mod config;
mod contention;
mod correction;
mod depth;
mod device;
mod event;
mod gang;
mod job_on_device;
mod overlap;
mod record;
mod regime;
mod scheduler;
mod share;
mod turns;
mod view;
mod waits;
mod wakes;

pub use partage_gpu_time::DeviceTime;
pub use partage_protocol::terms::Class;
pub use partage_protocol::units::{ClientId, JobId};

pub use check::Violation;
pub use command::{Action, Cause, Command, JobView, Regime, TimeState};
pub use config::Config;
pub use event::{DeviceKey, Event, Observation, Terms};
pub use scheduler::Scheduler;
