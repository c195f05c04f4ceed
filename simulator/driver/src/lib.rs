// SPDX-License-Identifier: Apache-2.0
//! The simulated driver: `libcuda.so.1` for machines without a GPU.
//!
//! [`entry`] makes one exported function of every row of the driver table. An export calls the function of the same
//! name in [`chapters`]; where there is none it reaches [`unbuilt`], which answers NOT_SUPPORTED and counts the call.
//!
//! Layers, from the lowest up; each names only those before it:
//! - the machine as this process sees it ([`state`]);
//! - contexts, with what they hold beside allocations ([`context`], [`overhead`]);
//! - [`memory`], code ([`function`], [`module`], [`library`]), [`event`];
//! - the [`executor`], whose order is below contexts and whose threads are above memory;
//! - [`stream`], [`graph`], [`capture`];
//! - [`submission`], the way from a call to an executor or a graph; [`checkpoint`], where calls stop; [`chapters`],
//!   the calls.
//!
//! Rules: never call `dlsym` or `dlopen` (a preloaded library would hand us its own functions), never free what is
//! global (runtimes call us after the destructors of static objects), never wait on a lock in a forked child.

mod capture;
mod chapters;
mod checkpoint;
mod context;
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
mod nested;
mod occupancy;
mod overhead;
mod state;
mod stream;
mod submission;
mod thread;
mod trace;
mod unbuilt;
mod visible;
