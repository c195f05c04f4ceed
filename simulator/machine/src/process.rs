// SPDX-License-Identifier: Apache-2.0
//! Which process is which, and whether it still runs: pid, start time and, because an `exec` keeps both but drops
//! all device memory, the place of the stack.
//!
//! A machine's processes are known by their numbers in the PID namespace in which it was made. One that was restored in
//! a namespace of its own is a *guest*: whoever restored it [says](become_guest) which number it has outside. A guest
//! cannot look at the others: it takes them to be alive, and leaves it to them to notice a death. It may be in a time
//! namespace of its own as well, in which clocks and start times are others.

use std::fs;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// The number of a guest outside; 0 for any other process.
static OUTSIDE: AtomicU32 = AtomicU32::new(0);

/// By how much a guest's monotonic clock is ahead of the machine's, in nanoseconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// From now on this process, which is in another PID namespace than its machine, has this number there.
pub fn become_guest(number: u32) {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    AHEAD.store(monotonic_offset(&offsets), Ordering::Relaxed);
    OUTSIDE.store(number, Ordering::Relaxed);
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

/// The number by which others know the calling process.
pub fn own_number() -> u32 {
    match OUTSIDE.load(Ordering::Relaxed) {
        0 => std::process::id(),
        number => number,
    }
}

fn is_guest() -> bool {
    OUTSIDE.load(Ordering::Relaxed) != 0
}

/// One run of one program in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// The kernel's process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`). 0 when it is not known: a guest's own.
    pub start: u64,
    /// Where the stack starts (field 28): differs after `exec`. 0 when the kernel does not say.
    pub stack: u64,
}

impl ProcessId {
    /// The calling process.
    pub fn current() -> Self {
        let pid = own_number();
        read(std::process::id()).map_or(
            Self {
                pid,
                start: 0,
                stack: 0,
            },
            |(id, _)| Self {
                pid,
                start: if is_guest() { 0 } else { id.start },
                ..id
            },
        )
    }

    /// Whether this run still exists. A zombie has given everything back and does not; a zombie leader whose other
    /// threads run on does.
    pub fn is_alive(&self) -> bool {
        if is_guest() {
            return true;
        }
        let Some((now, state)) = read(self.pid) else {
            return false;
        };
        if self.start != 0 && now.start != self.start {
            return false;
        }
        if matches!(state, 'Z' | 'X') {
            return has_other_threads(self.pid);
        }
        // 0: we may not look. Then only the end of the process counts.
        now.stack == 0 || self.stack == 0 || now.stack == self.stack
    }
}

/// Whether a process was stopped by a signal (and not by a debugger).
pub fn is_stopped(pid: u32) -> bool {
    !is_guest() && read(pid).is_some_and(|(_, state)| state == 'T')
}

fn read(pid: u32) -> Option<(ProcessId, char)> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(pid: u32, stat: &[u8]) -> Option<(ProcessId, char)> {
    // The name in field 2 may hold anything, also parentheses: fields are counted from the last one.
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?; // field 3
    let start = fields.nth(18)?.parse().ok()?; // field 22
    let stack = fields.nth(5)?.parse().ok()?; // field 28
    Some((ProcessId { pid, start, stack }, state))
}

fn has_other_threads(pid: u32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| {
        tasks.flatten().any(|task| {
            let name = task.file_name();
            name.to_str().is_some_and(|name| name != pid.to_string())
        })
    })
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
