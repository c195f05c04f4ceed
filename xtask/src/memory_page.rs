// SPDX-License-Identifier: Apache-2.0
//! `docs/memory.md` against the driver table: the page names every function that the library stands in the way of, and
//! every one that makes memory, and no function that is not there; and what it says of them (charged, nothing, given
//! back) is what the table's rows say.
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
    missing.chain(strange).chain(contradictions(&page)).collect()
}

/// A line of the page's table of families.
struct Family<'a> {
    costs_nothing: bool,
    makes: BTreeSet<&'a str>,
    gives_back: BTreeSet<&'a str>,
}

fn families(page: &str) -> Vec<Family<'_>> {
    let functions = |cell: &'_ str| -> Vec<(usize, usize)> {
        let quoted = cell.match_indices('`').map(|(at, _)| at).collect::<Vec<_>>();
        quoted.chunks_exact(2).map(|pair| (pair[0] + 1, pair[1])).collect()
    };
    let names = |cell: &'_ str| functions(cell).into_iter();
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.matches(" | ").count() >= 2);
    lines
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [_, makes, charged, gives_back] = cells[..] else {
                return None;
            };
            Some(Family {
                costs_nothing: charged.starts_with("nothing"),
                makes: names(makes).map(|(from, to)| &makes[from..to]).collect(),
                gives_back: names(gives_back).map(|(from, to)| &gives_back[from..to]).collect(),
            })
        })
        .collect()
}

/// Where page and table say different things about a function that both name.
fn contradictions(page: &str) -> Vec<String> {
    let families = families(page);
    let is_paid = |name| {
        families
            .iter()
            .any(|family| !family.costs_nothing && family.makes.contains(name))
    };
    let is_given_back = |name| families.iter().any(|family| family.gives_back.contains(name));
    let mut found = BTreeSet::new();
    for row in ROWS {
        let name = base(row.name());
        let says = |words: &[&str]| words.iter().any(|word| row.note.starts_with(word));
        if (row.treatment == Treatment::Charge || says(&["charged by", "charged in", "charged to"])) && !is_paid(name) {
            found.insert(format!(
                "{PAGE}: {name} is charged by its row, and the page says nothing of a charge"
            ));
        }
        if (row.treatment == Treatment::Refund || says(&["refunded"])) && !is_given_back(name) {
            found.insert(format!(
                "{PAGE}: {name} refunds by its row, and stands under no family's `given back`"
            ));
        }
        let costs_nothing =
            row.treatment == Treatment::Pass || says(&["not charged", "costs nothing", "maps memory that the exp"]);
        if costs_nothing && is_paid(name) {
            found.insert(format!(
                "{PAGE}: {name} costs nothing by its row, and the page says that it is charged"
            ));
        }
        if row.treatment == Treatment::Pass && is_given_back(name) {
            found.insert(format!(
                "{PAGE}: {name} gives nothing back by its row, and the page says that it does"
            ));
        }
    }
    found.into_iter().collect()
}

fn is_wanted(row: &Row) -> bool {
    let name = base(row.name());
    if OTHER_REASONS.contains(&name) || NO_MEMORY.contains(&name) || row.treatment == Treatment::Resolve {
        return false;
    }
    let makes = CHAPTERS.contains(&row.chapter) && MAKERS.iter().any(|word| name.contains(word));
    // What only passes the gate or is marked moves or fills what is charged already.
    let is_about_time = matches!(row.treatment, Treatment::Gate | Treatment::Settle);
    let is_about_ties = row.note.ends_with("the process to its device");
    (row.treatment.is_hooked() && !is_about_time && !is_about_ties) || makes
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
    fn a_page_that_says_the_opposite_of_the_table_is_told() {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE)).expect("the page");
        assert_eq!(contradictions(&page), Vec::<String>::new());
        for (old, new, name) in [
            ("| bytes, rounded up to 512 |", "| nothing |", "cuMemAlloc"),
            ("| nothing: no device memory |", "| bytes |", "cuMemAllocHost"),
            (
                "| `cuMemFree`, `cuMemFreeAsync`, the context's end |",
                "| the context's end |",
                "cuMemFree",
            ),
        ] {
            assert!(page.contains(old), "{old}");
            let told = contradictions(&page.replacen(old, new, 1));
            assert!(
                told.iter().any(|line| line.contains(&format!("{name} "))),
                "{new}: {told:?}"
            );
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
