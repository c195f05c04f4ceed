// SPDX-License-Identifier: Apache-2.0
//! The judgement on a command line: does the limit follow, and if not, why and what does.
//!
//! It follows the words as the kernel and the prefixes would: COMMAND's file, the interpreter of a script (itself maybe
//! a script), the program behind `env` or `nice`. What a running program starts later is found by the broker instead.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, getgroups};

use super::elf::{self, FileKind};
use super::find::find;
use super::handoff::{self, Behind};

/// Scripts and prefixes deeper than this are left to the broker; the kernel's own limit for scripts is five.
const DEEPEST: usize = 8;

/// Why the limit does not follow a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmanaged {
    /// What is not followed, as the user knows it.
    pub what: String,
    /// Why.
    pub why: String,
    /// What does follow.
    pub instead: String,
    /// The loader of this program would complain about our library in the program's own output.
    pub rejects_preload: bool,
    /// What it starts in its turn, in its own environment, may be followed all the same.
    pub passes_on: bool,
}

impl Unmanaged {
    fn new(what: &str, why: &str, instead: &str) -> Self {
        Self {
            what: what.to_owned(),
            why: why.to_owned(),
            instead: instead.to_owned(),
            rejects_preload: false,
            passes_on: false,
        }
    }

    /// The one line.
    pub fn sentence(&self) -> String {
        format!(
            "the limit will not follow {}: {}; {}",
            self.what, self.why, self.instead
        )
    }
}

/// Who runs the command: decides whether a setuid bit changes anything.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    uid: Uid,
    has_no_new_privileges: bool,
}

impl Caller {
    /// This process.
    pub fn here() -> Self {
        Self {
            uid: Uid::current(),
            has_no_new_privileges: nix::sys::prctl::get_no_new_privs().unwrap_or(false),
        }
    }
}

/// Judges COMMAND (found as `file`) with its arguments; `path` is the value of PATH.
pub fn judge(words: &[String], file: &Path, path: Option<&OsStr>, caller: Caller) -> Option<Unmanaged> {
    let mut words = words.to_vec();
    let mut file = file.to_owned();
    for _ in 0..DEEPEST {
        if let Some((word, (why, instead))) = words.first().and_then(|word| Some((word, handoff::hand_off(word)?))) {
            return Some(Unmanaged::new(handoff::basename(word), why, instead));
        }
        match judge_file(&file, caller) {
            Step::Unmanaged(found) => return Some(found),
            Step::Interpreter(interpreter) => {
                // The script's own path and arguments follow the interpreter's; only prefixes look at them.
                words.splice(0..1, interpreter.into_iter().chain([file.display().to_string()]));
            }
            Step::Program => match handoff::behind(&words) {
                Behind::Nothing => return None,
                Behind::EmptyEnvironment => {
                    let why = "it starts the program without LD_PRELOAD, so without our library";
                    let instead = "put it first: env -i PATH=\"$PATH\" partage run ...";
                    return words.first().map(|word| Unmanaged::new(word, why, instead));
                }
                Behind::Words(next) => words = next,
            },
        }
        file = match words.first().map(|word| find(OsStr::new(word), path)) {
            Some(Ok(found)) => found,
            // The prefix will say so itself; it is not for us to fail before it.
            _ => return None,
        };
    }
    None
}

enum Step {
    Program,
    Interpreter(Vec<String>),
    Unmanaged(Unmanaged),
}

