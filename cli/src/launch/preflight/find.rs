// SPDX-License-Identifier: Apache-2.0
//! Which file a command word means: the rules of execvp(3), with a shell's two codes for "not there" and "not
//! runnable".

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::failure::{Failure, Kind, Outcome};

/// Finds COMMAND in `path` (the value of PATH).
///
/// # Errors
/// `NotFound` (127) when nothing has the name, `NotExecutable` (126) when something has and cannot be run.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Outcome<PathBuf> {
    let shown = command.to_string_lossy();
    if command.as_bytes().contains(&b'/') {
        let file = PathBuf::from(command);
        return match unusable(&file) {
            None => Ok(file),
            Some(Unusable::Missing) => Err(Failure::new(Kind::NotFound, format!("{shown}: no such file"))),
            Some(Unusable::Because(why)) => Err(Failure::new(Kind::NotExecutable, format!("{shown}: {why}"))),
        };
    }
    if command.is_empty() {
        return Err(Failure::new(Kind::NotFound, "COMMAND is empty"));
    }
    let mut seen = None;
    // What confstr(_CS_PATH) answers; execvp uses it where PATH is unset.
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    for dir in path.as_bytes().split(|&b| b == b':') {
        // An empty part of PATH is the working folder.
        let dir = if dir.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(dir))
        };
        let file = dir.join(command);
        match unusable(&file) {
            None => return Ok(file),
            Some(Unusable::Missing) => {}
            Some(Unusable::Because(why)) => seen = seen.or(Some((file, why))),
        }
    }
    Err(match seen {
        Some((file, why)) => Failure::new(Kind::NotExecutable, format!("{}: {why}", file.display())),
        None => Failure::new(Kind::NotFound, format!("{shown}: no such command in PATH")),
    })
}

enum Unusable {
    Missing,
    Because(&'static str),
}

fn unusable(file: &Path) -> Option<Unusable> {
    match file.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(Unusable::Because("permission denied"))
        }
        Err(_) => Some(Unusable::Missing),
        Ok(data) if data.is_dir() => Some(Unusable::Because("is a directory")),
        Ok(data) if !data.is_file() => Some(Unusable::Because("is not a regular file")),
        Ok(_) => access(file, AccessFlags::X_OK)
            .err()
            .map(|_| Unusable::Because("is not executable")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_path_is_searched_as_a_shell_does() {
        let base = std::env::temp_dir().join(format!("partage-find-{}", std::process::id()));
        for (dir, mode) in [("first", 0o644), ("second", 0o755)] {
            std::fs::create_dir_all(base.join(dir)).expect("make");
            std::fs::write(base.join(dir).join("tool"), "x").expect("write");
            std::fs::set_permissions(base.join(dir).join("tool"), std::fs::Permissions::from_mode(mode))
                .expect("chmod");
        }
        let path = |dirs: &[&str]| {
            dirs.iter()
                .map(|d| base.join(d).display().to_string())
                .collect::<Vec<_>>()
                .join(":")
        };
        let search = |command: &str, dirs: &[&str]| find(OsStr::new(command), Some(OsStr::new(&path(dirs))));
        assert_eq!(search("tool", &["first", "second"]), Ok(base.join("second/tool")));
        assert_eq!(
            search("tool", &["first"]).expect_err("mode 644").kind,
            Kind::NotExecutable
        );
        assert_eq!(search("tool", &["nowhere"]).expect_err("absent").kind, Kind::NotFound);
        assert_eq!(search("", &["second"]).expect_err("empty").kind, Kind::NotFound);
        let direct = |file: &str| find(base.join(file).as_os_str(), None);
        assert_eq!(direct("second").expect_err("a directory").kind, Kind::NotExecutable);
        assert_eq!(direct("second/nothing").expect_err("absent").kind, Kind::NotFound);
        assert!(
            find(OsStr::new("sh"), None).is_ok(),
            "without PATH the system's default is searched"
        );
        std::fs::remove_dir_all(base).expect("clean up");
    }
}
