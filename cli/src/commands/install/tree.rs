// SPDX-License-Identifier: Apache-2.0
//! What `partage install` puts where, and nothing done yet.
//!
//! ```text
//!   /usr/local/bin/partage, partaged
//!   /usr/local/lib/partage/           the library, the simulated driver, the demo's client;
//!                                     `installed`: the record of what was put here
//!   /usr/local/share/doc/partage/     where the program came with pages
//!   /etc/systemd/system/partaged.service, partaged.socket, partaged-admin.socket
//!   /etc/partage/partage.toml         every key with its default, commented; never overwritten, never removed
//! ```
//! A program that a package manager put into `/usr/bin` stays there: then only what lies below `/etc` is made.

use std::env;
use std::path::{Component, Path, PathBuf};

use crate::failure::{Failure, Outcome, reason};
use crate::launch::installed;
use crate::launch::place::SYSTEM_CONFIG;

/// Where programs go that no package manager owns.
const PREFIX: &str = "/usr/local";
/// The service.
pub const UNIT: &str = "partaged.service";
/// The sockets that systemd holds for it, for everyone and for administrators.
pub const SOCKETS: [&str; 2] = ["partaged.socket", "partaged-admin.socket"];
const UNIT_FOLDER: &str = "/etc/systemd/system";
/// Each unit with its text.
const UNITS: [(&str, &str); 3] = [
    (UNIT, include_str!("partaged.service")),
    (SOCKETS[0], include_str!("partaged.socket")),
    (SOCKETS[1], include_str!("partaged-admin.socket")),
];
/// Every key with its default is written down once, on the page.
const CONFIGURATION_PAGE: &str = include_str!("../../../../docs/configuration.md");

/// What a file is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Another file.
    Copy(PathBuf),
    /// These words.
    Text(String),
}

/// One file of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where programs find it, whatever the root.
    pub path: PathBuf,
    /// What it holds.
    pub content: Content,
    /// Its permissions.
    pub mode: u32,
    /// Its owner may have changed it: one that is there stays as it is, and stays for good.
    pub is_configuration: bool,
}

impl Placed {
    /// One that is this installation's own.
    pub fn new(path: PathBuf, content: Content, mode: u32) -> Self {
        Self {
            path,
            content,
            mode,
            is_configuration: false,
        }
    }
}

/// Where an installation goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
    prefix: PathBuf,
    has_programs: bool,
    has_units: bool,
}

/// Where dpkg lists the files of the package, and the package its service.
const PACKAGE: [&str; 2] = [
    "/var/lib/dpkg/info/partage.list",
    "/lib/systemd/system/partaged.service",
];

/// Has this host the package `partage`?
pub fn has_package() -> bool {
    Path::new(PACKAGE[0]).exists()
}

impl Tree {
    /// Below `root`, or on this host; `program` is the one that runs.
    pub fn new(root: Option<&Path>, program: &Path) -> Self {
        let is_packaged = root.is_none() && program.parent() == Some(Path::new("/usr/bin"));
        Self {
            root: root.unwrap_or(Path::new("/")).to_owned(),
            prefix: if is_packaged { "/usr".into() } else { PREFIX.into() },
            has_programs: !is_packaged,
            has_units: !(is_packaged && PACKAGE.iter().all(|path| Path::new(path).exists())),
        }
    }

    /// Are programs and units those of the package?
    pub fn is_of_package(&self) -> bool {
        !self.has_units
    }

    /// The place of a path below the root.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What `at` gave this place for; none for the root.
    pub fn path_of(&self, place: &Path) -> Option<PathBuf> {
        let path = place.strip_prefix(&self.root).ok()?;
        path.file_name().is_some().then(|| Path::new("/").join(path))
    }

