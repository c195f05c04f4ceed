// SPDX-License-Identifier: Apache-2.0
//! From the words of `run` to COMMAND.
//!
//! - What is asked: `run_settings` from the options, `variables` that stand for options, `command` that is to run.
//! - Whether a limit can follow COMMAND: `preflight`.
//! - Where broker and files are: `place`, the directory in which a caller and its broker meet; `installed`,
//!   `library_copy`; `container`, what the caller is shut into.
//! - Who admits it: `launch_broker` reaches a broker and starts one where there is none, `broker_process` knows its
//!   end; `admission` asks and waits.
//! - Instead of a new job: `nested`, inside another one; `lazy`, once COMMAND uses a GPU.
//! - COMMAND itself: `environment`, what it gets and loses; `start`, as the first process of a job; `execute` in this
//!   process's place, `supervise` as its child; `summary` after its end.

pub mod admission;
pub mod broker_process;
pub mod command;
pub mod container;
pub mod environment;
pub mod execute;
pub mod installed;
pub mod launch_broker;
pub mod lazy;
pub mod library_copy;
pub mod nested;
pub mod place;
pub mod preflight;
pub mod run_settings;
pub mod start;
pub mod summary;
pub mod supervise;
pub mod variables;
