// SPDX-License-Identifier: Apache-2.0
//! The word that a managed broker leaves for the time when it is away: which programs may have memory then.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use partage_policy::{Pattern, Rules};
use partage_protocol::without_broker::{MOST_BYTES, NAME};
use tracing::warn;

use super::state_driver::StateDriver;
use crate::kind::Kind;
use crate::watch::local_accounts::LocalAccounts;

impl StateDriver {
    /// Writes it anew, as the rules say now. A private broker leaves none: its programs start the next one.
    pub(super) fn leave_word(&mut self) {
        if self.site.directory.kind() == Kind::Private {
            return;
        }
        let (mut text, unknown) = lines(&self.site.config.policy.rules, &mut LocalAccounts::default());
        for name in unknown {
            self.note(format!(
                "without_broker: {name} is in none of the local files; while the broker is away it is closed to them"
            ));
        }
        if text.len() > MOST_BYTES {
            // Of a file that is cut the rest would be closed without a word.
            self.note("without_broker: more users and groups than programs can read; it is closed to all".to_owned());
            text.clear();
        }
        let folder = self.site.directory.client_folder();
        if let Err(error) = write(&folder, &text) {
            warn!(%error, "what programs may do while the broker is away cannot be written");
            self.note(format!(
                "what programs may do while the broker is away cannot be written: {error}"
            ));
        }
    }
}

/// The lines, in the order of the rules, and the names that stand for no number here.
fn lines(rules: &Rules, accounts: &mut LocalAccounts) -> (String, Vec<String>) {
    let (mut text, mut unknown) = (String::new(), Vec::new());
    for rule in &rules.rules {
        let Some(said) = rule.without_broker.map(|said| said.word()) else {
            continue;
        };
        let (kind, names) = match (&rule.matching.user, &rule.matching.group) {
            (Some(users), _) => ("user", users),
            (None, Some(groups)) => ("group", groups),
            (None, None) => {
                text.push_str(&format!("all {said}\n"));
                continue;
            }
        };
        for Pattern(name) in names {
            let number = match (name.parse().ok(), kind) {
                (Some(number), _) => Some(number),
                (None, "user") => accounts.uid(name),
                (None, _) => accounts.gid(name),
            };
            match number {
                Some(number) => text.push_str(&format!("{kind} {number} {said}\n")),
                None => unknown.push(format!("{kind} {name}")),
            }
        }
    }
    (text, unknown)
}

/// Written beside and renamed: who reads it reads a whole file.
fn write(folder: &Path, text: &str) -> std::io::Result<()> {
    let beside = folder.join(format!(".{NAME}"));
    let _ = std::fs::remove_file(&beside);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&beside)?;
    // Made through the umask.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&beside, folder.join(NAME))
}

#[cfg(test)]
mod tests {
    use partage_policy::{Match, Rule, WithoutBroker};
    use partage_protocol::without_broker::is_open;

    use super::*;

    fn rule(user: Option<&[&str]>, group: Option<&[&str]>, said: Option<WithoutBroker>) -> Rule {
        let patterns = |names: &[&str]| names.iter().map(|name| Pattern((*name).to_owned())).collect();
        Rule {
            matching: Match {
                user: user.map(patterns),
                group: group.map(patterns),
                ..Match::default()
            },
            without_broker: said,
            ..Rule::default()
        }
    }

    #[test]
    fn what_is_written_is_what_programs_read() {
        let folder = crate::testing::Scratch::new("word");
        std::fs::write(folder.path().join("passwd"), "ann:x:1000:100::/:/bin/sh\n").expect("written");
        std::fs::write(folder.path().join("group"), "lab:x:100:\n").expect("written");
        let rules = Rules {
            rules: vec![
                rule(None, None, None),
                rule(Some(&["ann", "nobody-here", "7"]), None, Some(WithoutBroker::Open)),
                rule(None, Some(&["lab"]), Some(WithoutBroker::Closed)),
                rule(None, None, Some(WithoutBroker::Open)),
            ],
            ..Rules::default()
        };
        let (text, unknown) = lines(&rules, &mut LocalAccounts::below(folder.path()));
        assert_eq!(text, "user 1000 open\nuser 7 open\ngroup 100 closed\nall open\n");
        assert_eq!(unknown, ["user nobody-here"]);
        write(folder.path(), &text).expect("written");
        let read = std::fs::read(folder.path().join(NAME)).expect("there");
        assert!(is_open(&read, Some((1000, &[100]))) && !is_open(&read, Some((8, &[100]))) && is_open(&read, None));
    }
}
