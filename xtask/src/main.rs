// SPDX-License-Identifier: Apache-2.0
//! Checks and generators that cargo commands cannot do: `cargo xtask check`, `cargo xtask gen [--check]`,
//! `cargo xtask tidy`.
//!
//! `check` is `tidy`, `gen --check` and `docs/memory.md` against the driver table. Formatting, clippy and cargo-deny are
//! cargo commands; `scripts/test` calls them and this.

mod driver_api;
mod memory_page;
mod tidy;
mod tree;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask check | gen [--check] | tidy";

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
