// SPDX-License-Identifier: Apache-2.0
//! A snapshot's folder, with every write, sync, rename and removal failing or being the last.

mod disk;

use std::path::Path;

use disk::{Failing, Fault};
use partage_broker::snapshot::files::{Disk, Files};
use partage_broker::snapshot::store::{Part, Store};
use partage_broker::testing::Scratch;
use partage_protocol::snapshot::{FORMAT, Manifest};

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        root: 2,
        ..Manifest::default()
    }
}

/// One generation, whose only file says `content`.
fn save<F: Files + Copy>(folder: &Path, files: F, content: &str, keep: u64) -> Result<u64, String> {
    let store = Store::new(folder, files);
    store.sweep();
    let begun = store.begin("x").map_err(|error| error.to_string())?;
    let made = files
        .make_folder(&begun.join("criu"))
        .and_then(|()| files.write(&begun.join("criu/pages-1.img"), content.as_bytes()));
    made.map_err(|error| error.to_string())?;
    let committed = store.commit(&begun, manifest(), keep);
    committed
        .map(|(generation, _)| generation)
        .map_err(|error| error.to_string())
}

/// What the newest generation's file says, once all of it was verified.
fn newest(folder: &Path) -> Result<(u64, String), String> {
    let store = Store::new(folder, Disk);
    let opened = store
        .open(None, Part::Small)
        .and_then(|_| store.open(None, Part::Pages));
    let (path, manifest) = opened.map_err(|unfit| unfit.to_string())?;
    let content = std::fs::read_to_string(path.join("criu/pages-1.img")).map_err(|error| error.to_string())?;
    Ok((manifest.generation, content))
}

#[test]
fn generations_follow_each_other_and_old_ones_go() {
    let scratch = Scratch::new("generations");
    assert_eq!(
        newest(scratch.path()).expect_err("nothing yet").split(':').next(),
        Some("folder")
    );
    for number in 1..=5 {
        let content = format!("content {number}");
        assert_eq!(save(scratch.path(), Disk, &content, 2), Ok(number));
        assert_eq!(newest(scratch.path()), Ok((number, content)));
    }
    let left = Store::new(scratch.path(), Disk).generations().expect("listed");
    assert_eq!(left, [4, 5]);
    let names = Disk.list(scratch.path()).expect("listed");
    assert_eq!(names, ["LATEST", "gen-0004", "gen-0005"]);
}

#[test]
fn whatever_fails_or_is_the_last_the_newest_generation_is_whole() {
    for keep in [1, 3] {
        for earlier in [0, 1, 2] {
            for fault in [Fault::NoSpace, Fault::Broken, Fault::Death] {
                let mut at = 0;
                while every_step(keep, earlier, fault, at) {
                    at += 1;
                }
                assert!(at > 15, "a commit writes and syncs that often");
            }
        }
    }
}

/// The same with the step of this number failing. `false`: there was none.
fn every_step(keep: u64, earlier: u64, fault: Fault, at: usize) -> bool {
    let scratch = Scratch::new("failing");
    // Without waiting for the disk.
    let sound = Failing::new(Fault::Broken, usize::MAX);
    for number in 1..=earlier {
        save(scratch.path(), &sound, &format!("content {number}"), keep).expect("saved");
    }
    let files = Failing::new(fault, at);
    let result = save(scratch.path(), &files, "the new one", keep);
    let what = format!("keep {keep}, {earlier} before, {fault:?} at step {at}: {result:?}");
    match (newest(scratch.path()), &result) {
        (Ok((generation, content)), Ok(saved)) => assert!((generation, &*content) == (*saved, "the new one"), "{what}"),
        // What was reported as failed may be there after all, but whole; or the one before is.
        (Ok((_, content)), Err(_)) => {
            assert!(
                content == "the new one" || content == format!("content {earlier}"),
                "{what}, {content}"
            );
        }
        (Err(why), Err(_)) => assert!(earlier == 0, "{what}, {why}"),
        (Err(why), Ok(_)) => panic!("{what}, {why}"),
    }
    if fault != Fault::Death && result.is_err() && earlier > 0 {
        // Nothing of it is left that takes room for ever.
        Store::new(scratch.path(), Disk).sweep();
    }
    // The next one is saved as if nothing had been.
    assert!(save(scratch.path(), &sound, "after", keep).is_ok(), "{what}");
    assert_eq!(newest(scratch.path()).expect("whole").1, "after", "{what}");
    let left = Disk.list(scratch.path()).expect("listed");
    assert!(!left.iter().any(|name| name.starts_with(".tmp-")), "{what}: {left:?}");
    files.has_failed()
}

#[test]
fn each_kind_of_damage_is_told_by_the_name_of_the_field() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("files: criu/pages-1.img is damaged", |folder| {
            std::fs::write(folder.join("criu/pages-1.img"), "CONTENT").expect("written");
        }),
        ("files: criu/pages-1.img has 3 bytes, and 7 were written", |folder| {
            std::fs::write(folder.join("criu/pages-1.img"), "con").expect("written");
        }),
        ("files: criu/pages-1.img: No such file", |folder| {
            std::fs::remove_file(folder.join("criu/pages-1.img")).expect("removed");
        }),
        ("manifest: cannot be read", |folder| {
            std::fs::write(folder.join("manifest.json"), "{\"format\": 1, \"gen").expect("written");
        }),
        ("manifest: cannot read ", |folder| {
            std::fs::remove_file(folder.join("manifest.json")).expect("removed");
        }),
        (
            "format: 9, and this version of Partage reads formats 1 to 6",
            |folder| {
                std::fs::write(folder.join("manifest.json"), "{\"format\": 9, \"new\": []}").expect("written");
            },
        ),
        ("sum: is not that of the manifest", |folder| {
            let path = folder.join("manifest.json");
            let text = std::fs::read_to_string(&path).expect("read");
            std::fs::write(path, text.replace("\"root\": 2", "\"root\": 3")).expect("written");
        }),
    ];
    for (says, damage) in damages {
        let scratch = Scratch::new("damage");
        save(scratch.path(), Disk, "the one before", 3).expect("saved");
        save(scratch.path(), Disk, "content", 3).expect("saved");
        damage(&scratch.path().join("gen-0002"));
        let why = newest(scratch.path()).expect_err(says);
        assert!(why.starts_with(says), "{why}, and not {says}");
        assert!(
            Store::new(scratch.path(), Disk).open(Some(1), Part::Pages).is_ok(),
            "the one before is whole"
        );
    }
}
