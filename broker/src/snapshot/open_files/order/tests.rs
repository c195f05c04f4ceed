// SPDX-License-Identifier: Apache-2.0
//! Snapshots of files on the disk, changed in every way, and put back.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use partage_protocol::snapshot::{FILES, FORMAT, FilesMode, OpenFiles, SavedFile, Writes};

use super::super::copy;
use super::super::now::modified_ns;
use super::*;
use crate::testing::Scratch;

/// What becomes of a file.
type Change = fn(&Bench);

/// A folder with files of a job, and one with its snapshot.
struct Bench {
    scratch: Scratch,
    files: Vec<OpenFile>,
}

impl Bench {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).recursive(true);
        builder
            .create(scratch.path().join("saved/gen-0003").join(FILES))
            .expect("made");
        builder.create(scratch.path().join("data")).expect("made");
        Self {
            scratch,
            files: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join("data").join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    /// A file of the job that holds `content` as it is saved.
    fn file(&mut self, name: &str, content: &str, writes: Writes, is_copied: bool) {
        let path = self.path(name);
        std::fs::write(&path, content).expect("ours");
        let copy = format!("{FILES}/open-{}", self.files.len());
        if is_copied {
            std::fs::write(self.scratch.path().join("saved/gen-0003").join(&copy), content).expect("ours");
        }
        let facts = path.symlink_metadata().expect("there");
        self.files.push(OpenFile {
            path: path.display().to_string(),
            device: facts.dev(),
            inode: facts.ino(),
            folder: self.path("").metadata().expect("there").ino(),
            bytes: facts.len(),
            modified_ns: modified_ns(&facts),
            mode: facts.mode() & 0o7777,
            end_sum: copy::end_sum(&File::open(&path).expect("there"), facts.len()).expect("read"),
            uid: facts.uid(),
            gid: facts.gid(),
            writes,
            any_length: writes == Writes::Append,
            copy: is_copied.then_some(copy),
            ..OpenFile::default()
        });
    }

    fn append(&self, name: &str, more: &str) {
        let file = File::options().append(true).open(self.path(name)).expect("there");
        std::io::Write::write_all(&mut &file, more.as_bytes()).expect("written");
    }

    fn restore(&self, mode: FilesMode, is_to_apply: bool) -> FilesAnswer {
        self.order(mode, is_to_apply, true)
    }

    fn order(&self, mode: FilesMode, is_to_apply: bool, is_verified: bool) -> FilesAnswer {
        let saved = self.scratch.path().join("saved");
        let copies = self.files.iter().filter_map(|file| file.copy.clone());
        let manifest = Manifest {
            format: FORMAT,
            generation: 3,
            root: 7,
            open_files: OpenFiles {
                boot: boot(),
                files: self.files.clone(),
            },
            files: copies
                .map(|path| SavedFile {
                    path,
                    ..SavedFile::default()
                })
                .collect(),
            ..Manifest::default()
        };
        std::fs::write(saved.join("gen-0003").join(MANIFEST), manifest.text()).expect("written");
        let folder = File::open(&saved).expect("there").into_raw_fd();
        let order = FilesOrder {
            folder,
            shown: saved.display().to_string(),
            generation: "gen-0003".to_owned(),
            mode,
            is_to_apply,
            is_verified,
        };
        serve(&serde_json::to_string(&order).expect("a text"))
    }

    fn keeper(&self) -> Keeper {
        Keeper {
            generation: 3,
            folder: self.scratch.path().join("saved"),
            shown: self.scratch.path().join("saved"),
            is_this_boot: true,
        }
    }

    /// What is said of a restore that changes files.
    #[track_caller]
    fn restored(&self, mode: FilesMode) -> Vec<String> {
        match self.restore(mode, true) {
            FilesAnswer::Ready(notes) => notes,
            refused => panic!("{refused:?}"),
        }
    }

    /// Why it is refused; nothing was touched then.
    #[track_caller]
    fn refused(&self, mode: FilesMode) -> (String, String) {
        let list = || {
            let entries = std::fs::read_dir(self.scratch.path().join("data")).expect("there");
            let entries = entries.map(|entry| entry.expect("there").path());
            let mut all: Vec<_> = entries.map(|path| (std::fs::read(&path).ok(), path)).collect();
            all.sort();
            all
        };
        let before = list();
        match self.restore(mode, true) {
            FilesAnswer::Refused { message, hint } => {
                assert!(list() == before, "something was touched: {message}");
                (message, hint)
            }
            ready => panic!("{ready:?}"),
        }
    }
}

