// SPDX-License-Identifier: Apache-2.0
//! What is printed: for people and as JSON.
//!
//! - `report`: data and sentences to where they belong. `terminal`: colour, width, characters.
//! - `job_table`, `time`: the table of jobs; terms of time, and what came of them.

pub mod job_table;
pub mod report;
pub mod terminal;
pub mod time;
