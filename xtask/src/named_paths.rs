// SPDX-License-Identifier: Apache-2.0
//! Every path that a page names exists.

use std::collections::BTreeSet;

use crate::tree::File;

/// Paths between backticks in the pages of `files` that lead nowhere. What is written about the past keeps its paths:
/// results, decisions and the change log.
pub fn complaints(files: &[File]) -> Vec<String> {
    let folders: BTreeSet<_> = files
        .iter()
        .filter_map(|file| file.path.split_once('/'))
        .map(|(top, _)| top)
        .collect();
    let mut found = Vec::new();
    for page in files.iter().filter(|file| is_page(&file.path)) {
        for (i, line) in page.text.lines().enumerate() {
            // Every second part stands between backticks.
            for path in line
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|text| is_path(text, &folders))
            {
                if !exists(path, files) {
                    found.push(format!(
                        "{}:{}: there is no `{path}`; name the file of today",
                        page.path,
                        i + 1
                    ));
                }
            }
        }
    }
    found
}

fn is_page(path: &str) -> bool {
    let is_history = ["docs/results/", "docs/decisions/", "CHANGELOG"]
        .iter()
        .any(|start| path.starts_with(start));
    path.ends_with(".md") && !is_history
}

/// True for a path from the workspace's root: it begins with one of its folders and has no space, variable or
/// placeholder.
fn is_path(text: &str, folders: &BTreeSet<&str>) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._/*-".contains(c));
    is_plain && text.split_once('/').is_some_and(|(top, _)| folders.contains(top))
}

/// True for a file or a folder; a star stands for any text.
fn exists(path: &str, files: &[File]) -> bool {
    let parts: Vec<_> = path.trim_end_matches('/').split('*').collect();
    files.iter().any(|file| begins(&file.path, &parts))
}

/// True when `path`, or one of its folders, is made of `parts` with any text between them.
fn begins(path: &str, parts: &[&str]) -> bool {
    let Some(mut rest) = path.strip_prefix(parts[0]) else {
        return false;
    };
    for part in &parts[1..] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    let is_open = parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty());
    is_open || rest.is_empty() || rest.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_only_what_is_there() {
        let count = |text: &str| {
            let file = |(path, text): (&str, &str)| File {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            complaints(&[file(("docs/a.md", text)), file(("broker/src/gate.rs", ""))]).len()
        };
        assert_eq!(
            count("`broker/src/gate.rs`, `broker/`, `broker/src/ga*`, `broker/src`, `broker/*.rs`"),
            0
        );
        assert_eq!(count("broker/gone.rs, `etc/x`, `broker/NAME x`, `broker`"), 0);
        assert_eq!(count("see\n`broker/src/gates.rs` and `broker/src/x*`"), 2);
    }
}
