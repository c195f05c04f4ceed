// SPDX-License-Identifier: Apache-2.0
//! The table of a page: every metric, as declared.

use std::fmt::Write as _;

use crate::declared::declared;

/// In Markdown, a row for each metric.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from("| metric | of each | type | unit | label | what |\n|---|---|---|---|---|---|\n");
    for (thing, one) in declared() {
        let _ = writeln!(
            out,
            "| `{}` | {thing} | {} | {} | {} | {} |",
            one.name,
            one.kind.word(),
            one.unit.word(),
            one.by.map_or_else(String::new, |label| format!("`{label}`")),
            one.help,
        );
    }
    out
}
