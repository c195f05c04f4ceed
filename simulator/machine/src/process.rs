// SPDX-License-Identifier: Apache-2.0
//! Which process is which, and whether it still runs, for processes of all PID namespaces that meet in one machine.
//!
//! A process that takes part holds a record lock on a file of its own in the machine's folder, its *ticket*
//! (`presence.rs`). The kernel gives the lock up when the process ends or executes another program, and
//! names its holder to whoever asks by the number that the holder has in the asker's namespace, or 0 where it has none.
//! Two containers whose processes are both number 1 are told apart by that, and each learns of the other's death.
//!
//! Where no lock is held, because the program closed every descriptor or the process only looks, the kernel's `/proc`
//! decides, which works within one PID namespace: pid, start time and, because an `exec` keeps both but drops all
//! device memory, the place of the stack.
//!
//! A process may be in a time namespace of its own, in which clocks are others; [`read_clock`] finds out.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use crate::tickets;

/// By how much this process's monotonic clock is ahead of the machine's, in nanoseconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Finds out how this process's clock differs from the host's. Again after it was restored.
pub fn read_clock() {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    AHEAD.store(monotonic_offset(&offsets), Ordering::Relaxed);
}

/// The offset of the monotonic clock, in nanoseconds; 0 where there is none.
fn monotonic_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.trim().strip_prefix("monotonic"));
    let mut parts = line.unwrap_or_default().split_ascii_whitespace().map(str::parse::<i64>);
    match (parts.next(), parts.next()) {
        (Some(Ok(seconds)), Some(Ok(nanoseconds))) => seconds * 1_000_000_000 + nanoseconds,
        _ => 0,
    }
}

/// A time of this process's monotonic clock by that of the machine's other processes.
pub fn machine_time(own_ns: u64) -> u64 {
    own_ns.wrapping_sub(AHEAD.load(Ordering::Relaxed) as u64)
}

/// A time of the machine's by this process's monotonic clock.
pub fn own_time(machine_ns: u64) -> u64 {
    machine_ns.wrapping_add(AHEAD.load(Ordering::Relaxed) as u64)
}

/// One run of one program in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessId {
    /// The kernel's process id, in the process's own PID namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`). 0 when it is not known.
    pub start: u64,
    /// Where the stack starts (field 28): differs after `exec`. 0 when the kernel does not say.
    pub stack: u64,
    /// The PID namespace: the inode of `/proc/PID/ns/pid`. 0 when it is not known.
    pub namespace: u64,
    /// Names the file on which the process holds a lock. 0 for a process that holds none.
    pub ticket: u64,
}

impl ProcessId {
    /// The calling process, which holds no lock.
    pub fn current() -> Self {
        let (id, _) = read_below(Path::new("/proc/self"), std::process::id()).unwrap_or_default();
        Self {
            pid: std::process::id(),
            namespace: own_namespace(),
            ..id
        }
    }

    /// Another process of the own PID namespace, which holds no lock. `None`: it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        let (id, _) = read(pid)?;
        Some(Self {
            namespace: own_namespace(),
            ..id
        })
    }

    /// Whether both are the same run of the same program, whatever locks it holds: two copies of the driver in one
    /// process hold two.
    pub fn is_same_run(&self, other: &Self) -> bool {
        (self.pid, self.namespace, self.start, self.stack) == (other.pid, other.namespace, other.start, other.stack)
    }

    /// Whether both are the same process, which may have executed another program in between.
    pub fn is_same_process(&self, other: &Self) -> bool {
        (self.pid, self.namespace) == (other.pid, other.namespace)
    }

    /// The number that this run has in the PID namespace of the calling process, `here`; 0 when it runs and cannot be
    /// seen from there. `None`: it is over. `folder` is the machine's.
    pub fn number(&self, folder: &Path, here: &Self) -> Option<u32> {
        // Its own lock nobody may ask about: to close the file again would give the lock up.
        if self.is_same_run(here) {
            return Some(here.pid);
        }
        if let Some(number) = tickets::holder(folder, self.ticket) {
            return Some(number);
        }
        (self.namespace == here.namespace && self.is_alive()).then_some(self.pid)
    }

    /// Whether this run still exists, as `/proc` says. A zombie has given everything back and does not.
    /// Precondition: it is of the calling process's PID namespace.
    fn is_alive(&self) -> bool {
        let Some((now, state)) = read(self.pid) else {
            return false;
        };
        if self.start != 0 && now.start != self.start {
            return false;
        }
        if has_ended(state) {
            return false;
        }
        // 0: we may not look. Then only the end of the process counts.
        now.stack == 0 || self.stack == 0 || now.stack == self.stack
    }
}

/// The PID namespace of the calling process: the inode of `/proc/thread-self/ns/pid`; 0 where the kernel does not say.
pub fn own_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Whether a process of the own PID namespace was stopped by a signal (and not by a debugger).
pub fn is_stopped(pid: u32) -> bool {
    read(pid).is_some_and(|(_, state)| state == 'T')
}