fn judge_file(file: &Path, caller: Caller) -> Step {
    let unmanaged = |why: &str, instead: &str| Unmanaged::new(&file.display().to_string(), why, instead);
    // An execute-only file cannot be read, but runs; nothing is known against it.
    let Ok(kind) = elf::kind(file) else {
        return Step::Program;
    };
    let is_script = matches!(kind, FileKind::Script(_) | FileKind::Other);
    if !is_script && let Some(why) = gains_privilege(file, caller) {
        return Step::Unmanaged(unmanaged(&why, "start it as the user it runs as"));
    }
    match kind {
        FileKind::Script(line) => {
            let mut parts = line
                .splitn(2, [' ', '\t'])
                .map(str::trim)
                .filter(|p| !p.is_empty())
                .map(str::to_owned);
            match parts.next() {
                Some(interpreter) => Step::Interpreter(std::iter::once(interpreter).chain(parts).collect()),
                None => Step::Program,
            }
        }
        FileKind::Other => Step::Interpreter(vec!["/bin/sh".to_owned()]),
        FileKind::ForeignElf(what) => {
            let why = format!("the program is {what} and our library is not");
            Step::Unmanaged(Unmanaged {
                rejects_preload: true,
                passes_on: true,
                ..unmanaged(&why, "use a 64-bit build")
            })
        }
        FileKind::Elf { interpreter } => {
            let (why, instead) = match interpreter.as_deref().map(handoff::basename) {
                None if is_loader(file) => return Step::Program,
                None => (
                    "the program is statically linked and loads no library",
                    "use a dynamically linked build",
                ),
                Some(loader) if loader.starts_with("ld-musl") => (
                    "the program uses musl libc, which no NVIDIA driver supports",
                    "use a glibc build",
                ),
                Some(_) => return Step::Program,
            };
            Step::Unmanaged(Unmanaged {
                passes_on: true,
                ..unmanaged(why, instead)
            })
        }
    }
}

/// glibc's loader called as a command (`/lib64/ld-linux-x86-64.so.2 PROGRAM`) is static and honours LD_PRELOAD.
fn is_loader(file: &Path) -> bool {
    let name = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    name.file_name().is_some_and(|n| {
        let n = n.as_bytes();
        n == b"ld.so" || n.starts_with(b"ld-linux") || (n.starts_with(b"ld-2.") && n.ends_with(b".so"))
    })
}

/// Why the kernel would start this program in secure mode, in which the loader ignores preloads.
fn gains_privilege(file: &Path, caller: Caller) -> Option<String> {
    let data = file.metadata().ok()?;
    // Neither bits nor capabilities count then (execve(2)).
    if caller.has_no_new_privileges || statvfs(file).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOSUID)) {
        return None;
    }
    let ignored = "and the loader then ignores preloaded libraries";
    if data.mode() & libc::S_ISUID != 0 && data.uid() != caller.uid.as_raw() {
        return Some(format!("it is setuid (uid {}) {ignored}", data.uid()));
    }
    let is_setgid = data.mode() & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
    if is_setgid && data.gid() != Gid::current().as_raw() {
        return Some(format!("it is setgid (gid {}) {ignored}", data.gid()));
    }
    // Capabilities change nothing for root, who has them all (capabilities(7), "Capabilities and execution by root").
    (!caller.uid.is_root() && has_capabilities(file)).then(|| format!("it has file capabilities {ignored}"))
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both names are terminated; a null buffer of size zero asks for the length only.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Is the caller a member of a group? (`/dev/nvidia*` is often group-owned.)
pub fn is_member_of(gid: u32) -> bool {
    Gid::effective().as_raw() == gid || getgroups().is_ok_and(|groups| groups.iter().any(|g| g.as_raw() == gid))
}

