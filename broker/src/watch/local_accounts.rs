// SPDX-License-Identifier: Apache-2.0
//! Users and groups of the local files, `/etc/passwd` and `/etc/group`: they answer at once, on the event loop too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The two files as last read.
#[derive(Debug)]
pub struct LocalAccounts {
    passwd: LocalFile<(String, u32)>,
    group: LocalFile<(String, Vec<String>)>,
}

impl Default for LocalAccounts {
    fn default() -> Self {
        Self::below(Path::new("/etc"))
    }
}

impl LocalAccounts {
    /// Those of another folder.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self {
            passwd: LocalFile::new(folder.join("passwd"), user),
            group: LocalFile::new(folder.join("group"), group),
        }
    }

    /// The login name of a uid.
    pub fn name(&mut self, uid: u32) -> Option<String> {
        self.passwd.now().get(&uid).map(|(name, _)| name.clone())
    }

    /// The uid of a login name.
    pub fn uid(&mut self, name: &str) -> Option<u32> {
        let mut users = self.passwd.now().iter();
        users.find_map(|(uid, (known, _))| (known == name).then_some(*uid))
    }

    /// The name of a gid.
    pub fn group_name(&mut self, gid: u32) -> Option<String> {
        self.group.now().get(&gid).map(|(name, _)| name.clone())
    }

    /// The gid of a group's name.
    pub fn gid(&mut self, name: &str) -> Option<u32> {
        let mut groups = self.group.now().iter();
        groups.find_map(|(gid, (known, _))| (known == name).then_some(*gid))
    }

    /// The gids that the files give a user: those of the groups that list the name, and the one to log in with.
    pub fn gids(&mut self, user: &str) -> BTreeSet<u32> {
        let is_member = |members: &Vec<String>| members.iter().any(|member| member == user);
        let groups = self.group.now().iter();
        let listed = groups
            .filter(|(_, (_, members))| is_member(members))
            .map(|(gid, _)| *gid);
        let mut gids: BTreeSet<u32> = listed.collect();
        let mut users = self.passwd.now().values();
        gids.extend(users.find(|(name, _)| name == user).map(|(_, gid)| *gid));
        gids
    }
}

/// A file of lines, each of which is about a number.
#[derive(Debug)]
struct LocalFile<T> {
    path: PathBuf,
    parse: fn(&str) -> Option<(u32, T)>,
    /// When it was changed, and its size.
    read: Option<(SystemTime, u64)>,
    lines: BTreeMap<u32, T>,
}

impl<T> LocalFile<T> {
    const fn new(path: PathBuf, parse: fn(&str) -> Option<(u32, T)>) -> Self {
        Self {
            path,
            parse,
            read: None,
            lines: BTreeMap::new(),
        }
    }

    /// Its lines, read again where it has changed. Of two about one number the first counts.
    fn now(&mut self) -> &BTreeMap<u32, T> {
        let facts = std::fs::metadata(&self.path).ok();
        let now = facts.and_then(|facts| Some((facts.modified().ok()?, facts.len())));
        if now.is_some()
            && now != self.read
            && let Ok(bytes) = std::fs::read(&self.path)
        {
            self.lines.clear();
            // Line by line: one that is no text drops no other.
            let lines = bytes.split(|byte| *byte == b'\n');
            let lines = lines.filter_map(|line| str::from_utf8(line).ok());
            for (number, line) in lines.filter_map(self.parse) {
                self.lines.entry(number).or_insert(line);
            }
            self.read = now;
        }
        &self.lines
    }
}

/// `alice:x:1000:100:…`: uid, name and gid.
fn user(line: &str) -> Option<(u32, (String, u32))> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    Some((uid, (name, fields.next()?.parse().ok()?)))
}

/// `students:x:1001:alice,bob`: gid, name and members.
fn group(line: &str) -> Option<(u32, (String, Vec<String>))> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let gid = fields.nth(1)?.parse().ok()?;
    let members = fields.next().unwrap_or_default().split(',');
    let members = members.filter(|member| !member.is_empty()).map(str::to_owned);
    Some((gid, (name, members.collect())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn the_files_are_read_again_when_they_change() {
        let scratch = Scratch::new("accounts");
        let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).expect("writable");
        let mut accounts = LocalAccounts::below(scratch.path());
        assert_eq!(accounts.name(0), None, "without a file");
        write(
            "passwd",
            "root:x:0:0::/root:/bin/sh\nalice:x:1000:100::/home/alice:/bin/sh\nnonsense\nadmin:x:0:0::/:/bin/sh\n",
        );
        write(
            "group",
            "root:x:0:\nstudents:x:1001:alice,bob\nstaff:x:27:carol\nbroken:x\n",
        );
        assert_eq!(accounts.name(0).as_deref(), Some("root"), "the first of two");
        assert_eq!((accounts.uid("alice"), accounts.uid("bob")), (Some(1000), None));
        assert_eq!(accounts.gid("staff"), Some(27));
        assert_eq!(accounts.group_name(1001).as_deref(), Some("students"));
        assert_eq!(accounts.gids("alice"), BTreeSet::from([100, 1001]));
        assert_eq!(accounts.gids("bob"), BTreeSet::from([1001]));
        assert_eq!(accounts.gids("nobody-here"), BTreeSet::new());
        // Somebody's name in Latin-1.
        let bytes = b"root:x:0:0::/root:/bin/sh\nrene:x:1001:100:Ren\xe9:/:/bin/sh\nalice:x:1000:100::/:/bin/sh\n";
        std::fs::write(scratch.path().join("passwd"), bytes).expect("writable");
        assert_eq!(accounts.name(0).as_deref(), Some("root"));
        assert_eq!(accounts.name(1000).as_deref(), Some("alice"));
        write("group", "students:x:1001:alice\n");
        assert_eq!(accounts.gids("bob"), BTreeSet::new());
    }
}
