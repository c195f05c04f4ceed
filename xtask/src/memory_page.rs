// SPDX-License-Identifier: Apache-2.0
//! `docs/memory.md` against the driver table: the page names every function that the library stands in the way of, and
//! every one that makes memory, and no function that is not there.
//!
//! A *base name* is a row's name without its version and per-thread suffixes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use partage_abi::{ROWS, Row, Treatment};

const PAGE: &str = "docs/memory.md";
/// Hooked for other reasons than memory.
const OTHER_REASONS: [&str; 2] = ["cuInit", "cuStreamDestroy"];
/// Words in the names of functions that make memory; matched against `pass` rows of the chapters below.
const MAKERS: [&str; 6] = ["Alloc", "Create", "Import", "OpenMem", "Register", "Reserve"];
/// What these chapters make is memory, or leads to it.
const CHAPTERS: [&str; 6] = [
    "Memory management",
    "Virtual memory management",
    "Stream ordered memory allocator",
    "Multicast object management",
    "External resource interoperability",
    "Green contexts",
];
/// Of those, what makes no memory: semaphores, properties, notifications, streams.
const NO_MEMORY: [&str; 5] = [
    "cuMemGetAllocationGranularity",
    "cuImportExternalSemaphore",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuDeviceRegisterAsyncNotification",
    "cuGreenCtxStreamCreate",
];

/// Complaints about the page.
pub fn drift(root: &Path) -> Vec<String> {
    let Ok(page) = fs::read_to_string(root.join(PAGE)) else {
        return vec![format!("{PAGE}: missing")];
    };
    let named: BTreeSet<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("cu") && word.chars().nth(2).is_some_and(char::is_uppercase))
        .collect();
    let known: BTreeSet<&str> = ROWS.iter().map(|row| base(row.name())).collect();
    let wanted: BTreeSet<&str> = ROWS
        .iter()
        .filter(|row| is_wanted(row))
        .map(|row| base(row.name()))
        .collect();
    let missing = wanted
        .difference(&named)
        .map(|name| format!("{PAGE}: does not say what happens to {name}"));
    let strange = named
        .difference(&known)
        .map(|name| format!("{PAGE}: {name} is no base name of a driver function"));
    missing.chain(strange).collect()
}

fn is_wanted(row: &Row) -> bool {
    let name = base(row.name());
    if OTHER_REASONS.contains(&name) || NO_MEMORY.contains(&name) || row.treatment == Treatment::Resolve {
        return false;
    }
    let makes = CHAPTERS.contains(&row.chapter) && MAKERS.iter().any(|word| name.contains(word));
    // What only passes the gate or is marked moves or fills what is charged already.
    let is_about_time = matches!(row.treatment, Treatment::Gate | Treatment::Settle);
    (row.treatment.is_hooked() && !is_about_time) || makes
}

/// The name without `_v2`, `_ptsz`, `_ptds`.
fn base(name: &str) -> &str {
    let name = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match name.rsplit_once("_v") {
        Some((base, version)) if !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_come_off_and_names_stay() {
        let cases = [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemFreeAsync_ptsz", "cuMemFreeAsync"),
            ("cuMemcpy2D_v2_ptds", "cuMemcpy2D"),
            ("cuArray3DCreate_v2", "cuArray3DCreate"),
            ("cuInit", "cuInit"),
        ];
        for (name, expected) in cases {
            assert_eq!(base(name), expected);
        }
    }

    #[test]
    fn chapters_and_exceptions_exist() {
        for chapter in CHAPTERS {
            assert!(ROWS.iter().any(|row| row.chapter == chapter), "{chapter}");
        }
        for name in OTHER_REASONS.iter().chain(&NO_MEMORY) {
            assert!(ROWS.iter().any(|row| base(row.name()) == *name), "{name}");
        }
    }
}
