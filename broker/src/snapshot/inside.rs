// SPDX-License-Identifier: Apache-2.0
//! CRIU for a dump, among the processes and files of the tree that it saves.
//!
//! CRIU saves no part of a pid namespace from outside of it, and a restored job has namespaces of its own. So a process
//! that begins in the tree's pid namespace goes to the tree's mounts and becomes CRIU there. The snapshot's folders
//! reach it as descriptors: their names may mean nothing in those mounts. For a tree that shares our namespaces it is
//! the same, without a way to go.
//!
//! CRIU's program is the one that the tree's mounts have under its path, and runs with this process's rights. So it is
//! for trees of this process's own user alone, whose mounts `restore` made: the broker refuses all others before.

use std::convert::Infallible;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use partage_protocol::snapshot::SavedSockets;
use serde::{Deserialize, Serialize};

use super::sockets::{self, Plan};
use super::{criu, shared};
use crate::host::proc;

/// What a process that becomes CRIU is told. Numbers are descriptors that it inherits.
#[derive(Debug, Serialize, Deserialize)]
struct CriuOrder {
    /// CRIU's program.
    criu: PathBuf,
    /// The tree's first process, by its own number.
    tree: u32,
    /// The processes stay stopped.
    is_to_stop: bool,
    /// What is copied of files that are written in place, in bytes.
    files_max: u64,
    /// What CRIU is told of sockets.
    words: Vec<String>,
    /// And what is looked at again.
    sockets: SavedSockets,
    /// The snapshot's folder.
    into: RawFd,
    /// That of the images.
    images: RawFd,
    /// One that is empty.
    none: RawFd,
    /// This program, which CRIU runs.
    program: RawFd,
    /// The tree's mounts, where they are not ours.
    mounts: Option<RawFd>,
}

/// Which tree is dumped, by what, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    /// CRIU's program.
    pub criu: &'a Path,
    /// The tree's first process, as we number it.
    pub tree: u32,
    /// The snapshot's folder.
    pub into: &'a Path,
    /// The folder of images.
    pub images: &'a Path,
    /// An empty folder.
    pub none: &'a Path,
    /// The processes stay stopped.
    pub is_to_stop: bool,
    /// What is copied of files that are written in place, in bytes.
    pub files_max: u64,
    /// What is done with its sockets.
    pub sockets: &'a Plan,
}

/// Starts it. Children that this process starts afterwards begin in the tree's pid namespace, too.
///
/// # Errors
/// A sentence: what could not be opened or entered.
pub fn start(dump: &Dump<'_>) -> Result<Child, String> {
    let tree = proc::inner_number(dump.tree).ok_or_else(|| format!("pid {} has ended", dump.tree))?;
    let open = |path: &Path| -> Result<OwnedFd, String> {
        let file = File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        criu::for_child(file.as_fd()).map_err(|errno| format!("cannot keep {}: {}", path.display(), errno.desc()))
    };
    let kept = [
        open(dump.into)?,
        open(dump.images)?,
        open(dump.none)?,
        open(Path::new("/proc/self/exe"))?,
    ];
    let mounts = proc::foreign_namespace(dump.tree, "mnt")
        .map(|path| open(&path))
        .transpose()?;
    let [into, images, none, program] = [0, 1, 2, 3].map(|at: usize| kept[at].as_raw_fd());
    let order = CriuOrder {
        criu: dump.criu.to_owned(),
        tree,
        is_to_stop: dump.is_to_stop,
        files_max: dump.files_max,
        words: sockets::dump_words(dump.sockets),
        sockets: dump.sockets.to_save(),
        into,
        images,
        none,
        program,
        mounts: mounts.as_ref().map(AsRawFd::as_raw_fd),
    };
    let text = serde_json::to_string(&order).map_err(|error| error.to_string())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("--criu-dump").arg(text).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(path) = proc::foreign_namespace(dump.tree, "pid") {
        if mounts.is_none() {
            // The `/proc` of these mounts has other numbers than its own.
            return Err(format!("pid {} has another pid namespace, and these mounts", dump.tree));
        }
        let pids = File::open(&path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        setns(pids, CloneFlags::CLONE_NEWPID)
            .map_err(|errno| format!("cannot enter the pid namespace of pid {}: {}", dump.tree, errno.desc()))?;
    }
    command
        .spawn()
        .map_err(|error| format!("the process that becomes CRIU does not start: {error}"))
}

/// The process: becomes CRIU, or leaves in the snapshot's folder why it could not.
pub fn serve(order: &str) {
    let Ok(order) = serde_json::from_str::<CriuOrder>(order) else {
        return;
    };
    let Err(why) = become_criu(&order);
    // Whoever waits finds that CRIU wrote no log.
    let _ = shared::leave_outcome(&way_to(order.into), &Err(why));
}

fn become_criu(order: &CriuOrder) -> Result<Infallible, String> {
    if let Some(mounts) = order.mounts {
        // SAFETY: left open for this process by the one that wrote the order; borrowed for the call.
        let mounts = unsafe { BorrowedFd::borrow_raw(mounts) };
        setns(mounts, CloneFlags::CLONE_NEWNS)
            .map_err(|errno| format!("cannot go to the job's mounts: {}", errno.desc()))?;
    }
    let mut command = criu::dump(&order.criu, order.tree, order.is_to_stop);
    command
        .args(&order.words)
        .arg("--images-dir")
        .arg(way_to(order.images))
        .arg("--libdir")
        .arg(way_to(order.none))
        .arg("--action-script")
        .arg(way_to(order.program))
        .env(shared::TREE, order.tree.to_string())
        .env(shared::FILES_MAX, order.files_max.to_string())
        .env(shared::INTO, way_to(order.into));
    match serde_json::to_string(&order.sockets) {
        Ok(text) => command.env(shared::SOCKETS, text),
        Err(error) => return Err(error.to_string()),
    };
    Err(format!("CRIU does not start: {}", command.exec()))
}

/// A path to what this process has open, for itself and for those that it starts; CRIU's program keeps its number, and
/// closes what it does not know for what it calls.
fn way_to(fd: RawFd) -> PathBuf {
    format!("/proc/{}/fd/{fd}", std::process::id()).into()
}
