// SPDX-License-Identifier: Apache-2.0
//! Files in `/dev/shm` that a job has open or mapped: POSIX semaphores and shared memory.
//!
//! CRIU saves such a file by its name alone, and what lost one of its names (glibc makes a semaphore under a passing
//! one) by a link beside it, which it removes as the processes go on. So their content is of another moment at a
//! restore, or they are gone. While CRIU holds all processes still it runs this program once ([`Call`]), which copies
//! those files with all their names. A restore makes them anew in a `/dev/shm` of the job's own ([`make`]): the same
//! snapshot can be restored again, and nobody else's names are in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use partage_protocol::snapshot::{
    BoundThread, FILES, IMAGES, OpenFiles, SavedFolder, SavedShared, SavedSockets, Shared,
};
use serde::{Deserialize, Serialize};

use super::content::copy_content;
use super::{bound, open_files, sockets};
use crate::host::proc::{Proc, Processes, SHARED_MEMORY, inner_number, shared_memory_of, with_descendants};

/// How CRIU's links begin (`create_link_remap` in its `files-reg.c`).
const LINK: &str = "link_remap.";
/// Folders in one another, at most.
const DEEPEST: usize = 32;

/// What the program is told by its environment: the tree's first process.
pub const TREE: &str = "PARTAGE_SNAPSHOT_TREE";
/// What it may copy of files that are written in place, in bytes.
pub const FILES_MAX: &str = "PARTAGE_SNAPSHOT_FILES_MAX";
/// And the snapshot's folder.
pub const INTO: &str = "PARTAGE_SNAPSHOT_INTO";
/// And what CRIU was told of its sockets.
pub const SOCKETS: &str = "PARTAGE_SNAPSHOT_SOCKETS";
/// CRIU says by this variable what it is at.
const ACTION: &str = "CRTOOLS_SCRIPT_ACTION";
/// All is dumped, and nothing goes on yet.
const DUMPED: &str = "post-dump";
/// Where in a snapshot that is being made the outcome is written.
pub const OUTCOME: &str = "shared.json";

/// What was found while all processes were held still, or why it could not be copied.
pub type Outcome = Result<Held, String>;

/// A tree that is held still.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its living processes, as they number themselves.
    pub alive: BTreeSet<u32>,
    /// What they have of `/dev/shm`.
    pub shared: Shared,
    /// The files that they write.
    pub open_files: OpenFiles,
    /// Threads that may not use every processor.
    pub bound: Vec<BoundThread>,
}

/// A call of this program by CRIU, as it dumps.
#[derive(Debug)]
pub struct Call {
    tree: u32,
    files_max: u64,
    into: PathBuf,
    is_dumped: bool,
    sockets: SavedSockets,
}

impl Call {
    /// The call that began this process; none where CRIU did not begin it.
    #[must_use]
    pub fn from_criu() -> Option<Self> {
        let action = std::env::var(ACTION).ok()?;
        Some(Self {
            tree: std::env::var(TREE).ok()?.parse().ok()?,
            files_max: std::env::var(FILES_MAX).ok()?.parse().ok()?,
            into: std::env::var_os(INTO)?.into(),
            is_dumped: action == DUMPED,
            sockets: serde_json::from_str(&std::env::var(SOCKETS).ok()?).ok()?,
        })
    }

    /// Copies what the tree has, once it is held still, into the snapshot's folder, and says there what became of it.
    ///
    /// # Errors
    /// A sentence; CRIU then lets the processes go on, and fails.
    pub fn serve(&self) -> Result<(), String> {
        if !self.is_dumped {
            return Ok(());
        }
        let outcome = self.hold();
        leave_outcome(&self.into, &outcome)?;
        outcome.map(drop)
    }

    fn hold(&self) -> Outcome {
        let tree = with_descendants(&Proc, &[self.tree].into());
        sockets::in_time(&tree, &self.sockets, &self.into.join(IMAGES))?;
        let shared = copy(self.tree, Path::new(SHARED_MEMORY), &self.into)?;
        Ok(Held {
            alive: living(self.tree),
            shared,
            open_files: open_files::save(self.tree, self.files_max, &self.into)?,
            bound: bound::threads(&tree),
        })
    }
}

