// SPDX-License-Identifier: Apache-2.0
//! Admission, quota, terms of time, queue and placement as pure functions: `Policy::step(now, event, machine) ->
//! actions`.
//!
//! No clock, no I/O, no threads, no logging, no `unsafe`; `clippy.toml` refuses the calls. Time is an argument, what
//! happened is an [`Event`], what to do is an [`Action`]. The only things touched outside are the
//! reservation words of clients, through [`Machine`].
//!
//! Terms (the rest in docs/glossary.md): *slot*, a device's place in its job; *committed*, per job and device, the
//! greater of what is promised and what is in use; *room*, what a device has left when everything committed and every
//! unmanaged process is subtracted; *burstable*, a job whose limit exceeds its promise, so that it draws on the room.
//!
//! Invariants, for every device at every instant:
//! 1. Σ promised ≤ usable × overcommit (1 unless configured).
//! 2. While anything is promised: Σ over jobs of max(guaranteed, granted + overhead) + unmanaged ≤ usable, unless
//!    unmanaged use or an overhead grew, a limit was lowered below use, or a promise beyond what is usable was
//!    admitted; then only falling use. *Guaranteed* is the promise, or where the promises on a device add up to more
//!    than it has, its part of what there is (`device/account.rs`).
//! 3. Σ promised parts of its time ≤ 1 × compute overcommit (1 unless configured).
//! 4. No later request delays a waiting one: of each device that it could use, later ones get what is left beside it,
//!    of memory and of time.
#![forbid(unsafe_code)]

// First: others declare the facts that its tables word.
#[macro_use]
mod views;

mod action;
mod books;
mod caller;
mod client;
mod config;
mod decisions;
mod device;
mod drain_mark;
mod emptying;
mod event;
mod gpu_name;
mod heard;
mod holding;
mod job;
mod machine;
mod notice;
mod numbers;
mod origin;
mod question;
mod refusal;
mod registration;
mod request;
mod residence;
mod rules;
mod shared;
mod sick;
mod telemetry;
mod terms;
mod time;
mod uuid_text;
mod worded;

pub use partage_scheduling::{Cause, Regime, TimeState};

pub use action::{Action, Signal};
pub use books::{Access, Books, Exchange, GIVEN_UP_NS, PATIENCE_NS, Shortage, TIME_LIMIT_GRACE_NS, Violation};
pub use caller::{Caller, Process, Ticket};
pub use client::{Client, Presence};
pub use config::{Audit, Config, Order, QueueRules, Response, Split};
pub use decisions::{ADOPTION_NS, MAX_CLIENTS_PER_JOB, MEASURE_NS, Policy};
pub use device::{CONFIRM_NS, DeviceState, UNAUDITED_NS, UnmanagedLoad};
pub use drain_mark::DrainMark;
pub use emptying::{Emptying, Next, Stay};
pub use event::{
    Adoption, Attaching, Change, DeviceSeen, DriverState, Event, LedgerClient, Measurement, Membership, ProcessUse,
    Return, Run, TargetQuery,
};
pub use gpu_name::GpuName;
pub use heard::Heard;
pub use job::{
    Denial, EndedJob, EndedSlot, Held, JobRecord, JobState, LINGER_NS, OwnLimit, Placement, REMEMBER_COUNT,
    REMEMBER_NS, Reason, STRICT_NS, Unfreed,
};
pub use machine::{Machine, Reading};
pub use notice::Numbers;
pub use numbers::{NumberChange, changed_numbers};
pub use origin::Origin;
pub use refusal::Refusal;
pub use registration::{Ceiling, Cgroup, EngineJob, Lowered, Registration};
pub use request::{GpuChoice, RunSpec, check_name, job_number};
pub use residence::{
    Answer, HostRoom, InBooks, Intent, JobFacts, Mark, Obstacle, Outcome, Passage, Patience, Place, Plan, ProcessFacts,
    ProcessState, Residence, ResidenceRecord, Save, Stage, Step, Target, Tie, Trouble, Turn, driver_answered,
    obstacles, stages,
};
pub use rules::{
    Asked, AskedMemory, AskedTerms, At, CardSize, Facts, Judge, Match, Max, Memory, NotAllowed, Pattern, Per, Preset,
    Rule, Rules, Said, Standing, Total, WithoutBroker, Written,
};
pub use sick::{FATAL_XIDS, FatalXid, SickMark, Sickness};
pub use telemetry::{About, THROTTLES, Telemetry, Throttle};
pub use terms::{Terms, TermsOrigin};
pub use time::{JobTime, MOST_USERS, TIME_CONFIRM_NS, UserUsage};
pub use views::stands;
