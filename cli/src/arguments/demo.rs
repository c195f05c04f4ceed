// SPDX-License-Identifier: Apache-2.0
//! The words of `partage demo`.

use clap::Args;

/// Show Partage at work on your GPU, or on a simulated one
#[derive(Args, Debug)]
#[command(
    after_help = "Two small CUDA programs share a GPU: each has a memory limit, one runs out of
memory and recovers, a limit changes while its program runs, and a program is
suspended and resumed. Every number is checked; exit status 1 if one is wrong.

Needs 4 GiB of free GPU memory. Without a usable GPU it runs on a simulated one.
It brings its own broker, except on a host that has a managed one, and leaves
nothing behind.

Examples:
  partage demo
  partage sim -- partage demo       simulated, although there is a GPU"
)]
pub struct Demo {}
