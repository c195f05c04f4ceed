// SPDX-License-Identifier: Apache-2.0
//! The words of commands that can show themselves again and again.

use clap::Args;

/// `-w`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Again {
    /// Show it again every SECONDS (default: every second), in place, until Ctrl-C
    #[arg(
        short = 'w',
        long = "watch",
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=3600)
    )]
    pub seconds: Option<u16>,
}
