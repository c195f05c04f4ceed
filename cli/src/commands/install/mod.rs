// SPDX-License-Identifier: Apache-2.0
//! `partage install` and `partage uninstall`: one broker for every user of a host, by one command.
//!
//! - `tree`: which files go where. `change`: what was done so far, and how it is undone.
//! - `host`: its group and its service manager. `service`: the broker. `proof`: that another user's job is bound.
//! - `preload`: the library in every program of the host. `remains`: what other commands and users leave on it.

mod change;
mod host;
mod preload;
mod proof;
mod remains;
mod service;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use serde_json::json;

use crate::arguments::{Install, StartNow, Uninstall};
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::{Place, SYSTEM_CONFIG, SYSTEM_DIR};
use crate::link::{ask, other_brokers};
use crate::show::report::Report;
use crate::show::tables::headed;
use crate::show::terminal::Style;
use change::Changes;
use proof::Proof;
use tree::{Content, Placed, Tree};

/// The record's line for a group that was made.
const GROUP_MADE: &str = "group";
/// How the record's line for a folder begins that was made on the way to a file.
const FOLDER_MADE: &str = "folder ";

/// `partage install`.
pub fn install(arguments: &Install, report: &Report) -> Outcome<u8> {
    let root = arguments.root.as_deref();
    if root.is_some() && arguments.start == Some(StartNow::Yes) {
        let failure = Failure::invalid("--start=yes with --root, below which nothing runs");
        return Err(failure.hint("leave one of them out"));
    }
    not_below(root, arguments.system_preload)?;
    require_root(root, "install")?;
    let program = tree::own_program()?;
    let tree = Tree::new(root, &program);
    not_beside_the_package(root, &program)?;
    let mut changes = Changes::default();
    let has_started = root.is_none() && arguments.start != Some(StartNow::No);
    let foreign = foreign_units(&tree);
    let result = put(&tree, &program, has_started, &mut changes);
    // Last: programs that start from then on find the broker.
    let result = result.and_then(|()| match arguments.system_preload {
        true => preload::put(&tree, &mut changes),
        false => Ok(()),
    });
    result.map_err(|failure| changes.failed(failure))?;
    let is_changed = changes.is_any();
    changes.keep(&foreign);
    // From here on a failure is one of the proof: what is installed stays.
    let proof = match has_started {
        true => Some(proof::try_another_user(&tree.program("partage"))?),
        false => None,
    };
    if root.is_none() && !host::has_systemd() {
        changes.say("at boot", service::start_line(&tree));
    }
    let notes = notes(root, has_started);
    say_installed(is_changed, &changes, proof.as_ref(), &notes, report);
    Ok(0)
}

/// Everything that a failure undoes.
fn put(tree: &Tree, program: &Path, has_started: bool, changes: &mut Changes) -> Outcome<()> {
    let files = tree.files(program)?;
    let mut record = read_record(tree).unwrap_or_default();
    let is_host = tree.at(Path::new("/")) == Path::new("/");
    if is_host && changes.group()? {
        record.insert(GROUP_MADE.to_owned());
    }
    let (configurations, programs): (Vec<&Placed>, Vec<&Placed>) = files.iter().partition(|file| file.is_configuration);
    let mut is_new = false;
    for file in &programs {
        is_new |= changes.file(file, &tree.at(&file.path))?;
        record.insert(file.path.display().to_string());
    }
    let made = changes.folders().filter_map(|folder| tree.path_of(folder));
    record.extend(made.map(|folder| format!("{FOLDER_MADE}{}", folder.display())));
    let record = Content::Text(
        record
            .into_iter()
            .map(|line| {
                line + "
"
            })
            .collect(),
    );
    let record = Placed::new(tree.record(), record, 0o644);
    if tree.is_of_package() {
        changes.say("kept", "programs, library and units: of the package partage");
    } else {
        changes.file(&record, &tree.at(&record.path))?;
    }
    for file in configurations {
        changes.file(file, &tree.at(&file.path))?;
    }
    match has_started {
        true => service::start(tree, is_new, changes),
        false => Ok(()),
    }
}

