// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a configuration, and where.

use std::path::PathBuf;

/// What a file says wrongly.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{}: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// It, or a folder on the way to it, can be changed by others than root and the broker's user.
    #[error("{} {who}, and whoever can write to it makes this host's rules: {remedy}", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Who else.
        who: String,
        /// What to do.
        remedy: String,
    },
    /// It is not TOML, has a key that is not known, or a value that does not hold.
    #[error("{}, line {line}, column {column}: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The column in characters, from 1 on.
        column: usize,
        /// What is wrong, beginning with the key where one is meant.
        why: String,
    },
}
