// SPDX-License-Identifier: Apache-2.0
//! Threads that may use some processors alone: CRIU restores them without that.
//!
//! They are noted while CRIU holds a tree still, and bound again while it holds the restored one still, before its
//! first instruction ([`last_step`](super::last_step)). A processor that is not there any more is left out; a thread of
//! which all are gone stays unbound.

use std::collections::BTreeSet;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use partage_protocol::snapshot::BoundThread;

/// The processors that run, as the kernel lists them.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Binds a thread again.
pub fn bind(bound: &BoundThread) {
    let mut set = CpuSet::new();
    for processor in &bound.processors {
        // Beyond those that this kernel can have.
        let _ = set.set(*processor as usize);
    }
    // Refused where it may use none of them here.
    let _ = sched_setaffinity(Pid::from_raw(bound.thread.cast_signed()), &set);
}

/// The bound threads of a tree, by the numbers that they have in `/proc`.
#[must_use]
pub fn threads(tree: &BTreeSet<u32>) -> Vec<BoundThread> {
    let online = std::fs::read_to_string(ONLINE).unwrap_or_default();
    let online = list(&online);
    let tasks = tree
        .iter()
        .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    let found = tasks.flatten().flatten().filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let processors = list(allowed);
        let is_bound = online.iter().any(|one| !processors.contains(one));
        let thread = task.file_name().to_str()?.parse().ok()?;
        is_bound.then(|| BoundThread {
            thread,
            processors: processors.into_iter().collect(),
        })
    });
    found.collect()
}

/// `0-3,7`, as the kernel writes it.
fn list(text: &str) -> BTreeSet<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_is_noted_and_bound_again() {
        assert_eq!(list("0-2,5\n"), BTreeSet::from([0, 1, 2, 5]));
        assert_eq!(list(""), BTreeSet::new());
        let online = list(&std::fs::read_to_string(ONLINE).expect("a list"));
        let Some(one) = online.first().copied().filter(|_| online.len() > 1) else {
            return;
        };
        let worker = std::thread::spawn(move || {
            let bound = BoundThread {
                thread: nix::unistd::gettid().as_raw().cast_unsigned(),
                processors: vec![one],
            };
            bind(&bound);
            assert!(threads(&[std::process::id()].into()).contains(&bound));
        });
        worker.join().expect("it is found");
    }
}
