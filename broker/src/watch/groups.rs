// SPDX-License-Identifier: Apache-2.0
//! Names of groups, from the local files alone: a name service over the network can take its time, and this is asked
//! on the event loop. A group that only such a service knows is matched by its gid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// `/etc/group` as last read.
#[derive(Debug, Default)]
pub struct Groups {
    read: Option<(SystemTime, u64)>,
    /// Name and members by gid.
    groups: BTreeMap<u32, (String, Vec<String>)>,
}

impl Groups {
    /// What a process's groups are called: those that it has, and those that the file gives its user. A process can lay
    /// down groups (in a user namespace of its own), and a rule about them holds all the same.
    pub fn names(&mut self, user: &str, gids: &[u32]) -> Vec<String> {
        self.refresh();
        let is_member = |members: &Vec<String>| members.iter().any(|member| member == user);
        let listed = self
            .groups
            .iter()
            .filter(|(_, (_, members))| is_member(members))
            .map(|(gid, _)| *gid);
        let all: BTreeSet<u32> = gids.iter().copied().chain(listed).chain(primary(user)).collect();
        let mut names = Vec::new();
        for gid in all {
            names.extend(self.groups.get(&gid).map(|(name, _)| name.clone()));
            names.push(gid.to_string());
        }
        names
    }

    /// Reads the file again where it has changed.
    fn refresh(&mut self) {
        let Ok(facts) = std::fs::metadata("/etc/group") else {
            return;
        };
        let now = facts.modified().ok().map(|time| (time, facts.len()));
        if now.is_some() && now == self.read {
            return;
        }
        if let Ok(text) = std::fs::read_to_string("/etc/group") {
            self.groups = parse(&text);
            self.read = now;
        }
    }
}

fn parse(text: &str) -> BTreeMap<u32, (String, Vec<String>)> {
    let one = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let gid = fields.nth(1)?.parse().ok()?;
        let members = fields.next().unwrap_or_default();
        let members = members
            .split(',')
            .filter(|member| !member.is_empty())
            .map(str::to_owned);
        Some((gid, (name, members.collect())))
    };
    text.lines().filter_map(one).collect()
}

/// The group that a user logs in with, as the local file has it.
fn primary(user: &str) -> Option<u32> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_process_and_those_that_the_file_gives_its_user() {
        let groups = parse("root:x:0:\nstudents:x:1001:alice,bob\nstaff:x:27:carol\nbroken:x\n");
        let mut known = Groups {
            groups,
            ..Groups::default()
        };
        // Not read over: the file is as it was.
        known.read = std::fs::metadata("/etc/group")
            .ok()
            .and_then(|facts| Some((facts.modified().ok()?, facts.len())));
        assert_eq!(
            known.names("bob", &[27, 4_000_000]),
            ["staff", "27", "students", "1001", "4000000"]
        );
        assert_eq!(known.names("nobody-here", &[]), Vec::<String>::new());
    }
}
