// SPDX-License-Identifier: Apache-2.0
//! Users and their groups, by name: from the local files at once, and from the user database when it has answered.
//!
//! Nothing here waits. What the database is to be asked is noted, and taken by the server
//! (`host/user_database/`). Until it answers, the number stands for the name, and the groups are those of the process
//! and of the local files. An answer counts until the next one: a database that falls silent takes no rule away.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::units::SECOND_NS;

use super::local_accounts::LocalAccounts;
use crate::host::user_database::Account;

/// An answer older than this is asked for again, when its user is met.
pub const KEPT_NS: u64 = 300 * SECOND_NS;
/// Users whose answers are kept at most; the oldest answer is forgotten first.
const MOST_KEPT: usize = 4_096;

/// What is known of users.
#[derive(Debug, Default)]
pub struct Users {
    local: LocalAccounts,
    /// By uid: what the database answered last, and when. Without an account: it has no such user.
    answers: BTreeMap<u32, (Option<Account>, u64)>,
    /// Users that were met and about whom the database may know more.
    wanted: BTreeSet<u32>,
    /// A rule asks for groups; else the database is asked for names alone.
    follows_groups: bool,
}

impl Users {
    /// With these local files.
    #[must_use]
    pub fn with(local: LocalAccounts) -> Self {
        Self {
            local,
            ..Self::default()
        }
    }

    /// Does it matter which groups a user is in?
    pub fn follow_groups(&mut self, follows_groups: bool) {
        self.follows_groups = follows_groups;
    }

    /// The login name, or the uid in digits.
    pub fn name(&mut self, uid: u32) -> String {
        if let Some(name) = self.local.name(uid) {
            return name;
        }
        self.wanted.insert(uid);
        self.account(uid)
            .map_or_else(|| uid.to_string(), |account| account.name.clone())
    }

    /// The uid of a login name, or of a uid in digits.
    pub fn uid(&mut self, name: &str) -> Option<u32> {
        let is_it = |account: &&Account| account.name == name;
        let answered = || {
            let mut known = self.answers.iter();
            known.find_map(|(uid, (account, _))| account.as_ref().filter(is_it).map(|_| *uid))
        };
        let known = answered();
        self.local.uid(name).or(known).or_else(|| name.parse().ok())
    }

    /// Names and gids of a user's groups: of `gids`, which its process has, and of those that the local files and the
    /// database give the user. A process can lay down groups (in a user namespace of its own), and a rule about them
    /// holds all the same.
    pub fn groups(&mut self, uid: u32, gids: &[u32]) -> Vec<String> {
        if self.follows_groups {
            self.wanted.insert(uid);
        }
        let user = self.name(uid);
        let account = self.answers.get(&uid).and_then(|(account, _)| account.clone());
        let answered: BTreeMap<u32, Option<String>> = account.unwrap_or_default().groups.into_iter().collect();
        let mut all = self.local.gids(&user);
        all.extend(gids.iter().chain(answered.keys()));
        let mut names = Vec::new();
        for gid in all {
            let name = self.local.group_name(gid);
            names.extend(name.or_else(|| answered.get(&gid)?.clone()));
            names.push(gid.to_string());
        }
        names
    }

    /// The gid of a group in the local files.
    pub fn local_gid(&mut self, group: &str) -> Option<u32> {
        self.local.gid(group)
    }

    /// Users whom the database is to be asked about now.
    pub fn take_wanted(&mut self, now_ns: u64) -> Vec<u32> {
        let is_new = |uid: &u32| match self.answers.get(uid) {
            Some((_, since_ns)) => now_ns.saturating_sub(*since_ns) < KEPT_NS,
            None => false,
        };
        let wanted = std::mem::take(&mut self.wanted);
        wanted.into_iter().filter(|uid| !is_new(uid)).collect()
    }

    /// The database answered. That it has no such user takes nothing away: it may have lost its server.
    pub fn take(&mut self, uid: u32, account: Option<Account>, now_ns: u64) {
        let account = account.or_else(|| self.answers.remove(&uid)?.0);
        self.answers.insert(uid, (account, now_ns));
        if self.answers.len() > MOST_KEPT
            && let Some(oldest) = self.answers.iter().min_by_key(|(_, (_, at_ns))| *at_ns)
        {
            let oldest = *oldest.0;
            self.answers.remove(&oldest);
        }
    }

    fn account(&self, uid: u32) -> Option<&Account> {
        self.answers.get(&uid)?.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn users(scratch: &Scratch) -> Users {
        let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).expect("writable");
        write("passwd", "alice:x:1000:100::/home/alice:/bin/sh\n");
        write("group", "students:x:1001:alice,bob\nstaff:x:27:carol\n");
        Users::with(LocalAccounts::below(scratch.path()))
    }

    fn bob() -> Account {
        Account {
            name: "bob".to_owned(),
            groups: vec![(5000, Some("lab".to_owned())), (5001, None)],
        }
    }

    #[test]
    fn the_files_answer_at_once_and_the_database_when_it_does() {
        let scratch = Scratch::new("users");
        let mut users = users(&scratch);
        assert_eq!(users.name(1000), "alice");
        assert_eq!(users.take_wanted(0), [] as [u32; 0], "the file is enough for a name");
        let groups = ["staff", "27", "100", "students", "1001"];
        assert_eq!(users.groups(1000, &[27]), groups);
        assert_eq!(users.take_wanted(0), [] as [u32; 0], "no rule asks for groups");
        users.follow_groups(true);
        assert_eq!(users.groups(1000, &[27]), groups);
        assert_eq!(users.take_wanted(0), [1000], "the database may know more of them");
        // Until the answer: the number, and the process's own groups.
        assert_eq!(users.name(2000), "2000");
        assert_eq!(users.groups(2000, &[27]), ["staff", "27"]);
        assert_eq!((users.uid("bob"), users.uid("2000")), (None, Some(2000)));
        users.take(2000, Some(bob()), 7);
        assert_eq!(users.name(2000), "bob");
        let all = ["staff", "27", "students", "1001", "lab", "5000", "5001"];
        assert_eq!(users.groups(2000, &[27]), all);
        assert_eq!(users.uid("bob"), Some(2000));
    }

    #[test]
    fn an_answer_is_asked_for_again_after_five_minutes_and_counts_until_the_next_one() {
        let scratch = Scratch::new("users");
        let mut users = users(&scratch);
        let met = |users: &mut Users, now_ns| {
            users.groups(2000, &[]);
            users.take_wanted(now_ns)
        };
        assert_eq!(met(&mut users, 0), [2000]);
        users.take(2000, Some(bob()), 0);
        assert_eq!(met(&mut users, KEPT_NS - 1), [] as [u32; 0]);
        assert_eq!(met(&mut users, KEPT_NS), [2000]);
        assert_eq!(users.name(2000), "bob", "meanwhile");
        users.take(2000, None, KEPT_NS);
        assert_eq!(
            users.name(2000),
            "bob",
            "a database that lost its users takes no name away"
        );
        assert_eq!(met(&mut users, KEPT_NS), [] as [u32; 0]);
    }

    #[test]
    fn answers_do_not_pile_up() {
        let mut users = Users::default();
        let most = u32::try_from(MOST_KEPT).expect("few");
        for uid in 0..=most {
            users.take(uid, None, u64::from(uid));
        }
        assert_eq!(users.answers.len(), MOST_KEPT);
        assert!(!users.answers.contains_key(&0), "the oldest is forgotten");
    }
}
