// SPDX-License-Identifier: Apache-2.0
//! The process that has CRIU dump a job and makes the snapshot whole.
//!
//! It has a session of its own and outlives the broker. Nobody kills it or CRIU: a CRIU that dies at the wrong instant
//! takes the job with it. While it runs it holds the lock that it got as standard input; before it ends it writes its
//! outcome. A lock that is free without an outcome means that it died. A job that is to go on does so as soon as CRIU
//! has all of it: the sums, and the disk, are waited for by this process alone.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use partage_protocol::snapshot::{FILES, IMAGES, LOCK, Manifest};

use super::files::Disk;
use super::folder::Folder;
use super::inside::Dump;
use super::order::{DumpOrder, DumpOutcome};
use super::store::Store;
use super::{criu, inside, shared, sockets, streams, timers};
use crate::host::proc::shared_memory_of;
use crate::host::proc::{Proc, with_descendants};
use crate::kept_file::{open_kept, write_whole};

/// For how long a dump waits for another one's end.
const LONGEST_BESIDE: Duration = Duration::from_secs(60);
const BESIDE_POLL: Duration = Duration::from_millis(20);

/// Where an order, its lock and its outcome lie.
#[derive(Clone, Debug)]
pub struct Desk {
    order: PathBuf,
    lock: PathBuf,
    outcome: PathBuf,
}

/// How a dump stands.
#[derive(Debug)]
pub enum Standing {
    /// Under way, and the processes stand.
    Runs,
    /// CRIU has the processes, and the files are being made whole.
    Dumped,
    /// Over.
    Over(DumpOutcome),
    /// There is none, or it died without an outcome.
    Nothing,
}

