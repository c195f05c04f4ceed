// SPDX-License-Identifier: Apache-2.0
//! Limits, niceness, processors and cgroup that a private broker inherits from the shell that started it, and that
//! would bind all later jobs. The broker drops those that it can, and names the others.

use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use partage_protocol::size::format_bytes;

/// Files of the broker that grow: the ledger at its full length, and a log file.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Address space: the library, some threads, a mapping for each of some hundred clients.
const SPACE_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Descriptors: two for each of some hundred clients.
const DESCRIPTORS: u64 = 4096;
/// Processes and threads of the user: the broker's own are some ten.
const PROCESSES: u64 = 256;

/// One limit of `ulimit`.
struct Limit {
    resource: Resource,
    /// As `ulimit` knows it.
    flag: &'static str,
    /// What is harmed below `need`.
    harm: &'static str,
    need: u64,
    is_bytes: bool,
}

const fn limit(resource: Resource, flag: &'static str, harm: &'static str, need: u64, is_bytes: bool) -> Limit {
    Limit {
        resource,
        flag,
        harm,
        need,
        is_bytes,
    }
}

const LIMITS: [Limit; 6] = [
    limit(
        Resource::RLIMIT_FSIZE,
        "-f",
        "its log and ledger may not grow",
        FILE_BYTES,
        true,
    ),
    limit(
        Resource::RLIMIT_AS,
        "-v",
        "it cannot map the pages of many clients",
        SPACE_BYTES,
        true,
    ),
    limit(
        Resource::RLIMIT_DATA,
        "-d",
        "it cannot map the pages of many clients",
        SPACE_BYTES,
        true,
    ),
    limit(
        Resource::RLIMIT_NOFILE,
        "-n",
        "it refuses clients early",
        DESCRIPTORS,
        false,
    ),
    limit(
        Resource::RLIMIT_NPROC,
        "-u",
        "it may not start its threads",
        PROCESSES,
        false,
    ),
    limit(
        Resource::RLIMIT_CPU,
        "-t",
        "it is killed after so many seconds of work",
        RLIM_INFINITY,
        false,
    ),
];

/// Sheds what can be shed, for this process and what it starts. Answers a sentence for each thing that stays.
#[must_use]
pub fn shed() -> Vec<String> {
    // A write beyond a limit is an error then, and no death without a word.
    for signal in [libc::SIGXFSZ, libc::SIGXCPU] {
        // SAFETY: to ignore a signal installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let mut notes: Vec<String> = LIMITS.iter().filter_map(raise).collect();
    notes.extend(be_ordinary());
    notes.extend(seccomp(
        &std::fs::read_to_string("/proc/self/status").unwrap_or_default(),
    ));
    notes.extend(leave_cgroup());
    notes
}

/// The soft limit up to the hard one, and a hard one that is too little up to what is needed, where the broker may
/// (CAP_SYS_RESOURCE); what is said when that is too little.
fn raise(limit: &Limit) -> Option<String> {
    let (mut soft, mut hard) = getrlimit(limit.resource).ok()?;
    if hard < limit.need && setrlimit(limit.resource, limit.need, limit.need).is_ok() {
        (soft, hard) = (limit.need, limit.need);
    }
    if soft != hard && limit.resource != Resource::RLIMIT_NOFILE {
        // Never refused: everybody may raise a soft limit up to the hard one. Descriptors are raised by the server.
        let _ = setrlimit(limit.resource, hard, hard);
    }
    (hard < limit.need).then(|| {
        let hard = if limit.is_bytes {
            format_bytes(hard)
        } else {
            hard.to_string()
        };
        format!(
            "the broker was started under ulimit {} {hard}: {}",
            limit.flag, limit.harm
        )
    })
}

/// Ordinary priority, ordinary scheduling, all processors.
fn be_ordinary() -> Vec<String> {
    let mut notes = Vec::new();
    // SAFETY: getpriority and setpriority take integers. -1 is a niceness too, and then there is nothing to shed.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: as above.
    if nice > 0 && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) } != 0 {
        notes.push(format!(
            "the broker was started with nice {nice}: on a busy machine it answers late"
        ));
    }
    // SAFETY: takes an integer.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let ordinary = libc::sched_param { sched_priority: 0 };
    let make_ordinary = || {
        // SAFETY: a pointer to a live structure.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) == 0 }
    };
    if policy != libc::SCHED_OTHER && !make_ordinary() {
        notes.push(format!(
            "the broker was started under scheduling policy {policy}: on a busy machine it answers late"
        ));
    }
    let mut all = CpuSet::new();
    for processor in 0..CpuSet::count() {
        let _ = all.set(processor);
    }
    // The kernel leaves out what is not there or not allowed.
    if let Err(error) = sched_setaffinity(Pid::from_raw(0), &all) {
        notes.push(format!("the broker runs on some processors only (taskset): {error}"));
    }
    notes
}

