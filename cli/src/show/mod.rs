// SPDX-License-Identifier: Apache-2.0
//! Output, for people and as JSON.
//!
//! - `report`: data and sentences to where they belong. `terminal`: colour, width, characters. `tables`: columns,
//!   lines.
//! - `again`: a command that shows itself every second.
//! - `job_table`: the table of jobs. `devices`, `time`: a job's devices, its terms of time and what came of them.

pub mod again;
pub mod devices;
pub mod job_table;
pub mod report;
pub mod tables;
pub mod terminal;
pub mod time;
