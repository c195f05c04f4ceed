// SPDX-License-Identifier: Apache-2.0
//! From the words of `run` to COMMAND.
//!
//! - `place`: the directory in which this caller and its broker meet. `installed`, `library_copy`: the files that are preloaded and run.
//! - `run_settings`, `variables`: what is asked, from options and variables. `preflight`: whether a limit can follow COMMAND.
//! - `launch_broker`: reaches a broker, and starts one where there is none. `nested`, `lazy`: `run` inside a job, and before one.
//! - `execute`, `supervise`: COMMAND in this process's place, or as its child.

pub mod execute;
pub mod installed;
pub mod launch_broker;
pub mod lazy;
pub mod library_copy;
pub mod nested;
pub mod place;
pub mod preflight;
pub mod run_settings;
pub mod supervise;
pub mod variables;
