// SPDX-License-Identifier: Apache-2.0
//! What the processes around CRIU are told, and what they answer: files, because they may outlive who asked.

use std::path::PathBuf;

use partage_protocol::snapshot::{Manifest, Outside};
use serde::{Deserialize, Serialize};

/// Dump a job. The manifest lacks what only the dump knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpOrder {
    /// The snapshot's folder.
    pub folder: PathBuf,
    /// CRIU's program.
    pub criu: PathBuf,
    /// The first process of the tree, as the caller numbers it.
    pub tree: u32,
    /// The processes stay stopped.
    pub is_to_stop: bool,
    /// Generations to keep.
    pub keep: u64,
    /// What is copied of files that are written in place, in bytes.
    pub files_max: u64,
    /// What is to become of connections to outside.
    pub outside: Outside,
    /// What is known so far.
    pub manifest: Manifest,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum DumpOutcome {
    /// CRIU has all of the processes, which may go on. The one that wrote this makes the files whole.
    Dumped,
    /// The snapshot is whole, and the newest.
    Saved {
        /// Its number.
        generation: u64,
        /// Bytes of its files.
        bytes: u64,
    },
    /// It is as if nothing had been begun.
    Failed {
        /// Why.
        why: String,
    },
}

/// Restore a job as the first process of new namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreOrder {
    /// CRIU's program.
    pub criu: PathBuf,
    /// The snapshot's folder, verified just now: a descriptor, so that it is that one whatever its name means by now.
    pub folder: i32,
    /// The generation's name in it.
    pub generation: String,
    /// The folder of the broker's sockets.
    pub sockets: PathBuf,
    /// A folder for what CRIU writes.
    pub work: PathBuf,
    /// A descriptor on which `restored` is said, or why not.
    pub report: i32,
    /// A pipe: what is said on it once the pages are verified.
    pub verified: i32,
}

/// What is said on [`RestoreOrder::report`] once the processes run.
pub const RESTORED: &str = "restored";
