// SPDX-License-Identifier: Apache-2.0
//! Bodies of the rows that need one, a file per chapter; each function has the name and arguments of its row, after the
//! library it calls. Never import [`entry`](crate::entry)'s exports here (see there).

mod arrays;
mod context;
mod graph;
mod green_context;
mod init;
mod memory;
mod module;
pub mod nvml;
mod nvml_handles;
mod nvml_listed;
mod nvml_processes;
mod nvml_topology;
mod nvml_utilisation;
mod pool;
mod proc_address;
mod synchronise;
mod ties;
mod virtual_memory;

pub use arrays::*;
pub use context::*;
pub use graph::*;
pub use green_context::*;
pub use init::*;
pub use memory::*;
pub use module::*;
pub use pool::*;
pub use proc_address::*;
pub use synchronise::*;
pub use ties::*;
pub use virtual_memory::*;
