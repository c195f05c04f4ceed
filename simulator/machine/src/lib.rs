// SPDX-License-Identifier: Apache-2.0
//! A simulated machine: a folder in which the simulated driver, the simulated NVML and the command line meet.
//!
//! `machine.toml` says what the machine has ([`spec`], [`profile`]); `seats` is the shared table of processes and
//! what each of them holds ([`seats`]); device memory itself is one sparse file per process and device ([`backing`]);
//! when which work runs is decided in the files of the [`timeline`].
//! Nothing in the folder needs repair after `kill -9`: every word that matters belongs to one process, and whoever
//! next enters drops the words of processes that are gone. [`signals`] is for the tests that start such processes.

pub mod backing;
pub mod entry_counts;
pub mod events;
pub mod faults;
pub mod machine;
pub mod presence;
pub mod process;
pub mod profile;
pub mod ranges;
pub mod seats;
pub mod shared;
pub mod sharing;
pub mod signals;
pub mod spec;
pub mod tickets;
pub mod timeline;

pub use machine::{Device, Machine, id_of};
pub use spec::{Bounds, DeviceSpec, Error, MachineCode, Spec};
