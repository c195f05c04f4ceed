// SPDX-License-Identifier: Apache-2.0
//! The files that a saved job had open for writing or mapped to write, as they were when it was saved.

use serde::{Deserialize, Serialize};

/// Files beyond any real job's.
const MOST: usize = 65_536;

/// What a snapshot may copy of files that are written in place, in bytes, where nobody said how much.
pub const FILES_MAX: u64 = 1 << 30;

/// So much before a file's end tells whether it is the file still, in bytes.
pub const END_BYTES: u64 = 64 << 10;

/// What a restore does with files that were changed since the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilesMode {
    /// They become what they were; what is replaced is kept.
    #[default]
    Cut,
    /// No file is changed; what is appended to goes on at its end.
    Keep,
    /// Nothing is restored.
    Refuse,
}

/// The files, and when they were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFiles {
    /// The kernel's boot: numbers of devices that no hardware has mean nothing in another one.
    pub boot: String,
    /// Each file once.
    pub files: Vec<OpenFile>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFile {
    /// Its whole path, as the processes see it.
    pub path: String,
    /// Its file system's number.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The number of the folder that it is in, on the same file system.
    pub folder: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was last written, in nanoseconds of unix time.
    pub modified_ns: i64,
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// How the job writes to it.
    pub writes: Writes,
    /// It is mapped shared, and what is written there is written to the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_mapped: bool,
    /// The furthest place at which a descriptor stood that is open for writing, in bytes.
    #[serde(default)]
    pub position: u64,
    /// Whoever has it open only appends and never reads: CRIU takes it with any length.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_length: bool,
    /// Sum of what it holds before its end, of [`END_BYTES`] at most: by its number alone a new file could pass for it.
    #[serde(default)]
    pub end_sum: u64,
    /// Its content: one of the snapshot's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

/// How a job writes to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// Always behind its last byte (`>>`).
    #[default]
    Append,
    /// Where the last write ended, which was its end (`>`).
    Onward,
    /// Anywhere.
    InPlace,
}

impl OpenFiles {
    /// Nothing at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Bytes that were copied, as long as the files are.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let copied = self.files.iter().filter(|file| file.copy.is_some());
        copied.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// Can it be so, in a snapshot of these files? Otherwise: what cannot.
    pub(super) fn check(&self, files: &[&str]) -> Result<(), String> {
        if self.files.len() > MOST {
            return Err(format!("{} files", self.files.len()));
        }
        for file in &self.files {
            let names = file.path.strip_prefix('/');
            let is_whole = names.is_some_and(|names| names.split('/').all(|name| !matches!(name, "" | "." | "..")));
            if !is_whole {
                return Err(format!("{:?} is no whole path", file.path));
            }
            if let Some(copy) = file.copy.as_ref().filter(|copy| !files.contains(&copy.as_str())) {
                return Err(format!("{copy:?} is no file of the snapshot"));
            }
        }
        Ok(())
    }
}

/// What the program that looks after the files is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesOrder {
    /// A descriptor of the snapshot's folder.
    pub folder: i32,
    /// The folder's name, for people and for what is kept in it.
    pub shown: String,
    /// The generation's name in it.
    pub generation: String,
    /// What to do with files that were changed.
    pub mode: FilesMode,
    /// Change them; otherwise only say what is in the way.
    pub is_to_apply: bool,
    /// All of the snapshot is verified: where it is not yet, no file is changed.
    pub is_verified: bool,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilesAnswer {
    /// All is well; each thing that was done, or that people should know, as a sentence.
    Ready(Vec<String>),
    /// A file is to be changed, and nothing was done: first the snapshot has to be verified.
    ToVerify,
    /// It cannot be restored so.
    Refused {
        /// Why.
        message: String,
        /// What to do.
        hint: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_and_a_copy_that_is_not_there_are_refused() {
        let of = |path: &str, copy: Option<&str>| OpenFiles {
            boot: String::new(),
            files: vec![OpenFile {
                path: path.to_owned(),
                copy: copy.map(str::to_owned),
                bytes: 3,
                ..OpenFile::default()
            }],
        };
        let files = ["files/open-0"];
        assert_eq!(of("/a/b", None).check(&files), Ok(()));
        let copied = of("/a/b", Some("files/open-0"));
        assert_eq!((copied.check(&files), copied.copied_bytes()), (Ok(()), 3));
        for (path, copy) in [
            ("a", None),
            ("/", None),
            ("/a/../b", None),
            ("/a//b", None),
            ("/a", Some("files/open-1")),
        ] {
            assert!(of(path, copy).check(&files).is_err(), "{path} {copy:?}");
        }
    }
}
