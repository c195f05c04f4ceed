// SPDX-License-Identifier: Apache-2.0
//! `--system-preload`: the library in `/etc/ld.so.preload`, so that each program of the host loads it, whatever its
//! environment.
//!
//! ```text
//!   the new text ──► tried: a mount namespace of this thread whose /etc has it; each program of the host is loaded,
//!                    a few are run ──► written by rename ──► a program is run ──► stays, or is taken back at once
//! ```
//! A file that ld.so cannot follow is an error message in every program of the host; so nothing is written that was not
//! tried, and this process, which needs no new program for it, takes back what fails.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::change::Changes;
use super::tree::{Content, Placed, Tree};
use crate::failure::reason;
use crate::failure::{Failure, Outcome};
use crate::launch::preflight::elf::{FileKind, kind};

/// What ld.so reads.
pub const FILE: &str = "/etc/ld.so.preload";
/// Where a host has its programs; several are one folder on most.
const FOLDERS: [&str; 6] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
];
/// Programs that are run, with words that do nothing; those that a host lacks are left out.
const RUN: [&[&str]; 6] = [
    &["/bin/true"],
    &["/bin/sh", "-c", ":"],
    &["/bin/bash", "-c", ":"],
    &["/usr/bin/env", "-i", "/bin/true"],
    &["/bin/ls", "/"],
    &["/usr/bin/id"],
];
/// The loaders that are run, as root: those of the C libraries. A program may name any file as its loader, and its
/// owner need not be root.
const LOADERS: [&str; 4] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];
/// A program that is only loaded, or does nothing, needs milliseconds; a loaded machine stands still for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The entries of a line: ld.so separates them by blanks and colons, and a comment goes to the line's end.
fn entries(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split('#').next().unwrap_or_default();
    line.split([' ', '\t', '\n', ':']).filter(|entry| !entry.is_empty())
}

/// The file's text with the library, which comes last: what stands there already keeps its place.
fn with(text: &str, library: &str) -> String {
    if text.lines().flat_map(entries).any(|entry| entry == library) {
        return text.to_owned();
    }
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}{library}\n")
}

/// The file's text without the library; everything else stays, comments too.
fn without(text: &str, library: &str) -> String {
    let mut left = String::new();
    for line in text.split_inclusive('\n') {
        if !entries(line).any(|entry| entry == library) {
            left.push_str(line);
            continue;
        }
        let others: Vec<&str> = entries(line).filter(|entry| *entry != library).collect();
        let comment = line
            .trim_end()
            .split_once('#')
            .map(|(_, comment)| format!("#{comment}"));
        let parts: Vec<&str> = others.into_iter().chain(comment.as_deref()).collect();
        if !parts.is_empty() {
            left.push_str(&parts.join(" "));
            left.push('\n');
        }
    }
    left
}

/// Puts the library into the file, unless it is there.
///
/// # Errors
/// A program does not load with it, or it cannot be tried: then nothing is written. The next program fails: the caller
/// undoes all.
pub fn put(tree: &Tree, changes: &mut Changes) -> Outcome<()> {
    put_tried(tree, changes, trial, run_some)
}

fn put_tried(
    tree: &Tree,
    changes: &mut Changes,
    trial: impl FnOnce(&str, &Path) -> Outcome<String>,
    run: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    let (file, library) = (tree.at(Path::new(FILE)), tree.library());
    let before = read(&file)?;
    let text = with(&before, &library.to_string_lossy());
    if text == before {
        changes.say("unchanged", FILE);
        return Ok(());
    }
    let tried = trial(&text, &library)?;
    changes.say("tried", tried);
    if read(&file)? != before {
        return Err(Failure::failed(format!("{FILE} changed while it was tried")).hint("run it again"));
    }
    write(&file, text, changes)?;
    // Unlike the trial, with the file in its place.
    run()
}