#[test]
fn a_log_is_cut_and_its_tail_kept_under_a_free_name() {
    let mut bench = Bench::new("cut");
    bench.file("log", "12345", Writes::Onward, false);
    assert_eq!(bench.restored(FilesMode::Cut), [""; 0]);
    for (more, kept) in [("678", "log.after-gen-3"), ("abcd", "log.after-gen-3.2")] {
        bench.append("log", more);
        // The look before touches nothing.
        assert_eq!(bench.restore(FilesMode::Cut, false), FilesAnswer::Ready(Vec::new()));
        assert_eq!(bench.read("log"), format!("12345{more}"));
        let notes = bench.restored(FilesMode::Cut);
        assert!(
            notes.len() == 1 && notes[0].ends_with(&format!("are kept in {}", bench.path(kept).display())),
            "{notes:?}"
        );
        assert_eq!((bench.read("log").as_str(), bench.read(kept).as_str()), ("12345", more));
        // As it was: the same restore again has nothing to say.
        assert_eq!(bench.restored(FilesMode::Cut), [""; 0]);
    }
    let facts = |name: &str| std::fs::metadata(bench.path(name)).expect("there").mode();
    assert_eq!(facts("log"), facts("log.after-gen-3"));
}

#[test]
fn nothing_is_changed_before_the_snapshot_is_verified() {
    let mut bench = Bench::new("unverified");
    bench.file("log", "12345", Writes::Onward, false);
    assert_eq!(
        bench.order(FilesMode::Cut, true, false),
        FilesAnswer::Ready(Vec::new()),
        "nothing is to be changed"
    );
    bench.append("log", "678");
    assert_eq!(bench.order(FilesMode::Cut, true, false), FilesAnswer::ToVerify);
    assert_eq!(bench.read("log"), "12345678");
    assert!(!bench.path("log.after-gen-3").exists());
    assert_eq!(bench.restored(FilesMode::Cut).len(), 1);
    assert_eq!(bench.read("log"), "12345");
}

#[test]
fn what_is_written_in_place_is_put_back_whatever_became_of_it() {
    let mut bench = Bench::new("back");
    bench.file("db", "12345", Writes::InPlace, true);
    let changes: [(&str, Change); 5] = [
        ("1x345", |bench| {
            let file = File::options().write(true).open(bench.path("db")).expect("there");
            file.write_all_at(b"x", 1).expect("written");
        }),
        ("123456", |bench| bench.append("db", "6")),
        ("12", |bench| {
            let file = File::options().write(true).open(bench.path("db")).expect("there");
            file.set_len(2).expect("ours");
        }),
        ("", |bench| std::fs::remove_file(bench.path("db")).expect("ours")),
        ("another", |bench| {
            std::fs::rename(bench.path("db"), bench.path("moved")).expect("ours");
            std::fs::write(bench.path("db"), "another").expect("ours");
        }),
    ];
    let mut kept = Vec::new();
    for (content, change) in changes {
        change(&bench);
        assert_eq!(bench.restored(FilesMode::Cut).len(), 1, "{content}");
        assert_eq!(bench.read("db"), "12345", "{content}");
        assert_eq!(bench.restored(FilesMode::Cut), [""; 0], "{content}");
        kept.extend((!content.is_empty()).then_some(content));
        // Everything that it held is there still.
        for (content, number) in kept.iter().zip(1..) {
            let name = match number {
                1 => "db.after-gen-3".to_owned(),
                number => format!("db.after-gen-3.{number}"),
            };
            assert_eq!(bench.read(&name), *content);
        }
    }
}

#[test]
fn a_file_that_was_made_again_can_be_made_again() {
    let mut bench = Bench::new("again");
    bench.file("wal", "12345", Writes::InPlace, true);
    // Its number is not another's as long as it is open.
    let _first = File::open(bench.path("wal")).expect("there");
    // It is gone with its database's last user, each time.
    for _ in 0..2 {
        std::fs::remove_file(bench.path("wal")).expect("ours");
        assert_eq!(bench.restored(FilesMode::Cut).len(), 1);
        assert_eq!(bench.read("wal"), "12345");
    }
    bench.append("wal", "6");
    let notes = bench.restored(FilesMode::Cut);
    assert!(notes[0].contains("was another file, which is kept as "), "{notes:?}");
    assert_eq!(
        (bench.read("wal"), bench.read("wal.after-gen-3")),
        ("12345".into(), "123456".into())
    );
}

#[test]
fn a_job_that_only_appends_goes_on_in_whatever_log_is_there() {
    let mut bench = Bench::new("append");
    bench.file("log", "12345", Writes::Append, false);
    std::fs::rename(bench.path("log"), bench.path("log.1")).expect("ours");
    let notes = bench.restored(FilesMode::Cut);
    assert!(
        notes[0].ends_with("was gone: the job goes on in a new one"),
        "{notes:?}"
    );
    assert_eq!(
        (bench.read("log").as_str(), bench.read("log.1").as_str()),
        ("", "12345")
    );
    let mode = std::fs::metadata(bench.path("log")).expect("there").mode() & 0o7777;
    assert_eq!(mode, bench.files[0].mode);
    bench.append("log", "new");
    let notes = bench.restored(FilesMode::Cut);
    assert!(notes[0].contains("is another file than it was (rotated?)"), "{notes:?}");
    assert_eq!(bench.read("log"), "new");
}

