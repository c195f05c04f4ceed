// SPDX-License-Identifier: Apache-2.0
//! Files that a job writes, as they were: noted and copied with the snapshot, put back before a restore.
//!
//! ```text
//!   save:     found (/proc, all held still) ─► saving: what is noted, what is copied ─► the manifest
//!   restore:  now (what lies there) ─► judge: what is to be done, or why not ─► apply, one file after the other
//! ```
//! A log has grown since the snapshot, and CRIU takes a file only with the length that it had. A database was written
//! in place, and the processes believe what they wrote. So both become what they were, by the rights of whoever
//! restores. [`judge`] alone decides. Nothing that was written is lost: what [`apply`] takes from a file is kept beside
//! it, whole and on the disk, before the file is touched, whenever its process dies.

mod apply;
mod copy;
mod found;
mod judge;
mod now;
pub mod order;
mod saving;
mod words;
mod writes;

pub use saving::{refuse_too_large, save};
