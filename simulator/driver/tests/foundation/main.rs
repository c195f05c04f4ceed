// SPDX-License-Identifier: Apache-2.0
//! The simulated driver from outside: devices, contexts, memory and names, as programs that load the built library
//! see them. Each test runs its body in child processes on a machine of its own.

mod arrays;
mod child;
mod contexts;
mod devices;
mod external;
mod faults;
mod file_system;
mod handlers;
mod hub;
mod ipc;
mod ipc_events;
mod memory;
mod names;
mod overhead;
mod pools;
mod random;
mod shared_memory;
mod shared_pools;
mod sharing;
mod virtual_memory;