/// Whoever may rename the folder on the way could have a file made in another one.
#[test]
fn a_file_that_is_gone_is_made_in_its_own_folder_alone() {
    let mut bench = Bench::new("folder");
    bench.file("log", "12345", Writes::Append, false);
    let data = bench.scratch.path().join("data");
    let aside = bench.scratch.path().join("aside");
    std::fs::rename(&data, &aside).expect("ours");
    std::fs::create_dir(&data).expect("ours");
    let (message, _) = bench.refused(FilesMode::Cut);
    assert!(message.contains("its folder is another one now"), "{message}");
    std::fs::remove_dir(&data).expect("empty");
    std::os::unix::fs::symlink(&aside, &data).expect("ours");
    std::fs::rename(aside.join("log"), aside.join("log.1")).expect("ours");
    // The very folder, by whatever way.
    assert_eq!(bench.restored(FilesMode::Cut).len(), 1);
    assert!(aside.join("log").exists());
}

#[test]
fn keep_changes_nothing_and_says_what_it_cannot_keep() {
    let mut bench = Bench::new("keep");
    bench.file("log", "12345", Writes::Append, false);
    bench.append("log", "678");
    let notes = bench.restored(FilesMode::Keep);
    assert!(
        notes[0].ends_with("is left as it is: the job goes on at its end"),
        "{notes:?}"
    );
    assert_eq!(bench.read("log"), "12345678");
    let (message, hint) = bench.refused(FilesMode::Refuse);
    assert!(
        message.ends_with("log was changed since the job was saved"),
        "{message}"
    );
    assert!(hint.starts_with("without --files refuse"), "{hint}");
    bench.file("onward", "12345", Writes::Onward, false);
    bench.append("onward", "678");
    let (message, hint) = bench.refused(FilesMode::Keep);
    assert!(message.contains("onward has 8 B, and had 5 B"), "{message}");
    assert!(hint.starts_with("without --files keep it is cut"), "{hint}");
    assert_eq!(bench.restored(FilesMode::Cut).len(), 2);
}

#[test]
fn one_file_that_is_in_the_way_keeps_all_others_as_they_are() {
    let mut bench = Bench::new("way");
    bench.file("log", "12345", Writes::Onward, false);
    bench.append("log", "678");
    bench.file("short", "12345", Writes::Onward, false);
    File::options()
        .write(true)
        .open(bench.path("short"))
        .and_then(|file| file.set_len(3))
        .expect("ours");
    let (message, hint) = bench.refused(FilesMode::Cut);
    assert!(
        message.ends_with("short has 3 B, and had 5 B when the job was saved"),
        "{message}"
    );
    assert!(hint.contains("--generation N"), "{hint}");
    std::fs::remove_file(bench.path("short")).expect("ours");
    assert!(
        bench
            .refused(FilesMode::Cut)
            .0
            .contains("short is gone; the job had it open, with 5 B")
    );
    std::fs::write(bench.path("short"), "abcdefg").expect("ours");
    assert!(
        bench
            .refused(FilesMode::Cut)
            .0
            .contains("short is another file now, of 7 B")
    );
    std::fs::remove_file(bench.path("short")).expect("ours");
    std::os::unix::fs::symlink("log", bench.path("short")).expect("ours");
    assert!(bench.refused(FilesMode::Cut).0.contains("short is no file now"));
    std::fs::set_permissions(bench.path("log"), std::fs::Permissions::from_mode(0o600)).expect("ours");
    bench.files.truncate(1);
    let (message, hint) = bench.refused(FilesMode::Cut);
    assert!(message.contains("log has mode 600, and had 644"), "{message}");
    assert!(hint.starts_with("chmod 644 "), "{hint}");
}

