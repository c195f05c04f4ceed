// SPDX-License-Identifier: Apache-2.0
//! The audit log: every change of a job's numbers and of the rules, a JSON document a line, in files that outlive the
//! broker.
//!
//! What administrators change, by `set` or by a reload, goes to one file; what users change of their own jobs, and
//! jobs that began with less than they asked for, to another, of which each user may fill so much and no more
//! ([`audit_budget`](super::audit_budget)). So no user can push anybody else's line out. `audit.jsonl` and
//! `audit-users.jsonl` are the newest files; each begins anew at [`SIZE`], and three older ones are kept. A line is one
//! write to the page cache, without waiting for a disk: a broker that is killed loses none, a machine that loses its
//! power may lose the last ones.

use std::io::{self, Write};
use std::path::Path;

use partage_policy::{JobRecord, changed_numbers};
use partage_protocol::units::JobId;
use serde::Serialize;

use super::audit_budget::{Budgets, Room};
use super::log::RotatingFile;
use crate::clock::Now;

/// Bytes at which a new file is begun: some 30,000 changes.
pub const SIZE: u64 = 8 << 20;

/// Who changed something: a process, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Author {
    /// Its user.
    pub uid: u32,
    /// Its number, in the broker's pid namespace.
    pub pid: u32,
}

/// What made numbers change, and who did it; nobody where it follows from something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// `set`, `set --force`, `reload`, `user-known`, `admitted`, or `broker`.
    pub what: &'static str,
    /// Who.
    pub by: Option<Author>,
    /// An administrator's doing; else a user's, or what follows from it.
    pub is_admins: bool,
}

/// One line.
#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    /// Unix time in nanoseconds.
    time_ns: u64,
    what: &'a str,
    by: Option<Author>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Whose job it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// `mem`, …; `rule` for a line of the configuration.
    number: &'a str,
    old: Option<&'a str>,
    new: Option<&'a str>,
    /// What set the new one: an option, a rule with file and line.
    from: &'a str,
}

/// The log.
#[derive(Debug)]
pub struct AuditLog {
    file: RotatingFile,
    users: RotatingFile,
    budgets: Budgets,
}

impl AuditLog {
    /// Opens or continues it: administrators' changes, and users'.
    ///
    /// # Errors
    /// The system's, when a file cannot be opened.
    pub fn open(path: &Path, users: &Path) -> io::Result<Self> {
        Ok(Self {
            file: RotatingFile::open(path, SIZE)?,
            users: RotatingFile::open(users, SIZE)?,
            budgets: Budgets::default(),
        })
    }

    /// A job's record is another one.
    ///
    /// # Errors
    /// The system's; the change is not written then.
    pub fn job(&mut self, old: Option<&JobRecord>, new: &JobRecord, cause: &Cause, now: Now) -> io::Result<()> {
        for change in changed_numbers(old, new) {
            let text = text(&Line {
                time_ns: now.unix_ns,
                what: cause.what,
                by: cause.by,
                job: Some(JobId(new.id).to_string()),
                user: Some(&new.user),
                device: change.device.map(|device| device.to_string()),
                number: &change.number,
                old: Some(&change.old),
                new: Some(&change.new),
                from: &change.words,
            })?;
            if cause.is_admins {
                self.file.write_all(&text)?;
            } else {
                self.users_change(&text, new, now)?;
            }
        }
        Ok(())
    }

    /// A change of a user's own, as far as the user's budget reaches.
    fn users_change(&mut self, text: &[u8], job: &JobRecord, now: Now) -> io::Result<()> {
        match self.budgets.ask(job.uid, text.len() as u64, now.ns) {
            Room::Yes(left_out) => {
                if left_out > 0 {
                    self.left_out(left_out, job, now)?;
                }
                self.budgets.charge(job.uid, text.len() as u64, now.ns);
                self.users.write_all(text)
            }
            Room::No(Some(left_out)) => self.left_out(left_out, job, now),
            Room::No(None) => Ok(()),
        }
    }

    fn left_out(&mut self, count: u64, job: &JobRecord, now: Now) -> io::Result<()> {
        let text = text(&Line {
            time_ns: now.unix_ns,
            what: "left-out",
            user: Some(&job.user),
            number: "changes",
            new: Some(&count.to_string()),
            from: "more than 256 KiB at once and 1 MiB a day",
            ..Line::default()
        })?;
        self.budgets.charge(job.uid, text.len() as u64, now.ns);
        self.users.write_all(&text)
    }

    /// The configuration was read anew: classes and rules, in words, before and after.
    ///
    /// # Errors
    /// The system's; the change is not written then.
    pub fn rules(&mut self, (old, new): (&[String], &[String]), by: Option<Author>, time_ns: u64) -> io::Result<()> {
        // Without any the words say so, which is no rule.
        let is_one = |line: &&String| line.starts_with("class ") || line.starts_with("rule ");
        let is_in =
            |lines: &[String], line: &str| lines.iter().any(|other| without_place(other) == without_place(line));
        let gone = old
            .iter()
            .filter(|line| is_one(line) && !is_in(new, line))
            .map(|line| (Some(line), None));
        let come = new
            .iter()
            .filter(|line| is_one(line) && !is_in(old, line))
            .map(|line| (None, Some(line)));
        for (old, new) in gone.chain(come) {
            self.file.write_all(&text(&Line {
                time_ns,
                what: "reload",
                by,
                number: "rule",
                old: old.map(String::as_str),
                new: new.map(String::as_str),
                ..Line::default()
            })?)?;
        }
        Ok(())
    }
}

