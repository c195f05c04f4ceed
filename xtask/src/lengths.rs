// SPDX-License-Identifier: Apache-2.0
//! How long a file, a function and a line may be.

use crate::listed::Fault;
use crate::source::{functions, tokens};
use crate::tree::File;

/// Lines of a file; the style sheet asks for 100 to 400, this is where asking ends.
const FILE: usize = 500;

/// Lines of a function, from its `fn` to its closing brace: what a screen holds.
const FUNCTION: usize = 70;

/// Characters of a line. rustfmt breaks Rust code there; this holds for what it does not break: comments, scripts, C.
const COLUMNS: usize = 120;

/// Files that may be longer, and why: each is only a list, and its rows belong together.
const LISTS: [(&str, &str); 5] = [
    ("abi/src/driver_table.rs", "one row for each driver function"),
    (
        "abi/src/values.rs",
        "one line for each number that the driver's header names",
    ),
    ("abi/src/nvml_table.rs", "one row for each NVML function"),
    (
        "simulator/runtime/src/table.rs",
        "one row for each function of the runtime",
    ),
    (
        "abi/src/entry_points.rs",
        "one row for each name under which a driver function is found",
    ),
];

/// What is too long in `file`, which is code.
pub fn faults(file: &File) -> Vec<Fault> {
    let mut found = Vec::new();
    let mut fault = |rule, subject: String, count, what| {
        found.push(Fault {
            rule,
            subject,
            count,
            what,
        })
    };
    let lines = file.text.lines().count();
    if lines > FILE && !LISTS.iter().any(|(path, _)| *path == file.path) {
        let what = format!("{lines} lines, more than {FILE}; split it by subject");
        fault("lines", file.path.clone(), lines, what);
    }
    let wide: Vec<usize> = file
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| is_wide(line))
        .map(|(i, _)| i + 1)
        .collect();
    if !wide.is_empty() {
        let what = format!("wider than {COLUMNS} characters: line {wide:?}; break them");
        fault("columns", file.path.clone(), wide.len(), what);
    }
    if file.extension() == "rs" {
        for function in functions(&tokens(&file.text))
            .iter()
            .filter(|function| function.lines > FUNCTION)
        {
            let what = format!(
                "line {}: {} lines, more than {FUNCTION}; give its parts names",
                function.line, function.lines
            );
            fault(
                "function",
                format!("{} {}", file.path, function.name),
                function.lines,
                what,
            );
        }
    }
    found
}

/// An address cannot be broken.
fn is_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS && !line.contains("://")
}

/// Exceptions that are not needed.
pub fn idle_exceptions(files: &[File]) -> Vec<String> {
    let is_long = |path: &str| {
        files
            .iter()
            .any(|file| file.path == path && file.text.lines().count() > FILE)
    };
    let idle = LISTS.iter().filter(|(path, _)| !is_long(path));
    idle.map(|(path, _)| format!("{path}: needs no exception to its length; remove it from xtask/src/lengths.rs"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        faults(&file).iter().map(|fault| (fault.rule, fault.count)).collect()
    }

    #[test]
    fn long_files_functions_and_lines_are_found() {
        assert_eq!(rules("a.rs", &"\n".repeat(FILE)), []);
        assert_eq!(rules("a.rs", &"\n".repeat(FILE + 1)), [("lines", FILE + 1)]);
        assert_eq!(rules("abi/src/values.rs", &"\n".repeat(FILE + 1)), []);
        assert_eq!(rules("a.py", &"x".repeat(COLUMNS)), []);
        assert_eq!(
            rules("a.py", &format!("{0}\n{0}", "x".repeat(COLUMNS + 1))),
            [("columns", 2)]
        );
        assert_eq!(rules("a.rs", &format!("// https://{}", "x".repeat(COLUMNS))), []);
        let function = |lines: usize| format!("fn f() {{\n{}}}", "\n".repeat(lines - 2));
        assert_eq!(rules("a.rs", &function(FUNCTION)), []);
        assert_eq!(rules("a.rs", &function(FUNCTION + 1)), [("function", FUNCTION + 1)]);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_named() {
        assert_eq!(idle_exceptions(&[]).len(), LISTS.len());
    }
}
