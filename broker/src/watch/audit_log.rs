// SPDX-License-Identifier: Apache-2.0
//! The audit log: every change of a job's numbers and of the rules, a JSON document a line, in a file that outlives the
//! broker.
//!
//! `audit.jsonl` is the newest file; it begins anew at [`SIZE`], and three older ones are kept. A line is one write to
//! the page cache, without waiting for a disk: a broker that is killed loses none, a machine that loses its power may
//! lose the last ones.

use std::io::{self, Write};
use std::path::Path;

use partage_policy::{JobRecord, changed_numbers};
use partage_protocol::units::JobId;
use serde::Serialize;

use super::log::RotatingFile;

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
}

/// One line.
#[derive(Debug, Serialize)]
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
}

impl AuditLog {
    /// Opens or continues it.
    ///
    /// # Errors
    /// The system's, when it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: RotatingFile::open(path, SIZE)?,
        })
    }

    /// A job's record is another one.
    ///
    /// # Errors
    /// The system's; the change is not written then.
    pub fn job(&mut self, old: Option<&JobRecord>, new: &JobRecord, cause: &Cause, time_ns: u64) -> io::Result<()> {
        for change in changed_numbers(old, new) {
            self.write(&Line {
                time_ns,
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
        }
        Ok(())
    }

    /// The configuration was read anew: classes and rules, in words, before and after.
    ///
    /// # Errors
    /// The system's; the change is not written then.
    pub fn rules(&mut self, (old, new): (&[String], &[String]), by: Option<Author>, time_ns: u64) -> io::Result<()> {
        let is_in =
            |lines: &[String], line: &str| lines.iter().any(|other| without_place(other) == without_place(line));
        let gone = old
            .iter()
            .filter(|line| !is_in(new, line))
            .map(|line| (Some(line), None));
        let come = new
            .iter()
            .filter(|line| !is_in(old, line))
            .map(|line| (None, Some(line)));
        for (old, new) in gone.chain(come) {
            self.write(&Line {
                time_ns,
                what: "reload",
                by,
                job: None,
                user: None,
                device: None,
                number: "rule",
                old: old.map(String::as_str),
                new: new.map(String::as_str),
                from: "",
            })?;
        }
        Ok(())
    }

    fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
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
        let path = scratch.path().join("audit.jsonl");
        let mut log = AuditLog::open(&path).expect("opened");
        let old = record(7);
        let mut new = old.clone();
        new.devices[0].limit = Some(2 << 30);
        new.devices[0].origin.limit = "partage set mem=2GiB by root".to_owned();
        let cause = Cause {
            what: "set",
            by: Some(Author { uid: 0, pid: 42 }),
        };
        log.job(Some(&old), &new, &cause, 5).expect("written");
        log.job(Some(&new), &new, &cause, 6).expect("written");
        drop(log);
        let mut log = AuditLog::open(&path).expect("opened again");
        let rules = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let before = rules(&["rule a (p.toml:3): at most mem = 1GiB", "rule b (p.toml:9): strict"]);
        let after = rules(&["rule a (p.toml:4): at most mem = 2GiB", "rule b (p.toml:10): strict"]);
        log.rules((&before, &after), None, 9).expect("written");
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
}