/// The places of units where no installation put them: what is there may be the administrator's own.
fn foreign_units(tree: &Tree) -> Vec<PathBuf> {
    let record = read_record(tree).unwrap_or_default();
    let units = tree.units().into_iter();
    let foreign = units.filter(|unit| !record.contains(&unit.display().to_string()));
    foreign.map(|unit| tree.at(&unit)).collect()
}

/// What was put here, line by line.
fn read_record(tree: &Tree) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(tree.at(&tree.record())).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// A file that every program reads is written where it was tried.
fn not_below(root: Option<&Path>, system_preload: bool) -> Outcome<()> {
    if root.is_none() || !system_preload {
        return Ok(());
    }
    let message = "--system-preload with --root, below which no program can be tried";
    Err(Failure::invalid(message).hint("leave one of them out"))
}

/// Programs in /usr/local and units in /etc would hide those of the package.
fn not_beside_the_package(root: Option<&Path>, program: &Path) -> Outcome<()> {
    if root.is_some() || program.starts_with("/usr/bin") || !tree::has_package() {
        return Ok(());
    }
    let message = "this host has the package partage, whose programs and units another installation would hide";
    let failure = Failure::failed(message);
    Err(failure.hint("use the package's: sudo /usr/bin/partage install; or first: sudo apt remove partage"))
}

fn require_root(root: Option<&Path>, word: &str) -> Outcome<()> {
    if root.is_some() || Uid::effective().is_root() {
        return Ok(());
    }
    let failure = Failure::new(
        Kind::NotAllowed,
        format!("`partage {word}` is for every user of this host and needs root"),
    );
    Err(failure.hint(format!(
        "sudo partage {word}; for yourself alone nothing needs it: partage run"
    )))
}

/// What the administrator has to know beside what was done.
fn notes(root: Option<&Path>, has_started: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if root.is_some() {
        notes.push("nothing was started, and no group made: groupadd --system partage, on the host itself".to_owned());
    } else if !host::has_systemd() {
        let text =
            "without systemd nothing starts the broker at boot: put the line above where this host starts its services";
        notes.push(text.to_owned());
    } else if !has_started {
        notes.push("the broker was not started: systemctl enable --now partaged".to_owned());
    }
    if root.is_none() {
        for other in other_brokers::all() {
            let (user, dir) = (&other.user, other.dir.display());
            notes.push(format!(
                "a private broker of {user} still runs at {dir}: its jobs go on under it, and what it promised is \
                 promised beside this host's; new jobs come here. It is gone a minute after its last job; at once: \
                 sudo -u {user} partage broker stop --socket-dir {dir}"
            ));
        }
    }
    notes
}

fn say_installed(is_changed: bool, changes: &Changes, proof: Option<&Proof>, notes: &[String], report: &Report) {
    let body = json!({
        "is_changed": is_changed,
        "steps": changes.json(),
        "proof": proof.map(|proof| json!({ "is_shown": proof.is_shown, "text": proof.text })),
        "notes": notes,
    });
    report.data("install", body, |style| {
        let mut text = changes.text();
        if let Some(proof) = proof {
            let word = if proof.is_shown { "shown" } else { "partly" };
            text.push_str(&headed(style, word, &proof.text));
        }
        text.push_str(&notes_text(style, notes));
        if !is_changed {
            text.push_str("nothing changed\n");
        }
        text
    });
}

/// What has to be known besides, a note for each.
fn notes_text(style: &Style, notes: &[String]) -> String {
    notes.iter().map(|note| headed(style, "note", note)).collect()
}

/// What an uninstallation did, and its code.
fn say_uninstalled(is_changed: bool, changes: &Changes, notes: &[String], report: &Report) -> u8 {
    let body = json!({ "is_changed": is_changed, "steps": changes.json(), "notes": notes });
    report.data("uninstall", body, |style| changes.text() + &notes_text(style, notes));
    0
}