/// Sends SIGSTOP to a process of the own PID namespace and returns when each of its threads stands, or after ten
/// seconds.
///
/// `kill` returns when the signal is sent: until one of its threads has taken it the others run on, on a busy machine
/// for milliseconds, and answer what they should not.
pub fn stop(pid: u32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
    let begun = std::time::Instant::now();
    while !stands(pid) && begun.elapsed() < std::time::Duration::from_secs(10) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether no thread of a process runs: each is stopped, or has ended.
fn stands(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.flatten().all(|thread| {
        let stat = fs::read(thread.path().join("stat"));
        stat.is_ok_and(|stat| parse(pid, &stat).is_none_or(|(_, state)| matches!(state, 'T' | 'Z' | 'X')))
    })
}

/// The number that a thread has in the PID namespace of the calling process, which knows it by the number in a
/// namespace of its own. `None`: it is not below this one, or gone.
pub fn number_of_thread(namespace: u64, number: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        if fs::metadata(folder(pid).join("ns/pid")).map_or(0, |found| found.ino()) != namespace {
            continue;
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        for task in tasks {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            // From this namespace down to the thread's own.
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let innermost = numbers.and_then(|numbers| numbers.split_ascii_whitespace().next_back());
            if innermost.is_some_and(|innermost| innermost.parse() == Ok(number)) {
                return task.file_name().to_str()?.parse().ok();
            }
        }
    }
    None
}

/// The folder of `/proc` that shows a process of the own PID namespace: of its first thread, or of a living one where
/// the first has ended.
pub fn folder(pid: u32) -> PathBuf {
    let first = PathBuf::from(format!("/proc/{pid}"));
    let has_ended = of_task(&first, pid).is_some_and(|(_, state)| has_ended(state));
    let living = has_ended.then(|| living_thread(&first)).flatten();
    living.unwrap_or(first)
}

fn read(pid: u32) -> Option<(ProcessId, char)> {
    read_below(Path::new(&format!("/proc/{pid}")), pid)
}

/// A process lives while one of its threads does: where the first has ended, another one's state and stack count.
fn read_below(process: &Path, pid: u32) -> Option<(ProcessId, char)> {
    let (id, state) = of_task(process, pid)?;
    let living = has_ended(state).then(|| living_thread(process)).flatten();
    match living.and_then(|thread| of_task(&thread, pid)) {
        Some((thread, state)) => Some((
            ProcessId {
                start: id.start,
                ..thread
            },
            state,
        )),
        None => Some((id, state)),
    }
}

/// What the folder of a task says.
fn of_task(folder: &Path, pid: u32) -> Option<(ProcessId, char)> {
    parse(pid, &fs::read(folder.join("stat")).ok()?)
}

fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

fn parse(pid: u32, stat: &[u8]) -> Option<(ProcessId, char)> {
    // The name in field 2 may hold anything, also parentheses: fields are counted from the last one.
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?; // field 3
    let start = fields.nth(18)?.parse().ok()?; // field 22
    let stack = fields.nth(5)?.parse().ok()?; // field 28
    let id = ProcessId {
        pid,
        start,
        stack,
        ..ProcessId::default()
    };
    Some((id, state))
}

/// The folder of a thread that lives, of a process whose first thread has ended.
fn living_thread(process: &Path) -> Option<PathBuf> {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut threads = threads.map(|thread| thread.path());
    threads.find(|thread| of_task(thread, 0).is_some_and(|(_, state)| !has_ended(state)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not() {
        let here = ProcessId::current();
        assert!(here.start != 0 && here.is_alive());
        assert!(
            !ProcessId {
                start: here.start + 1,
                ..here
            }
            .is_alive()
        );
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let offsets = "monotonic           -3   500000000\nboottime             7         0\n";
        assert_eq!(monotonic_offset(offsets), -2_500_000_000);
        assert_eq!(monotonic_offset(""), 0);
    }

    #[test]
    fn a_killed_process_that_nobody_waited_for_is_dead() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat starts");
        let (id, _) = read(child.id()).expect("child has a stat file");
        assert!(ProcessId { stack: 0, ..id }.is_alive());
        child.kill().expect("kill");
        // Waits for the end without reaping: the zombie must already count as dead.
        // SAFETY: waitid on our own child; the result structure is plain data.
        unsafe {
            let mut info = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, child.id(), &mut info, flags), 0);
        }
        assert!(!id.is_alive());
        child.wait().expect("reap");
    }

    #[test]
    fn exec_ends_a_run() {
        // The shell prints its own stat line, then becomes another program in the same process.
        let script = "read -r line < /proc/self/stat; echo \"$line\"; exec cat";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let out = child.stdout.as_mut().expect("piped");
        let (mut line, mut byte) = (Vec::new(), [0u8; 1]);
        while std::io::Read::read(out, &mut byte).expect("read") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        let (before, _) = parse(child.id(), &line).expect("stat of the shell");
        // `cat` echoes: once the echo is back, the exec has happened.
        std::io::Write::write_all(child.stdin.as_mut().expect("piped"), b"x").expect("write");
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut byte).expect("echo");
        let (after, _) = read(child.id()).expect("stat");
        assert_eq!((before.pid, before.start), (after.pid, after.start));
        // Where stacks are not randomised (or hidden), an exec is not seen; the kernel's setting decides.
        let randomised = fs::read_to_string("/proc/sys/kernel/randomize_va_space").is_ok_and(|text| text.trim() != "0");
        if randomised && before.stack != 0 {
            assert!(after.is_alive());
            assert!(!before.is_alive());
        }
        child.kill().expect("kill");
        child.wait().expect("reap");
    }
}
