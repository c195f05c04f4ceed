// SPDX-License-Identifier: Apache-2.0
//! The program that uses a device in one pattern (`programs/time_client.c`), started and read.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use crate::artefacts::{package_dir, program};
use crate::client::PATIENCE;
use crate::rig::Rig;

/// A running time client. It is killed when dropped.
pub struct TimeClient {
    child: Child,
    what: String,
}

/// Several clients of one job, started by a shell. They are killed when dropped.
pub struct Several {
    shell: Child,
    pids: Vec<u32>,
}

impl Several {
    /// Their process ids.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        for pid in &self.pids {
            // SAFETY: the shell, which lives, has not reaped it while it waits for all: it cannot be another process.
            unsafe { libc::kill(*pid as libc::pid_t, libc::SIGKILL) };
        }
        let _ = self.shell.wait();
    }
}

/// What it said at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Kernels.
    pub launches: u64,
    /// What its pattern repeats.
    pub units: u64,
    /// Device time from its first work to the end of its last.
    pub elapsed_ns: u64,
}

/// The pattern's words, as they follow the program's first argument.
fn words(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split_whitespace()
}

impl TimeClient {
    /// Starts one without Partage: so many device seconds (0: until told to end) of a pattern.
    pub fn bare(rig: &Rig, device_seconds: &str, pattern: &str) -> Self {
        let mut command = rig.command(path());
        command.arg(device_seconds).args(words(pattern));
        Self::start(command, pattern)
    }

    /// Starts one under `partage run` with these options.
    pub fn under(rig: &Rig, options: &[&str], device_seconds: &str, pattern: &str) -> Self {
        let mut arguments = vec![device_seconds];
        arguments.extend(words(pattern));
        Self::start(rig.run(options, &path(), &arguments), pattern)
    }

    /// Starts several as processes of one job.
    ///
    /// # Panics
    /// When they cannot be started.
    pub fn several(rig: &Rig, options: &[&str], count: usize, device_seconds: &str, pattern: &str) -> Several {
        let one = format!("\"$0\" {device_seconds} {pattern} >&2 & echo $!; ");
        let script = format!("{}exec >&-; wait", one.repeat(count));
        let path = path().display().to_string();
        let mut command = rig.run(options, Path::new("/bin/sh"), &["-c", &script, &path]);
        let mut shell = command
            .env("TIME_CLIENT_KERNELS", package_dir().join("kernels"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut text = String::new();
        let stdout = shell.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut text).expect("numbers");
        let pids: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert_eq!(pids.len(), count, "{text}");
        Several { shell, pids }
    }

    /// Starts an endless one under `partage run` as another user, who needs to see nothing but the rig's folder.
    ///
    /// # Panics
    /// When its files cannot be copied, or it cannot be started; only root can act as another user.
    pub fn of_user(rig: &Rig, uid: u32, options: &[&str], pattern: &str) -> Self {
        let folder = rig.dir.join("time");
        if !folder.exists() {
            let copied = Command::new("/bin/cp")
                .arg("-r")
                .arg(package_dir().join("kernels"))
                .arg(&folder)
                .status();
            assert!(copied.is_ok_and(|status| status.success()), "the kernels are copied");
            let copied = Command::new("/bin/cp").arg(path()).arg(folder.join("client")).status();
            assert!(copied.is_ok_and(|status| status.success()), "the program is copied");
            let opened = Command::new("/bin/chmod").args(["-R", "a+rX"]).arg(&folder).status();
            assert!(opened.is_ok_and(|status| status.success()), "everybody may read it");
        }
        let mut command = rig.command("/usr/bin/setpriv");
        // The simulated driver's processes open one another's files, whoever runs them, as a real driver's kernel part
        // would: the capability stands for that.
        command
            .arg(format!("--reuid={uid}"))
            .args(["--regid=65534", "--clear-groups"])
            .args(["--inh-caps=+dac_override", "--ambient-caps=+dac_override"])
            .arg(rig.installed())
            .arg("run")
            .args(options)
            .arg("--")
            .arg(folder.join("client"))
            .arg("0")
            .args(words(pattern));
        Self::start_with(command, &folder, pattern)
    }

    fn start(command: Command, pattern: &str) -> Self {
        Self::start_with(command, &package_dir().join("kernels"), pattern)
    }

    fn start_with(mut command: Command, kernels: &Path, pattern: &str) -> Self {
        let child = command
            .env("TIME_CLIENT_KERNELS", kernels)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            child,
            what: pattern.to_owned(),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal; one that stops has stopped it when this returns.
    pub fn signal(&self, signal: i32) {
        if signal == libc::SIGSTOP {
            return partage_machine::process::stop(self.child.id());
        }
        // SAFETY: kill with the pid of our own unreaped child: it cannot be another process.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Tells it to end and gives what it says.
    ///
    /// # Panics
    /// As [`TimeClient::finish`].
    #[track_caller]
    pub fn stop(self) -> Done {
        self.signal(libc::SIGTERM);
        self.finish()
    }

    /// Kills it with SIGKILL and reaps it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end and gives what it says.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`], fails, or finds its own checks wrong.
    #[track_caller]
    pub fn finish(mut self) -> Done {
        let (mut stdout, mut stderr) = (
            self.child.stdout.take().expect("piped"),
            self.child.stderr.take().expect("piped"),
        );
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let (mut out, mut err) = (String::new(), String::new());
            // What it wrote that is no text says nothing that is asked for.
            let _ = stdout.read_to_string(&mut out);
            let _ = stderr.read_to_string(&mut err);
            let _ = sender.send((out, err));
        });
        let what = self.what.clone();
        let Ok((out, err)) = receiver.recv_timeout(PATIENCE) else {
            self.kill();
            panic!("time_client {what} did not end within {PATIENCE:?}");
        };
        let status = self.child.wait().expect("our own child");
        assert!(status.success(), "time_client {what}: {status}: {out}{err}");
        done(&out).unwrap_or_else(|| panic!("time_client {what} says `{out}`; {err}"))
    }
}

impl Drop for TimeClient {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program, built.
pub fn path() -> std::path::PathBuf {
    program("time_client", "time_client.c", &["-ldl", "-lpthread"])
}

fn done(line: &str) -> Option<Done> {
    let field = |name: &str| {
        let mut fields = line.split_whitespace().filter_map(|word| word.split_once('='));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let number = |name: &str| field(name)?.parse().ok();
    Some(Done {
        launches: number("launches")?,
        units: number("units")?,
        elapsed_ns: number("elapsed_ns")?,
    })
    .filter(|_| field("checks").as_deref() == Some("ok"))
}
