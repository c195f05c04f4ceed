// SPDX-License-Identifier: Apache-2.0
//! Which configuration holds: where it was read, when, and what became of the last attempt to read it again.

use std::path::PathBuf;

use partage_protocol::admin::ReadingView;

use crate::clock::Now;
use crate::watch::audit_log::Author;

/// Which configuration holds.
pub(super) struct Reading {
    pub(super) file: Option<PathBuf>,
    /// 1 is the one of the start.
    pub(super) generation: u64,
    pub(super) read_unix_ns: u64,
    /// Why the last attempt changed nothing; none where it did.
    pub(super) error: Option<String>,
    /// Who asked for the last attempt.
    pub(super) by: Option<Author>,
}

impl Reading {
    pub(super) fn new(file: Option<PathBuf>, now: Now) -> Self {
        Self {
            file,
            generation: 1,
            read_unix_ns: now.unix_ns,
            error: None,
            by: None,
        }
    }

    /// For `status`; none for a private broker.
    pub(super) fn view(&self) -> Option<ReadingView> {
        self.file.as_ref().map(|file| ReadingView {
            file: file.display().to_string(),
            generation: self.generation,
            read_ns: self.read_unix_ns,
            error: self.error.clone(),
        })
    }
}
