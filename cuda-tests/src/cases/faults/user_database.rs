// SPDX-License-Identifier: Apache-2.0
//! A user database that does not answer: a module of our own for the name service of a host's broker, in a mount
//! namespace of the broker's own.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::artefacts::{built, client, program};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

/// Nothing is timed by it; it only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(90);
/// By how much an attach may take longer beside a database that never answers.
const MOST: Duration = Duration::from_millis(10);
/// The module knows this user, and a group `lab` that has it.
const CAROL: &str = "60001";
const RULE: &str = "schema = 1\n[[rule]]\nname = \"lab\"\nmatch = { group = \"lab\" }\nmax = { mem = \"1GiB\" }\n";

/// A host's broker with a user database of ours; it ends with this.
struct Host<'a> {
    rig: &'a Rig,
    broker: Child,
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

impl<'a> Host<'a> {
    /// Starts it with a database that does not answer, or says why this machine cannot.
    fn start(rig: &'a Rig) -> Option<Self> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 || !std::path::Path::new("/etc/nsswitch.conf").exists() {
            println!("SKIPPED: only root can give a process another /etc/nsswitch.conf, where there is one");
            return None;
        }
        let module = rig.dir.join("libnss_slow.so.2");
        let library = program("libnss_slow.so.2", "nss_slow.c", &["-shared", "-fPIC"]);
        std::fs::copy(library, &module).expect("writable");
        let sources = rig.dir.join("nsswitch.conf");
        std::fs::write(&sources, "passwd: files slow\ngroup: files slow\n").expect("writable");
        std::fs::write(stuck(rig), "").expect("writable");
        let config = rig.dir.join("partage.toml");
        std::fs::write(&config, RULE).expect("writable");
        let mut command = rig.command("/usr/bin/unshare");
        let libraries = format!("{}:{}", rig.dir.display(), rig.sim_dir().join("lib").display());
        command
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("mount --bind \"$0\" /etc/nsswitch.conf && exec \"$@\"")
            .arg(&sources)
            .arg(built("partaged"))
            .args(["--managed", "--config"])
            .arg(&config)
            .arg("--socket-dir")
            .arg(rig.socket_dir())
            .env("LD_LIBRARY_PATH", libraries)
            .env("PARTAGE_TEST_NSS", &rig.dir);
        let broker = command.spawn().expect("unshare starts");
        // The broker adds the group `partage` to its socket's users, and does not wait for the answer about it.
        rig.eventually(SOON, "the broker answers", || {
            rig.output(rig.partage(&["broker", "status"])).status.success()
        });
        let _ = Command::new("/bin/chmod")
            .args(["-R", "a+rwX"])
            .arg(rig.sim_dir())
            .status();
        std::fs::copy(client(), rig.dir.join("client")).expect("writable");
        Some(Self { rig, broker })
    }

    /// `run` of the user whom only the database knows.
    fn carol(&self, name: &str) -> Command {
        let mut command = self.rig.command("/usr/bin/setpriv");
        command
            .args(["--reuid", CAROL, "--regid=65534", "--clear-groups"])
            .arg(self.rig.installed())
            .args(["run", "-g", "0", "-m", "2GiB", "--name", name, "--"])
            .arg(self.rig.dir.join("client"))
            .arg("dlopen");
        command
    }

    /// Does a helper of the broker wait for the database?
    fn helper_waits(&self) -> bool {
        let children = format!("/proc/{0}/task/{0}/children", self.broker.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().any(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"--user-helper")
        })
    }

    /// The quickest of some attaches of other clients.
    fn quickest_attach(&self) -> Duration {
        let attach = || {
            let mut command = self.rig.command(client());
            command.arg("dlopen").env("LD_PRELOAD", built("libpartage.so"));
            let mut other = Client::start(command);
            let start = Instant::now();
            other.expect("init 0", "init 0");
            let taken = start.elapsed();
            other.kill();
            taken
        };
        (0..20).map(|_| attach()).min().expect("some")
    }
}

fn stuck(rig: &Rig) -> PathBuf {
    rig.dir.join("stuck")
}

pub fn stuck_user_database(rig: &Rig) {
    let Some(host) = Host::start(rig) else { return };
    // The first question, about the group of administrators, hangs; so does the one about this user.
    let mut job = Client::start(host.carol("job"));
    job.ready();
    rig.eventually(SOON, "a helper waits for the database", || host.helper_waits());
    let beside = host.quickest_attach();
    assert_eq!(
        job.numbers("info")[2],
        2 * GIB,
        "until then no name of a group is known"
    );
    rig.eventually(SOON, "status says so", || {
        rig.json(&["status"])
            .to_string()
            .contains("the user database does not answer")
    });
    assert_eq!(
        rig.json(&["get", "job"])["job"]["user"],
        CAROL,
        "the number stands for the name"
    );
    // It answers: the job is judged by what is known now.
    std::fs::remove_file(stuck(rig)).expect("there");
    rig.eventually(SOON, "the rule about the group holds", || job.numbers("info")[2] == GIB);
    assert_eq!(rig.json(&["get", "carol/job"])["job"]["user"], "carol");
    job.expect(&format!("alloc {} more", 1100 * MIB), "alloc 2");
    let second = rig.output(host.carol("second"));
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(
        second.status.code() == Some(125) && text.contains("the rule lab"),
        "{text}"
    );
    assert!(!rig.json(&["status"]).to_string().contains("the user database"));
    rig.eventually(SOON, "nobody waits for the database", || !host.helper_waits());
    let alone = host.quickest_attach();
    rig.note(format!(
        "attach beside a database that never answers: {beside:?}, without: {alone:?}"
    ));
    assert!(beside < alone + MOST, "{beside:?} beside it, {alone:?} without");
}
