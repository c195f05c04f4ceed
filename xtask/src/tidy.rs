// SPDX-License-Identifier: Apache-2.0
//! The style sheet's rules that a machine can hold, each with what to do instead.

use std::collections::BTreeSet;
use std::path::Path;

use crate::listed::{self, Fault};
use crate::tree::{File, files};
use crate::{calls, circles, lengths, named_paths, walls, words};

/// Names that say nothing, for folders and files.
const REFUSED_NAMES: [&str; 6] = ["utils", "common", "core", "manager", "helpers", "misc"];

/// Words that stand for unfinished or careless work, and what to do. Written in halves, so as not to find themselves.
const REFUSED_WORDS: &[(&str, &str, &str)] = &[
    ("to", "do!", "return a typed refusal and write a line in Known limits"),
    (
        "unimple",
        "mented!",
        "return a typed refusal and write a line in Known limits",
    ),
    ("TO", "DO", "do it, or write a line in Known limits"),
    ("FIX", "ME", "fix it, or write a line in Known limits"),
    ("simplified ", "for now", "say what is missing in Known limits"),
    ("db", "g!(", "log with a field, or remove it"),
];

/// Everything that breaks a rule, as `path:line: what; what to do`.
pub fn complaints(root: &Path) -> Vec<String> {
    let files = files(root);
    let mut found = Vec::new();
    for file in &files {
        found.extend(name(file));
        if file.is_code() {
            found.extend(licence(file));
            found.extend(purpose(file));
            found.extend(lines(file));
        }
        found.extend(dead(file, &files));
    }
    found.extend(named_paths::complaints(&files));
    found.extend(lengths::idle_exceptions(&files));
    found.extend(walls::idle_rows(&files));
    found.extend(listed::complaints(root, &faults(&files)));
    found
}

/// The list that today's tree needs, to be written to [`listed::LIST`].
pub fn list(root: &Path) -> String {
    listed::print(&faults(&files(root)))
}

/// The import circles of each crate, as lines to read.
pub fn print_circles(root: &Path) -> String {
    let files = files(root);
    let mut text = calls::print(&files);
    for one in circles::circles(&files) {
        let within: usize = one.circles.iter().map(BTreeSet::len).sum();
        text += &format!(
            "{}: {within} of {} files in {} circles\n",
            one.root,
            one.files,
            one.circles.len()
        );
        let rooms = one.rooms();
        if !rooms.is_empty() {
            let rooms: Vec<_> = rooms.into_iter().collect();
            text += &format!("  circle of {} rooms: {}\n", rooms.len(), rooms.join(", "));
        }
        for circle in &one.circles {
            text += &format!("  circle of {}\n", circle.len());
            for path in circle {
                text += &format!("    {}\n", one.way_back(path));
            }
        }
    }
    text
}

/// What breaks the rules whose faults of today are listed.
fn faults(files: &[File]) -> Vec<Fault> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_code()) {
        found.extend(lengths::faults(file));
        found.extend(words::faults(file));
    }
    let circles = circles::circles(files);
    for one in &circles {
        let rooms = one.rooms();
        found.extend((!rooms.is_empty()).then(|| Fault {
            rule: "circle-of-rooms",
            subject: one.root.clone(),
            count: rooms.len(),
            what: format!("{:?} name one another; let what both need go below both", rooms),
        }));
        for circle in &one.circles {
            found.extend(circle.iter().map(|path| Fault {
                rule: "circle",
                subject: path.clone(),
                count: circle.len(),
                what: format!(
                    "in an import circle: {}; move what both need to a file of its own",
                    one.way_back(path)
                ),
            }));
        }
    }
    found.extend(walls::faults(files, &circles::all_arrows(&circles)));
    found.extend(calls::faults(files));
    found
}

fn name(file: &File) -> Option<String> {
    let part = file
        .path
        .split('/')
        .find(|part| REFUSED_NAMES.contains(&part.split('.').next().unwrap_or(part)))?;
    Some(format!(
        "{}: `{part}` says nothing; name it after what it holds",
        file.path
    ))
}

