// SPDX-License-Identifier: Apache-2.0
//! The words of `partage verify`.

use std::ffi::OsString;

use clap::Args;

/// Show that a memory limit bites where WRAPPER puts a program
#[derive(Args, Debug)]
#[command(
    after_help = "A small program is started behind WRAPPER, or where you are. It allocates GPU
memory up to one step past the limit that holds for it there, and frees it. You
read what it saw in all, where it was denied, by which job and rule. Without a
limit it allocates nothing. `partage` must exist at the same path inside
WRAPPER. Exit status 1 if the limit does not hold.

Examples:
  partage verify -- partage run -m 1GiB --
  partage verify -m 8GiB -- podman run --device partage.dev/share=small IMAGE
  partage verify -- ssh node7
  partage verify                               the place where you are"
)]
pub struct Verify {
    /// The limit must not be more than this
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    pub mem: Option<String>,
    /// Be the program that is started
    #[arg(long, hide = true)]
    pub probe: bool,
    /// What starts the program, with its arguments
    #[arg(trailing_var_arg = true, value_name = "WRAPPER")]
    pub wrapper: Vec<OsString>,
}
