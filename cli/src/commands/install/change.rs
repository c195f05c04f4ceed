// SPDX-License-Identifier: Apache-2.0
//! What an installation changed so far, and how each change is undone.
//!
//! ```text
//!   folder, file, group, started ──► done: Vec<Undo> ──┬─ keep: what was replaced goes, but for somebody else's
//!                                                      └─ undo, newest first: answers what could not be undone
//! ```
//! A file appears by rename, so a program that runs, or a starter in between, never meets half of one.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::host;
use super::tree::{Content, Placed};
use crate::failure::reason;
use crate::failure::{Failure, Outcome};

/// One thing and what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `placed`, `replaced`, `unchanged`, …: a word for people and scripts.
    pub word: &'static str,
    /// A path, or what else.
    pub thing: String,
}

impl Line {
    fn json(&self) -> Value {
        json!({ "what": self.word, "thing": self.thing })
    }
}

enum Undo {
    Folder(PathBuf),
    New(PathBuf),
    Replaced { path: PathBuf, before: PathBuf },
    Group,
    Started(host::Started),
}

/// The changes so far.
#[derive(Default)]
pub struct Changes {
    done: Vec<Undo>,
    /// What was done and what was found done.
    pub lines: Vec<Line>,
}

impl Changes {
    /// Says one thing.
    pub fn say(&mut self, word: &'static str, thing: impl Into<String>) {
        let thing = thing.into();
        self.lines.push(Line { word, thing });
    }