/// `partage uninstall`.
pub fn uninstall(arguments: &Uninstall, report: &Report) -> Outcome<u8> {
    let root = arguments.root.as_deref();
    not_below(root, arguments.system_preload)?;
    require_root(root, "uninstall")?;
    let tree = Tree::new(root, &tree::own_program()?);
    let mut changes = Changes::default();
    // First: once the library is gone, an entry that names it is a complaint in every program.
    let is_out = root.is_none() && preload::take_out(&tree, &mut changes)?;
    if arguments.system_preload {
        if !is_out {
            changes.say("unchanged", preload::FILE);
        }
        return Ok(say_uninstalled(is_out, &changes, &[], report));
    }
    let Some(record) = read_record(&tree) else {
        let message = nothing_of_ours(&tree);
        let body = json!({ "is_changed": is_out, "steps": changes.json(), "notes": [message] });
        report.data("uninstall", body, |style| {
            changes.text()
                + &style.text(&message)
                + "
"
        });
        return Ok(0);
    };
    let mut left = Vec::new();
    let mut notes = Vec::new();
    if root.is_none() {
        notes.extend(living_jobs(&host::system_place()));
        // While it runs its files are in use, and users under its rules.
        if service::stop()? {
            changes.say("stopped", "the broker");
        }
    }
    remove(&tree, &record, &mut changes, &mut left);
    if root.is_none() {
        remove_from_host(&record, &mut changes, &mut left);
        remains::remove_of_containers(&mut changes, &mut left, &mut notes);
        notes.extend(remains::users_folders());
    }
    if !left.is_empty() {
        let message = format!("everything else is removed; left: {}", left.join("; "));
        return Err(Failure::failed(message).hint("remove these by hand"));
    }
    let configuration = tree.at(Path::new(SYSTEM_CONFIG));
    if configuration.exists() {
        notes.push(format!(
            "{} stays, and with it the host is managed: `run` starts no private broker. To end that: rm -r {}",
            configuration.display(),
            tree.at(Path::new("/etc/partage")).display()
        ));
    }
    Ok(say_uninstalled(true, &changes, &notes, report))
}

/// Why there is nothing to remove.
fn nothing_of_ours(tree: &Tree) -> String {
    match tree.is_of_package() {
        true => "everything here is of the package partage: sudo apt remove partage".to_owned(),
        false => format!("nothing to remove: {} is not there", tree.at(&tree.record()).display()),
    }
}

/// Who still has jobs under the broker that is about to end.
fn living_jobs(place: &Place) -> Option<String> {
    let (jobs, _) = ask::jobs(place, false).ok()?;
    let named: Vec<String> = jobs.iter().map(|job| format!("{} of {}", job.job, job.user)).collect();
    (!named.is_empty()).then(|| {
        format!(
            "{} went on without a broker: their limits hold, nothing more is granted, and no later broker knows them",
            named.join(", ")
        )
    })
}

/// The files of the record and the folders that it made or has for itself, which are empty then.
fn remove(tree: &Tree, record: &BTreeSet<String>, changes: &mut Changes, left: &mut Vec<String>) {
    let files = record.iter().filter(|line| line.starts_with('/')).map(PathBuf::from);
    let (own, others): (Vec<_>, Vec<_>) = files.partition(|path| tree.is_own(path));
    for path in others {
        left.push(format!(
            "{}, which the record names and no installation puts there",
            tree.at(&path).display()
        ));
    }
    for path in own.into_iter().chain([tree.record()]).map(|path| tree.at(&path)) {
        changes.removed(&path, fs::remove_file(&path), left);
    }
    for folder in tree.own_folders().iter().map(|folder| tree.at(folder)) {
        changes.removed(&folder, fs::remove_dir(&folder), left);
    }
    // Without a word, as they were made; the lower first. What others put there keeps them.
    let made = record.iter().rev().filter_map(|line| line.strip_prefix(FOLDER_MADE));
    for folder in made.map(Path::new).filter(|folder| tree.is_on_the_way(folder)) {
        use ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
        if let Err(error) = fs::remove_dir(tree.at(folder))
            && !matches!(error.kind(), NotFound | DirectoryNotEmpty | NotADirectory)
        {
            left.push(Failure::cannot("remove", tree.at(folder), error).message);
        }
    }
}

/// What an installation made outside the files: the socket directory, the group.
fn remove_from_host(record: &BTreeSet<String>, changes: &mut Changes, left: &mut Vec<String>) {
    host::reload();
    changes.removed(Path::new(SYSTEM_DIR), fs::remove_dir_all(SYSTEM_DIR), left);
    if record.contains(GROUP_MADE) && host::has_group() {
        match host::remove_group() {
            Ok(()) => changes.say("removed", format!("group {}", host::GROUP)),
            Err(failure) => left.push(failure.message),
        }
    }
}
