// SPDX-License-Identifier: Apache-2.0
//! `partage top` in a pseudo-terminal, over brokers that are killed and come again.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use super::Case;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("top::it_follows_a_broker_that_is_killed_and_comes_again", followed)
            .simulated("kills the broker of a machine of its own"),
    ]
}

const SOON: Duration = Duration::from_secs(30);

/// A program in a terminal of 100 columns and 30 lines.
struct Window {
    child: Child,
    master: File,
    slave: OwnedFd,
    said: Vec<u8>,
}

impl Window {
    fn open(mut command: Command) -> Self {
        let size = libc::winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut master, mut slave) = (-1, -1);
        // SAFETY: openpty writes two descriptors, which are ours from here on; it reads one winsize.
        let (master, slave) = unsafe {
            let none = std::ptr::null_mut();
            let answer = libc::openpty(&raw mut master, &raw mut slave, none, std::ptr::null(), &raw const size);
            assert_eq!(answer, 0, "a terminal");
            libc::fcntl(master, libc::F_SETFL, libc::O_NONBLOCK);
            libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
            (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let own = || slave.try_clone().expect("dup");
        command.stdin(own()).stdout(own()).stderr(own());
        command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        Self {
            child: command.spawn().expect("it starts"),
            master,
            slave,
            said: Vec::new(),
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 1 << 16];
        while let Ok(length @ 1..) = self.master.read(&mut bytes) {
            self.said.extend_from_slice(&bytes[..length]);
        }
    }

    /// Has it this text now? It is asked to draw everything; blanks do not count, since they are not drawn.
    fn shows(&mut self, text: &str) -> bool {
        let wanted: String = text.split_whitespace().collect();
        self.read();
        let from = self.said.len();
        self.master.write_all(b"\x0c").expect("typed");
        std::thread::sleep(Duration::from_millis(100));
        self.read();
        plain(&self.said[from..]).contains(&wanted)
    }

    fn until(&mut self, rig: &Rig, text: &str) {
        rig.eventually(SOON, text, || self.shows(text));
    }

    fn modes(&self) -> libc::tcflag_t {
        use std::os::fd::AsRawFd;
        // SAFETY: an all-zero termios is one; tcgetattr writes it.
        unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.slave.as_raw_fd(), &raw mut modes), 0);
            modes.c_lflag
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The letters without blanks and escape sequences.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut letters = text.chars();
    let mut plain = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.next() == Some('[') => drop(letters.find(|end| ('@'..='~').contains(end))),
            letter if letter.is_whitespace() => {}
            letter => plain.push(letter),
        }
    }
    plain
}

fn kill_broker(rig: &Rig) -> u32 {
    let pid = rig.broker_pid_quick().expect("a broker serves this rig");
    // SAFETY: this rig's own broker.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    pid
}

fn followed(rig: &Rig) {
    let start = || assert!(rig.output(rig.partage(&["broker", "start"])).status.success());
    let broker = |rig: &Rig| format!("private broker {}", rig.broker_pid_quick().unwrap_or(0));
    start();
    let mut window = Window::open(rig.partage(&["top"]));
    rig.eventually(SOON, "the broker", || window.shows(&broker(rig)));
    let raw = window.modes();
    window.until(rig, "no jobs; start one");
    // Nobody starts another one, so it is missed.
    kill_broker(rig);
    window.until(rig, "no broker since");
    window.until(rig, "what is below is older");
    let mut client = rig.client(&["-m", "2GiB", "--name", "watched"]);
    client.ready();
    window.until(rig, "watched");
    assert!(!window.shows("no broker since"));
    // With its job there: the next broker takes it over, and it is on the screen again, beside that one's number.
    let old = kill_broker(rig);
    start();
    rig.eventually(SOON, "the next broker", || {
        let is_another = rig.broker_pid_quick().is_some_and(|pid| pid != old);
        is_another && window.shows(&broker(rig)) && window.shows("watched")
    });
    assert_eq!(window.modes(), raw, "it was the same program all the time");
    window.master.write_all(b"q").expect("typed");
    rig.eventually(SOON, "it leaves", || {
        window.child.try_wait().expect("our child").is_some()
    });
    assert!(window.child.wait().expect("our child").success());
    assert_ne!(window.modes(), raw, "the terminal has its own modes again");
}
