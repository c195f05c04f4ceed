// SPDX-License-Identifier: Apache-2.0
//! Totals: what several jobs may have together, all that a rule is about or those of one user among them.

use super::{Facts, Rule, Rules, Total, Written};

/// A total and who shares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing<'a> {
    rule: &'a Rule,
    /// `each_user`, `together`.
    key: &'static str,
    /// The total.
    pub(crate) total: &'a Total,
    /// Of whom; none for all that the rule is about.
    pub(crate) uid: Option<u32>,
}

impl Sharing<'_> {
    /// Does a job with these facts share it?
    pub(crate) fn counts(&self, facts: &Facts) -> bool {
        self.uid.is_none_or(|uid| uid == facts.uid) && self.rule.matching.holds(facts)
    }

    /// The rule's name, and `each_user` or `together`.
    pub(crate) fn origin(&self) -> (&str, &'static str) {
        (&self.rule.name, self.key)
    }

    /// `rule students, each_user.mem = 24GiB (/etc/partage/partage.toml:12)`.
    pub(crate) fn words<T>(&self, key: &str, written: &Written<T>) -> String {
        let Self { rule, key: of, .. } = self;
        format!("rule {}, {of}.{key} = {} ({})", rule.name, written.text, written.at)
    }
}

impl Rule {
    /// Its totals, with the words for each.
    pub(crate) fn totals(&self) -> [(&'static str, &Total); 2] {
        [("each_user", &self.each_user), ("together", &self.together)]
    }
}

impl Rules {
    /// Does any rule have a total?
    pub(crate) fn has_totals(&self) -> bool {
        let is_there = |rule: &Rule| rule.totals().iter().any(|(_, total)| !total.is_empty());
        self.rules.iter().any(is_there)
    }

    /// The totals that a job with these facts shares, in the order of the file.
    pub(crate) fn sharings<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = Sharing<'a>> {
        let with_totals = |rule: &&Rule| rule.totals().iter().any(|(_, total)| !total.is_empty());
        let rules = self.rules.iter().filter(with_totals);
        let rules = rules.filter(|rule| rule.matching.holds(facts));
        rules.flat_map(move |rule| {
            let sharing = move |(key, total): (&'static str, &'a Total)| Sharing {
                rule,
                key,
                total,
                uid: (key == "each_user").then_some(facts.uid),
            };
            rule.totals().map(sharing)
        })
    }
}
