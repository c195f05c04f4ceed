// SPDX-License-Identifier: Apache-2.0
//! The command line as a user meets it: the built program, a broker played by the test, and what came out.
//!
//! - `bench`: a folder for one test, with the program's environment in it.
//! - `played_broker`: a broker that answers from a script, as a thread or as the program that `run` starts.
//! - `schema`: a small judge of documents against `docs/json/`.
//! - `window`: a program in a pseudo-terminal.
//! - `quota`, `containers`, `run*`, `top`, `start`, `*tables`, `widths`, `mistakes`, `sim`, `judged`, `jobs`,
//!   `install`, `silence`: the tests.

mod bench;
mod broker_tables;
mod config;
mod containers;
mod install;
mod jobs;
mod judged;
mod mistakes;
mod played_broker;
mod quota;
mod run;
mod run_nested;
mod run_refused;
mod run_says;
mod run_terms;
mod schema;
mod silence;
mod sim;
mod start;
mod tables;
mod time_tables;
mod top;
mod widths;
mod window;
