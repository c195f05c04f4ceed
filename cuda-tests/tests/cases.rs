// SPDX-License-Identifier: Apache-2.0
//! The end-to-end cases as a test program; the bodies are in `src/cases`.

fn main() -> std::process::ExitCode {
    partage_tests::harness::main()
}
