// SPDX-License-Identifier: Apache-2.0
//! `partage checkpoint` and `partage restore`: a job goes into a folder, and comes out of it.

mod checkpoint;
pub mod criu;
pub mod files;
mod pages;
mod processes;
mod restore;

pub use checkpoint::{checkpoint, prepare};
pub use restore::restore;
