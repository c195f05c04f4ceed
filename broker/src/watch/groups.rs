// SPDX-License-Identifier: Apache-2.0
//! Names of groups, from the local files alone: a name service over the network can take its time, and this is asked
//! on the event loop. A group that only such a service knows is matched by its gid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use partage_policy::{Pattern, Rules};

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

    /// Sentences about rules that match a group which the file does not have: a misspelt one matches nobody.
    pub fn warnings(&mut self, rules: &Rules) -> Vec<String> {
        self.refresh();
        let is_plain = |name: &str| !name.contains(['*', '?']) && !name.bytes().all(|byte| byte.is_ascii_digit());
        let mut warnings = Vec::new();
        for rule in &rules.rules {
            let patterns = rule.matching.group.iter().flatten();
            for Pattern(name) in patterns.filter(|pattern| is_plain(&pattern.0)) {
                if !self.groups.values().any(|(known, _)| known == name) {
                    warnings.push(format!(
                        "rule {} ({}) matches group {name}, which /etc/group does not have: it matches nobody; a group \
                         that a name service alone knows is matched by its gid",
                        rule.name, rule.at
                    ));
                }
            }
        }
        warnings
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

    #[test]
    fn a_group_that_no_line_has_is_worth_a_warning() {
        let mut rules = Rules::default();
        let groups = ["root", "rooot", "r*", "4000000"].map(|name| Pattern(name.to_owned()));
        rules.rules.push(partage_policy::Rule {
            matching: partage_policy::Match {
                group: Some(groups.to_vec()),
                ..partage_policy::Match::default()
            },
            ..partage_policy::Rule::default()
        });
        let warnings = Groups::default().warnings(&rules);
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains("matches group rooot,")),
            "{warnings:?}"
        );
    }
}