fn seccomp(status: &str) -> Option<String> {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim();
    (mode == "2").then(|| {
        "the broker was started under a seccomp filter, which holds for it as long as it runs: what the filter refuses \
         fails for later jobs too (partage broker stop, then start it from another shell)"
            .to_owned()
    })
}

/// Leaves the starter's cgroup for one beside it where that one limits us and the user may (a user's own service
/// manager owns its subtree); says what still limits us.
fn leave_cgroup() -> Vec<String> {
    let root = Path::new("/sys/fs/cgroup");
    let own = || {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = text
            .lines()
            .find_map(|line| line.strip_prefix("0::/").map(str::to_owned))?;
        Some(root.join(path))
    };
    let Some(first) = own() else { return Vec::new() };
    if limited_by(&first, root).is_empty() {
        return Vec::new();
    }
    for above in first
        .ancestors()
        .skip(1)
        .take_while(|above| above.starts_with(root) && *above != root)
    {
        let beside = above.join("partage-broker");
        let is_new = std::fs::create_dir(&beside).is_ok();
        let is_free = limited_by(&beside, root).len() < limited_by(&first, root).len();
        if is_free && std::fs::write(beside.join("cgroup.procs"), "0").is_ok() {
            break;
        }
        if is_new {
            let _ = std::fs::remove_dir(&beside);
        }
    }
    let Some(now) = own() else { return Vec::new() };
    limited_by(&now, root)
}

/// A sentence for each limit of the cgroup and those above it.
fn limited_by(cgroup: &Path, root: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let levels: Vec<PathBuf> = cgroup
        .ancestors()
        .take_while(|level| *level != root)
        .map(Path::to_owned)
        .collect();
    for level in levels {
        for (file, harm) in [
            ("memory.max", "its memory"),
            ("cpu.max", "its processor time"),
            ("pids.max", "its threads"),
        ] {
            let Ok(text) = std::fs::read_to_string(level.join(file)) else {
                continue;
            };
            if is_tight(file, text.trim()) {
                let path = Path::new("/").join(level.strip_prefix(root).unwrap_or(&level));
                notes.push(format!(
                    "the broker is in cgroup {}, which limits {harm} ({file} {}) together with others'",
                    path.display(),
                    text.trim()
                ));
            }
        }
    }
    notes
}

/// Is it little enough to be worth a word? Service managers set limits that nobody meets.
fn is_tight(file: &str, value: &str) -> bool {
    let mut numbers = value.split(' ').map(str::parse::<u64>);
    match (file, numbers.next(), numbers.next()) {
        ("memory.max", Some(Ok(bytes)), _) => bytes < SPACE_BYTES,
        ("pids.max", Some(Ok(count)), _) => count < PROCESSES,
        ("cpu.max", Some(Ok(quota)), Some(Ok(period))) => quota < period,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_that_may_be_met_are_said() {
        assert!(is_tight("memory.max", "67108864") && !is_tight("memory.max", "max"));
        assert!(is_tight("cpu.max", "20000 100000") && !is_tight("cpu.max", "400000 100000"));
        assert!(!is_tight("cpu.max", "max 100000"));
        assert!(is_tight("pids.max", "32") && !is_tight("pids.max", "33000"));
        assert!(seccomp("Name:\tx\nSeccomp:\t2\n").is_some_and(|note| note.contains("seccomp")));
        assert!(seccomp("Seccomp:\t0\n").is_none());
    }
}
