// SPDX-License-Identifier: Apache-2.0
//! The socket directory: its owner, what lies where, and the lock that makes the broker single.
//!
//! ```text
//!   <socket_dir>/            private 0700, managed 0755
//!     broker.lock            flock: one broker
//!     admin.sock             private 0600, managed 0660 (group `partage` where it exists)
//!     client/client.sock     0666: judged by credentials
//!     client/without-broker  managed: what programs may do while no broker is there
//!     client/parked-jN       while the clients of a job are to stay parked
//!     log/partaged.log       JSON lines
//!     state/                 0700: ledger, jobs/, snapshots/, events/, ended.jsonl, drained, sick,
//!                            audit*.jsonl
//!     driver                 private: where a command found the driver's libraries
//!     jobs.alone             private: what jobs without a broker hold (the library's)
//! ```

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::error::Error;
use crate::kind::Kind;

/// How long a held lock is tried again. A broker that is killed while it starts a helper leaves a child that has the
/// lock's open file until its exec, some milliseconds later: giving up at once would leave no broker at all.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// A checked socket directory.
#[derive(Clone, Debug)]
pub struct SocketDir {
    path: PathBuf,
    kind: Kind,
}

/// Holds the broker lock until dropped (or until the process ends).
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

/// Declares where something lies in the directory, a row each.
macro_rules! places {
    ($( $(#[$doc:meta])* $name:ident = $place:expr, )+) => {
        impl SocketDir {
            $( $(#[$doc])* #[must_use] pub fn $name(&self) -> PathBuf { self.path.join($place) } )+
        }
    };
}

places! {
    /// The socket that everyone may use.
    client_socket = "client/client.sock",
    /// The folder that everyone may look into.
    client_folder = "client",
    /// The administrators' socket.
    admin_socket = "admin.sock",
    /// The log's newest file.
    log_file = "log/partaged.log",
    /// Where a command found the driver's libraries, in its own words.
    driver_file = partage_protocol::driver_place::FILE,
    /// The ledger file.
    ledger_file = "state/ledger",
    /// What is remembered of jobs that ended.
    ended_file = "state/ended.jsonl",
    /// Where lies what is known of dumps under way and of jobs that are being restored.
    snapshots = "state/snapshots",
    /// Where events stay that a host's broker does not keep elsewhere.
    events = "state/events",
    /// What users had of the GPUs.
    usage_file = "state/usage.json",
    /// Which devices are drained.
    drained_file = "state/drained",
    /// Which devices are sick.
    sick_file = "state/sick",
    /// Where job records lie.
    jobs = "state/jobs",
}

impl SocketDir {
    /// Makes the directory and its folders where missing and checks their owners.
    ///
    /// # Errors
    /// [`Error::Directory`] when it is a link, somebody else's, or no directory.
    pub fn prepare(path: &Path, kind: Kind) -> Result<Self, Error> {
        let mode = if kind == Kind::Private { 0o700 } else { 0o755 };
        own(path, mode)?;
        // Behind a private folder, for the containers of its user.
        own(&path.join("client"), 0o755)?;
        own(&path.join("log"), 0o700)?;
        own(&path.join("state"), 0o700)?;
        own(&path.join("state/jobs"), 0o700)?;
        own(&path.join("state/snapshots"), 0o700)?;
        let path = path.canonicalize().map_err(Error::file("resolve", path))?;
        Ok(Self { path, kind })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What kind of broker the directory is for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Who changed whose numbers: what administrators did, and what users did.
    #[must_use]
    pub fn audit_files(&self) -> [PathBuf; 2] {
        ["state/audit.jsonl", "state/audit-users.jsonl"].map(|name| self.path.join(name))
    }

    /// Takes the broker lock; `None` when another broker has it and keeps it for [`LOCK_PATIENCE`].
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be made.
    pub fn lock(&self) -> Result<Option<Lock>, Error> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            let lock = self.try_lock()?;
            if lock.is_some() || Instant::now() >= deadline {
                return Ok(lock);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn try_lock(&self) -> Result<Option<Lock>, Error> {
        let path = self.path.join("broker.lock");
        let file = crate::kept_file::open_kept(&path).map_err(Error::file("open", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Some(Lock { _file: file })),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(Error::file("lock", &path)(error)),
        }
    }
}

/// A directory of ours with this mode. A looser mode on a directory that we own is tightened: only we can have made it.
fn own(path: &Path, mode: u32) -> Result<(), Error> {
    let refuse = |why: String| Error::Directory {
        path: path.to_owned(),
        why,
    };
    let is_new = match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(refuse(error.to_string())),
    };
    let flags = nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_CLOEXEC;
    let directory: OwnedFd = nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).map_err(|error| {
        refuse(match error {
            nix::Error::ELOOP | nix::Error::ENOTDIR => "is no directory (links are not followed)".to_owned(),
            other => other.to_string(),
        })
    })?;
    let file = File::from(directory);
    let facts = file.metadata().map_err(|error| refuse(error.to_string()))?;
    let me = nix::unistd::geteuid().as_raw();
    if facts.uid() != me {
        return Err(refuse(format!("belongs to uid {}, not to uid {me}", facts.uid())));
    }
    // A new one was made through the umask.
    if is_new || facts.mode() & 0o777 & !mode != 0 {
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(|error| refuse(format!("mode {:o}: {error}", facts.mode() & 0o777)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_second_broker_does_not_get_the_lock() {
        let scratch = Scratch::new("lock");
        let first = SocketDir::prepare(&scratch.path().join("d"), Kind::Private).expect("prepared");
        let lock = first.lock().expect("lockable");
        assert!(lock.is_some());
        assert!(first.lock().expect("lockable").is_none());
        drop(lock);
        assert!(first.lock().expect("lockable").is_some());
    }

    #[test]
    fn a_link_is_not_followed_and_a_loose_mode_is_tightened() {
        let scratch = Scratch::new("dir");
        let target = scratch.path().join("target");
        std::fs::create_dir(&target).expect("made");
        std::os::unix::fs::symlink(&target, scratch.path().join("link")).expect("linked");
        assert!(SocketDir::prepare(&scratch.path().join("link"), Kind::Private).is_err());

        std::fs::set_permissions(&target, Permissions::from_mode(0o755)).expect("mode set");
        SocketDir::prepare(&target, Kind::Private).expect("prepared");
        let mode = std::fs::metadata(&target).expect("there").mode() & 0o777;
        assert_eq!(mode, 0o700);
    }
}