fn licence(file: &File) -> Option<String> {
    let is_there = file
        .text
        .lines()
        .take(3)
        .any(|line| line.contains("SPDX-License-Identifier: Apache-2.0"));
    (!is_there).then(|| {
        format!(
            "{}:1: no SPDX line; add: SPDX-License-Identifier: Apache-2.0",
            file.path
        )
    })
}

fn purpose(file: &File) -> Option<String> {
    let says_it = file.extension() != "rs" || file.text.lines().take(4).any(|line| line.starts_with("//!"));
    (!says_it).then(|| format!("{}:2: opens without a `//!` sentence of purpose; add one", file.path))
}

/// Rules about single lines: refused words, lint exceptions without a reason.
fn lines(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let mut previous = "";
    for (i, line) in file.text.lines().enumerate() {
        let mut complain = |what: &str| found.push(format!("{}:{}: {what}", file.path, i + 1));
        for (first, second, instead) in REFUSED_WORDS {
            if line.contains(&[*first, *second].concat()) {
                complain(&format!("`{first}{second}`; {instead}"));
            }
        }
        let is_exception = ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
            .iter()
            .any(|a| line.trim_start().starts_with(a));
        let has_reason = line.contains("//") || line.contains("reason =") || previous.trim_start().starts_with("//");
        if file.extension() == "rs" && is_exception && !has_reason {
            complain("a lint exception without a reason; say why in a comment above it");
        }
        previous = line;
    }
    found
}

/// A Rust source that no other names as a module is not compiled.
fn dead(file: &File, files: &[File]) -> Option<String> {
    let path = file.path.strip_suffix(".rs")?;
    let (folder, stem) = path.rsplit_once('/')?;
    let is_root = ["main", "lib", "mod", "build"].contains(&stem);
    // Only files below a package's src/ must be named; tests, benches, examples and binaries are found by cargo.
    if is_root || !(folder.ends_with("/src") || folder.contains("/src/")) || folder.ends_with("/src/bin") {
        return None;
    }
    let parents = [
        format!("{folder}/main.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/mod.rs"),
        format!("{folder}.rs"),
    ];
    let declaration = format!("mod {stem};");
    let file_name = format!("{stem}.rs\"");
    let is_named = |parent: &File| {
        parent
            .text
            .lines()
            .any(|line| line.ends_with(&declaration) || line.contains("path =") && line.contains(&file_name))
    };
    let is_alive = files
        .iter()
        .any(|other| parents.contains(&other.path) && is_named(other));
    (!is_alive).then(|| {
        format!(
            "{}: no module names it, so it is not compiled; declare or remove it",
            file.path
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn each_rule_finds_its_fault_and_passes_its_cure() {
        assert!(name(&file("broker/src/utils.rs", "")).is_some());
        assert!(name(&file("broker/helpers/x.rs", "")).is_some());
        assert!(name(&file("broker/src/score.rs", "")).is_none());
        assert!(licence(&file("a.py", "#!/usr/bin/env python3\nprint()\n")).is_some());
        assert!(
            licence(&file(
                "a.py",
                "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n"
            ))
            .is_none()
        );
        assert!(purpose(&file("a.rs", "fn main() {}\n")).is_some());
        assert!(purpose(&file("a.rs", "// licence\n//! Why.\n")).is_none());
    }

    #[test]
    fn lines_are_judged_one_by_one() {
        let count = |text: &str| lines(&file("a.rs", text)).len();
        assert_eq!(count(&["// TO", "DO later"].concat()), 1);
        assert_eq!(count("#[allow(dead_code)]\nfn f() {}"), 1);
        assert_eq!(
            count("// Only one flavour of the list is used.\n#[allow(dead_code)]\nfn f() {}"),
            0
        );
    }

    #[test]
    fn source_that_no_module_names_is_dead() {
        let files = [
            file("a/src/lib.rs", "pub mod used;\n"),
            file("a/src/used.rs", "mod inner;\n"),
            file("a/src/used/inner.rs", ""),
        ];
        assert!(files.iter().all(|file| dead(file, &files).is_none()));
        assert!(dead(&file("a/src/stray.rs", ""), &files).is_some());
        assert!(dead(&file("a/tests/stray.rs", ""), &files).is_none());
    }
}
