// SPDX-License-Identifier: Apache-2.0
//! A process that is locked by another, and its work.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partage_abi::types::*;

use crate::machine::{Driver, call, finish, start};

extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the gate of the caller, which lives as long as the work.
    let gate = unsafe { &*gate.cast::<AtomicBool>() };
    while !gate.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Work that is not over before `gate` says so.
pub fn block(driver: &Driver, stream: CuStream, gate: &AtomicBool) {
    let data = std::ptr::from_ref(gate).cast_mut().cast();
    call!(driver, cuLaunchHostFunc(stream, Some(pass), data));
}

/// More than half of a device of 1 GiB.
pub const LARGE: usize = 600 << 20;

/// A process with work that begins and ends when it is told so.
pub fn target() {
    static GATE: AtomicBool = AtomicBool::new(false);
    let driver = Driver::open();
    let stream = driver.stream(0);
    let mut taken = Vec::new();
    println!("ready");
    for line in std::io::stdin().lines() {
        match line.expect("text").as_str() {
            "sync" => call!(driver, cuCtxSynchronize()),
            "query" => call!(driver, cuStreamQuery(stream)),
            "take" => {
                let mut address = 0;
                call!(driver, cuMemAlloc_v2(&mut address, LARGE));
                taken.push(address);
            }
            "give" => taken.drain(..).for_each(|address| call!(driver, cuMemFree_v2(address))),
            "block" => {
                GATE.store(false, Ordering::Release);
                block(&driver, stream, &GATE);
            }
            "pass" => GATE.store(true, Ordering::Release),
            // SAFETY: what a daemon does; the driver reaches its memory through mappings.
            "close" => assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0),
            "fork" => {
                // SAFETY: the copy ends by itself after a minute, or by the signal of whoever hears its number.
                let copy = unsafe { libc::fork() };
                if copy == 0 {
                    std::thread::sleep(Duration::from_secs(60));
                    // SAFETY: ends this copy.
                    unsafe { libc::_exit(0) };
                }
                println!("copy {copy}");
            }
            other => panic!("{other}"),
        }
        println!("done");
    }
}

/// A target as its caller sees it.
pub struct Target {
    pub child: Child,
    pub to: ChildStdin,
    pub from: BufReader<ChildStdout>,
}

impl Target {
    pub fn start(test: &str) -> Self {
        let folder = std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test");
        let mut child = start(test, folder.as_ref(), "target");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let from = BufReader::new(from);
        let mut target = Self { child, to, from };
        target.hear("ready");
        target
    }

    pub fn pid(&self) -> c_int {
        self.child.id() as c_int
    }

    /// Waits for a line; the test harness of the child says others, and begins one.
    pub fn hear(&mut self, line: &str) {
        let mut heard = String::new();
        while !heard.trim_end().ends_with(line) {
            heard.clear();
            assert!(
                self.from.read_line(&mut heard).expect("readable") > 0,
                "the target ended"
            );
        }
    }

    pub fn tell(&mut self, line: &str) {
        self.say(line);
        self.hear("done");
    }

    /// As [`tell`](Self::tell), but waits for nothing.
    pub fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("the target listens");
    }

    /// Has the target fork; the copy's process id.
    pub fn fork(&mut self) -> c_int {
        writeln!(self.to, "fork").expect("the target listens");
        let mut heard = String::new();
        while !heard.contains("copy ") {
            heard.clear();
            assert!(
                self.from.read_line(&mut heard).expect("readable") > 0,
                "the target ended"
            );
        }
        let copy = heard.trim().rsplit(' ').next().expect("a number");
        copy.parse().expect("a number")
    }

    pub fn signal(&self, signal: c_int) {
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    pub fn finish(self) {
        drop(self.to);
        std::thread::spawn(move || self.from.lines().for_each(drop));
        finish(self.child, "the target");
    }
}
