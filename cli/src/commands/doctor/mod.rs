// SPDX-License-Identifier: Apache-2.0
//! `partage doctor`: what this machine has and lacks for Partage, one line a check, each with what mends it.
//!
//! - `check`: what a check says, and how all of them are written.
//! - `driver`: the NVIDIA driver, asked in a child that may be killed; the device files.
//! - `library`: the preloaded library, whether it loads here, and what else is preloaded.
//! - `system`: socket directory, broker, kernel, libc, PATH.

mod check;
mod driver;
mod library;
mod memory;
mod system;
mod time;

pub use check::doctor;
