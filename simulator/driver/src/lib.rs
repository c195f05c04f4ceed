// SPDX-License-Identifier: Apache-2.0
//! The simulated driver: `libcuda.so.1` for machines without a GPU.
//!
//! [`entry`] makes one exported function of every row of the driver table. An export calls the function of the same
//! name in [`chapters`]; where there is none it reaches [`unbuilt`], which answers NOT_SUPPORTED and counts the call.
//! Rules: never call `dlsym` or `dlopen` (a preloaded library would hand us its own functions), never free what is
//! global (runtimes call us after the destructors of static objects), never wait on a lock in a forked child.

mod capture;
mod chapters;
mod entry;
mod event;
mod executor;
mod function;
mod graph;
mod handles;
mod jit;
mod launch;
mod library;
mod memory;
mod module;
mod occupancy;
mod overhead;
mod state;
mod stream;
mod trace;
mod unbuilt;
mod visible;
