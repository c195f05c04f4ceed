// SPDX-License-Identifier: Apache-2.0
//! libpartage.so: stands at the CUDA driver API inside an unmodified program, preloaded by the dynamic linker.
//!
//! Rules for everything here, because we are guests:
//! 1. No panic (the release build does not link if one is reachable), no exit, no print on standard output.
//! 2. Signal handlers, umask, `errno` and the current context stay what they were.
//! 3. Nothing happens before the program first calls the driver or looks one of its functions up; no thread before its
//!    own `cuInit` succeeded; no memory from the program's allocator on any path that an allocation takes.
//! 4. Every code the program sees is one the real driver could have given. A free never fails because of us.
//! 5. A forked child starts from nothing: state that must not survive lives in memory the kernel wipes.
//! 6. A broken invariant turns sharing off in this process, and says so.
//!
//! Where to look: what happens to a call is in the table (`partage_abi`), [`entry`] makes the exports of it,
//! [`resolve`] is how programs get them, [`open`] how libraries that ask past us do, [`hooks`] what they do, [`memory`]
//! the bytes, [`hold`] where every call waits while its job is held, [`gate`] where a launch waits for its turn,
//! [`marks`] what has retired, [`session`] the broker, [`attachment`] what ties us to one, [`park`] what lets us be
//! dumped, [`bypass`] who was not caught, [`guest`] what we bring along, [`state`] what of it a forked child must not
//! have.
#![no_std]

mod attachment;
mod bypass;
mod carried;
mod connection;
mod devices;
mod entry;
mod explain;
mod gate;
mod guard;
mod guest;
mod hold;
mod hooks;
mod job_word;
mod lazy;
mod managed;
mod marks;
mod memory;
mod names;
mod nodes;
mod note;
mod open;
mod park;
mod pick;
mod private_broker;
mod reach;
mod real;
mod resolve;
mod session;
mod settings;
mod socket;
mod state;
mod stream;
mod thread;