/// Writes an outcome in a folder.
///
/// # Errors
/// A sentence.
pub(super) fn leave_outcome(into: &Path, outcome: &Outcome) -> Result<(), String> {
    let text = serde_json::to_vec(outcome).map_err(|error| error.to_string())?;
    let path = into.join(OUTCOME);
    std::fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The outcome in a folder, once; none where nothing was said.
#[must_use]
pub fn take_outcome(into: &Path) -> Option<Outcome> {
    let path = into.join(OUTCOME);
    let text = std::fs::read(&path).ok()?;
    std::fs::remove_file(&path).ok()?;
    serde_json::from_slice(&text).ok()
}

fn living(tree: u32) -> BTreeSet<u32> {
    let is_alive = |pid: &u32| Proc.stat(*pid).is_some_and(|stat| !stat.is_exiting);
    let alive = with_descendants(&Proc, &[tree].into()).into_iter().filter(is_alive);
    alive.filter_map(inner_number).collect()
}

/// Copies the files of `place` that the tree has into a snapshot's folder.
fn copy(tree: u32, place: &Path, into: &Path) -> Result<Shared, String> {
    let Ok(facts) = std::fs::metadata(place) else {
        return Ok(Shared::default());
    };
    let used = used_by(tree, facts.dev());
    if used.is_empty() {
        return Ok(Shared::default());
    }
    let mut found = Found::default();
    let fail = |error: io::Error| format!("cannot list {}: {error}", place.display());
    found.find(place, "", facts.dev(), 0).map_err(fail)?;
    let mut shared = Shared::default();
    let mut wanted = BTreeSet::new();
    for (inode, names) in &found.files {
        let Some(file) = used.get(inode) else { continue };
        let path = format!("{FILES}/shm-{}", shared.files.len());
        let facts = copy_one(file, &into.join(&path)).map_err(|error| {
            let name = names.first().map_or("", String::as_str);
            format!("cannot save {}/{name}: {error}", place.display())
        })?;
        wanted.extend(names.iter().flat_map(|name| ancestors(name)));
        shared.files.push(SavedShared {
            file: path,
            names: names.clone(),
            mode: facts.mode() & 0o7777,
            uid: facts.uid(),
            gid: facts.gid(),
        });
    }
    for (inode, folder) in &found.folders {
        if used.contains_key(inode) {
            wanted.extend(ancestors(&folder.name));
            wanted.insert(folder.name.clone());
        }
    }
    let folders = found.folders.into_iter().map(|(_, folder)| folder);
    shared.folders = folders.filter(|folder| wanted.contains(&folder.name)).collect();
    Ok(shared)
}

/// The folders above a name.
fn ancestors(name: &str) -> impl Iterator<Item = String> + '_ {
    name.match_indices('/').map(|(at, _)| name[..at].to_owned())
}

/// By inode, a way to each file and folder of a file system that a process of the tree has open or mapped, or is in.
fn used_by(tree: u32, device: u64) -> BTreeMap<u64, PathBuf> {
    let mut used = BTreeMap::new();
    for pid in with_descendants(&Proc, &[tree].into()) {
        let listed = ["fd", "map_files"].map(|folder| std::fs::read_dir(format!("/proc/{pid}/{folder}")));
        let listed = listed.into_iter().flatten().flatten().flatten();
        let ways = listed.map(|entry| entry.path());
        let own = ["cwd", "exe"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}")));
        for way in ways.chain(own) {
            // The file that the link stands for, whatever its name is now.
            let Ok(facts) = std::fs::metadata(&way) else { continue };
            if facts.dev() == device && (facts.is_file() || facts.is_dir()) {
                used.entry(facts.ino()).or_insert(way);
            }
        }
    }
    used
}

/// What is in a file system, by inode; folders before what they hold.
#[derive(Default)]
struct Found {
    files: BTreeMap<u64, Vec<String>>,
    folders: Vec<(u64, SavedFolder)>,
}