    /// One of the installed programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.prefix.join("bin").join(name)
    }

    /// The library.
    pub fn library(&self) -> PathBuf {
        self.prefix.join("lib/partage").join(installed::LIBRARY)
    }

    /// Where the record lies of what was put here.
    pub fn record(&self) -> PathBuf {
        self.prefix.join("lib/partage/installed")
    }

    /// The folders that are this installation's own; a package manager sees to its own.
    pub fn own_folders(&self) -> Vec<PathBuf> {
        let names = ["lib/partage", "share/doc/partage"]
            .into_iter()
            .filter(|_| self.has_programs);
        names.map(|name| self.prefix.join(name)).collect()
    }

    /// The files, the configuration last: it makes a host managed, and then `run` waits for this broker.
    ///
    /// # Errors
    /// One of the files that belong to this program is missing.
    pub fn files(&self, program: &Path) -> Outcome<Vec<Placed>> {
        let mut files = Vec::new();
        if self.has_programs {
            let library = self.prefix.join("lib/partage");
            let mut copy = |from, path, mode| files.push(Placed::new(path, Content::Copy(from), mode));
            copy(program.to_owned(), self.program("partage"), 0o755);
            copy(
                installed::find(installed::BROKER)?,
                self.program(installed::BROKER),
                0o755,
            );
            copy(installed::find(installed::LIBRARY)?, self.library(), 0o644);
            for name in installed::SIMULATED {
                if let Ok(from) = installed::find(name) {
                    copy(from, library.join(name), 0o644);
                }
            }
            if let Ok(from) = installed::find(installed::DEMO_CLIENT) {
                copy(from, library.join(installed::DEMO_CLIENT), 0o755);
            }
            let pages = program
                .parent()
                .and_then(Path::parent)
                .map(|own| own.join("share/doc/partage"));
            for name in ["README.md", "LICENSE", "CHANGELOG.md"] {
                let page = pages.as_ref().map(|pages| pages.join(name));
                if let Some(from) = page.filter(|page| page.is_file()) {
                    copy(from, self.prefix.join("share/doc/partage").join(name), 0o644);
                }
            }
        }
        let broker = self.program(installed::BROKER);
        let units = UNITS.iter().filter(|_| self.has_units);
        files.extend(units.map(|(name, text)| Placed::new(unit(name), Content::Text(unit_text(text, &broker)), 0o644)));
        files.push(Placed {
            is_configuration: true,
            ..Placed::new(
                SYSTEM_CONFIG.into(),
                Content::Text(commented(CONFIGURATION_PAGE)),
                0o644,
            )
        });
        Ok(files)
    }

    /// May an installation have put this file here? A record can be anybody's by the time it is read: one below a
    /// folder that others write, or one that was edited.
    pub fn is_own(&self, path: &Path) -> bool {
        let is_program = ["partage", installed::BROKER]
            .iter()
            .any(|name| path == self.program(name));
        let folders = self.own_folders();
        let is_below = folders.iter().any(|folder| path.starts_with(folder) && path != folder);
        is_plain(path)
            && (is_program || is_below || self.units().iter().any(|unit| path == unit))
            && self.stays_below(path)
    }

    /// May an installation have made this folder on the way to its files?
    pub fn is_on_the_way(&self, folder: &Path) -> bool {
        let mut places = self.own_folders();
        places.push(self.program(installed::BROKER));
        places.extend(self.units());
        let is_above = places.iter().any(|place| place.starts_with(folder) && place != folder);
        is_plain(folder) && is_above && self.stays_below(folder)
    }

    /// Does no link on the way lead out of the root?
    fn stays_below(&self, path: &Path) -> bool {
        let place = self.at(path);
        let folder = place.parent().map(Path::canonicalize);
        match (self.root.canonicalize(), folder) {
            (Ok(root), Some(Ok(folder))) => folder.starts_with(root),
            // It is not there: nothing to remove.
            (_, Some(Err(error))) => error.kind() == std::io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// The unit files.
    pub fn units(&self) -> [PathBuf; 3] {
        UNITS.map(|(name, _)| unit(name))
    }
}

fn is_plain(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

fn unit(name: &str) -> PathBuf {
    Path::new(UNIT_FOLDER).join(name)
}

/// This program's file.
///
/// # Errors
/// The kernel does not say.
pub fn own_program() -> Outcome<PathBuf> {
    let found = env::current_exe().and_then(std::fs::canonicalize);
    found.map_err(|error| Failure::failed(format!("this program's file is not known: {}", reason(&error))))
}

fn unit_text(text: &str, broker: &Path) -> String {
    text.replace("/usr/local/bin/partaged", &broker.display().to_string())
}

/// The first block of TOML on the page, with all but the schema's line commented.
fn commented(page: &str) -> String {
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut text = "# Every key with its default. To change one, remove its `#` and that of its [table]. Then\n\
                    # partage config check && sudo partage config reload. What keys and rules mean:\n\
                    # docs/configuration.md.\n"
        .to_owned();
    for line in block.unwrap_or("schema = 1\n").lines() {
        if !line.is_empty() && !line.starts_with("schema") {
            text.push_str("# ");
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packaged_program_stays_where_its_package_put_it() {
        let packaged = Tree::new(None, Path::new("/usr/bin/partage"));
        assert!(packaged.own_folders().is_empty());
        assert_eq!(packaged.program("partaged"), Path::new("/usr/bin/partaged"));
        let files = packaged
            .files(Path::new("/usr/bin/partage"))
            .expect("nothing is copied");
        let paths: Vec<_> = files.iter().map(|file| file.path.display().to_string()).collect();
        let mut expected = packaged.units().map(|path| path.display().to_string()).to_vec();
        expected.push(SYSTEM_CONFIG.to_owned());
        assert_eq!(paths, expected);
        // With the package's units there is nothing but the configuration to make.
        let whole = Tree {
            has_units: false,
            ..packaged.clone()
        };
        let files_left = whole.files(Path::new("/usr/bin/partage")).expect("nothing is copied");
        assert!(whole.is_of_package() && !packaged.is_of_package());
        assert_eq!(files_left, files[3..]);
        let Content::Text(unit) = &files[0].content else {
            panic!("a text")
        };
        assert!(unit.contains("\nExecStart=/usr/bin/partaged --managed\n"), "{unit}");
        let built = Tree::new(Some(Path::new("/stage")), Path::new("/usr/bin/partage"));
        assert_eq!(built.program("partaged"), Path::new("/usr/local/bin/partaged"));
        assert_eq!(
            built.at(&built.record()),
            Path::new("/stage/usr/local/lib/partage/installed")
        );
    }

    #[test]
    fn the_configuration_sets_nothing_and_shows_every_key_of_the_page() {
        let text = commented(CONFIGURATION_PAGE);
        let set: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        assert!(set.len() == 1 && set[0].starts_with("schema = 1"), "{set:?}");
        for key in [
            "[admission]",
            "overcommit = 1.0",
            "max_class = \"normal\"",
            "reserve = \"512MiB\"",
        ] {
            let is_there = text.lines().any(|line| line.trim_start_matches("# ").starts_with(key));
            assert!(is_there, "{key}: {text}");
        }
    }

    #[test]
    fn the_page_shows_the_sockets_as_they_are_installed_and_names_the_service() {
        let page = include_str!("../../../../docs/administrators.md");
        for (name, text) in UNITS {
            let is_there = page.contains(&format!("/etc/systemd/system/{name}"));
            assert!(is_there, "docs/administrators.md does not name {name}");
            let listens = text.lines().find(|line| line.starts_with("ListenSequentialPacket="));
            let socket = listens.and_then(|line| line.split_once('=')).map(|(_, path)| path);
            assert!(socket.is_none_or(|path| page.contains(path)), "{name}: {socket:?}");
        }
    }
}
