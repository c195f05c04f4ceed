// SPDX-License-Identifier: Apache-2.0
//! What else Partage leaves on a host beside the installed files: descriptions for containers with the library that
//! they name, and users' own folders. The first two go with an uninstallation, the last is named.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::change::Changes;
use crate::commands::container::cdi::KIND;
use crate::launch::library_copy;
use crate::launch::place;

/// Where engines look for descriptions of devices (CDI specification, "Defining devices").
const DESCRIPTIONS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// The folder of the containers' library, unless `cdi generate --files` named another.
const LIBRARIES: &str = "/var/lib/partage";

/// Removes every description that names our devices: with it, each container that asks for one fails to start once the
/// library is gone. Removes the default folder of containers' libraries, too; a container that runs has it mounted and
/// keeps it. Removes the events that the broker kept.
pub fn remove_of_containers(changes: &mut Changes, left: &mut Vec<String>, notes: &mut Vec<String>) {
    for folder in DESCRIPTIONS {
        of_descriptions(Path::new(folder), changes, left, notes);
    }
    of_events(Path::new(LIBRARIES), changes, left);
    of_libraries(Path::new(LIBRARIES), changes, left);
    // Where only events were in it.
    let _ = fs::remove_dir(LIBRARIES);
}

/// `FOLDER/events/`, where the host's broker kept what happened.
fn of_events(folder: &Path, changes: &mut Changes, left: &mut Vec<String>) {
    let events = folder.join("events");
    if events.is_dir() {
        changes.removed(&events, fs::remove_dir_all(&events), left);
    }
}

fn of_descriptions(folder: &Path, changes: &mut Changes, left: &mut Vec<String>, notes: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut is_found = false;
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(description) = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Value>(&text).ok())
            .filter(|value| value["kind"] == KIND)
        else {
            continue;
        };
        is_found = true;
        changes.removed(&path, fs::remove_file(&path), left);
        let elsewhere = libraries_of(&description);
        let elsewhere = elsewhere.filter(|file| !file.starts_with(LIBRARIES) && file.exists());
        let elsewhere: BTreeSet<String> = elsewhere.map(|file| file.display().to_string()).collect();
        if !elsewhere.is_empty() {
            notes.push(format!(
                "{} stayed: containers had the library from there. rm it once no container runs",
                Vec::from_iter(elsewhere).join(", ")
            ));
        }
    }
    if is_found {
        // `cdi generate` makes it where it is not there. Engines take none for an empty one.
        let _ = fs::remove_dir(folder);
    }
}

/// The files of ours that a description mounts into containers.
fn libraries_of(description: &Value) -> impl Iterator<Item = PathBuf> + '_ {
    let devices = description["devices"].as_array().into_iter().flatten();
    let mounts = devices.flat_map(|device| device["containerEdits"]["mounts"].as_array());
    let mounts = mounts.flatten();
    let paths = mounts.filter_map(|mount| mount["hostPath"].as_str().map(PathBuf::from));
    paths.filter(|path| is_ours(path))
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == "ld.so.preload" || library_copy::is_ours(name)
}

/// `FOLDER/containers/` and its files of ours, then both folders where nothing else is in them.
fn of_libraries(folder: &Path, changes: &mut Changes, left: &mut Vec<String>) {
    let containers = folder.join("containers");
    let Ok(entries) = fs::read_dir(&containers) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_ours(path)) {
        changes.removed(&path, fs::remove_file(&path), left);
    }
    for folder in [containers.as_path(), folder] {
        changes.removed(folder, fs::remove_dir(folder), left);
    }
}

/// A sentence about the folders of users, if there are any: private brokers and copies of the library lie there, which
/// running programs have loaded and hand on to their children.
pub fn users_folders() -> Option<String> {
    let first = place::private_dir(0);
    let start = first.file_name()?.to_str()?.trim_end_matches('0');
    let mut found: Vec<String> = fs::read_dir(first.parent()?)
        .ok()?
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let uid = name.to_str().and_then(|name| name.strip_prefix(start));
            let uid = uid.and_then(|uid| uid.parse::<u32>().ok());
            let data = entry.path().symlink_metadata();
            // Anybody may make a folder of this name: only its owner's own is named.
            data.is_ok_and(|data| data.is_dir() && Some(data.uid()) == uid)
        })
        .map(|entry| entry.path().display().to_string())
        .collect();
    found.sort();
    (!found.is_empty()).then(|| {
        format!(
            "users' own folders stay: {}. Programs that still run load the library from there; once none does: \
             rm -r {0}",
            found.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("partage-remains-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("make a test directory");
        folder
    }

    #[test]
    fn only_descriptions_of_our_devices_go_and_libraries_elsewhere_are_named() {
        let folder = scratch("descriptions");
        let library = folder.join("libpartage-0.1.0-0123456789abcdef.so");
        fs::write(&library, "").expect("writable");
        let ours = serde_json::json!({
            "kind": KIND,
            "devices": [{"containerEdits": {"mounts": [{"hostPath": library}, {"hostPath": "/run/partage"}]}}],
        });
        fs::write(folder.join("p.json"), ours.to_string()).expect("writable");
        fs::write(folder.join("n.json"), r#"{"kind": "nvidia.com/gpu"}"#).expect("writable");
        fs::write(folder.join("broken.json"), "{").expect("writable");
        let (mut changes, mut left, mut notes) = (Changes::default(), Vec::new(), Vec::new());
        of_descriptions(&folder, &mut changes, &mut left, &mut notes);
        assert!(!folder.join("p.json").exists());
        assert!(folder.join("n.json").exists() && folder.join("broken.json").exists());
        assert!(left.is_empty(), "{left:?}");
        assert!(notes.len() == 1 && notes[0].contains("libpartage-0.1.0"), "{notes:?}");
        let alone = folder.join("alone");
        fs::create_dir(&alone).expect("writable");
        of_descriptions(&alone, &mut changes, &mut left, &mut notes);
        assert!(alone.exists(), "an empty folder is not ours");
        fs::write(alone.join("p.json"), ours.to_string()).expect("writable");
        of_descriptions(&alone, &mut changes, &mut left, &mut notes);
        assert!(!alone.exists() && left.is_empty(), "{left:?}");
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn what_else_lies_beside_the_containers_library_is_named_and_stays() {
        let folder = scratch("libraries");
        let containers = folder.join("partage/containers");
        fs::create_dir_all(&containers).expect("writable");
        fs::write(containers.join("ld.so.preload"), "").expect("writable");
        fs::write(containers.join("notes.txt"), "").expect("writable");
        let (mut changes, mut left) = (Changes::default(), Vec::new());
        of_libraries(&folder.join("partage"), &mut changes, &mut left);
        assert!(containers.join("notes.txt").exists() && !containers.join("ld.so.preload").exists());
        assert_eq!(left.len(), 2, "{left:?}");
        fs::remove_dir_all(folder).expect("ours");
    }
}
