// SPDX-License-Identifier: Apache-2.0
//! The entry points that are built, a file per chapter of the driver's manual. A public function here that has the
//! name and arguments of a row of the driver table is the body of that export; there is no other registration.
#![allow(non_snake_case)] // the vendor's names

mod context;
mod device;
mod error;
mod init;
mod memory;
mod pointer;
mod proc_address;
mod virtual_memory;

pub use context::*;
pub use device::*;
pub use error::*;
pub use init::*;
pub use memory::*;
pub use pointer::*;
pub use proc_address::*;
pub use virtual_memory::*;
