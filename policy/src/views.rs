// SPDX-License-Identifier: Apache-2.0
//! The admin protocol's documents for users: read-only, over the policy's questions.

mod events;
mod moving;
mod ps;
mod queue;
#[macro_use]
mod said;
mod sentences;
mod slow;
mod status;
mod telemetry;
mod totals;
mod why;
mod words;

pub use said::stands;
