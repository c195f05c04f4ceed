// SPDX-License-Identifier: Apache-2.0
//! Shows that the host's broker binds another user's job: one of *nobody* is admitted, and what the caller asks beside
//! it would wait for it.
//!
//! ```text
//!   nobody: run -m 10% -c 1% -- cat ──► admitted on a GPU by the host's broker, and lives while we hold its input
//!   caller: run --dry-run -c 100% ────► must wait for it
//! ```
//! The job promises 1 % of one GPU's time, for the second that this takes; it needs no program of the GPU.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::unistd::User;
use serde_json::Value;

use super::host::system_place;
use crate::failure::{Failure, Outcome, reason};
use crate::launch::place;
use crate::link::ask;

/// A broker that first opens the driver takes its time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user who owns nothing, where the user database does not say.
const NOBODY: u32 = 65_534;

/// What was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// A job of another user is bound.
    pub is_shown: bool,
    /// In a sentence: what was shown, and what was not.
    pub text: String,
}

/// Tries it with the installed program.
///
/// # Errors
/// Another user's job is not bound, or gets no answer.
pub fn try_another_user(program: &Path) -> Outcome<Proof> {
    let (uid, gid) = match User::from_name("nobody") {
        Ok(Some(user)) => (user.uid.as_raw(), user.gid.as_raw()),
        _ => (NOBODY, NOBODY),
    };
    // The copy of the library that `run` makes for each user goes again where there was none.
    let own_dir = Some(place::private_dir(uid)).filter(|dir| dir.symlink_metadata().is_err());
    let mut job = Job::start(program, (uid, gid), own_dir)?;
    let said = job.said()?;
    match said["kind"].as_str() {
        Some("admitted") => shown(program, &said["admitted"]),
        _ => not_admitted(&said["error"]),
    }
}

/// A `run` of another user; ends when it goes.
struct Job {
    child: Child,
    documents: Receiver<Value>,
    own_dir: Option<PathBuf>,
}

