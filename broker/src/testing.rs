// SPDX-License-Identifier: Apache-2.0
//! Folders for unit tests that vanish with the test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this process, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder whose name begins with `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("partage-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).expect("a fresh folder in the temporary directory");
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A left-over folder in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
