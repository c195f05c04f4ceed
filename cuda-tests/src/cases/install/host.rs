// SPDX-License-Identifier: Apache-2.0
//! A host of namespaces for `partage install`: an /etc, a /run, a /tmp and a /usr/local of its own, and its processes.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::rig::Rig;

/// Makes the host and waits as its first process, which collects what nobody else does. `$0` is the rig's folder.
const HOST: &str = r#"
set -e
host="$0/host"
mkdir -p "$host/etc" "$host/local" "$host/tmp"
cp -a /etc/. "$host/etc"
rm -rf "$host/etc/partage" "$host/etc/systemd/system/partaged.service"
sed -i '/^partage:/d' "$host/etc/group"
echo 'alice:x:60001:60001::/tmp:/bin/sh' >>"$host/etc/passwd"
echo 'bob:x:60002:60002::/tmp:/bin/sh' >>"$host/etc/passwd"
chmod 1777 "$host/tmp"
mount --bind "$host/etc" /etc
mount --bind "$host/local" /usr/local
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
case "$0" in /tmp/*)
  mkdir -p "$host$0"
  mount --bind "$0" "$host$0" ;;
esac
mount --rbind "$host/tmp" /tmp
echo ready
while read -r line; do :; done
"#;

/// A host of namespaces; everything on it ends with it.
pub struct Host<'a> {
    pub rig: &'a Rig,
    child: Child,
    first: String,
}

impl<'a> Host<'a> {
    /// Makes one, or says why this machine cannot.
    pub fn new(rig: &'a Rig) -> Option<Self> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            println!("SKIPPED: only root can make a host of namespaces");
            return None;
        }
        rig.installed();
        let _ = Command::new("/bin/chmod")
            .args(["-R", "a+rwX"])
            .arg(rig.sim_dir())
            .status();
        std::fs::copy(crate::artefacts::client(), rig.dir.join("client")).expect("writable");
        let mut child = Command::new("/usr/bin/unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["bash", "-c", HOST])
            .arg(&rig.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("unshare starts");
        let mut said = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let _ = std::io::BufRead::read_line(&mut output, &mut said);
        if said.trim() != "ready" {
            println!("SKIPPED: this machine does not let root make a host of namespaces");
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let first = std::fs::read_to_string(children)
            .expect("unshare has a child")
            .trim()
            .to_owned();
        Some(Self { rig, child, first })
    }

    /// A program on the host, as `user` of it, with nothing of this machine's environment; `sim` for the driver's.
    pub fn command(&self, user: &str, sim: bool, words: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/nsenter");
        command
            .args(["--target", &self.first, "--mount", "--net", "--pid", "--"])
            .args([
                "/usr/bin/setpriv",
                "--reuid",
                user,
                "--regid",
                "65534",
                "--clear-groups",
                "--",
            ])
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", "/tmp")
            // The host is a pid namespace.
            .env("PARTAGE_PID_NAMESPACE", "any")
            .current_dir("/")
            .stdin(Stdio::null());
        if sim {
            let dir = self.rig.sim_dir();
            command
                .env("LD_LIBRARY_PATH", dir.join("lib"))
                .env("PARTAGE_SIM_DIR", dir);
        }
        command
    }

    pub fn output(&self, user: &str, words: &[&str]) -> Output {
        self.rig.output(self.command(user, false, words))
    }

    /// Its exit code, and what it wrote.
    pub fn say(&self, user: &str, words: &[&str]) -> (Option<i32>, String) {
        code_and_text(&self.output(user, words))
    }

    /// `partage install` or `uninstall`, from where a package was unpacked.
    pub fn install(&self, words: &[&str]) -> (Option<i32>, String) {
        let program = self.rig.installed().display().to_string();
        let all: Vec<&str> = std::iter::once(program.as_str()).chain(words.iter().copied()).collect();
        code_and_text(&self.rig.output(self.command("0", true, &all)))
    }

    /// A document of a command as `user`.
    pub fn json(&self, user: &str, words: &[&str]) -> Value {
        let output = self.output(user, words);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", code_and_text(&output).1))
    }

    /// Every file and folder of these places, with what would show a change: size, mode, time.
    pub fn state(&self) -> String {
        let places = ["/etc", "/usr/local", "/run", "/var/lib"];
        let mut words = vec!["/usr/bin/find"];
        words.extend(places);
        // What the broker itself writes.
        words.extend([
            "-not",
            "-path",
            "/run/partage/*",
            "-not",
            "-path",
            "/var/lib/partage/events/*",
        ]);
        words.extend(["-printf", "%p %s %m %T@\\n"]);
        let (_, text) = self.say("0", &words);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        // Its first process reads to the end, and takes every other process of the host with it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Exit code, and both streams' text.
pub fn code_and_text(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), text.concat())
}

/// `systemctl` as far as an installation uses it; the broker that it starts is the real one.
pub const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$@" >>/run/systemd/calls
unit=/etc/systemd/system/partaged.service
running() { kill -0 "$(cat /run/systemd/pid 2>/dev/null)" 2>/dev/null; }
begin() { $(sed -n 's/^ExecStart=//p' $unit) </dev/null >/dev/null 2>&1 & echo $! >/run/systemd/pid; }
end() { running && kill "$(cat /run/systemd/pid)"; while running; do sleep 0.01; done; rm -f /run/systemd/pid; }
case "$1" in
daemon-reload) ;;
cat) test -f "/etc/systemd/system/$2" ;;
is-active) case "$3" in *.socket) test -f /run/systemd/sockets ;; *) running ;; esac ;;
is-enabled) test -f /run/systemd/enabled ;;
enable) : >/run/systemd/enabled ;;
start) : >/run/systemd/sockets ;;
restart) end; begin ;;
disable) rm -f /run/systemd/enabled /run/systemd/sockets; end ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"#;
