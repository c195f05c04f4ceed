// SPDX-License-Identifier: Apache-2.0
//! Residence: whether a job's memory is on its devices, and the steps that take it off them and back.
//!
//! Terms: *hold*, where threads wait before the driver while their job's memory leaves or is away; *soft* opens by
//! itself when the broker dies, *hard* never does. *leaving, away, coming*: on its way off the device, off it, on its
//! way back. *passage*: one leave, come, move or save of one job under way. *source*, the devices that the job has;
//! *target*, the same with one of them exchanged. *books*: the reservation words, with P, the bytes to be had again.
//!
//! ```text
//!  caller ── obstacles() none ──► Passage::begin ─┐    ┌─────── next_step() ──► Step: the broker carries it out
//!  next broker ── Passage::recover(mark, pids) ───┴──► Passage ◄── take(Answer), gone(process)
//!                                                         │ Step::Write(Mark) ──► Event::Residence: the job's record
//!                                                         └ outcome(): here, away, poisoned
//! ```
//! A passage keeps no script. It has a *goal* (all processes checkpointed, or all running at a place) and what it knows
//! of each process, and says the first step that the goal still lacks. So a step that fails only changes the goal, and
//! a new broker that asks the driver for each process's state goes on where the one before died. One step is under way
//! at a time. [`stages`] is the order that follows when nothing goes wrong; a test holds both against each other.
//!
//! Invariants (`policy/tests/residence_every_interleaving.rs`):
//! 1. Restore is said only after the policy's books had room ([`Step::RoomAsk`], [`Step::LedgerCome`]) and NVML showed
//!    it ([`Step::RoomProve`]) for exactly this process.
//! 2. Checkpoint is said only while the hold is hard, and the hold opens only when no process is checkpointed.
//! 3. Before the first Checkpoint any failure unlocks all and opens. After it, what was checkpointed comes back on room
//!    that is still its own; without that room all of the job is away.
//! 4. The mark that says a stage is written before the first step of that stage.
//!
//! The files: `state.rs` the table of residences; `stage.rs` the plans, with what undoes each stage and what a death in
//! it leaves; `step.rs` steps and answers; `mark.rs` what is written; `facts.rs` what a passage
//! knows; `goal.rs` the next step; `passage.rs` what an answer changes; `recovery.rs` what the next broker does;
//! `trouble.rs` failures in words; `eligibility.rs` what keeps a job from leaving.

mod eligibility;
mod facts;
mod goal;
mod mark;
mod passage;
mod place;
mod recovery;
mod stage;
mod state;
mod step;
mod trouble;

pub use eligibility::{HostRoom, Intent, JobFacts, Obstacle, ProcessFacts, Tie, obstacles};
pub use goal::Patience;
pub use mark::{InBooks, Mark, ResidenceRecord, Save};
pub use passage::{Outcome, Passage};
pub use place::{Place, ProcessState, Target};
pub use stage::{Plan, Stage, stages};
pub use state::{Residence, Turn};
pub use step::{Answer, Step};
pub use trouble::{Trouble, driver_answered};
