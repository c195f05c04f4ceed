// SPDX-License-Identifier: Apache-2.0
//! The admin protocol's documents for users: read-only, over the policy's questions.

mod admitted;
mod events;
pub(crate) mod foreseen;
mod moving;
mod ps;
mod queue;
pub(crate) mod returning;
mod sentences;
mod slow;
mod status;
mod totals;
mod why;
mod words;
