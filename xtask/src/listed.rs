// SPDX-License-Identifier: Apache-2.0
//! What breaks a rule today and may only become less: `xtask/listed.txt`, a line `rule count path` for each.
//!
//! A fault that the list has, with no greater count, is no complaint. A line whose fault is gone or has become less is
//! one, so that the list follows; of a length alone less is needed only where the whole line can go. `cargo xtask tidy
//! --list` prints the list of today.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The list, from the workspace's root.
pub const LIST: &str = "xtask/listed.txt";

const HEADING: &str = "# What breaks a rule of `cargo xtask tidy` today, as `rule count path`.
# Lines may go and counts may fall; none is added.
";

/// One file, or one function of it, that breaks one rule.
#[derive(Debug)]
pub struct Fault {
    /// The rule's word.
    pub rule: &'static str,
    /// The file, or `file function`.
    pub subject: String,
    /// How much: lines, places, files of a circle.
    pub count: usize,
    /// What is wrong and what to do instead.
    pub what: String,
}

/// Rules whose count is a length, which changes with every edit.
const LENGTHS: [&str; 2] = ["lines", "function"];

/// The complaints about `faults`, given what is listed.
pub fn complaints(root: &Path, faults: &[Fault]) -> Vec<String> {
    let text = fs::read_to_string(root.join(LIST)).unwrap_or_default();
    let mut found = Vec::new();
    let mut listed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (i, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
    {
        match entry(line) {
            Some((key, count)) if listed.insert(key, count).is_none() => {}
            _ => found.push(format!("{LIST}:{}: no line `rule count path`, or a second one", i + 1)),
        }
    }
    for fault in faults {
        let Fault {
            rule,
            subject,
            count,
            what,
        } = fault;
        match listed.remove(&(*rule, subject.as_str())) {
            Some(before) if before < *count => {
                found.push(format!("{subject}: {rule}: {before} before, {count} now; {what}"))
            }
            Some(before) if before > *count && !LENGTHS.contains(rule) => {
                found.push(format!(
                    "{LIST}: `{rule} {before} {subject}` has become {count}; write so"
                ));
            }
            Some(_) => {}
            None => found.push(format!("{subject}: {rule}: {what}")),
        }
    }
    for ((rule, subject), count) in listed {
        found.push(format!(
            "{LIST}: `{rule} {count} {subject}` is no fault any more; remove the line"
        ));
    }
    found
}

/// Rule, subject and count of a line.
fn entry(line: &str) -> Option<((&str, &str), usize)> {
    let (rule, rest) = line.split_once(' ')?;
    let (count, subject) = rest.trim_start().split_once(' ')?;
    Some(((rule, subject), count.parse().ok()?))
}

/// The list that today's faults need.
pub fn print(faults: &[Fault]) -> String {
    let mut lines: Vec<_> = faults
        .iter()
        .map(|f| format!("{} {} {}", f.rule, f.count, f.subject))
        .collect();
    lines.sort_by_key(|line| {
        let mut parts = line.splitn(3, ' ').map(str::to_owned);
        (parts.next(), parts.nth(1))
    });
    let mut text = HEADING.to_owned();
    for line in lines {
        text += &line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(rule: &'static str, count: usize) -> Fault {
        Fault {
            rule,
            subject: "a.rs".to_owned(),
            count,
            what: "mend it".to_owned(),
        }
    }

    #[test]
    fn the_list_may_only_shrink() {
        let root = std::env::temp_dir().join(format!("partage-listed-{}", std::process::id()));
        let _ = fs::create_dir_all(root.join("xtask"));
        let _ = fs::write(root.join(LIST), "# why\ncircle 3 a.rs\nlines 600 a.rs\n");
        let count = |faults: &[Fault]| complaints(&root, faults).len();
        assert_eq!(count(&[fault("circle", 3), fault("lines", 600)]), 0);
        assert_eq!(count(&[fault("circle", 4), fault("lines", 601)]), 2, "grown");
        assert_eq!(
            count(&[fault("circle", 2), fault("lines", 599)]),
            1,
            "a length may fall unwritten"
        );
        assert_eq!(count(&[fault("circle", 3)]), 1, "gone, but listed");
        assert_eq!(
            count(&[fault("circle", 3), fault("lines", 600), fault("columns", 1)]),
            1,
            "new"
        );
        let _ = fs::write(root.join(LIST), print(&[fault("lines", 600), fault("circle", 3)]));
        assert_eq!(
            count(&[fault("circle", 3), fault("lines", 600)]),
            0,
            "what is printed can be read"
        );
        let _ = fs::remove_dir_all(&root);
    }
}
