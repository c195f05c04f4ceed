// SPDX-License-Identifier: Apache-2.0
//! The generations of a snapshot: making one whole, and finding one that is.
//!
//! ```text
//!   .tmp-…  all synced ─► manifest synced ─► gen-N, folder synced ─► LATEST, folder synced ─► gen-(N-keep) goes
//!           └────── a failure removes it ─────┘└─ a failure: LATEST names the one before ─┘
//! ```
//! Invariant: `LATEST`, or where there is none yet the highest number, names a generation that was whole when it got
//! its name, at every instant, after a death at any, and after a commit that failed. The generation before is removed
//! only after that, and under another name.

use std::io;
use std::path::{Path, PathBuf};

use partage_protocol::snapshot::{
    IMAGES, LATEST, MANIFEST, Manifest, SavedFile, Unfit, generation_name, generation_of,
};

use super::files::Files;

/// How names begin that mean nothing yet, or no more.
pub const TEMPORARY: &str = ".tmp-";

/// Which step a commit failed in.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct StoreError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |source| StoreError {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Files of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the pages: what CRIU and a restore act by, and what is given back to the job's files.
    Small,
    /// What the processes had in memory. CRIU copies them and looks into none.
    Pages,
}

impl Part {
    fn has(self, path: &str) -> bool {
        // As CRIU names them.
        let name = path.strip_prefix(IMAGES).and_then(|rest| rest.strip_prefix("/pages-"));
        (self == Self::Pages) == name.is_some_and(|name| name.ends_with(".img"))
    }
}

/// The folder of a snapshot.
#[derive(Clone, Debug)]
pub struct Store<F> {
    folder: PathBuf,
    files: F,
}

impl<F: Files> Store<F> {
    /// The store in this folder.
    pub fn new(folder: &Path, files: F) -> Self {
        Self {
            folder: folder.to_owned(),
            files,
        }
    }

    /// Removes what writers before left. Precondition: the caller has the folder's lock.
    pub fn sweep(&self) {
        for name in self.files.list(&self.folder).unwrap_or_default() {
            if name.starts_with(TEMPORARY) {
                // Another try comes with the next snapshot.
                let _ = self.files.remove(&self.folder.join(name));
            }
        }
    }

