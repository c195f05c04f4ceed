// SPDX-License-Identifier: Apache-2.0
//! Becoming COMMAND: the same process, with everything as the caller left it but the variables that we mean to change.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;

use crate::failure::{Failure, Kind};

/// Fills closed descriptors 0 to 2 with /dev/null for our own life only (CLOEXEC): otherwise our socket would get such
/// a number, messages would be written into it, and COMMAND would find something open that its caller had closed.
#[cfg_attr(test, allow(dead_code))]
pub fn occupy_standard_descriptors() {
    for descriptor in 0..=2 {
        // SAFETY: F_GETFD only asks.
        let is_closed = unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1;
        if is_closed {
            // SAFETY: the path is terminated; open takes the lowest free number, which is this one.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        }
    }
}

/// The variables that COMMAND gets: the caller's in the caller's order, with changes.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// The caller's.
    pub fn inherited() -> Self {
        Self {
            variables: env::vars_os().collect(),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_os_str())
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        let value = value.into();
        match self.variables.iter_mut().find(|(n, _)| n == name) {
            Some((_, held)) => *held = value,
            None => self.variables.push((name.into(), value)),
        }
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: &str) {
        self.variables.retain(|(n, _)| n != name);
    }

    /// Puts an entry first in a list variable, without the entries that `is_old`.
    pub fn put_first(&mut self, name: &str, entry: &Path, separators: &[u8], is_old: impl Fn(&str) -> bool) {
        let held = self.get(name).unwrap_or_default().to_owned();
        let mut list = entry.as_os_str().to_owned();
        for part in held
            .as_bytes()
            .split(|b| separators.contains(b))
            .filter(|part| !part.is_empty())
        {
            if part != entry.as_os_str().as_bytes() && !is_old(&String::from_utf8_lossy(part)) {
                list.push(":");
                list.push(OsStr::from_bytes(part));
            }
        }
        self.set(name, list);
    }

    /// Names and values, as text.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        self.variables
            .iter()
            .map(move |(name, value)| (text(name), text(value)))
    }

    fn strings(&self) -> Vec<CString> {
        let one = |(name, value): &(OsString, OsString)| {
            let mut text = name.clone().into_vec();
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            CString::new(text).ok()
        };
        self.variables.iter().filter_map(one).collect()
    }
}

/// Becomes `file` with `words` (COMMAND as typed and its arguments). Returns only when that fails.
pub fn become_command(file: &Path, words: &[OsString], environment: &Environment) -> Failure {
    let word = |w: &OsStr| CString::new(w.as_bytes()).unwrap_or_default();
    let path = word(file.as_os_str());
    let arguments: Vec<CString> = words.iter().map(|w| word(w)).collect();
    let strings = environment.strings();
    let errno = match nix::unistd::execve(&path, &arguments, &strings) {
        Ok(never) => match never {},
        Err(Errno::ENOEXEC) => {
            // A script without `#!`: execvp gives it to the shell, and so do we.
            let mut shell = vec![c"/bin/sh".to_owned(), path.clone()];
            shell.extend(arguments.into_iter().skip(1));
            match nix::unistd::execve(c"/bin/sh", &shell, &strings) {
                Ok(never) => match never {},
                Err(errno) => errno,
            }
        }
        Err(errno) => errno,
    };
    // ENOENT after a successful look-up: the interpreter of the file is missing.
    let kind = if errno == Errno::ENOENT {
        Kind::NotFound
    } else {
        Kind::NotExecutable
    };
    Failure::new(
        kind,
        format!("cannot run {}: {}", file.display(), errno.desc().to_lowercase()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_once_and_others_are_kept() {
        let mut environment = Environment::default();
        environment.set("LD_PRELOAD", "/a.so /old/libpartage-1-2.so:/b.so");
        let is_old = |entry: &str| entry.contains("libpartage");
        environment.put_first("LD_PRELOAD", Path::new("/new/libpartage-2-3.so"), b": ", is_old);
        assert_eq!(
            environment.get("LD_PRELOAD"),
            Some(OsStr::new("/new/libpartage-2-3.so:/a.so:/b.so"))
        );
        environment.put_first("LIST", Path::new("/only"), b":", |_| false);
        assert_eq!(environment.get("LIST"), Some(OsStr::new("/only")));
    }
}
