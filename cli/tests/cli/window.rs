// SPDX-License-Identifier: Apache-2.0
//! A program in a pseudo-terminal of its own, and what it wrote there.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::Winsize;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(30);

pub struct Window {
    pub child: Child,
    master: std::fs::File,
    slave: OwnedFd,
    before: Termios,
    /// Everything that was written.
    pub bytes: Vec<u8>,
}

fn size(columns: u16, lines: u16) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Window {
    /// Starts the command in a terminal of this size.
    pub fn open(mut command: Command, columns: u16, lines: u16) -> Self {
        let terminal = nix::pty::openpty(Some(&size(columns, lines)), None).expect("a terminal");
        fcntl(&terminal.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("ours");
        let before = tcgetattr(&terminal.slave).expect("a terminal");
        let slave = || terminal.slave.try_clone().expect("dup");
        command.stdin(slave()).stdout(slave()).stderr(slave());
        command.env("TERM", "xterm-256color");
        let child = command.spawn().expect("starts");
        Self {
            child,
            master: terminal.master.into(),
            slave: terminal.slave,
            before,
            bytes: Vec::new(),
        }
    }

    /// Reads what is there.
    pub fn read(&mut self) {
        let mut bytes = [0; 1 << 16];
        while let Ok(length @ 1..) = self.master.read(&mut bytes) {
            self.bytes.extend_from_slice(&bytes[..length]);
        }
    }

    /// Waits until what was written since `from` has this text. Blanks do not count: a cell that was blank before is
    /// not written.
    #[track_caller]
    pub fn until(&mut self, from: usize, text: &str) {
        let wanted: String = text.split_whitespace().collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.read();
            let said = plain(&self.bytes[from..]);
            if said.contains(&wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted:?} never came: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it shows this text, when it is asked to draw all of it (Ctrl-L).
    #[track_caller]
    pub fn until_shown(&mut self, text: &str) {
        let wanted: String = text.split_whitespace().collect();
        self.wait_for(text, |window| {
            window.read();
            let from = window.bytes.len();
            window.press("\x0c");
            std::thread::sleep(Duration::from_millis(100));
            window.read();
            plain(&window.bytes[from..]).contains(&wanted)
        });
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("typed");
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        let size = size(columns, lines);
        // SAFETY: TIOCSWINSZ reads one winsize.
        let answer = unsafe { libc::ioctl(self.slave.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(answer, 0);
        // It is not this terminal's session.
        self.signal(Signal::SIGWINCH);
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("ours");
    }

    /// Is the process stopped?
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    #[track_caller]
    pub fn wait_for(&mut self, what: &str, is_so: impl Fn(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}: {}", plain(&self.bytes));
            std::thread::sleep(Duration::from_millis(10));
            self.read();
        }
    }

    /// The terminal has its own modes again, its own screen and a cursor.
    pub fn is_given_back(&mut self) -> bool {
        self.read();
        let now = tcgetattr(&self.slave).expect("a terminal");
        let after = |sequence: &[u8]| self.bytes.windows(sequence.len()).rposition(|bytes| bytes == sequence);
        let is_left = after(b"\x1b[?1049l") > after(b"\x1b[?1049h") && after(b"\x1b[?25h") > after(b"\x1b[?25l");
        is_left && now.local_flags == self.before.local_flags && now.input_flags == self.before.input_flags
    }

    /// Its exit code, once it has ended; 128 and the number of a signal that ended it.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.wait_for("it ends", |window| window.child.try_wait().expect("ours").is_some());
        let status = self.child.wait().expect("ours");
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The letters without blanks and escape sequences.
pub fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.next() == Some('[') => {
                letters.find(|end| ('@'..='~').contains(end));
            }
            letter if letter.is_whitespace() => {}
            letter => plain.push(letter),
        }
    }
    plain
}

#[test]
fn letters_are_found_among_sequences() {
    assert_eq!(plain(b"\x1b[1;1H\x1b[38;5;2mab\x1b[0m c\r\nd"), "abcd");
}
