// SPDX-License-Identifier: Apache-2.0
//! Presets and rules in words, for `config show`; and what is worth a warning, for `config check`.

use super::{Facts, Match, Max, Pattern, Per, Preset, Rule, Rules, Written};

impl Rules {
    /// A line for each preset and rule; with facts, for the rules that match them and the preset that follows.
    #[must_use]
    pub fn lines(&self, facts: Option<&Facts>) -> Vec<String> {
        let rules: Vec<&Rule> = match facts {
            Some(facts) => self.matching(facts).collect(),
            None => self.rules.iter().collect(),
        };
        let start = rules.iter().find_map(|rule| rule.preset.as_ref());
        let is_shown = |preset: &&Preset| facts.is_none() || start == Some(&preset.name);
        let presets = self.presets.values().filter(is_shown).map(preset_line);
        let lines: Vec<String> = presets.chain(rules.into_iter().map(rule_line)).collect();
        if lines.is_empty() {
            vec!["no class and no rule: nothing is limited but by what is asked".to_owned()]
        } else {
            lines
        }
    }

    /// Sentences about rules that do less than they seem to.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for rule in &self.rules {
            let has_totals = !(rule.each_user.is_empty() && rule.together.is_empty());
            let is_limit = rule.max != Max::default() || rule.gpu.is_some() || has_totals;
            if is_limit && rule.matching.is_by_program_alone() {
                warnings.push(format!(
                    "rule {} ({}) hangs on the program's name alone, and anybody can rename a program: match a user, \
                     group or cgroup too",
                    rule.name, rule.at
                ));
            }
            let does_nothing = !is_limit && rule.preset.is_none() && rule.presets.is_none() && !rule.is_strict;
            if does_nothing {
                warnings.push(format!(
                    "rule {} ({}) says nothing: no class, gpu, max, total or strict",
                    rule.name, rule.at
                ));
            }
        }
        warnings
    }
}

fn preset_line(preset: &Preset) -> String {
    let numbers = [
        said("mem", preset.mem.as_ref()),
        said("mem_request", preset.mem_request.as_ref()),
        said("process_mem", preset.process_mem.as_ref()),
        said("compute", preset.compute_promise.as_ref()),
        said("compute_max", preset.compute_max.as_ref()),
        said("weight", preset.weight.as_ref()),
        said("priority", preset.priority.as_ref()),
        said("time_limit", preset.time_limit.as_ref()),
    ];
    let numbers: Vec<String> = numbers.into_iter().flatten().collect();
    format!("class {} ({}): {}", preset.name, preset.at, numbers.join(", "))
}

fn rule_line(rule: &Rule) -> String {
    let max = &rule.max;
    let numbers = [
        said("mem", max.mem.as_ref()),
        said("process_mem", max.process_mem.as_ref()),
        said("compute", max.compute_promise.as_ref()),
        said("compute_max", max.compute_max.as_ref()),
        said("weight", max.weight.as_ref()),
        said("priority", max.priority.as_ref()),
        said("gpus", max.gpus.as_ref()),
        said("time_limit", max.time_limit.as_ref()),
    ];
    let numbers: Vec<String> = numbers.into_iter().flatten().collect();
    let mut parts = vec![whom(&rule.matching)];
    parts.extend(rule.preset.as_ref().map(|name| match rule.per {
        Per::Scope => format!("class {name}"),
        per => format!("class {name} per {}", per.word()),
    }));
    parts.extend(rule.presets.as_ref().map(|list| format!("classes {}", list.text)));
    parts.extend(rule.gpu.as_ref().map(|list| format!("gpu {}", list.text)));
    if !numbers.is_empty() {
        parts.push(format!("at most {}", numbers.join(", ")));
    }
    for (whose, total) in [("each user", &rule.each_user), ("together", &rule.together)] {
        let numbers = [
            said("mem", total.mem.as_ref()),
            said("compute", total.compute_promise.as_ref()),
            said("gpus", total.gpus.as_ref()),
            said("jobs", total.jobs.as_ref()),
        ];
        let numbers: Vec<String> = numbers.into_iter().flatten().collect();
        if !numbers.is_empty() {
            parts.push(format!("{whose} at most {}", numbers.join(", ")));
        }
    }
    if rule.is_strict {
        parts.push("strict".to_owned());
    }
    format!("rule {} ({}): {}", rule.name, rule.at, parts.join("; "))
}

/// `user alice, group students or staff`, `everybody`.
fn whom(matching: &Match) -> String {
    let list = |key: &str, patterns: &Option<Vec<Pattern>>| {
        let texts: Vec<&str> = patterns.as_ref()?.iter().map(|pattern| pattern.0.as_str()).collect();
        Some(format!("{key} {}", texts.join(" or ")))
    };
    let keys = [
        list("user", &matching.user),
        list("group", &matching.group),
        list("cgroup", &matching.cgroup),
        list("program", &matching.program),
    ];
    let keys: Vec<String> = keys.into_iter().flatten().collect();
    if keys.is_empty() {
        "everybody".to_owned()
    } else {
        keys.join(", ")
    }
}

/// `mem = 16GiB`.
fn said<T>(key: &str, written: Option<&Written<T>>) -> Option<String> {
    written.map(|written| format!("{key} = {}", written.text))
}
