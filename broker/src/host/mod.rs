// SPDX-License-Identifier: Apache-2.0
//! The broker's edges: devices, processes, clock. Each is a small trait with the machine's adapter and a behaving fake.

pub mod cgroups;
pub mod checkpoint;
mod driver_library;
pub mod fake;
pub mod gpu;
pub mod host_memory;
pub mod inherited;
pub mod nodes;
pub mod nvml;
pub mod pidfd;
pub mod proc;
pub mod tasks;
pub mod terminal;
pub mod user_database;
pub mod user_namespaces;
