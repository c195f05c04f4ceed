// SPDX-License-Identifier: Apache-2.0
//! A stand-in for the CUDA runtime (`libcudart`), for programs that link it and run on the simulated driver.
//!
//! [`table`] has one row for each function of the runtime. [`entry`] makes an export of each row, called
//! `partage_<name>`; where the functions of CUDA 12 and 13 differ, that is CUDA 13's and `partage_<name>_v12` is the
//! older one. Small libraries with the runtime's own names and versions lead to these exports
//! (`partage_stand_ins` makes them). What else is loaded is looked at now and then ([`surroundings`]).
//!
//! Layers, from the lowest up; each names only those before it:
//! - [`driver`], the driver's functions, found by `dlopen` and `dlsym`, so that a preloaded library sees the calls;
//! - [`error`], a thread's last error and the names of errors;
//! - [`turn`], the right to wait for a lock, and [`context`], a thread's device and the primary contexts;
//! - [`registry`], the fat binaries, kernels and variables of the program, and [`types`], the runtime's structs;
//! - [`chapters`], the functions that are more than one call of the driver;
//! - [`table`] and [`entry`]; [`refuse`], where names of other libraries lead that nothing stands in for.
//!
//! Rules: only the driver's public functions are called. Nothing global is ever freed: programs call the runtime after
//! the destructors of their static objects. A forked child, and a signal handler that interrupts a call which holds a
//! lock, are refused before a lock is taken.

mod chapters;
mod context;
mod driver;
mod entry;
mod error;
mod error_names;
mod refuse;
mod registry;
mod surroundings;
mod table;
mod turn;
mod types;

pub use table::is_built;