/// Our own program behind the command word, as `partage sim -- partage ps` means it in a build tree.
pub fn own_program(command: &OsStr) -> Option<PathBuf> {
    (command == "partage").then(|| std::env::current_exe().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::elf::samples;
    use super::*;

    struct Files(PathBuf);
    impl Files {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("partage-verdict-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).expect("make");
            Self(dir)
        }
        fn add(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, content).expect("write");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
            path
        }
    }
    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const GUEST: Caller = Caller {
        uid: Uid::from_raw(4242),
        has_no_new_privileges: false,
    };

    fn verdict(line: &[&str], caller: Caller) -> Option<Unmanaged> {
        let words: Vec<String> = line.iter().map(|w| (*w).to_owned()).collect();
        let path = OsStr::new("/usr/bin:/bin");
        let file = find(OsStr::new(&words[0]), Some(path)).expect("the sample is runnable");
        judge(&words, &file, Some(path), caller)
    }

    #[test]
    fn programs_that_load_no_library_are_named() {
        let files = Files::new("kinds");
        let dynamic = samples::elf(2, samples::MACHINE, Some("/lib64/ld-linux-x86-64.so.2"));
        let cases = [
            ("dynamic", dynamic, None),
            (
                "static",
                samples::elf(2, samples::MACHINE, None),
                Some("statically linked"),
            ),
            (
                "musl",
                samples::elf(2, samples::MACHINE, Some("/lib/ld-musl-x86_64.so.1")),
                Some("musl"),
            ),
            ("small", samples::elf(1, 3, None), Some("32-bit")),
            ("ld-linux-x86-64.so.2", samples::elf(2, samples::MACHINE, None), None),
        ];
        for (name, content, expected) in cases {
            let file = files.add(name, &content, 0o755);
            let found = verdict(&[&file.display().to_string()], GUEST);
            match expected {
                None => assert_eq!(found, None, "{name}"),
                Some(word) => assert!(
                    found.as_ref().is_some_and(|f| f.why.contains(word)),
                    "{name}: {found:?}"
                ),
            }
            assert_eq!(found.is_some_and(|f| f.rejects_preload), name == "small");
        }
    }

    #[test]
    fn scripts_are_followed_to_their_interpreter() {
        let files = Files::new("scripts");
        let interpreter = files.add("interpreter", &samples::elf(2, samples::MACHINE, None), 0o755);
        let inner = files.add("inner", format!("#!{} -x\n", interpreter.display()).as_bytes(), 0o755);
        let outer = files.add("outer", format!("#! {}\n", inner.display()).as_bytes(), 0o755);
        let found = verdict(&[&outer.display().to_string()], GUEST).expect("a static interpreter");
        assert_eq!(found.what, interpreter.display().to_string());
        let plain = files.add("plain", b"echo hello\n", 0o755);
        assert_eq!(verdict(&[&plain.display().to_string()], GUEST), None);
        let wrapped = files.add("wrapped", b"#!/usr/bin/env -S nice sudo\n", 0o755);
        // sudo may not be installed where this runs; the name alone decides once a file has it.
        let found = verdict(&[&wrapped.display().to_string()], GUEST);
        assert!(found.is_none_or(|f| f.what == "sudo"));
        let looping = files.0.join("loop");
        files.add("loop", format!("#!{}\n", looping.display()).as_bytes(), 0o755);
        assert_eq!(verdict(&[&looping.display().to_string()], GUEST), None);
    }

    #[test]
    fn privilege_counts_only_where_the_kernel_grants_it() {
        let files = Files::new("setuid");
        let file = files.add(
            "tool",
            &samples::elf(2, samples::MACHINE, Some("/lib64/ld-linux-x86-64.so.2")),
            0o4755,
        );
        let owner = file.metadata().expect("there").uid();
        let name = file.display().to_string();
        if statvfs(&file).expect("statvfs").flags().contains(FsFlags::ST_NOSUID) {
            eprintln!("SKIPPED: {} is on a nosuid file system", file.display());
            return;
        }
        assert!(verdict(&[&name], GUEST).expect("another user").why.contains("setuid"));
        assert_eq!(
            verdict(
                &[&name],
                Caller {
                    uid: Uid::from_raw(owner),
                    ..GUEST
                }
            ),
            None
        );
        assert_eq!(
            verdict(
                &[&name],
                Caller {
                    has_no_new_privileges: true,
                    ..GUEST
                }
            ),
            None
        );
    }

    #[test]
    fn commands_that_hand_work_on_are_named_behind_prefixes_too() {
        let files = Files::new("docker");
        let docker = files.add("docker", b"#!/bin/sh\n", 0o755).display().to_string();
        for line in [
            vec![docker.as_str(), "run"],
            vec!["nice", &docker],
            vec!["env", "A=1", "nohup", &docker],
        ] {
            let found = verdict(&line, GUEST).expect("handed on");
            assert_eq!(found.what, "docker");
            assert!(
                found.sentence().contains("--device partage.dev/share=CLASS"),
                "{}",
                found.sentence()
            );
        }
        assert!(
            verdict(&["env", "-i", "true"], GUEST)
                .expect("no preload")
                .why
                .contains("LD_PRELOAD")
        );
        assert_eq!(verdict(&["sh", "-c", "true"], GUEST), None);
    }
}
