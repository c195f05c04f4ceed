// SPDX-License-Identifier: Apache-2.0
//! Totals: what several jobs may have together. All that a rule is about, those of one user among them, and the jobs of
//! processes without `run` to which it gives a preset.

use partage_protocol::size::Amount;

use super::{Facts, Per, Preset, Rule, Rules, Total, Written};

/// Tells totals apart while the rules are the same, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TotalId {
    /// The rule's place among the rules.
    rule: usize,
    of: Of,
    whose: Whose,
}

impl TotalId {
    /// Do all about whom the rule is share it?
    pub(crate) fn is_everybodys(&self) -> bool {
        self.whose == Whose::Everybody
    }
}

/// Which of a rule's totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    /// The preset of processes without `run`.
    Preset,
    EachUser,
    Together,
}

/// Who shares it, of those about whom the rule is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Everybody,
    User(u32),
    Scope(String),
}

/// A total's numbers, and the words for each.
#[derive(Clone, Debug)]
pub(crate) struct Sharing<'a> {
    rule: &'a Rule,
    /// `each_user`, `together`, `class small`.
    key: String,
    /// `scope`, `user`: whom a preset is for; empty for other totals.
    per: &'static str,
    /// Memory: Σ L + Σ O of the jobs, per GPU.
    pub(crate) mem: Option<&'a Written<Amount>>,
    /// Promised time of a GPU, in millionths.
    pub(crate) compute_promise: Option<&'a Written<u32>>,
    /// How many GPUs they are on.
    pub(crate) gpus: Option<&'a Written<usize>>,
    /// How many of them run.
    pub(crate) jobs: Option<&'a Written<usize>>,
}

impl<'a> Sharing<'a> {
    fn of(rule: &'a Rule, key: &str, total: &'a Total) -> Self {
        Self {
            rule,
            key: key.to_owned(),
            per: "",
            mem: total.mem.as_ref(),
            compute_promise: total.compute_promise.as_ref(),
            gpus: total.gpus.as_ref(),
            jobs: total.jobs.as_ref(),
        }
    }

    fn of_preset(rule: &'a Rule, preset: &'a Preset) -> Self {
        Self {
            rule,
            key: format!("class {}", preset.name),
            per: rule.per.word(),
            mem: preset.mem.as_ref(),
            compute_promise: preset.compute_promise.as_ref(),
            gpus: None,
            jobs: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.mem.is_none() && self.compute_promise.is_none() && self.gpus.is_none() && self.jobs.is_none()
    }

    /// The rule's name, and `each_user`, `together` or `class small`.
    pub(crate) fn origin(&self) -> (&str, &str) {
        (&self.rule.name, &self.key)
    }

    /// `rule students, each_user.mem = 24GiB (/etc/partage/partage.toml:12)`,
    /// `rule students, class small.mem = 8GiB per scope (/etc/partage/partage.toml:3)`.
    pub(crate) fn words<T>(&self, key: &str, written: &Written<T>) -> String {
        let Self { rule, key: of, .. } = self;
        let per = match self.per {
            "" => String::new(),
            per => format!(" per {per}"),
        };
        format!(
            "rule {}, {of}.{key} = {}{per} ({})",
            rule.name, written.text, written.at
        )
    }
}

impl Rule {
    /// Its totals, with the words for each.
    pub(crate) fn totals(&self) -> [(&'static str, &Total); 2] {
        [("each_user", &self.each_user), ("together", &self.together)]
    }
}

impl Rules {
    /// The totals that a job with these facts shares, in the order of the file.
    pub(crate) fn totals_of(&self, facts: &Facts) -> Vec<TotalId> {
        let mut found = Vec::new();
        let mut has_preset = facts.scope.is_none();
        for (place, rule) in self.rules.iter().enumerate() {
            let gives_preset = !has_preset && rule.preset.is_some();
            let has_totals = rule.totals().iter().any(|(_, total)| !total.is_empty());
            if !(gives_preset || has_totals) || !rule.matching.holds(facts) {
                continue;
            }
            let mut add = |of, whose| {
                let id = TotalId { rule: place, of, whose };
                let is_there = self.sharing(&id).is_some_and(|sharing| !sharing.is_empty());
                found.extend(is_there.then_some(id));
            };
            if gives_preset {
                has_preset = true;
                match (rule.per, &facts.scope) {
                    (Per::Scope, Some(scope)) => add(Of::Preset, Whose::Scope(scope.clone())),
                    (Per::User, _) => add(Of::Preset, Whose::User(facts.uid)),
                    // Each of its jobs is alone, and has no more than the preset (`Caps::add_preset`).
                    _ => {}
                }
            }
            add(Of::EachUser, Whose::User(facts.uid));
            add(Of::Together, Whose::Everybody);
        }
        found
    }

    /// The numbers of a total; none of one that other rules had.
    pub(crate) fn sharing(&self, id: &TotalId) -> Option<Sharing<'_>> {
        let rule = self.rules.get(id.rule)?;
        Some(match id.of {
            Of::Preset => Sharing::of_preset(rule, self.presets.get(rule.preset.as_ref()?)?),
            Of::EachUser => Sharing::of(rule, "each_user", &rule.each_user),
            Of::Together => Sharing::of(rule, "together", &rule.together),
        })
    }

    /// Whom the preset of a process without `run` is for.
    pub(crate) fn per(&self, facts: &Facts) -> Per {
        self.default_rule(facts).map_or_else(Per::default, |rule| rule.per)
    }
}
