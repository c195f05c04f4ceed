// SPDX-License-Identifier: Apache-2.0
//! `conf.d/90-quota.toml` beside the host's configuration: locked, checked and replaced in one step.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::failure::{Failure, Outcome};
use crate::launch::installed;

const NAME: &str = "90-quota.toml";

/// The file.
#[derive(Debug)]
pub struct QuotaFile {
    configuration: PathBuf,
    path: PathBuf,
    /// Nobody else changes it while this is held.
    _lock: Option<Flock<File>>,
}

impl QuotaFile {
    /// The one beside this configuration.
    pub fn beside(configuration: &Path) -> Self {
        Self {
            configuration: configuration.to_owned(),
            path: configuration.with_file_name("conf.d").join(NAME),
            _lock: None,
        }
    }

    /// The same, to be changed: its folder is there, and nobody else changes it meanwhile.
    pub fn locked(mut self) -> Outcome<Self> {
        let folder = self.folder().to_owned();
        if !folder.exists() {
            std::fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&folder, open).map_err(|why| failed(&folder, &why))?;
        }
        let file = File::open(&folder).map_err(|why| failed(&folder, &why))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, why)| failed(&folder, &why.into()))?;
        self._lock = Some(lock);
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it; nothing where it is not there.
    pub fn text(&self) -> Outcome<String> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(text),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(why) => Err(failed(&self.path, &why)),
        }
    }

    /// This text takes its place, if the broker's program reads it together with the rest of the configuration.
    pub fn replace(&self, text: &str) -> Outcome<()> {
        let new = self.write_beside(text)?;
        let result = self.check(&new).and_then(|()| self.rename(&new));
        if result.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        result
    }

    /// The text that it had takes its place again; nothing where it was not there.
    pub fn put_back(&self, text: &str) -> Outcome<()> {
        if text.is_empty() {
            return std::fs::remove_file(&self.path).map_err(|why| failed(&self.path, &why));
        }
        let old = self.write_beside(text)?;
        self.rename(&old)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// No reader of the folder takes a file of this name.
    fn write_beside(&self, text: &str) -> Outcome<PathBuf> {
        let path = self.folder().join(format!(".{NAME}.{}", std::process::id()));
        let mode = self
            .path
            .metadata()
            .map_or(0o644, |file| file.permissions().mode() & 0o7777);
        let write = || {
            // One of a process of this number that was killed.
            let _ = std::fs::remove_file(&path);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.sync_all()
        };
        write().map_err(|why| failed(&path, &why))?;
        Ok(path)
    }

    fn rename(&self, new: &Path) -> Outcome<()> {
        let rename = || {
            std::fs::rename(new, &self.path)?;
            File::open(self.folder())?.sync_all()
        };
        rename().map_err(|why| failed(&self.path, &why))
    }

    /// The broker's own program reads the files in the broker's own order, the new one in the place of this.
    fn check(&self, new: &Path) -> Outcome<()> {
        let mut drop_ins = self.drop_ins()?;
        if !drop_ins.contains(&self.path) {
            drop_ins.push(self.path.clone());
        }
        drop_ins.sort();
        let others = drop_ins
            .iter()
            .map(|path| if *path == self.path { new } else { path.as_path() });
        let files = Some(self.configuration.as_path()).filter(|path| path.symlink_metadata().is_ok());
        let checked = installed::check_configuration(files.into_iter().chain(others))?;
        let wrong = |said: String| Failure::invalid(in_words(&said, new, &self.path));
        checked.map(drop).map_err(wrong)
    }

    fn drop_ins(&self) -> Outcome<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.folder()).map_err(|why| failed(self.folder(), &why))? {
            let path = entry.map_err(|why| failed(self.folder(), &why))?.path();
            if path.extension().is_some_and(|end| end == "toml") {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// What the reader says of the new text, as it was asked for: `mem: …` for `rule.max.mem: …` at a place of a file that
/// nobody sees. What is wrong elsewhere keeps its place.
fn in_words(said: &str, new: &Path, path: &Path) -> String {
    let place = format!("{}, line ", new.display());
    let Some((_, why)) = said.strip_prefix(&place).and_then(|rest| rest.split_once(": ")) else {
        return said.replace(&new.display().to_string(), &path.display().to_string());
    };
    let word = |key: &str| key.replace('_', "-");
    for table in ["rule.max.", "rule.each_user.", "rule.together.", "rule."] {
        if let Some((key, rest)) = why.strip_prefix(table).and_then(|rest| rest.split_once(':')) {
            return format!("{}:{rest}", word(key));
        }
    }
    // Keys have dashes here; such words are all that it names.
    if why.starts_with("unknown key") {
        word(why)
    } else {
        why.to_owned()
    }
}

fn failed(path: &Path, why: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_reader_says_is_said_of_what_was_asked() {
        let (new, path) = (
            Path::new("/e/conf.d/.90-quota.toml.7"),
            Path::new("/e/conf.d/90-quota.toml"),
        );
        let said = |text: &str| in_words(text, new, path);
        let at = "/e/conf.d/.90-quota.toml.7, line 5, column 9: ";
        assert_eq!(
            said(&format!("{at}rule.max.compute_max: \"x\" is no part")),
            "compute-max: \"x\" is no part"
        );
        assert_eq!(
            said(&format!("{at}unknown key `mme`; did you mean `mem`?")),
            "unknown key `mme`; did you mean `mem`?"
        );
        assert_eq!(
            said(&format!("{at}unknown key `x`; known: mem, time_limit")),
            "unknown key `x`; known: mem, time-limit"
        );
        assert_eq!(said(&format!("{at}rule.each_user.mem: bad")), "mem: bad");
        let other = "/e/partage.toml, line 2, column 1: unknown key `x`";
        assert_eq!(said(other), other);
    }
}