impl Job {
    fn start(program: &Path, (uid, gid): (u32, u32), own_dir: Option<PathBuf>) -> Outcome<Self> {
        let mut command = asker(program);
        command.args(["-m", "10%", "--mem-request", "none", "-c", "1%"]);
        command.args(["--on-full", "fail", "--name", "install-proof", "--", "cat"]);
        // This drops the other groups, too.
        command.uid(uid).gid(gid);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&format!("{} cannot be started: {}", program.display(), reason(&error))))?;
        let (sender, documents) = channel();
        let errors = child.stderr.take();
        std::thread::spawn(move || {
            let lines = errors.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            for line in lines.map_while(Result::ok) {
                let document = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(document).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            documents,
            own_dir,
        })
    }

    /// Whether it was admitted, in its own words.
    fn said(&mut self) -> Outcome<Value> {
        let mut last = String::new();
        loop {
            match self.documents.recv_timeout(PATIENCE) {
                Ok(document) if matches!(document["kind"].as_str(), Some("admitted" | "error")) => return Ok(document),
                Ok(other) => last = other.as_str().map_or_else(|| other.to_string(), str::to_owned),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(failed(&format!("no answer within {} s", PATIENCE.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(failed(&format!("it ended: {last}"))),
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // `cat` ends with its input; one that does not, or is no `cat` yet, is ended.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = &self.own_dir {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// `partage --json run`, with nothing of the caller's environment.
fn asker(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/");
    command.args(["--json", "run"]).current_dir("/");
    command
}

fn failed(why: &str) -> Failure {
    let message = format!("not shown that another user's job is bound: {why}");
    Failure::failed(message).hint("Partage is installed and its broker runs; see: partage doctor")
}

/// It was admitted; does the caller wait for it?
fn shown(program: &Path, admitted: &Value) -> Outcome<Proof> {
    let (job, device) = (admitted["job"].as_str(), &admitted["devices"][0]);
    let (Some(job), Some(uuid)) = (job, device["uuid"].as_str()) else {
        return Err(failed(&format!("an admission without job or GPU: {admitted}")));
    };
    if admitted["is_private"] != false {
        return Err(failed(&format!("{job} is under a private broker")));
    }
    let gpu = &device["index"];
    let bound = format!("a job of user nobody ({job} on GPU {gpu}) is bound by this broker");
    let mut command = asker(program);
    command.args(["--dry-run", "-g", uuid, "-c", "100%"]);
    command.args(["--compute-max", "100%", "--", "true"]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(&reason(&error)))?;
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let said = document["message"].as_str().unwrap_or_default();
    if !said.starts_with("would wait") {
        let also = String::from_utf8_lossy(&output.stderr);
        let Some(why) = rule_beside(&also, said) else {
            return Err(failed(&format!(
                "all of a GPU's time is still to be had beside {job}, which has a promise there: {said}{}",
                also.trim()
            )));
        };
        let text = format!("{bound}. Not shown that another request waits for it: {why}");
        return Ok(Proof { is_shown: false, text });
    }
    let text = format!("{bound}, and a request for all of that GPU's time waits for it");
    Ok(Proof { is_shown: true, text })
}

/// What of the administrator's own configuration lets a request for all of a GPU's time not wait.
fn rule_beside(errors: &str, said: &str) -> Option<String> {
    let refusal = |line: &str| rule_refusal(&serde_json::from_str::<Value>(line).ok()?["error"]);
    errors.lines().find_map(refusal).or_else(|| {
        let percent = ask::status(&system_place()).ok()?.broker.compute_overcommit_percent;
        let is_meant = said.starts_with("would run") && percent > 100;
        is_meant.then(|| format!("{percent} % of a GPU's time may be promised here"))
    })
}

/// The words of a refusal by one of the host's rules, and not by the kernel or another broker.
fn rule_refusal(error: &Value) -> Option<String> {
    let message = error["message"].as_str().filter(|text| text.contains("the rule "))?;
    (error["code"] == "not-allowed").then(|| message.to_owned())
}

/// It was not admitted: what that shows.
fn not_admitted(error: &Value) -> Outcome<Proof> {
    let message = error["message"].as_str().unwrap_or("no reason was given");
    if let Some(why) = rule_refusal(error) {
        let text = format!("a job of user nobody is bound by this broker, whose rules refuse it ({why})");
        return Ok(Proof { is_shown: true, text });
    }
    match error["code"].as_str() {
        Some("no-room") => Ok(Proof {
            is_shown: true,
            text: format!(
                "a job of user nobody is bound by this broker: it found no room beside the others ({message})"
            ),
        }),
        Some("no-driver" | "no-device") => Ok(Proof {
            is_shown: false,
            text: format!(
                "user nobody reaches this broker. Not shown that a job of another user is bound: {message}; once there \
                 is one: partage install"
            ),
        }),
        _ => Err(failed(message)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_refusal_shows_depends_on_its_kind() {
        let full = not_admitted(&json!({ "code": "no-room", "message": "100 % promised" })).expect("shown");
        assert!(full.is_shown && full.text.contains("100 % promised"));
        let none = not_admitted(&json!({ "code": "no-driver", "message": "no NVIDIA driver here" })).expect("partly");
        assert!(!none.is_shown && none.text.contains("Not shown") && none.text.contains("no NVIDIA driver here"));
        let rule = "--mem 8GiB is not allowed here: the rule all, max.mem = 2GiB (p.toml:5) holds";
        let ruled = not_admitted(&json!({ "code": "not-allowed", "message": rule })).expect("shown");
        assert!(
            ruled.is_shown && ruled.text.contains("max.mem = 2GiB"),
            "{}",
            ruled.text
        );
        let stranger = json!({ "code": "not-allowed", "message": "cannot connect to the broker: permission denied" });
        assert!(not_admitted(&stranger).is_err());
        let away = not_admitted(&json!({ "code": "no-broker", "message": "nobody answers" })).expect_err("nothing");
        assert!(away.message.ends_with("nobody answers"), "{}", away.message);
        assert!(not_admitted(&Value::Null).is_err());
    }

    #[test]
    fn a_job_under_a_private_broker_shows_nothing() {
        let admitted = json!({ "job": "j1", "devices": [{ "uuid": "GPU-1", "index": 0 }], "is_private": true });
        let failure = shown(Path::new("/nowhere"), &admitted).expect_err("private");
        assert!(
            failure.message.contains("j1 is under a private broker"),
            "{}",
            failure.message
        );
        assert!(shown(Path::new("/nowhere"), &json!({})).is_err());
    }
}
