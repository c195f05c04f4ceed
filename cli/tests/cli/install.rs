// SPDX-License-Identifier: Apache-2.0
//! `install` and `uninstall` below a folder, and for a caller who is not root. The host's broker has its cases in
//! `cuda-tests`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bench::{Bench, result};
use super::schema;

const PLACES: [&str; 9] = [
    "etc/partage/partage.toml",
    "etc/systemd/system/partaged-admin.socket",
    "etc/systemd/system/partaged.service",
    "etc/systemd/system/partaged.socket",
    "usr/local/bin/partage",
    "usr/local/bin/partaged",
    "usr/local/lib/partage/installed",
    "usr/local/lib/partage/libpartage.so",
    "usr/local/lib/partage/libpartage_sim_cuda.so",
];

/// Every file below a folder, sorted.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        match entry.path() {
            folder if folder.is_dir() => found.extend(files(&folder)),
            file => found.push(file),
        }
    }
    found.sort();
    found
}

#[test]
fn an_installation_below_a_folder_comes_and_goes() {
    let bench = Bench::new();
    let stage = bench.dir.join("stage");
    let below = stage.display().to_string();
    let install = ["install", "--root", &below];
    let (code, out, err) = result(bench.partage(&install));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for place in PLACES {
        assert!(stage.join(place).is_file(), "{place}: {out}");
    }
    assert!(!out.contains("nothing changed"), "{out}");

    // The second time, with a configuration of the administrator's.
    let configuration = stage.join("etc/partage/partage.toml");
    std::fs::write(&configuration, "schema = 1\n[time]\nmax_class = \"low\"\n").expect("writable");
    let (before, times) = (files(&stage), changed(&stage));
    let (code, out, _) = result(bench.partage(&install));
    assert_eq!(code, 0, "{out}");
    assert!(out.ends_with("nothing changed\n") && out.contains("kept "), "{out}");
    assert_eq!((files(&stage), changed(&stage)), (before, times));
    let (_, document, _) = result(bench.partage(&["install", "--root", &below, "--json"]));
    schema::judge("install", &document);
    assert!(document.contains("\"is_changed\":false"), "{document}");

    // An older program is replaced, and nothing else.
    std::fs::write(stage.join("usr/local/bin/partaged"), "older").expect("writable");
    let (_, out, _) = result(bench.partage(&install));
    let replaced: Vec<&str> = out.lines().filter(|line| line.starts_with("replaced")).collect();
    assert!(replaced.len() == 1 && replaced[0].ends_with("bin/partaged"), "{out}");

    let (code, document, _) = result(bench.partage(&["uninstall", "--root", &below, "--json"]));
    assert_eq!(code, 0, "{document}");
    schema::judge("uninstall", &document);
    assert_eq!(files(&stage), [configuration]);
    for made in ["usr", "etc/systemd"] {
        assert!(!stage.join(made).exists(), "{made} was made for the installation alone");
    }
    let (code, out, _) = result(bench.partage(&["uninstall", "--root", &below]));
    assert!(code == 0 && out.starts_with("nothing to remove"), "{out}");
}

#[test]
fn a_record_that_names_other_files_removes_none_of_them() {
    let bench = Bench::new();
    let stage = bench.dir.join("stage");
    let below = stage.display().to_string();
    let (code, out, _) = result(bench.partage(&["install", "--root", &below]));
    assert_eq!(code, 0, "{out}");
    // By its name, by the way up, and by a link that leads out.
    let others = ["stage/etc/passwd", "outside", "linked/partage/secret"].map(|name| bench.dir.join(name));
    for other in &others {
        std::fs::create_dir_all(other.parent().expect("a folder")).expect("writable");
        std::fs::write(other, "mine").expect("writable");
    }
    let record = stage.join("usr/local/lib/partage/installed");
    let written = std::fs::read_to_string(&record).expect("readable");
    let more = "/etc/passwd\n/usr/local/lib/partage/../../../../../outside\n/usr/local/share/doc/partage/secret\n";
    std::fs::write(&record, written + more).expect("writable");
    let docs = stage.join("usr/local/share/doc");
    let _ = std::fs::remove_dir_all(&docs);
    std::fs::create_dir_all(stage.join("usr/local/share")).expect("writable");
    std::os::unix::fs::symlink(bench.dir.join("linked"), &docs).expect("linked");
    let (code, _, err) = result(bench.partage(&["uninstall", "--root", &below]));
    assert_eq!(code, 1, "{err}");
    assert_eq!(err.matches("which the record names").count(), 3, "{err}");
    for other in &others {
        assert!(other.is_file(), "{}", other.display());
    }
    assert!(
        !stage.join("usr/local/bin/partage").exists() && !record.exists(),
        "all else is gone"
    );
}

/// When each file was last written.
fn changed(dir: &Path) -> Vec<std::time::SystemTime> {
    let written = |file: &PathBuf| file.metadata().and_then(|data| data.modified()).expect("there");
    files(dir).iter().map(written).collect()
}

#[test]
fn a_failure_in_the_middle_is_undone_and_said() {
    let bench = Bench::new();
    let stage = bench.dir.join("stage");
    std::fs::create_dir(&stage).expect("writable");
    // Where the unit's folder has to be there is a file.
    bench.file("stage/etc", b"", 0o644);
    let (code, _, err) = result(bench.partage(&["install", "--root", &stage.display().to_string()]));
    assert_eq!(code, 1, "{err}");
    assert!(err.trim_end().ends_with("; everything before it is undone"), "{err}");
    assert_eq!(files(&stage), [stage.join("etc")], "no file is left");
    assert!(!stage.join("usr").exists(), "nor a folder");
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let bench = Bench::new();
    for arguments in [
        &["install", "--root", "/x", "--start", "yes"][..],
        &["install", "--socket-dir", "/x"],
        &["uninstall", "--socket-dir", "/x"],
    ] {
        let (code, _, err) = result(bench.partage(arguments));
        assert_eq!(code, 2, "{arguments:?}: {err}");
    }
}

#[test]
fn only_root_installs_for_everybody() {
    let bench = Bench::new();
    for word in ["install", "uninstall"] {
        let mut command = bench.partage(&[word]);
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            let program = bench.dir.join("partage");
            // By way of a child: a file that is open for writing here could not be executed.
            let copied = Command::new("/bin/cp")
                .arg(env!("CARGO_BIN_EXE_partage"))
                .arg(&program)
                .status();
            assert!(copied.is_ok_and(|status| status.success()));
            command = bench.command(&program.display().to_string(), &[word]);
            command.uid(65_534).gid(65_534);
        }
        let (code, _, err) = result(command);
        assert_eq!(code, 3, "{err}");
        assert!(
            err.contains("needs root") && err.contains(&format!("sudo partage {word}")),
            "{err}"
        );
    }
}
