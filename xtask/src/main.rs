// SPDX-License-Identifier: Apache-2.0
//! Checks and generators that cargo commands cannot do: `cargo xtask check`, `cargo xtask gen [--check]`,
//! `cargo xtask tidy [--list]`, `cargo xtask circles`.
//!
//! `check` is `tidy`, `gen --check` and `docs/memory.md` against the driver table. Formatting, clippy and cargo-deny
//! are cargo commands; `scripts/test` calls them and this. `tidy --list` prints what `xtask/listed.txt` would have to
//! list, `circles` the import circles of each crate.

mod calls;
mod circles;
mod driver_api;
mod lengths;
mod listed;
mod memory_page;
mod modules;
mod named_paths;
mod source;
mod tidy;
mod tree;
mod walls;
mod words;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask check | gen [--check] | tidy [--list] | circles";

fn main() -> ExitCode {
    // The workspace is the parent of this package, wherever the command was called.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let complaints = match arguments.as_slice() {
        ["check"] => [
            tidy::complaints(root),
            driver_api::drift(root),
            memory_page::drift(root),
        ]
        .concat(),
        ["tidy"] => tidy::complaints(root),
        ["tidy", "--list"] => return print(&tidy::list(root)),
        ["circles"] => return print(&tidy::print_circles(root)),
        ["gen", "--check"] => driver_api::drift(root),
        ["gen"] => driver_api::write(root).err().into_iter().collect(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}
