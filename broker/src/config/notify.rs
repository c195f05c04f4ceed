// SPDX-License-Identifier: Apache-2.0
//! `[notify]` of the configuration.

use std::path::Path;

use partage_protocol::admin::EVENT_KINDS;
use toml::Spanned;

use super::error::ConfigError;
use super::file::NotifyTable;
use super::guard::judge_program;
use super::source::{Source, one_of};

/// `[notify]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifySettings {
    /// The program and its words; nobody is told where there are none.
    pub exec: Vec<String>,
    /// Kinds of events; none: every kind.
    pub kinds: Vec<String>,
}

impl NotifySettings {
    /// Takes what a file says.
    pub(super) fn merge(&mut self, table: NotifyTable, source: Source<'_>) -> Result<(), ConfigError> {
        if let Some(exec) = table.exec {
            let span = exec.span();
            let exec = exec.into_inner();
            if let Some(program) = exec.first() {
                let judged = judge_program(Path::new(program));
                judged.map_err(|why| source.wrong(span, "notify.exec", why))?;
            }
            self.exec = exec;
        }
        if let Some(kinds) = &table.kinds {
            let read = |kind: &Spanned<String>| {
                one_of(source, "notify.kinds", kind, (EVENT_KINDS, |kind| kind.word)).map(|kind| kind.word.to_owned())
            };
            self.kinds = kinds.iter().map(read).collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}
