// SPDX-License-Identifier: Apache-2.0
//! Snapshots on disk: how one is made whole, found again, dumped and restored. Decision 0017.
//!
//! ```text
//!   DIR/                      its owner's alone (0700)
//!     .lock                   flock: one writer
//!     .tmp-…                  what a writer makes or takes away
//!     gen-0001/               never changed once it has this name
//!       manifest.json         written last; names every other file with its length and sum
//!       criu/                 CRIU's images
//!       files/                our library, and what the job has of /dev/shm
//!     LATEST                  the name of the newest generation
//! ```
//! [`store`] makes and finds generations, through [`files`], so that a test can have every write fail or be the last.
//! [`dump`] is the process that has CRIU dump a job: it outlives the broker, and nobody kills it. [`inside`] becomes
//! CRIU where the job's processes are. [`restore`] is the first of a restored job's namespaces. [`shared`] saves
//! and makes anew what they have of `/dev/shm`. [`sockets`] judges their connections, `streams` standard streams.
//! `bound` and `timers` put back what CRIU forgets, `parent` gives a tree a parent, [`last_step`] comes before its
//! first instruction. [`fit`] says whether a snapshot can be restored on this machine at all.

mod bound;
mod content;
pub mod criu;
pub mod dump;
pub mod files;
pub mod fit;
pub mod folder;
mod images;
pub mod inside;
pub mod last_step;
pub mod open_files;
pub mod opening;
pub mod order;
pub mod own_mounts;
mod parent;
pub mod restore;
pub mod shared;
pub mod sockets;
pub mod store;
mod streams;
mod timers;
