// SPDX-License-Identifier: Apache-2.0
//! `partage doctor`: what this machine has and lacks for Partage, one line a check, each with what mends it.
//!
//! - `check`: what a check says. `summary`: all of them, and how they are written.
//! - `driver`: the NVIDIA driver, asked in a child that may be killed; the device files.
//! - `library`: the preloaded library, whether it loads here, and what else is preloaded.
//! - `system`: socket directory, broker, kernel, libc, PATH.

mod check;
mod driver;
mod library;
mod memory;
mod summary;
mod system;
mod time;

pub use summary::doctor;
