// SPDX-License-Identifier: Apache-2.0
//! Will the limit follow COMMAND? Judged from its files and name before exec, because afterwards nobody would notice.
//!
//! - `elf`: what kind of program a file is, and which libc versions it needs.
//! - `find`: which file a command word means, by the rules of a shell.
//! - `handoff`: commands that have other processes do the work.
//! - `verdict`: the whole judgement, through scripts and launching prefixes.

pub mod elf;
pub mod find;
pub mod handoff;
pub mod verdict;