#[test]
fn a_file_that_others_write_to_is_not_changed() {
    let mut bench = Bench::new("others");
    bench.file("log", "12345", Writes::Append, false);
    bench.append("log", "678");
    let mut child = std::process::Command::new("sh")
        .args(["-c", "exec 3>>\"$0\"; echo; read end"])
        .arg(bench.path("log"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut said = [0];
    std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut said).expect("it says so");
    // A job that only appends goes on at its end.
    let said = format!("{:?}", bench.restored(FilesMode::Cut));
    assert!(said.contains("others can write to"), "{said}");
    assert_eq!(bench.restored(FilesMode::Keep).len(), 1);
    bench.files[0].any_length = false;
    let (message, hint) = bench.refused(FilesMode::Cut);
    assert!(
        message.contains(&format!("sh (pid {}) can write to it, too", child.id())),
        "{message}"
    );
    assert_eq!(hint, "end what writes to it first");
    bench.files[0].any_length = true;
    child.kill().expect("ours");
    child.wait().expect("ours");
    assert_eq!(bench.restored(FilesMode::Cut).len(), 1);
}

/// A user who may write to the log, and not to its folder.
#[test]
fn what_cannot_be_kept_beside_a_file_is_kept_in_the_snapshots_folder() {
    const USER: u32 = 65_534;
    let mut bench = Bench::new("shut");
    bench.file("log", "12345", Writes::Onward, false);
    bench.append("log", "678");
    let (data, saved) = (bench.path(""), bench.scratch.path().join("saved"));
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        for path in [&saved, &bench.path("log")] {
            std::os::unix::fs::chown(path, Some(USER), None).expect("root may");
        }
    }
    mode(&data, if is_root { 0o755 } else { 0o500 });
    // For this thread, and as far as files are concerned.
    let own = is_root.then(|| nix::unistd::setfsuid(USER.into()));
    let note = bench.keeper().apply(&bench.files[0], Action::Cut, None);
    if let Some(own) = own {
        nix::unistd::setfsuid(own);
    }
    mode(&data, 0o700);
    let note = note.expect("cut").expect("said");
    assert!(
        note.ends_with(&format!("are kept in {}", saved.join("log.after-gen-3").display())),
        "{note}"
    );
    let kept = std::fs::read_to_string(saved.join("log.after-gen-3")).expect("there");
    assert_eq!((bench.read("log").as_str(), kept.as_str()), ("12345", "678"));
}

/// A writer that comes between the look and the cut, and a file that takes the other's place.
#[test]
fn a_file_that_changes_meanwhile_is_not_changed() {
    let mut bench = Bench::new("meanwhile");
    bench.file("log", "12345", Writes::Onward, false);
    bench.append("log", "678");
    let keeper = bench.keeper();
    std::fs::rename(bench.path("log"), bench.path("own")).expect("ours");
    std::fs::write(bench.path("log"), "somebody else's").expect("ours");
    let why = keeper
        .apply(&bench.files[0], Action::Cut, None)
        .expect_err("another file");
    assert!(why.contains("another file took its place meanwhile"), "{why}");
    std::fs::remove_file(bench.path("log")).expect("ours");
    std::os::unix::fs::symlink("own", bench.path("log")).expect("ours");
    let why = keeper.apply(&bench.files[0], Action::Cut, None).expect_err("a link");
    assert!(why.contains("cannot put "), "{why}");
    assert_eq!(bench.read("own"), "12345678");
}

/// The death of the process at each of its steps, as far as the disk shows it: the next restore finds what is left.
#[test]
fn whoever_dies_between_two_steps_loses_nothing() {
    let mut bench = Bench::new("dies");
    bench.file("log", "12345", Writes::Onward, false);
    bench.file("db", "abcde", Writes::InPlace, true);
    // After the tail was kept, and before the cut.
    bench.append("log", "678");
    std::fs::write(bench.path("log.after-gen-3"), "678").expect("ours");
    // While it was put back: what it held is kept, and it is half of each.
    std::fs::write(bench.path("db.after-gen-3"), "vwxyz").expect("ours");
    let file = File::options().write(true).open(bench.path("db")).expect("there");
    file.write_all_at(b"abxyz", 0).expect("written");
    let times = file.metadata().expect("there").modified().expect("known") + std::time::Duration::from_secs(1);
    file.set_modified(times).expect("ours");
    assert_eq!(bench.restored(FilesMode::Cut).len(), 2);
    assert_eq!((bench.read("log"), bench.read("db")), ("12345".into(), "abcde".into()));
    for (name, content) in [
        ("log.after-gen-3", "678"),
        ("log.after-gen-3.2", "678"),
        ("db.after-gen-3", "vwxyz"),
        ("db.after-gen-3.2", "abxyz"),
    ] {
        assert_eq!(bench.read(name), content, "{name}");
    }
    // What a dead one left half written has no name that anybody takes for a kept file.
    let options = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .clone();
    let left = bench.path(&format!(".partage-{}", std::process::id()));
    std::io::Write::write_all(&mut options.open(&left).expect("ours"), b"half").expect("ours");
    bench.append("log", "9");
    assert_eq!(bench.restored(FilesMode::Cut).len(), 1);
    assert!(!left.exists());
    assert_eq!(bench.read("log.after-gen-3.3"), "9");
}