impl Desk {
    /// The desk of this name in a folder of the broker's own.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        let path = |what: &str| folder.join(format!("{name}.{what}"));
        Self {
            order: path("order"),
            lock: path("lock"),
            outcome: path("outcome"),
        }
    }

    /// Starts the process for an order.
    ///
    /// # Errors
    /// The system's, or that one is under way.
    pub fn begin(&self, order: &DumpOrder) -> std::io::Result<Child> {
        let lock = self.try_lock()?.ok_or(std::io::ErrorKind::ResourceBusy)?;
        self.clear_outcome();
        write_whole(&self.order, &serde_json::to_vec(order)?)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("--dump-helper")
            .arg(&self.order)
            .arg(&self.outcome)
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        for name in ["LD_PRELOAD", "LD_AUDIT", "PARTAGE_TOKEN"] {
            command.env_remove(name);
        }
        // The lock stays with the child: it belongs to the open file, which this process closes here.
        command.spawn()
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        // First the lock: it is free only once the outcome is written.
        match self.try_lock() {
            // A lock that cannot be asked for now (no descriptor is left) says nothing.
            Ok(None) | Err(_) => match self.said() {
                Some(DumpOutcome::Dumped) => Standing::Dumped,
                _ => Standing::Runs,
            },
            Ok(Some(_)) => match self.said() {
                Some(DumpOutcome::Dumped) | None => Standing::Nothing,
                Some(outcome) => Standing::Over(outcome),
            },
        }
    }

    fn said(&self) -> Option<DumpOutcome> {
        serde_json::from_slice(&std::fs::read(&self.outcome).ok()?).ok()
    }

    /// Does a process carry an order out, of this broker or of one before it?
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.lock.exists() && matches!(self.standing(), Standing::Runs | Standing::Dumped)
    }

    /// Forgets an outcome that was taken.
    pub fn clear_outcome(&self) {
        // One that is missing already is what was wanted.
        let _ = std::fs::remove_file(&self.outcome);
    }

    /// Removes all of it.
    pub fn clear(&self) {
        for path in [&self.outcome, &self.order, &self.lock] {
            let _ = std::fs::remove_file(path);
        }
    }

    /// The lock, until the last descriptor of its open file is closed. `None`: somebody has it.
    fn try_lock(&self) -> std::io::Result<Option<File>> {
        let file = open_kept(&self.lock)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The process: carries the order out, and writes what became of it.
pub fn serve(order: &Path, outcome: &Path) {
    // A terminal's signals are for its own session.
    let _ = nix::unistd::setsid();
    let _ = nix::unistd::chdir("/");
    let result = std::fs::read(order)
        .map_err(|error| format!("cannot read the order: {error}"))
        .and_then(|text| serde_json::from_slice::<DumpOrder>(&text).map_err(|error| format!("no order: {error}")))
        .and_then(|order| carry_out(&order, outcome));
    let said = match result {
        Ok((generation, bytes)) => DumpOutcome::Saved { generation, bytes },
        Err(why) => DumpOutcome::Failed { why },
    };
    // Without it the broker finds that this process died, which is as bad as what it would read.
    let _ = serde_json::to_vec(&said).map(|text| write_whole(outcome, &text));
}

fn carry_out(order: &DumpOrder, outcome: &Path) -> Result<(u64, u64), String> {
    let folder = Folder::open(&order.folder)?;
    let saved = save_in(&folder.way(), order, outcome);
    saved.map_err(|why| folder.named(&why))
}

/// In the folder that was opened, whatever its name means by now.
fn save_in(folder: &Path, order: &DumpOrder, outcome: &Path) -> Result<(u64, u64), String> {
    let _lock = lock_folder(folder)?;
    let version = criu::version(&order.criu)?;
    let store = Store::new(folder, Disk);
    store.sweep();
    let text = |error: super::store::StoreError| error.to_string();
    let begun = store.begin(&format!("{}", std::process::id())).map_err(text)?;
    let dumped = fill(order, &begun, version);
    match dumped {
        Ok(manifest) => {
            if !order.is_to_stop {
                // The job goes on meanwhile. Where this cannot be written it stands until the end.
                let _ = serde_json::to_vec(&DumpOutcome::Dumped).map(|text| write_whole(outcome, &text));
            }
            store.commit(&begun, manifest, order.keep).map_err(text)
        }
        Err(why) => {
            store.sweep();
            Err(why)
        }
    }
}

/// Everything but the manifest.
fn fill(order: &DumpOrder, begun: &Path, criu_version: String) -> Result<Manifest, String> {
    let folder = |name: &str| {
        let path = begun.join(name);
        let made = std::fs::create_dir(&path);
        made.map_err(|error| format!("cannot make {}: {error}", path.display()))
            .map(|()| path)
    };
    let (images, files, none) = (folder(IMAGES)?, folder(FILES)?, folder("none")?);
    let (library, mapped) = mapped_library(order.tree).ok_or_else(|| {
        format!(
            "pid {} has no copy of the library mapped that a restore could find",
            order.tree
        )
    })?;
    let name = library.file_name().unwrap_or_default();
    std::fs::copy(&mapped, files.join(name)).map_err(|error| format!("cannot copy {}: {error}", library.display()))?;
    let tree = with_descendants(&Proc, &[order.tree].into());
    let streams = streams::of(&tree, order.tree);
    let plan = sockets::plan(&tree, order.tree, order.outside)
        .map_err(|found| sockets::remedy(&found, &order.manifest.job.id, &order.folder))?;
    let dumped = run_criu(&Dump {
        criu: &order.criu,
        tree: order.tree,
        into: begun,
        images: &images,
        none: &none,
        is_to_stop: order.is_to_stop,
        files_max: order.files_max,
        sockets: &plan,
    });
    let held = match (dumped, shared::take_outcome(begun)) {
        (_, Some(Err(why))) | (Err(why), _) => return Err(why),
        (Ok(()), None) => return Err("CRIU did not have the files of /dev/shm saved".to_owned()),
        (Ok(()), Some(Ok(held))) => held,
    };
    timers::mend(&images)?;
    if order.is_to_stop {
        shared::remove_links(&held.shared, order.tree);
    }
    // The others alone are not what was to be saved, and a restore would wait for it.
    let clients = &order.manifest.clients;
    if let Some(gone) = clients.iter().find(|client| !held.alive.contains(&client.pid)) {
        return Err(format!("pid {} ended while its job was saved", gone.pid));
    }
    std::fs::remove_dir(&none).map_err(|error| format!("cannot remove {}: {error}", none.display()))?;
    Ok(Manifest {
        partage: env!("PARTAGE_VERSION").to_owned(),
        criu: criu_version,
        kernel: kernel(),
        processor: processor(),
        streams,
        made_unix_ns: crate::clock::now().unix_ns,
        library: library.display().to_string(),
        socket_dir: sockets_of(order.tree).unwrap_or_else(|| order.manifest.socket_dir.clone()),
        shared: held.shared,
        open_files: held.open_files,
        sockets: plan.to_save(),
        bound: held.bound,
        ..order.manifest.clone()
    })
}

/// Has CRIU dump a tree, and waits for its end.
fn run_criu(dump: &Dump<'_>) -> Result<(), String> {
    let _alone = alone_in(&shared_memory_of(dump.tree));
    let status = inside::start(dump)?
        .wait()
        .map_err(|error| format!("CRIU cannot be waited for: {error}"))?;
    criu::judge(status, &dump.images.join(criu::DUMP_LOG))
}

/// CRIU names its links in `/dev/shm` by numbers of its own: two dumps at a time that need one refuse each other. The
/// wait has an end, because the lock may be another program's.
fn alone_in(folder: &Path) -> Option<Flock<File>> {
    let until = Instant::now() + LONGEST_BESIDE;
    let mut file = File::open(folder).ok()?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((_, errno)) if errno != Errno::EWOULDBLOCK || Instant::now() >= until => return None,
            Err((again, _)) => file = again,
        }
        std::thread::sleep(BESIDE_POLL);
    }
}