    /// Says that `thing` is removed, where it is; why it is not goes into `left`.
    pub fn removed(&mut self, thing: &Path, result: std::io::Result<()>, left: &mut Vec<String>) {
        match result {
            Ok(()) => self.say("removed", thing.display().to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => left.push(Failure::cannot("remove", thing, error).message),
        }
    }

    /// What was done and found done, in a document.
    pub fn json(&self) -> Value {
        self.lines.iter().map(Line::json).collect()
    }

    /// The same as lines.
    pub fn text(&self) -> String {
        let line = |line: &Line| format!("{:<10} {}\n", line.word, line.thing);
        self.lines.iter().map(line).collect()
    }

    /// Was anything changed?
    pub fn is_any(&self) -> bool {
        !self.done.is_empty()
    }

    /// The folders that were made.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.done.iter().filter_map(|undo| match undo {
            Undo::Folder(path) => Some(path.as_path()),
            _ => None,
        })
    }

    /// Makes a folder with all above it.
    ///
    /// # Errors
    /// The system's.
    pub fn folder(&mut self, path: &Path) -> Outcome<()> {
        let mut missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
        missing.reverse();
        for folder in missing {
            fs::create_dir(folder).map_err(|error| Failure::cannot("make", folder, error))?;
            self.done.push(Undo::Folder(folder.to_owned()));
            // Whatever the caller's umask: every user has to reach what lies below.
            let opened = fs::set_permissions(folder, Permissions::from_mode(0o755));
            opened.map_err(|error| Failure::cannot("open up", folder, error))?;
        }
        Ok(())
    }

    /// Puts a file at `to`, unless the same is there. Answers whether that changed anything.
    ///
    /// # Errors
    /// The system's.
    pub fn file(&mut self, file: &Placed, to: &Path) -> Outcome<bool> {
        let shown = to.display().to_string();
        let is_there = to.symlink_metadata().is_ok();
        if is_there && file.is_configuration {
            self.say("kept", shown);
            return Ok(false);
        }
        if is_there && is_same(file, to) {
            self.say("unchanged", shown);
            return Ok(false);
        }
        if let Some(folder) = to.parent() {
            self.folder(folder)?;
        }
        let beside = with_end(to, ".new");
        let written = write(file, &beside).and_then(|()| {
            // Not the name under which somebody else's stays: such a one may be there from an earlier installation.
            let before = with_end(to, ".replaced");
            if is_there {
                let _ = fs::remove_file(&before);
                fs::hard_link(to, &before).or_else(|_| fs::copy(to, &before).map(drop))?;
            }
            fs::rename(&beside, to)?;
            Ok(before)
        });
        let before = written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            let _ = fs::remove_file(with_end(to, ".replaced"));
            Failure::cannot("write", to, error)
        })?;
        let path = to.to_owned();
        let (undo, word) = match is_there {
            true => (Undo::Replaced { path, before }, "replaced"),
            false => (Undo::New(path), "placed"),
        };
        self.done.push(undo);
        self.say(word, shown);
        Ok(true)
    }

    /// Makes the administrators' group, unless it is there. Answers whether that changed anything.
    ///
    /// # Errors
    /// The host's command for it fails, or there is none.
    pub fn group(&mut self) -> Outcome<bool> {
        let name = format!("group {}", host::GROUP);
        if host::has_group() {
            self.say("unchanged", name);
            return Ok(false);
        }
        host::add_group()?;
        self.done.push(Undo::Group);
        self.say("made", name);
        Ok(true)
    }

    /// Notes that the broker was started, and how it is stopped.
    pub fn started(&mut self, how: host::Started) {
        self.done.push(Undo::Started(how));
    }

    /// Everything stays: the files that were replaced go, but for what somebody else had written at `foreign`.
    pub fn keep(&mut self, foreign: &[PathBuf]) {
        for undo in &self.done {
            let Undo::Replaced { path, before } = undo else {
                continue;
            };
            if foreign.contains(path) {
                let kept = with_end(path, ".before");
                let thing = match fs::rename(before, &kept) {
                    Ok(()) => kept.display().to_string(),
                    Err(_) => before.display().to_string(),
                };
                self.lines.push(Line { word: "kept", thing });
            } else {
                let _ = fs::remove_file(before);
            }
        }
    }

    /// Undoes everything, newest first. Answers what is left, and why.
    pub fn undo(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        let mut is_unit_other = false;
        let mut note =
            |path: &Path| is_unit_other |= path.extension().is_some_and(|end| end == "service" || end == "socket");
        while let Some(undo) = self.done.pop() {
            let (what, result) = match undo {
                Undo::Folder(path) => (path.display().to_string(), words(fs::remove_dir(&path))),
                Undo::New(path) => {
                    note(&path);
                    (path.display().to_string(), words(fs::remove_file(&path)))
                }
                Undo::Replaced { path, before } => {
                    note(&path);
                    (path.display().to_string(), words(fs::rename(before, &path)))
                }
                Undo::Group => (
                    format!("the group {}", host::GROUP),
                    host::remove_group().map_err(|failure| failure.message),
                ),
                Undo::Started(how) => ("the broker".to_owned(), how.undo().map_err(|failure| failure.message)),
            };
            if let Err(why) = result {
                left.push(format!("{what} ({why})"));
            }
        }
        if is_unit_other {
            host::reload();
        }
        left
    }

    /// `failure` with what became of the changes before it.
    pub fn failed(&mut self, mut failure: Failure) -> Failure {
        if !self.is_any() {
            return failure;
        }
        let left = self.undo();
        failure.message.push_str(&match left.as_slice() {
            [] => "; everything before it is undone".to_owned(),
            left => format!("; undone but for {}", left.join(", ")),
        });
        failure
    }
}