/// Takes the library out of the file. Answers whether it was there.
///
/// # Errors
/// The file cannot be read or written.
pub fn take_out(tree: &Tree, changes: &mut Changes) -> Outcome<bool> {
    let (file, library) = (tree.at(Path::new(FILE)), tree.library());
    let before = read(&file)?;
    let text = without(&before, &library.to_string_lossy());
    if text == before {
        return Ok(false);
    }
    if text.trim().is_empty() {
        fs::remove_file(&file).map_err(|error| Failure::cannot("remove", &file, error))?;
        changes.say("removed", FILE);
        return Ok(true);
    }
    write(&file, text, changes)?;
    changes.keep(&[]);
    Ok(true)
}

/// Nothing is there: no text.
fn read(file: &Path) -> Outcome<String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Failure::cannot("read", file, error)),
    }
}

fn write(file: &Path, text: String, changes: &mut Changes) -> Outcome<()> {
    // Whose ld.so may not read it has no limit, and nobody is told.
    let placed = Placed::new(FILE.into(), Content::Text(text), 0o644);
    changes.file(&placed, file).map(drop)
}

/// A program that its loader did not load without a word.
struct Complaint {
    program: PathBuf,
    loader: String,
    said: String,
}

/// What a host has of programs.
#[derive(Default)]
struct Programs {
    /// Those to be loaded, with their loaders.
    dynamic: Vec<(PathBuf, String)>,
    /// Static ones load nothing.
    bare: usize,
    /// Whoever runs them: as root they would run what somebody else wrote.
    left_out: usize,
}

/// Tries a text: in a thread whose view of the file system has it and nobody else's. Answers what was tried.
fn trial(text: &str, library: &Path) -> Outcome<String> {
    let programs = programs()?;
    let made = nix::unistd::mkdtemp("/run/partage-trial-XXXXXX");
    let folder = made.map_err(|errno| Failure::cannot("make a folder in", "/run", errno))?;
    let tried = std::thread::scope(|scope| scope.spawn(|| try_apart(text, &folder, &programs.dynamic)).join());
    // What was mounted on it ended with the thread.
    let _ = fs::remove_dir(&folder);
    let tried = tried.unwrap_or_else(|_| Err(Failure::failed("the trial ended amid its work".to_owned())));
    for complaint in tried? {
        // What it says without the library, too, is not the library's doing.
        let before = load(&complaint.program, &complaint.loader).err().unwrap_or_default();
        if let Some(line) = complaint
            .said
            .lines()
            .find(|line| !before.lines().any(|known| known == *line))
        {
            let program = complaint.program.display();
            return Err(Failure::failed(format!(
                "{program} does not load with {}: {line}",
                library.display()
            )));
        }
    }
    let (bare, left_out) = (programs.bare, programs.left_out);
    Ok(format!(
        "{FILE} in a copy of /etc: {} programs load with it, {bare} static ones load nothing; {left_out} that are not \
         root's, or name another loader than glibc's and musl's, were left out",
        programs.dynamic.len()
    ))
}

/// In a mount namespace of the calling thread, which it never leaves.
fn try_apart(text: &str, folder: &Path, programs: &[(PathBuf, String)]) -> Outcome<Vec<Complaint>> {
    make_view(text, folder).map_err(|why| {
        let message = format!("{FILE} cannot be tried before it is written: {why}");
        Failure::failed(message).hint("run it as root of the host, not in a container")
    })?;
    run_some()?;
    let complaint = |(program, loader): &(PathBuf, String)| {
        let said = load(program, loader).err()?;
        let (program, loader) = (program.clone(), loader.clone());
        Some(Complaint { program, loader, said })
    };
    Ok(programs.iter().filter_map(complaint).collect())
}