fn lock_folder(folder: &Path) -> Result<Flock<File>, String> {
    let path = folder.join(LOCK);
    let file = open_kept(&path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| format!("another checkpoint writes to {} at the moment", folder.display()))
}

/// The file of our library that a process has mapped: its name among the process's mounts, and a way to the very file.
fn mapped_library(pid: u32) -> Option<(PathBuf, PathBuf)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let path = PathBuf::from(format!("/{}", line.split_once('/')?.1));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = name.starts_with("libpartage") && name.ends_with(".so") && !name.contains("_sim_");
        let range = line.split(' ').next()?;
        is_ours.then(|| (path, format!("/proc/{pid}/map_files/{range}").into()))
    })
}

/// The folder in which a process looks for the broker's sockets, where its environment says one. One that was restored
/// has it from another broker.
fn sockets_of(pid: u32) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut named = environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(b"PARTAGE_SOCKET_DIR="));
    let named = String::from_utf8(named.next()?.to_vec()).ok()?;
    Path::new(&named).is_absolute().then_some(named)
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Model and features of the first processor.
#[must_use]
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let wanted = [
        "vendor_id",
        "cpu family",
        "model",
        "flags",
        "CPU implementer",
        "CPU part",
        "Features",
    ];
    let values = first.lines().filter_map(|line| line.split_once(':'));
    let values = values.filter(|(name, _)| wanted.contains(&name.trim()));
    values.map(|(_, value)| value.trim()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_dump_lets_its_job_go_before_its_end_and_is_lost_without_one() {
        let scratch = Scratch::new("desk");
        let desk = Desk::new(scratch.path(), "j1");
        assert!(!desk.is_taken(), "nobody has begun one");
        assert!(matches!(desk.standing(), Standing::Nothing));
        let lock = desk.try_lock().expect("ours").expect("free");
        assert!(desk.is_taken());
        assert!(matches!(desk.standing(), Standing::Runs));
        let say = |outcome: &DumpOutcome| {
            let text = serde_json::to_vec(outcome).expect("plain");
            write_whole(&desk.outcome, &text).expect("ours");
        };
        say(&DumpOutcome::Dumped);
        assert!(matches!(desk.standing(), Standing::Dumped));
        assert!(desk.is_taken());
        let (generation, bytes) = (3, 1 << 30);
        say(&DumpOutcome::Saved { generation, bytes });
        assert!(matches!(desk.standing(), Standing::Runs), "its process lives");
        drop(lock);
        let saved = DumpOutcome::Saved { generation, bytes };
        assert!(matches!(desk.standing(), Standing::Over(outcome) if outcome == saved));
        assert!(!desk.is_taken());
        // One that died when the job went on already.
        say(&DumpOutcome::Dumped);
        assert!(matches!(desk.standing(), Standing::Nothing));
    }
}