fn words(result: std::io::Result<()>) -> Result<(), String> {
    result.map_err(|error| reason(&error))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn write(file: &Placed, to: &Path) -> std::io::Result<()> {
    match &file.content {
        Content::Copy(from) => drop(fs::copy(from, to)?),
        Content::Text(text) => fs::write(to, text)?,
    }
    fs::set_permissions(to, Permissions::from_mode(file.mode))?;
    // After a power cut there is the old file or the whole new one.
    File::open(to)?.sync_all()
}

fn is_same(file: &Placed, to: &Path) -> bool {
    let Ok(data) = to.metadata() else { return false };
    let same_content = match &file.content {
        Content::Copy(from) => have_same_bytes(from, to).unwrap_or(false),
        Content::Text(text) => fs::read(to).is_ok_and(|bytes| bytes == text.as_bytes()),
    };
    data.is_file() && data.permissions().mode() & 0o7777 == file.mode && same_content
}

fn have_same_bytes(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut here, mut there) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let length = one.read(&mut here)?;
        if length == 0 {
            return Ok(true);
        }
        other.read_exact(&mut there[..length])?;
        if here[..length] != there[..length] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("partage-change-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("make a test directory");
        dir
    }

    fn text(text: &str) -> Placed {
        Placed {
            path: "/x".into(),
            content: Content::Text(text.to_owned()),
            mode: 0o644,
            is_configuration: false,
        }
    }

    /// Every file below a folder with its words.
    fn all(dir: &Path) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).expect("list").flatten() {
            match entry.path() {
                folder if folder.is_dir() => {
                    found.push((folder.clone(), String::new()));
                    found.extend(all(&folder));
                }
                file => found.push((file.clone(), fs::read_to_string(file).expect("readable"))),
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_failure_in_the_middle_leaves_what_was_there_before() {
        let dir = scratch("undo");
        fs::write(dir.join("old"), "first").expect("writable");
        // A file in the place of a folder: what comes below it cannot be made.
        fs::write(dir.join("wall"), "").expect("writable");
        let before = all(&dir);
        let mut changes = Changes::default();
        assert!(changes.file(&text("new"), &dir.join("a/b/new")).expect("placed"));
        assert!(changes.file(&text("second"), &dir.join("old")).expect("replaced"));
        assert_eq!(fs::read_to_string(dir.join("old")).expect("there"), "second");
        let failure = changes
            .file(&text("x"), &dir.join("wall/x"))
            .expect_err("no folder is there");
        let failure = changes.failed(failure);
        assert!(failure.message.starts_with("cannot "), "{}", failure.message);
        assert!(
            failure.message.ends_with("; everything before it is undone"),
            "{}",
            failure.message
        );
        assert_eq!(all(&dir), before);
        fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn what_cannot_be_undone_is_named() {
        let dir = scratch("left");
        let mut changes = Changes::default();
        changes.file(&text("new"), &dir.join("folder/new")).expect("placed");
        fs::write(dir.join("folder/of-somebody-else"), "").expect("writable");
        let failure = changes.failed(Failure::failed("no"));
        let (folder, message) = (dir.join("folder"), failure.message);
        assert!(
            message.starts_with(&format!("no; undone but for {} (", folder.display())),
            "{message}"
        );
        fs::remove_dir_all(dir).expect("clean up");
    }

    #[test]
    fn the_same_again_changes_nothing_and_a_configuration_is_its_owners() {
        let dir = scratch("same");
        let to = dir.join("file");
        let mut changes = Changes::default();
        assert!(changes.file(&text("one"), &to).expect("placed"));
        changes.keep(&[]);
        let mut again = Changes::default();
        assert!(!again.file(&text("one"), &to).expect("there"));
        let mut configuration = text("another");
        configuration.is_configuration = true;
        assert!(!again.file(&configuration, &to).expect("kept"));
        assert!(!again.is_any());
        let said: Vec<&str> = again.lines.iter().map(|line| line.word).collect();
        assert_eq!(said, ["unchanged", "kept"]);
        // Another mode, other bytes of the same length.
        fs::set_permissions(&to, Permissions::from_mode(0o600)).expect("chmod");
        assert!(again.file(&text("one"), &to).expect("replaced"));
        let copy = Placed {
            content: Content::Copy(dir.join("source")),
            ..text("")
        };
        fs::write(dir.join("source"), "two").expect("writable");
        assert!(again.file(&copy, &to).expect("replaced"));
        assert!(!again.file(&copy, &to).expect("the same"));
        assert_eq!(fs::read_to_string(&to).expect("there"), "two");
        again.keep(&[]);
        assert_eq!(all(&dir).len(), 2, "nothing is left beside them: {:?}", all(&dir));
        // What somebody else had written stays beside it.
        let mut over = Changes::default();
        assert!(over.file(&text("three"), &to).expect("replaced"));
        over.keep(std::slice::from_ref(&to));
        let kept = || fs::read_to_string(dir.join("file.before")).expect("kept");
        assert_eq!(kept(), "two");
        // For good: neither a later version nor a failure takes it.
        let mut later = Changes::default();
        assert!(later.file(&text("four"), &to).expect("replaced"));
        later.keep(&[]);
        assert_eq!(kept(), "two");
        let mut failing = Changes::default();
        assert!(failing.file(&text("five"), &to).expect("replaced"));
        assert!(failing.undo().is_empty());
        assert_eq!((kept(), all(&dir).len()), ("two".to_owned(), 3), "{:?}", all(&dir));
        fs::remove_dir_all(dir).expect("clean up");
    }
}