fn text(line: &Line<'_>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// `rule students (p.toml:3): …` without the place: a rule that only moved is the same.
fn without_place(line: &str) -> String {
    match line
        .split_once(" (")
        .and_then(|(name, rest)| Some((name, rest.split_once("): ")?)))
    {
        Some((name, (_, rest))) => format!("{name}: {rest}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::state::job_store::tests::record;
    use crate::testing::Scratch;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).expect("readable");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a document"))
            .collect()
    }

    #[test]
    fn a_change_is_a_line_with_who_what_old_new_and_why_and_outlives_the_broker() {
        let scratch = Scratch::new("audit");
        let (path, users) = (scratch.path().join("audit.jsonl"), scratch.path().join("users.jsonl"));
        let mut log = AuditLog::open(&path, &users).expect("opened");
        let old = record(7);
        let mut new = old.clone();
        new.devices[0].limit = Some(2 << 30);
        new.devices[0].origin.limit = "partage set mem=2GiB by root".to_owned();
        let cause = Cause {
            what: "set",
            by: Some(Author { uid: 0, pid: 42 }),
            is_admins: true,
        };
        log.job(Some(&old), &new, &cause, at(5)).expect("written");
        log.job(Some(&new), &new, &cause, at(6)).expect("written");
        drop(log);
        let mut log = AuditLog::open(&path, &users).expect("opened again");
        let rules = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let before = rules(&["rule a (p.toml:3): at most mem = 1GiB", "rule b (p.toml:9): strict"]);
        let after = rules(&["rule a (p.toml:4): at most mem = 2GiB", "rule b (p.toml:10): strict"]);
        log.rules((&before, &after), None, 9).expect("written");
        let none = rules(&["no class and no rule: nothing is limited but by what is asked"]);
        log.rules((&none, &none), None, 9).expect("nothing to write");
        log.rules((&after[..0], &none), None, 9).expect("nothing to write");
        let lines = lines(&path);
        assert_eq!(lines.len(), 3, "{lines:?}");
        let first = &lines[0];
        assert_eq!(first["job"], "j7");
        assert_eq!((&first["by"]["uid"], &first["by"]["pid"]), (&0.into(), &42.into()));
        assert_eq!((&first["number"], &first["new"]), (&"mem".into(), &"2 GiB".into()));
        assert_eq!(first["from"], "partage set mem=2GiB by root");
        assert!(lines[1]["old"].as_str().is_some_and(|old| old.contains("1GiB")) && lines[1]["new"].is_null());
        assert!(lines[2]["new"].as_str().is_some_and(|new| new.contains("2GiB")) && lines[2]["by"].is_null());
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// A time whose two clocks are the same.
    fn at(ns: u64) -> Now {
        Now { ns, unix_ns: ns }
    }

    #[test]
    fn no_user_pushes_anybody_elses_line_out() {
        let scratch = Scratch::new("audit-flood");
        let (path, users) = (scratch.path().join("a.jsonl"), scratch.path().join("u.jsonl"));
        let mut log = AuditLog::open(&path, &users).expect("opened");
        let change = |log: &mut AuditLog, uid: u32, is_admins: bool, ns: u64| {
            let mut old = record(7);
            (old.uid, old.user) = (uid, format!("user{uid}"));
            old.devices[0].limit = Some(1 + ns % 2);
            let mut new = old.clone();
            new.devices[0].limit = Some(1 + (ns + 1) % 2);
            let cause = Cause {
                what: "set",
                by: Some(Author { uid, pid: 42 }),
                is_admins,
            };
            log.job(Some(&old), &new, &cause, at(ns)).expect("written");
        };
        change(&mut log, 5, true, 1);
        change(&mut log, 6, false, 2);
        for ns in 3..200_000 {
            change(&mut log, 7, false, ns);
        }
        assert_eq!(lines(&path).len(), 1, "administrators have a file of their own");
        let (bytes, all) = (std::fs::metadata(&users).expect("there").len(), lines(&users));
        assert!(bytes <= 272 << 10, "{bytes}");
        assert_eq!(all[0]["user"], "user6");
        let last = all.last().expect("some");
        assert_eq!((&last["what"], &last["new"]), (&"left-out".into(), &"131072".into()));
        assert_eq!(last["user"], "user7");
        // A day later the rest of the count comes before the next change.
        change(&mut log, 7, false, 86_400_000_000_000);
        let all = lines(&users);
        let [.., count, change] = all.as_slice() else {
            panic!("{all:?}")
        };
        let written = all
            .iter()
            .filter(|line| line["user"] == "user7" && line["what"] == "set")
            .count() as u64
            - 1;
        assert_eq!(count["new"], (200_000 - 3 - written).to_string());
        assert_eq!(change["what"], "set");
    }
}