/// Gives the calling thread an /etc of its own that holds everything of the host's, but for the file.
fn make_view(text: &str, folder: &Path) -> Result<(), String> {
    let step = |what: &str, result: nix::Result<()>| result.map_err(|error| format!("{what}: {}", error.desc()));
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("no mount namespace: {}", error.desc()))?;
    let private = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    step("/ cannot be made private", private)?;
    let bound = mount(Some("/etc"), folder, none, MsFlags::MS_BIND | MsFlags::MS_REC, none);
    step("/etc cannot be bound", bound)?;
    step(
        "no tmpfs",
        mount(Some("tmpfs"), "/etc", Some("tmpfs"), MsFlags::empty(), Some("mode=755")),
    )?;
    let io = |error: std::io::Error| reason(&error);
    for entry in fs::read_dir(folder).map_err(io)?.flatten() {
        if entry.file_name() != "ld.so.preload" {
            // A link leads from where it stands.
            let to = fs::read_link(entry.path()).unwrap_or_else(|_| entry.path());
            symlink(to, Path::new("/etc").join(entry.file_name())).map_err(io)?;
        }
    }
    fs::write(FILE, text).map_err(io)?;
    fs::set_permissions(FILE, Permissions::from_mode(0o644)).map_err(io)
}

/// The host's programs, each once.
///
/// # Errors
/// One would complain whatever the library is.
fn programs() -> Outcome<Programs> {
    let entries = FOLDERS
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let files: BTreeSet<PathBuf> = entries.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    let mut found = Programs::default();
    for path in files {
        let Ok(data) = path.metadata() else { continue };
        if !data.is_file() || data.permissions().mode() & 0o111 == 0 {
            continue;
        }
        let is_roots = data.uid() == 0 && data.permissions().mode() & 0o022 == 0;
        match kind(&path) {
            Ok(FileKind::Elf { interpreter: None }) => found.bare += 1,
            Ok(FileKind::Elf {
                interpreter: Some(loader),
            }) if is_roots && LOADERS.contains(&&*loader) => {
                found.dynamic.push((path, loader));
            }
            Ok(FileKind::Elf { .. }) => found.left_out += 1,
            Ok(FileKind::ForeignElf(what)) if what == "32-bit" => {
                let message = format!(
                    "{} is a 32-bit program: ld.so would complain in it each time",
                    path.display()
                );
                return Err(
                    Failure::failed(message).hint("give jobs the library with `partage run` or `partage cdi generate`")
                );
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Loads a program without running it.
fn load(program: &Path, loader: &str) -> Result<(), String> {
    // Loaders of glibc and of musl know the word.
    say(Command::new(loader).arg("--list").arg(program))
}

/// Runs a few programs to their end.
fn run_some() -> Outcome<()> {
    for words in RUN {
        let [program, more @ ..] = words else { continue };
        if !Path::new(program).exists() {
            continue;
        }
        say(Command::new(program).args(more)).map_err(|said| {
            let line = said.lines().next().unwrap_or_default();
            Failure::failed(format!(
                "{} does not run with the library in {FILE}: {line}",
                words.join(" ")
            ))
        })?;
    }
    Ok(())
}

/// Runs a command to its end, without a variable. What it says on standard error, or how it ended, is a failure.
fn say(command: &mut Command) -> Result<(), String> {
    let io = |error: std::io::Error| reason(&error);
    let apart = command.env_clear().stdin(Stdio::null());
    let mut child = apart.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(io)?;
    let begun = Instant::now();
    while child.try_wait().map_err(io)?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let output = child.wait_with_output().map_err(io)?;
    let text = String::from_utf8_lossy(&output.stderr);
    match text.trim() {
        "" if output.status.success() => Ok(()),
        "" => Err(output.status.to_string()),
        said => Err(said.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: &str = "/usr/local/lib/partage/libpartage.so";

    #[test]
    fn the_entry_comes_last_and_goes_alone() {
        for (before, after) in [
            ("", "OURS\n"),
            ("/x.so\n", "/x.so\nOURS\n"),
            ("/x.so", "/x.so\nOURS\n"),
            ("# a comment with OURS\n", "# a comment with OURS\nOURS\n"),
            ("/x.so:OURS # both\n", "/x.so:OURS # both\n"),
            ("\tOURS\n", "\tOURS\n"),
        ] {
            let [before, after] = [before, after].map(|text| text.replace("OURS", OURS));
            assert_eq!(with(&before, OURS), after);
        }
        for (before, after) in [
            ("OURS\n", ""),
            ("/x.so\nOURS\n/y.so\n", "/x.so\n/y.so\n"),
            ("/x.so:OURS /y.so # three\n", "/x.so /y.so # three\n"),
            ("# OURS\n", "# OURS\n"),
            ("/x.so", "/x.so"),
            ("OURS # ours", "# ours\n"),
            ("OURS.1\n", "OURS.1\n"),
        ] {
            let [before, after] = [before, after].map(|text| text.replace("OURS", OURS));
            assert_eq!(without(&before, OURS), after);
        }
    }

    #[test]
    fn nothing_is_written_untried_and_what_fails_then_is_taken_back() {
        let root = std::env::temp_dir().join(format!("partage-preload-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("etc")).expect("writable");
        let file = root.join("etc/ld.so.preload");
        let tree = Tree::new(Some(&root), Path::new("/opt/partage"));
        let tried = |_: &str, _: &Path| Ok("all of them".to_owned());
        let fails = || Err(Failure::failed("/bin/true does not run".to_owned()));
        for before in [None, Some("/x.so # theirs\n")] {
            let now = || fs::read_to_string(&file).ok();
            if let Some(text) = before {
                fs::write(&file, text).expect("writable");
            }
            let mut changes = Changes::default();
            let untried = |_: &str, _: &Path| Err(Failure::failed("no".to_owned()));
            put_tried(&tree, &mut changes, untried, || Ok(())).expect_err("it was not tried");
            assert!(!changes.is_any() && now().as_deref() == before);
            // What somebody else writes meanwhile is not written over.
            let amid = |_: &str, _: &Path| {
                fs::write(&file, "/y.so\n").expect("writable");
                tried("", Path::new(""))
            };
            put_tried(&tree, &mut changes, amid, || Ok(())).expect_err("it changed");
            assert_eq!(now().as_deref(), Some("/y.so\n"));
            match before {
                Some(text) => fs::write(&file, text).expect("writable"),
                None => fs::remove_file(&file).expect("there"),
            }
            let failure = put_tried(&tree, &mut changes, tried, fails).expect_err("a program fails");
            assert!(now().is_some_and(|text| text.ends_with(&format!("{OURS}\n"))));
            assert!(
                changes
                    .failed(failure)
                    .message
                    .ends_with("; everything before it is undone")
            );
            assert_eq!(now().as_deref(), before);
            put_tried(&tree, &mut changes, tried, || Ok(())).expect("it runs");
            changes.keep(&[]);
            let mut again = Changes::default();
            put_tried(&tree, &mut again, untried, || Ok(())).expect("it is there");
            assert!(!again.is_any());
            assert!(take_out(&tree, &mut again).expect("it was there"));
            assert_eq!(now().as_deref(), before);
            assert!(!take_out(&tree, &mut again).expect("it is out"));
        }
        fs::remove_dir_all(root).expect("clean up");
    }

    proptest! {
        #[test]
        fn other_entries_stay_in_their_order(text in "([a-z/#: \t\n]|/usr/local/lib/partage/libpartage.so){0,40}") {
            let others = |text: &str| -> Vec<String> {
                let all = text.lines().flat_map(entries).filter(|entry| *entry != OURS);
                all.map(str::to_owned).collect()
            };
            let put = with(&text, OURS);
            prop_assert!(put.lines().flat_map(entries).any(|entry| entry == OURS));
            prop_assert_eq!(with(&put, OURS), put.clone());
            prop_assert_eq!(others(&put), others(&text));
            let out = without(&put, OURS);
            prop_assert!(!out.lines().flat_map(entries).any(|entry| entry == OURS));
            prop_assert_eq!(others(&out), others(&text));
        }
    }
}
