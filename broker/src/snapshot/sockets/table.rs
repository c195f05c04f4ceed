// SPDX-License-Identifier: Apache-2.0
//! The facts that a judgement is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use nix::sys::statfs::{FsType, statfs};

use super::addresses::{self, Tcp};
use super::diag::{self, Unix};
use super::found::Finding;
use crate::host::{proc, tasks};

/// `MQUEUE_MAGIC` of `ipc/mqueue.c`.
const MESSAGE_QUEUES: FsType = FsType(0x1980_0202);
/// How a mapping of System V shared memory is named in `maps`.
const SHARED_MEMORY: &str = "/SYSV";

/// A socket that a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The process.
    pub pid: u32,
    /// Its descriptor.
    pub fd: i32,
    /// The socket.
    pub inode: u64,
}

/// The sockets of a tree, and those of its net namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What the tree's processes have open.
    pub open: Vec<Open>,
    /// TCP sockets that somebody has open.
    pub tcp: BTreeMap<u64, Tcp>,
    /// Those that nobody has: not accepted yet, or ended.
    pub without_process: Vec<Tcp>,
    /// Unix sockets.
    pub unix: BTreeMap<u64, Unix>,
    /// Sockets of this process.
    pub own: BTreeSet<u64>,
    /// The sockets among the first process's standard streams.
    pub streams: BTreeSet<u64>,
    /// The kernel ends single TCP connections for us.
    pub can_end: bool,
    /// What else cannot be saved.
    pub unsaved: Vec<Finding>,
}

impl Table {
    /// Looks.
    pub fn read(tree: &BTreeSet<u32>) -> Self {
        let mut table = Self::read_tcp(tree);
        table.own = sockets_of(std::process::id()).map(|open| open.inode).collect();
        for pid in one_of_each_namespace(tree) {
            table.unix.extend(unix_of(pid));
        }
        for pid in tree {
            table.unsaved.extend(shared_memory(*pid));
            table.unsaved.extend(queues(*pid));
        }
        table
    }

    /// Looks at TCP alone.
    pub fn read_tcp(tree: &BTreeSet<u32>) -> Self {
        let mut table = Self {
            open: tree.iter().flat_map(|pid| sockets_of(*pid)).collect(),
            ..Self::default()
        };
        for pid in one_of_each_namespace(tree) {
            for name in ["tcp", "tcp6"] {
                let text = std::fs::read_to_string(tasks::folder(pid).join("net").join(name)).unwrap_or_default();
                for tcp in addresses::parse(&text) {
                    match tcp.inode {
                        0 => table.without_process.push(tcp),
                        inode => drop(table.tcp.insert(inode, tcp)),
                    }
                }
            }
        }
        table
    }

    /// Says who is the first process: its standard streams are the restorer's to give.
    #[must_use]
    pub fn with_streams_of(mut self, first: u32) -> Self {
        let streams = self
            .open
            .iter()
            .filter(|open| open.pid == first && (0..3).contains(&open.fd));
        self.streams = streams.map(|open| open.inode).collect();
        self
    }

    /// Has the tree this socket?
    pub fn has(&self, inode: u64) -> bool {
        self.open.iter().any(|open| open.inode == inode)
    }
}

/// A process's descriptors with what they lead to.
fn descriptors(pid: u32) -> impl Iterator<Item = (i32, PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries.filter_map(|entry| {
        let path = entry.path();
        let link = std::fs::read_link(&path).ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, path, link))
    })
}

fn sockets_of(pid: u32) -> impl Iterator<Item = Open> {
    descriptors(pid).filter_map(move |(fd, _, link)| {
        let inode = link
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()?;
        Some(Open { pid, fd, inode })
    })
}

/// System V shared memory, as `maps` has it.
fn shared_memory(pid: u32) -> Option<Finding> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = maps.lines().find_map(|line| {
        let name = line.split_ascii_whitespace().nth(5)?;
        name.starts_with(SHARED_MEMORY)
            .then(|| name.trim_start_matches('/').to_owned())
    })?;
    Some(Finding::SharedMemory { pid, name })
}

/// Message queues lie in the root of a file system of their own.
fn queues(pid: u32) -> impl Iterator<Item = Finding> {
    descriptors(pid).filter_map(move |(fd, path, link)| {
        let is_in_root = link.parent() == Some(Path::new("/"));
        let is_queue = is_in_root && statfs(&path).is_ok_and(|facts| facts.filesystem_type() == MESSAGE_QUEUES);
        let name = link.to_string_lossy().into_owned();
        is_queue.then_some(Finding::Queue { pid, fd, name })
    })
}

fn one_of_each_namespace(tree: &BTreeSet<u32>) -> Vec<u32> {
    let mut known = BTreeSet::new();
    let mut first = |pid: &u32| {
        let namespace = std::fs::read_link(tasks::folder(*pid).join("ns/net")).ok();
        namespace.is_some_and(|namespace| known.insert(namespace))
    };
    tree.iter().copied().filter(|pid| first(pid)).collect()
}

/// The unix sockets of a process's net namespace.
fn unix_of(pid: u32) -> BTreeMap<u64, Unix> {
    let Some(path) = proc::foreign_namespace(pid, "net") else {
        return diag::unix();
    };
    // A thread of its own goes there.
    let looked = std::thread::spawn(move || {
        let there = File::open(path).ok()?;
        setns(there.as_fd(), CloneFlags::CLONE_NEWNET).ok()?;
        Some(diag::unix())
    });
    looked.join().ok().flatten().unwrap_or_default()
}
