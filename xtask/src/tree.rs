// SPDX-License-Identifier: Apache-2.0
//! The files of the workspace, without what builds leave behind.

use std::fs;
use std::path::{Path, PathBuf};

/// One text file.
pub struct File {
    /// Path from the root, with `/` between its parts.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// The part after the last dot of the name; empty without one.
    pub fn extension(&self) -> &str {
        Path::new(&self.path)
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default()
    }

    /// True for a source that people write code in: by extension, or a script by its first line.
    pub fn is_code(&self) -> bool {
        ["rs", "py", "sh", "c", "h", "cu"].contains(&self.extension()) || self.text.starts_with("#!")
    }
}

/// Folders that hold no work of ours: hidden ones but two, build outputs, environments.
fn is_skipped(name: &str) -> bool {
    let is_hidden = name.starts_with('.') && ![".ci", ".cargo"].contains(&name);
    is_hidden || name == "target" || name.starts_with("target-") || ["dist", "__pycache__", "shared"].contains(&name)
}

/// Every file below `root` that is text, in the order of their paths.
pub fn files(root: &Path) -> Vec<File> {
    let (mut folders, mut found): (Vec<PathBuf>, _) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !is_skipped(&name.to_string_lossy()) {
                folders.push(entry.path());
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(entry.path())
                && let Ok(path) = entry.path().strip_prefix(root)
            {
                found.push(File {
                    path: path.to_string_lossy().into_owned(),
                    text,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}
