// SPDX-License-Identifier: Apache-2.0
//! Rules that match a group which is nowhere: a misspelt one matches nobody.

use nix::unistd::Group;
use partage_policy::{Pattern, Rules};

use crate::watch::local_accounts::LocalAccounts;

/// Sentences about them. Asks the user database, which may take its time: for a command, not for the broker.
#[must_use]
pub fn unknown_groups(rules: &Rules) -> Vec<String> {
    let mut local = LocalAccounts::default();
    let mut is_known = |name: &str| local.gid(name).is_some() || !matches!(Group::from_name(name), Ok(None));
    let is_plain = |name: &str| !name.contains(['*', '?']) && !name.bytes().all(|byte| byte.is_ascii_digit());
    let mut warnings = Vec::new();
    for rule in &rules.rules {
        let patterns = rule.matching.group.iter().flatten();
        for Pattern(name) in patterns.filter(|pattern| is_plain(&pattern.0)) {
            if !is_known(name) {
                warnings.push(format!(
                    "rule {} ({}) matches group {name}, which does not exist here: it matches nobody",
                    rule.name, rule.at
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_nowhere_is_worth_a_warning() {
        let mut rules = Rules::default();
        let groups = ["root", "rooot", "r*", "4000000"].map(|name| Pattern(name.to_owned()));
        rules.rules.push(partage_policy::Rule {
            matching: partage_policy::Match {
                group: Some(groups.to_vec()),
                ..partage_policy::Match::default()
            },
            ..partage_policy::Rule::default()
        });
        let warnings = unknown_groups(&rules);
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains("matches group rooot,")),
            "{warnings:?}"
        );
    }
}
