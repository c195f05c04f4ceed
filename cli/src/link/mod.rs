// SPDX-License-Identifier: Apache-2.0
//! The conversation with a broker, and what is known where none answers.
//!
//! - `connection`: frames over its socket. `ask`: one question and its answer.
//! - `silence`: a broker that is there and does not answer. `idle`: a machine without one. `other_brokers`: those of
//!   other users. `commands`: those of jobs that began without `run`.

pub mod ask;
pub mod commands;
pub mod connection;
pub mod idle;
pub mod other_brokers;
pub mod silence;