    /// Begins a generation: a folder that nobody takes for one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn begin(&self, mark: &str) -> Result<PathBuf, StoreError> {
        let path = self.folder.join(format!("{TEMPORARY}{mark}"));
        self.files.make_folder(&path).map_err(failed("make", &path))?;
        Ok(path)
    }

    /// Makes what was begun the newest generation, and removes those that are beyond `keep`. Answers its number and the
    /// bytes of its files.
    ///
    /// # Errors
    /// [`StoreError`]: the generation before is the newest still.
    pub fn commit(&self, begun: &Path, manifest: Manifest, keep: u64) -> Result<(u64, u64), StoreError> {
        let mut is_named = false;
        let result = self.try_commit(begun, manifest, &mut is_named);
        match &result {
            Ok((generation, _)) => self.retire(*generation, keep),
            // What LATEST may name already stays.
            Err(_) if !is_named => drop(self.files.remove(begun)),
            Err(_) => {}
        }
        result
    }

    fn try_commit(&self, begun: &Path, manifest: Manifest, is_named: &mut bool) -> Result<(u64, u64), StoreError> {
        let folder = &self.folder;
        let generation = self.last()?.map_or(1, |last| last + 1);
        let (paths, folders) = self.files.walk(begun).map_err(failed("list", begun))?;
        let mut files = Vec::new();
        for path in paths {
            let at = begun.join(&path);
            let (bytes, sum) = self.files.sum_and_thin(&at).map_err(failed("read", &at))?;
            self.files.sync(&at).map_err(failed("sync", &at))?;
            files.push(SavedFile { path, bytes, sum });
        }
        for path in &folders {
            self.files.sync(path).map_err(failed("sync", path))?;
        }
        let bytes = files.iter().map(|file| file.bytes).sum();
        let manifest = Manifest {
            generation,
            files,
            ..manifest
        };
        self.replace(begun, MANIFEST, &manifest.text())?;
        let named = folder.join(generation_name(generation));
        self.files.rename_new(begun, &named).map_err(failed("name", &named))?;
        let result = self
            .files
            .sync(folder)
            .map_err(failed("sync", folder))
            .and_then(|()| self.point_to(generation, is_named));
        if result.is_err() && !*is_named {
            // It never was the newest. Where it cannot be renamed it stays, whole and unnamed.
            let _ = self.files.rename_new(&named, begun);
        }
        result.map(|()| (generation, bytes))
    }

    fn point_to(&self, generation: u64, is_named: &mut bool) -> Result<(), StoreError> {
        let text = format!("{}\n", generation_name(generation));
        let (beside, path) = (self.folder.join(".LATEST.new"), self.folder.join(LATEST));
        self.files
            .write(&beside, text.as_bytes())
            .map_err(failed("write", &beside))?;
        self.files.sync(&beside).map_err(failed("sync", &beside))?;
        self.files.rename_over(&beside, &path).map_err(failed("name", &path))?;
        *is_named = true;
        self.files.sync(&self.folder).map_err(failed("sync", &self.folder))
    }

    /// Writes a file in a folder, whole or not at all.
    fn replace(&self, folder: &Path, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let (beside, path) = (folder.join(format!("{name}.new")), folder.join(name));
        self.files.write(&beside, content).map_err(failed("write", &beside))?;
        self.files.sync(&beside).map_err(failed("sync", &beside))?;
        self.files.rename_over(&beside, &path).map_err(failed("name", &path))?;
        self.files.sync(folder).map_err(failed("sync", folder))
    }

    /// Removes generations that are not among the last `keep`, and those that never became the newest.
    fn retire(&self, newest: u64, keep: u64) {
        let oldest = newest.saturating_sub(keep.max(1) - 1);
        for generation in self.generations().unwrap_or_default() {
            if generation >= oldest && generation <= newest {
                continue;
            }
            let name = generation_name(generation);
            let aside = self.folder.join(format!("{TEMPORARY}{name}"));
            // What is half removed is no generation. What cannot be is tried again next time.
            if self.files.rename_new(&self.folder.join(name), &aside).is_ok() {
                let _ = self.files.remove(&aside);
            }
        }
    }

    /// The generations that are there, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn generations(&self) -> Result<Vec<u64>, StoreError> {
        let names = self.files.list(&self.folder).map_err(failed("list", &self.folder))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| generation_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn last(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.generations()?.last().copied())
    }

    /// Finds a generation, the newest where none is named, and verifies a part of its files; with the small ones the
    /// length of each (CRIU waits for ever for pages that are not there).
    ///
    /// # Errors
    /// [`Unfit`] with the name of the field, or of the file under `files`.
    pub fn open(&self, generation: Option<u64>, part: Part) -> Result<(PathBuf, Manifest), Unfit> {
        let (folder, manifest) = self.manifest(generation)?;
        for file in &manifest.files {
            if part.has(&file.path) {
                self.verify(&folder, file)?;
            } else if part == Part::Small {
                as_long(file, self.files.length(&folder.join(&file.path)))?;
            }
        }
        Ok((folder, manifest))
    }

    /// What a generation's manifest says, the newest one's where none is named; its files are not looked at.
    ///
    /// # Errors
    /// [`Unfit`] with the name of the field.
    pub fn manifest(&self, generation: Option<u64>) -> Result<(PathBuf, Manifest), Unfit> {
        let generation = match generation {
            Some(generation) => generation,
            None => self.newest()?,
        };
        let folder = self.folder.join(generation_name(generation));
        let path = folder.join(MANIFEST);
        let text = self.files.read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !folder.exists() => {
                Unfit::new("generation", format!("there is no {}", generation_name(generation)))
            }
            _ => Unfit::new("manifest", format!("cannot read {}: {error}", path.display())),
        })?;
        let manifest = Manifest::parse(&text)?;
        if manifest.generation != generation {
            let why = format!("{}, in the folder of {generation}", manifest.generation);
            return Err(Unfit::new("generation", why));
        }
        Ok((folder, manifest))
    }

    fn newest(&self) -> Result<u64, Unfit> {
        let generations = self
            .generations()
            .map_err(|error| Unfit::new("folder", error.to_string()))?;
        let named = self.files.read(&self.folder.join(LATEST)).ok();
        let named = named.and_then(|text| generation_of(String::from_utf8_lossy(&text).trim()));
        // Without the file: the first one's writer died before it was written.
        let newest = named.or_else(|| generations.last().copied());
        newest.ok_or_else(|| Unfit::new("folder", format!("{} holds no snapshot", self.folder.display())))
    }

    fn verify(&self, folder: &Path, file: &SavedFile) -> Result<(), Unfit> {
        let found = self.files.sum(&folder.join(&file.path));
        let sum = found.as_ref().map_or(0, |(_, sum)| *sum);
        as_long(file, found.map(|(bytes, _)| bytes))?;
        if sum != file.sum {
            let why = format!("{} is damaged: its content is not what was written", file.path);
            return Err(Unfit::new("files", why));
        }
        Ok(())
    }
}

/// Has a file the length that was written?
fn as_long(file: &SavedFile, found: io::Result<u64>) -> Result<(), Unfit> {
    let path = &file.path;
    match found {
        Ok(bytes) if bytes == file.bytes => Ok(()),
        Ok(bytes) => {
            let why = format!("{path} has {bytes} bytes, and {} were written", file.bytes);
            Err(Unfit::new("files", why))
        }
        Err(error) => Err(Unfit::new("files", format!("{path}: {error}"))),
    }
}

/// Can files be made in a snapshot's folder?
///
/// # Errors
/// A sentence: not, and why.
pub fn is_writable(path: &Path) -> Result<(), String> {
    let flags = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
    let may = nix::unistd::access(path, flags);
    may.map_err(|errno| format!("cannot write to {}: {}", path.display(), errno.desc().to_lowercase()))
}
