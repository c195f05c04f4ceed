// SPDX-License-Identifier: Apache-2.0
//! A disk whose step of a given number fails.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

use partage_broker::snapshot::files::{Disk, Files};

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// ENOSPC; half of a file may be written.
    NoSpace,
    /// EIO.
    Broken,
    /// Whoever does it dies: nothing follows.
    Death,
}

/// The disk. Reading never fails.
pub struct Failing {
    fault: Fault,
    at: usize,
    step: Cell<usize>,
}

impl Failing {
    /// The step of this number, from 0, fails.
    pub fn new(fault: Fault, at: usize) -> Self {
        Self {
            fault,
            at,
            step: Cell::new(0),
        }
    }

    /// Has the step been reached?
    pub fn has_failed(&self) -> bool {
        self.step.get() > self.at
    }

    fn step(&self) -> io::Result<()> {
        let step = self.step.get();
        self.step.set(step + 1);
        let is_it = if self.fault == Fault::Death {
            step >= self.at
        } else {
            step == self.at
        };
        match (is_it, self.fault) {
            (false, _) => Ok(()),
            (true, Fault::NoSpace) => Err(io::Error::from_raw_os_error(28)),
            (true, Fault::Broken | Fault::Death) => Err(io::Error::from_raw_os_error(5)),
        }
    }
}

impl Files for &Failing {
    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        Disk.list(folder)
    }

    fn walk(&self, folder: &Path) -> io::Result<(Vec<String>, Vec<PathBuf>)> {
        Disk.walk(folder)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Disk.read(path)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        Disk.length(path)
    }

    fn sum(&self, path: &Path) -> io::Result<(u64, u64)> {
        Disk.sum(path)
    }

    fn sum_and_thin(&self, path: &Path) -> io::Result<(u64, u64)> {
        Disk.sum_and_thin(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        Disk.make_folder(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.step().inspect_err(|_| {
            // What is cut short lies there.
            let _ = Disk.write(path, &content[..content.len() / 2]);
        })?;
        Disk.write(path, content)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        // The machine stays up: what was written is there.
        Path::new(path).symlink_metadata().map(drop)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        Disk.rename_new(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        Disk.rename_over(from, to)
    }

    fn remove(&self, folder: &Path) -> io::Result<()> {
        self.step().inspect_err(|_| {
            // Part of it is gone.
            let _ = std::fs::remove_file(folder.join("manifest.json"));
        })?;
        Disk.remove(folder)
    }
}
