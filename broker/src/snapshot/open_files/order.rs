// SPDX-License-Identifier: Apache-2.0
//! The process that looks after a snapshot's files for `partage restore`, with the rights of whoever restores: once
//! before the job is admitted, when it only says what is in the way, and once before CRIU, when it changes them.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use partage_protocol::snapshot::{FilesAnswer, FilesOrder, MANIFEST, Manifest, OpenFile};

use super::super::folder::Folder;
use super::apply::Keeper;
use super::judge::{Action, judge};
use super::now::{Now, Seen, boot, find, writers};

/// The process: answers with [`FilesAnswer`].
#[must_use]
pub fn serve(order: &str) -> FilesAnswer {
    let done = match serde_json::from_str::<FilesOrder>(order) {
        Ok(order) => carry_out(&order),
        Err(error) => Err(failed(format!("no order: {error}"))),
    };
    done.unwrap_or_else(|refused| refused)
}

fn failed(message: String) -> FilesAnswer {
    FilesAnswer::Refused {
        message,
        hint: "once that is mended, restore it again: what was changed already is kept as said".to_owned(),
    }
}

/// A file with its copy, and what is done with it.
type Task<'a> = (&'a OpenFile, Option<PathBuf>, Action);

fn carry_out(order: &FilesOrder) -> Result<FilesAnswer, FilesAnswer> {
    let shown = PathBuf::from(&order.shown);
    // SAFETY: the caller left this descriptor open for us, and nobody else in this process has it.
    let folder = Folder::of(unsafe { OwnedFd::from_raw_fd(order.folder) }, &shown).map_err(failed)?;
    let generation = folder.way().join(&order.generation);
    let text = std::fs::read(generation.join(MANIFEST))
        .map_err(|error| failed(format!("cannot read {MANIFEST} of {}: {error}", order.generation)))?;
    let manifest = Manifest::parse(&text).map_err(|unfit| failed(unfit.to_string()))?;
    let is_this_boot = manifest.open_files.boot == boot();
    let tasks = plan(&manifest, order, &generation, is_this_boot)?;
    if !order.is_to_apply {
        return Ok(FilesAnswer::Ready(Vec::new()));
    }
    let is_changed = |action: &Action| !matches!(action, Action::Nothing | Action::Leave(_));
    if !order.is_verified && tasks.iter().any(|(_, _, action)| is_changed(action)) {
        return Ok(FilesAnswer::ToVerify);
    }
    let keeper = Keeper {
        generation: manifest.generation,
        folder: folder.way(),
        shown,
        is_this_boot,
    };
    let mut notes = Vec::new();
    for (file, copy, action) in tasks {
        match keeper.apply(file, action, copy.as_deref()) {
            Ok(note) => notes.extend(note),
            Err(why) => {
                notes.push(why);
                return Err(failed(notes.join("; ")));
            }
        }
    }
    Ok(FilesAnswer::Ready(notes))
}

/// What is done with each file, before anything is done.
fn plan<'a>(
    manifest: &'a Manifest,
    order: &FilesOrder,
    generation: &Path,
    is_this_boot: bool,
) -> Result<Vec<Task<'a>>, FilesAnswer> {
    let mut seen: Vec<(&OpenFile, Option<PathBuf>, Seen)> = Vec::new();
    for file in &manifest.open_files.files {
        let copy = file.copy.as_ref().map(|name| generation.join(name));
        let now = find(file, copy.as_deref(), is_this_boot)
            .map_err(|error| failed(format!("cannot look at {}: {error}", file.path)))?;
        seen.push((file, copy, now));
    }
    let is_as_saved = |seen: &Seen| matches!(seen.now, Now::Same { is_as_saved: true, .. });
    let changed: Vec<_> = seen.iter().filter(|(_, _, seen)| !is_as_saved(seen)).collect();
    let wanted: Vec<_> = changed.iter().filter_map(|(_, _, seen)| seen.key).collect();
    // The job that was saved may live while nothing is changed yet, and is refused later.
    let others = match wanted.is_empty() || !order.is_to_apply {
        true => std::collections::BTreeMap::default(),
        false => writers(&wanted),
    };
    let (mut tasks, mut refusals) = (Vec::new(), Vec::new());
    for (file, copy, seen) in seen {
        let writers = seen.key.and_then(|key| others.get(&key)).map_or(&[][..], Vec::as_slice);
        match judge(file, &seen, order.mode, writers) {
            Ok(action) => tasks.push((file, copy, action)),
            Err(refusal) => refusals.push(refusal.words(file, order.mode)),
        }
    }
    let more = refusals.len().saturating_sub(1);
    match refusals.into_iter().next() {
        None => Ok(tasks),
        Some((message, hint)) if more == 0 => Err(FilesAnswer::Refused { message, hint }),
        Some((message, hint)) => Err(FilesAnswer::Refused {
            message: format!("{message} (and so for {more} more)"),
            hint,
        }),
    }
}

#[cfg(test)]
mod tests;
