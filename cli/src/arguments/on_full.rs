// SPDX-License-Identifier: Apache-2.0
//! What a command does that finds no room.

use clap::ValueEnum;

/// What to do when there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// Wait in the queue.
    #[default]
    Wait,
    /// Fail.
    Fail,
}