impl Found {
    fn find(&mut self, folder: &Path, prefix: &str, device: u64, depth: usize) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            // Names come and go: other programs' are not held still.
            let Ok(facts) = entry.path().symlink_metadata() else {
                continue;
            };
            // A name that is no text is none that a manifest could say.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let name = match prefix {
                "" => name,
                prefix => format!("{prefix}/{name}"),
            };
            if facts.is_file() {
                self.files.entry(facts.ino()).or_default().push(name);
            } else if facts.is_dir() && facts.dev() == device && depth < DEEPEST {
                self.folders.push((facts.ino(), folder_of(name.clone(), &facts)));
                match self.find(&entry.path(), &name, device, depth + 1) {
                    // Somebody else's, or gone meanwhile.
                    Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                    }
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

fn folder_of(name: String, facts: &std::fs::Metadata) -> SavedFolder {
    SavedFolder {
        name,
        mode: facts.mode() & 0o7777,
        uid: facts.uid(),
        gid: facts.gid(),
    }
}

/// Copies a file with its holes.
fn copy_one(from: &Path, to: &Path) -> io::Result<std::fs::Metadata> {
    let from = File::open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    copy_content(&from, &to)?;
    from.metadata()
}

/// Removes the links that CRIU left where a stopped process has its shared memory: CRIU does so itself only where the
/// processes go on.
pub fn remove_links(shared: &Shared, tree: u32) {
    let names = shared.files.iter().flat_map(|file| &file.names);
    for name in names.filter(|name| name.starts_with(LINK)) {
        // Gone is what was wanted.
        let _ = std::fs::remove_file(shared_memory_of(tree).join(name));
    }
}

/// Makes the files of a generation's folder anew in an empty `place`.
///
/// # Errors
/// A sentence with the name.
pub fn make(shared: &Shared, generation: &Path, place: &Path) -> Result<(), String> {
    let fail = |name: &str| {
        let path = place.join(name);
        move |error: io::Error| format!("cannot make {} anew: {error}", path.display())
    };
    for folder in &shared.folders {
        let path = place.join(&folder.name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.and_then(|()| dress(&path, folder.uid, folder.gid, folder.mode))
            .map_err(fail(&folder.name))?;
    }
    for file in &shared.files {
        let Some((first, others)) = file.names.split_first() else {
            continue;
        };
        let path = place.join(first);
        make_one(&generation.join(&file.file), &path)
            .and_then(|()| dress(&path, file.uid, file.gid, file.mode))
            .map_err(fail(first))?;
        for name in others {
            std::fs::hard_link(&path, place.join(name)).map_err(fail(name))?;
        }
    }
    Ok(())
}

fn make_one(from: &Path, to: &Path) -> io::Result<()> {
    let from = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    copy_content(&from, &to)
}

/// The mode last: a change of the owner clears bits of it.
fn dress(path: &Path, uid: u32, gid: u32, mode: u32) -> io::Result<()> {
    let facts = path.symlink_metadata()?;
    if (facts.uid(), facts.gid()) != (uid, gid) {
        std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::FileExt;
    use std::process::{Child, Command, Stdio};

    /// A folder on the file system of the build, gone with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("partage-shared-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("made");
            Self(path)
        }

        fn child(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(&path).expect("made");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A process that has a file open until its input ends.
    fn holder(path: &Path) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", "exec 3<\"$0\"; echo held; read end"])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut said = [0; 5];
        let mut output = child.stdout.take().expect("piped");
        output.read_exact(&mut said).expect("it says so");
        child
    }

    #[test]
    fn what_a_process_has_open_comes_back_with_all_its_names() {
        let folder = Folder::new("names");
        let (place, into) = (folder.child("place"), folder.child("into"));
        std::fs::create_dir(into.join(FILES)).expect("made");
        let (sub, passing) = (folder.child("place/sub"), place.join("passing"));
        std::fs::set_permissions(&sub, Permissions::from_mode(0o1770)).expect("ours");
        // With a hole in the middle.
        let file = File::create(&passing).expect("made");
        file.write_all_at(b"begin", 0).expect("written");
        file.write_all_at(b"end", 3 << 20).expect("written");
        std::fs::set_permissions(&passing, Permissions::from_mode(0o640)).expect("ours");
        for name in ["one", "sub/two"] {
            std::fs::hard_link(&passing, place.join(name)).expect("linked");
        }
        std::fs::write(place.join("others"), b"not ours").expect("written");
        let mut child = holder(&passing);
        std::fs::remove_file(&passing).expect("ours");
        let shared = copy(child.id(), &place, &into);
        child.kill().expect("ours");
        child.wait().expect("ours");
        let shared = shared.expect("copied");
        let mut names = shared.files[0].names.clone();
        names.sort_unstable();
        assert_eq!((shared.files.len(), names), (1, vec!["one".into(), "sub/two".into()]));
        assert_eq!((shared.files[0].mode, shared.folders[0].mode), (0o640, 0o1770));
        // Whoever changes the original afterwards does not change what was saved.
        file.write_all_at(b"later", 0).expect("written");
        for round in ["first", "again"] {
            let there = folder.child(round);
            make(&shared, &into, &there).expect("made");
            let content = std::fs::read(there.join("one")).expect("there");
            assert_eq!((&content[..6], content.len()), (&b"begin\0"[..], (3 << 20) + 3));
            assert!(content.ends_with(b"\0end"));
            let facts = std::fs::metadata(there.join("sub/two")).expect("there");
            assert_eq!((facts.nlink(), facts.mode() & 0o7777), (2, 0o640));
            assert!(!there.join("others").exists() && facts.blocks() * 512 < 1 << 20);
            let why = make(&shared, &into, &there).expect_err("it is there");
            assert!(why.contains("cannot make ") && why.contains(" anew: "), "{why}");
        }
    }

    #[test]
    fn a_job_without_such_files_has_nothing_saved() {
        let folder = Folder::new("nothing");
        let (place, into) = (folder.child("place"), folder.child("into"));
        std::fs::write(place.join("others"), b"not ours").expect("written");
        assert_eq!(copy(std::process::id(), &place, &into), Ok(Shared::default()));
    }
}
