// SPDX-License-Identifier: Apache-2.0
//! The entry points that are built, a file per chapter of the driver's manual. A public function here that has the
//! name and arguments of a row of the driver table is the body of that export; there is no other registration.
#![allow(non_snake_case)] // the vendor's names

mod array;
mod capture;
mod context;
mod copy;
mod copy_array;
mod copy_narrow;
mod device;
mod error;
mod event;
mod external;
mod flavours;
mod function;
mod graph;
mod graph_exec;
mod graph_memory;
mod graph_node;
mod graph_work;
mod init;
mod ipc;
mod launch;
mod library;
mod link;
mod memory;
mod memory_pool;
mod memset;
mod module;
mod occupancy;
mod pointer;
mod pool_sharing;
mod proc_address;
mod stream;
mod virtual_memory;

pub use array::*;
pub use capture::*;
pub use context::*;
pub use copy::*;
pub use copy_array::*;
pub use copy_narrow::*;
pub use device::*;
pub use error::*;
pub use event::*;
pub use external::*;
pub use function::*;
pub use graph::*;
pub use graph_exec::*;
pub use graph_memory::*;
pub use graph_node::*;
pub use init::*;
pub use ipc::*;
pub use launch::*;
pub use library::*;
pub use link::*;
pub use memory::*;
pub use memory_pool::*;
pub use memset::*;
pub use module::*;
pub use occupancy::*;
pub use pointer::*;
pub use pool_sharing::*;
pub use proc_address::*;
pub use stream::*;
pub use virtual_memory::*;
