// SPDX-License-Identifier: Apache-2.0
//! Sockets of a tree that is to be saved, and what else of a kernel's own CRIU cannot save.
//!
//! ```text
//!   /proc/PID/fd, /proc/PID/net/tcp, sock_diag, maps ──► Table ──► judge ──► Plan for CRIU, or Findings
//! ```
//! A connection of which both ends are the tree's is saved, with what is under way in it. One to outside is never
//! restored as if it stood: the other side has gone on. It is refused, or closed at the restore as by a lost network.
//! [`plan`] comes before anything is touched, and once more right before the dump; [`in_time`] while CRIU holds the
//! tree still, because the processes ran until then.

mod addresses;
mod diag;
mod found;
mod images;
mod judge;
mod ports;
mod table;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use partage_protocol::snapshot::{Carries, Outside, SavedSockets};

pub use found::{Finding, remedy};
pub use judge::Plan;
use judge::judge;
use table::Table;

/// What is to be done with the sockets of a tree, and what speaks against saving it. Peers that are this process's own
/// are not counted: a library lets go of its connection to the broker before the dump.
///
/// # Errors
/// The findings, at least one.
pub fn plan(tree: &BTreeSet<u32>, first: u32, outside: Outside) -> Result<Plan, Vec<Finding>> {
    let mut table = Table::read(tree).with_streams_of(first);
    table.can_end = outside == Outside::Close && diag::can_destroy();
    judge(&table, outside)
}

/// Do the connections that CRIU has saved agree with one another, and are they those that it was called for? The tree
/// is held still.
///
/// # Errors
/// A sentence.
pub fn in_time(tree: &BTreeSet<u32>, told: &SavedSockets, images: &Path) -> Result<(), String> {
    let mut table = Table::read_tcp(tree);
    table.can_end = true;
    let is_to_close = told.is_tcp_closed || !told.ended.is_empty();
    let outside = if is_to_close { Outside::Close } else { Outside::Refuse };
    let now = judge(&table, outside).map_err(|found| {
        let found = found.first().map(Finding::to_string).unwrap_or_default();
        format!("{found}, made while the job was saved: try again")
    })?;
    let is_as_told = match told.is_tcp_closed {
        true => now.pairs.is_empty(),
        false => now.outward.iter().all(|ends| told.ended.contains(ends)),
    };
    if !is_as_told {
        return Err("a TCP connection was made while the job was saved: try again".to_owned());
    }
    match told.is_tcp_closed || now.pairs.iter().all(|pair| images::agree(images, *pair)) {
        true => Ok(()),
        false => Err("bytes were on their way in a TCP connection of the job while it was saved: try again".to_owned()),
    }
}

/// Can a tree with these sockets be restored here?
///
/// # Errors
/// A sentence.
pub fn can_restore(saved: &SavedSockets) -> Result<(), String> {
    if !saved.ended.is_empty() && !diag::can_destroy() {
        return Err(
            "this kernel does not end single TCP connections (CONFIG_INET_DIAG_DESTROY, CAP_NET_ADMIN), and the \
                    job has some to outside that are to be closed"
                .to_owned(),
        );
    }
    ports::wait_until_free(&saved.listening)
}

/// Ends TCP connections of this net namespace. `false`: one may stand.
#[must_use]
pub fn end(connections: &[(SocketAddr, SocketAddr)]) -> bool {
    let may_stand = |(local, remote): &&(SocketAddr, SocketAddr)| {
        !matches!(diag::destroy(*local, *remote), Ok(()) | Err(Errno::ENOENT))
    };
    // Each of them, whatever became of the one before.
    connections.iter().filter(may_stand).count() == 0
}

/// The words by which CRIU is told of this at a dump.
#[must_use]
pub fn dump_words(plan: &Plan) -> Vec<String> {
    let saved = plan.to_save();
    let mut words = restore_words(&saved);
    let outward = saved
        .closed
        .iter()
        .map(|socket| socket.inode)
        .chain(saved.streams.iter().copied());
    words.extend(outward.flat_map(|inode| ["--external".to_owned(), format!("unix[{inode}]")]));
    words
}

/// And at a restore, beside the descriptors that take the place of external sockets.
#[must_use]
pub fn restore_words(saved: &SavedSockets) -> Vec<String> {
    // Nobody outside is concerned: the network need not be locked.
    let tcp: &[&str] = match saved.is_tcp_closed {
        true => &["--tcp-close"],
        false => &["--tcp-established", "--network-lock", "skip"],
    };
    let named = saved.is_named.then_some("--ext-unix-sk");
    tcp.iter().copied().chain(named).map(str::to_owned).collect()
}

/// One end of a socket whose other end is closed.
///
/// # Errors
/// The system's.
pub fn closed(carries: Carries) -> nix::Result<OwnedFd> {
    let kind = match carries {
        Carries::Bytes => SockType::Stream,
        Carries::Messages => SockType::Datagram,
        Carries::Packets => SockType::SeqPacket,
    };
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).map(|(ours, _)| ours)
}
