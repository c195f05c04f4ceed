// SPDX-License-Identifier: Apache-2.0
//! The entry points that are built. A public function here that has the name and arguments of a row of the NVML table
//! is the body of that export; there is no other registration.
#![allow(non_snake_case)] // the vendor's names

mod constants;
mod device;
mod events;
mod fields;
mod health;
mod memory;
mod process;
mod system;
mod topology;

pub use constants::*;
pub use device::*;
pub use events::*;
pub use fields::*;
pub use health::*;
pub use memory::*;
pub use process::*;
pub use system::*;
pub use topology::*;
