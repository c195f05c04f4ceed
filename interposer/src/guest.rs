// SPDX-License-Identifier: Apache-2.0
//! What a guest in another's program brings along: system calls, locks, text and descriptors of its own, and what it
//! has to know of the program's linker. Nothing here knows of charges, gates or brokers.

pub mod descriptor;
pub mod elf;
pub mod errno;
pub mod inherited;
pub mod linker;
pub mod lock;
pub mod mappings;
mod panic;
pub mod sys;
pub mod text;
pub mod weak;
pub mod wiped;
