// SPDX-License-Identifier: Apache-2.0
//! A broker that is there and does not answer: which process it is, what state it is in, and what the caller can do.
//!
//! The process is known from the connection; where none came about (its queue of connections is full), from the lock
//! that a broker holds on its directory's `broker.lock`, as `/proc/locks` shows it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::SYSTEM_DIR;

/// How long a broker may take for an answer that needs no waiting.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// After so long without an answer a caller is told that the broker is stopped. Whether a broker that is not stopped is
/// late, only [`PATIENCE`] says: a machine at its limits takes seconds for anything.
pub const WORDLESS: Duration = Duration::from_secs(2);

/// What a caller is told who waits for this process, where it is stopped.
pub fn waiting(pid: Option<u32>) -> Option<String> {
    let pid = pid?;
    waiting_words(pid, state(pid))
}

fn waiting_words(pid: u32, state: Option<char>) -> Option<String> {
    matches!(state, Some('T' | 't'))
        .then(|| format!("waiting for the broker (pid {pid}), which is stopped; continue it: kill -CONT {pid}"))
}

/// The broker at `dir` did not answer in time; `pid` is its process where the connection told.
pub fn failure(dir: &Path, pid: Option<u32>) -> Failure {
    let pid = pid.or_else(|| broker_of(dir));
    let (what, hint) = words(pid, pid.and_then(state), dir == Path::new(SYSTEM_DIR));
    let message = format!("the broker at {}{what}", dir.display());
    Failure::new(Kind::NoAnswer, message).hint(hint)
}

/// What is wrong with it, and what the caller can do.
fn words(pid: Option<u32>, state: Option<char>, is_managed: bool) -> (String, String) {
    let seconds = PATIENCE.as_secs();
    let Some(pid) = pid else {
        let what = format!(" is there but did not answer within {seconds} s");
        // A service manager may listen for a broker that does not come up.
        let hint = match is_managed {
            true => "see its service: systemctl status partaged",
            false => "see its processes: pgrep -a partaged",
        };
        return (what, hint.to_owned());
    };
    let what = match state {
        Some('T' | 't') => format!(" (pid {pid}) is stopped and did not answer within {seconds} s"),
        _ => format!(" (pid {pid}) did not answer within {seconds} s"),
    };
    let hint = match (state, is_managed) {
        (Some('T' | 't'), _) => format!("continue it: kill -CONT {pid}"),
        (_, true) => "its administrator restarts it: systemctl restart partaged (jobs go on)".to_owned(),
        (_, false) => {
            format!("replace it: kill -9 {pid} (jobs go on under their limits; the next `partage run` starts another)")
        }
    };
    (what, hint)
}

/// The broker hung up without an answer: it ended, or it is there and turned the caller away.
pub fn hung_up(dir: &Path) -> Failure {
    let log = format!("its log: {}/log/partaged.log", dir.display());
    let at = dir.display();
    let (kind, message) = match broker_of(dir) {
        Some(pid) => (
            Kind::NoAnswer,
            format!(
                "the broker at {at} (pid {pid}) hung up before it answered; it may have too many connections of yours"
            ),
        ),
        None => (Kind::NoBroker, format!("the broker at {at} ended before it answered")),
    };
    Failure::new(kind, message).hint(log)
}

/// The lock that a broker holds on its directory.
pub const BROKER_LOCK: &str = "broker.lock";

/// Waits until this process has let go of the broker's lock; `false`: not before the deadline.
pub fn has_left(dir: &Path, pid: Option<u32>, deadline: Instant) -> bool {
    while pid.is_some() && broker_of(dir) == pid {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The process whose lock says that it is the broker of `dir`.
pub fn broker_of(dir: &Path) -> Option<u32> {
    holder(&dir.join(BROKER_LOCK))
}

/// The process that holds a lock on this file.
pub fn holder(file: &Path) -> Option<u32> {
    let inode = file.metadata().ok()?.ino();
    holder_in(&fs::read_to_string("/proc/locks").ok()?, inode)
}

/// `1: FLOCK  ADVISORY  WRITE 713 00:2b:1234 0 EOF`: the pid before the device and inode. Lines of waiters have an
/// arrow.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields.as_slice() else {
            return None;
        };
        let found = place.rsplit(':').next()?.parse::<u64>().ok()?;
        pid.parse::<u32>().ok().filter(|pid| found == inode && *pid > 0)
    })
}

/// The state letter of a process; `T` is stopped.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold blanks and parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Locks a file, waiting `patience` for whoever holds it; `doing` says what that one is busy with.
pub fn lock(file: File, path: &Path, patience: Duration, doing: &str) -> Outcome<Flock<File>> {
    let deadline = Instant::now() + patience;
    let mut file = file;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => file,
            Err((_, errno)) => return Err(Failure::cannot("lock", path, errno)),
        };
        if Instant::now() >= deadline {
            let pid = holder(path).map_or(String::new(), |pid| format!(" (pid {pid})"));
            let seconds = patience.as_secs();
            let message = format!("another `partage`{pid} has been {doing} for more than {seconds} s");
            let hint = format!("see what it does, or end it: fuser -v {}", path.display());
            return Err(Failure::failed(message).hint(hint));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_and_a_waiter_is_not() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:2b:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 713 00:2b:1234 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 714 00:2b:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 00:2b:99 0 EOF\n";
        assert_eq!(holder_in(locks, 1234), Some(713));
        assert_eq!(holder_in(locks, 77), None, "another kind of lock");
        assert_eq!(
            holder_in(locks, 99),
            None,
            "a process that this namespace does not show"
        );
    }

    #[test]
    fn a_wait_is_explained_where_the_broker_is_stopped() {
        let stopped = waiting_words(7, Some('T')).expect("whatever was asked");
        assert!(stopped.contains("(pid 7), which is stopped; continue it: kill -CONT 7"));
        assert_eq!(waiting_words(7, Some('S')), None, "a run that waits in the queue");
        assert_eq!(waiting(None), None, "another pid namespace");
    }

    #[test]
    fn what_to_do_depends_on_what_is_wrong() {
        let (what, hint) = words(Some(7), Some('T'), true);
        assert!(what.contains("(pid 7) is stopped") && hint == "continue it: kill -CONT 7");
        let (what, hint) = words(Some(7), Some('S'), false);
        assert!(what.contains("(pid 7) did not answer within 10 s") && hint.starts_with("replace it: kill -9 7"));
        assert!(words(Some(7), None, true).1.contains("systemctl restart partaged"));
        assert!(words(None, None, false).0.contains("is there but did not answer"));
    }
}
