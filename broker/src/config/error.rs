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
    /// It is not what was expected; with line and column.
    #[error("{}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
    /// A value does not hold.
    #[error("{}: {key}: {why}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its table.
        key: String,
        /// What is wrong.
        why: String,
    },
}
