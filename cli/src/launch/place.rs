// SPDX-License-Identifier: Apache-2.0
//! Where the broker listens, and who may start one there.
//!
//! The directory is chosen from the uid and not from the session's environment, so that a login shell, ssh, cron and
//! tmux of one user meet at one broker. A *managed* host has its broker from its administrator: nobody starts another.

use std::env;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use partage_protocol::private_broker;

use crate::failure::{Failure, Kind, Outcome};

/// Directory of a managed host's broker.
pub const SYSTEM_DIR: &str = "/run/partage";
/// Configuration that makes a host managed.
pub const SYSTEM_CONFIG: &str = "/etc/partage/partage.toml";

/// Who starts the broker of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first command that needs it.
    Private,
    /// The administrator.
    Managed,
}

/// A broker's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Absolute path.
    pub dir: PathBuf,
    /// Who starts its broker.
    pub rule: Rule,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// [`SYSTEM_CONFIG`] or [`SYSTEM_DIR`] exists.
    pub is_managed: bool,
    /// `PARTAGE_SIM_DIR` is set: a simulated machine has a broker of its own anywhere.
    pub is_simulated: bool,
    /// Effective uid.
    pub uid: u32,
}

impl Host {
    /// This host and this process.
    pub fn here() -> Self {
        Self {
            is_managed: Path::new(SYSTEM_CONFIG).exists() || Path::new(SYSTEM_DIR).is_dir(),
            is_simulated: env::var_os("PARTAGE_SIM_DIR").is_some(),
            uid: Uid::effective().as_raw(),
        }
    }
}

impl Place {
    /// Chooses the directory; `explicit` is `--socket-dir` or `PARTAGE_SOCKET_DIR`.
    pub fn choose(explicit: Option<&Path>, host: Host) -> Self {
        let is_managed = host.is_managed && !host.is_simulated;
        let rule = if is_managed || explicit == Some(Path::new(SYSTEM_DIR)) {
            Rule::Managed
        } else {
            Rule::Private
        };
        let dir = match explicit {
            Some(dir) => std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()),
            None if is_managed => PathBuf::from(SYSTEM_DIR),
            None => private_dir(host.uid),
        };
        Self { dir, rule }
    }

    /// The directory that the environment names, else the usual one. An empty variable is an unset one: scripts clear a
    /// variable that way.
    pub fn of_environment() -> Self {
        let dir = env::var_os("PARTAGE_SOCKET_DIR").filter(|dir| !dir.is_empty());
        Self::choose(dir.as_deref().map(Path::new), Host::here())
    }

    /// The socket that serves everyone.
    pub fn client_socket(&self) -> PathBuf {
        self.dir.join("client/client.sock")
    }

    /// The socket of administrators, of a managed broker: it lets a group in, too. A private broker's is for its owner
    /// alone, who needs none. The kernel judges each connection.
    pub fn admin_socket(&self) -> Option<PathBuf> {
        const GROUP: u32 = 0o070;
        let path = self.dir.join("admin.sock");
        let is_for_a_group = path.symlink_metadata().is_ok_and(|data| data.mode() & GROUP != 0);
        is_for_a_group.then_some(path)
    }

    /// Makes the directory if it is missing and refuses one that somebody else could change.
    ///
    /// # Errors
    /// It cannot be made or written, is a symbolic link, or belongs to somebody else.
    pub fn prepare(&self) -> Outcome<()> {
        make_own_dir(&self.dir)
    }

    /// Refuses a directory in which somebody else could pose as the broker. A missing one passes: nothing listens
    /// there.
    ///
    /// # Errors
    /// It is a symbolic link or belongs to somebody other than the caller and root.
    pub fn check(&self) -> Outcome<()> {
        match self.dir.symlink_metadata() {
            Err(_) => Ok(()),
            Ok(data) => {
                let mut owners = vec![Uid::effective().as_raw(), 0];
                // Root of the host, as a user namespace shows it: only root makes that folder.
                if self.dir == Path::new(SYSTEM_DIR) {
                    owners.extend(foreign_root());
                }
                judge_dir(&self.dir, &data, &owners)
            }
        }
    }
}

/// The number by which this user namespace shows users that it has none for, where root of the host is one of them.
/// `None`: root is root here.
pub fn foreign_root() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    foreign_root_of(&map, &overflow)
}

fn foreign_root_of(map: &str, overflow: &str) -> Option<u32> {
    // Inner number, outer number, how many, in each line. The outer one is of the parent namespace; only what is
    // mapped from its 0 on can be root.
    let mut outer = map.lines().map(|line| line.split_ascii_whitespace().nth(1));
    let shows_root = outer.any(|outer| outer == Some("0"));
    if shows_root { None } else { overflow.trim().parse().ok() }
}

/// `/tmp/partage-UID`.
pub fn private_dir(uid: u32) -> PathBuf {
    PathBuf::from(format!("{}{uid}", private_broker::PREFIX))
}

/// Makes `dir` for this user alone, or checks that it is this user's own.
///
/// # Errors
/// It cannot be made, is a symbolic link, is not the caller's, others may write to it, or the caller may not.
pub fn make_own_dir(dir: &Path) -> Outcome<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            let failure = Failure::cannot("make the socket directory", dir, error);
            return Err(failure.hint("choose another: --socket-dir DIR"));
        }
    }
    // symlink_metadata: a link that somebody put into /tmp must not lead us elsewhere.
    let data = dir
        .symlink_metadata()
        .map_err(|error| Failure::cannot("read the socket directory", dir, error))?;
    judge_dir(dir, &data, &[Uid::effective().as_raw()])?;
    nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK).map_err(|errno| {
        Failure::cannot("write to the socket directory", dir, errno).hint("choose another: --socket-dir DIR")
    })
}

fn judge_dir(dir: &Path, data: &Metadata, owners: &[u32]) -> Outcome<()> {
    let refuse = |what: String| {
        let message = format!("refusing the socket directory {}: {what}", dir.display());
        Err(Failure::new(Kind::NotAllowed, message).hint("choose another: --socket-dir DIR"))
    };
    if data.is_symlink() {
        return refuse("it is a symbolic link".to_owned());
    }
    if !data.is_dir() {
        return refuse("it is not a directory".to_owned());
    }
    if !owners.contains(&data.uid()) {
        return refuse(format!(
            "it belongs to uid {}, you are uid {}",
            data.uid(),
            Uid::effective()
        ));
    }
    if data.mode() & 0o022 != 0 && data.mode() & 0o1000 == 0 {
        return refuse(format!("others may write to it (mode {:o})", data.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const HOST: Host = Host {
        is_managed: false,
        is_simulated: false,
        uid: 1000,
    };

    #[test]
    fn a_private_directory_depends_on_the_uid_alone() {
        let place = Place::choose(None, HOST);
        assert_eq!(
            place,
            Place {
                dir: "/tmp/partage-1000".into(),
                rule: Rule::Private
            }
        );
    }

    #[test]
    fn nobody_starts_a_broker_on_a_managed_host() {
        let managed = Host {
            is_managed: true,
            ..HOST
        };
        assert_eq!(
            Place::choose(None, managed),
            Place {
                dir: SYSTEM_DIR.into(),
                rule: Rule::Managed
            }
        );
        assert_eq!(Place::choose(Some(Path::new("/tmp/x")), managed).rule, Rule::Managed);
        assert_eq!(Place::choose(Some(Path::new(SYSTEM_DIR)), HOST).rule, Rule::Managed);
    }

    #[test]
    fn a_simulated_machine_has_its_own_broker_on_any_host() {
        let host = Host {
            is_managed: true,
            is_simulated: true,
            ..HOST
        };
        let place = Place::choose(Some(Path::new("/tmp/machine/broker")), host);
        assert_eq!(place.rule, Rule::Private);
    }

    #[test]
    fn root_of_the_host_has_another_number_in_a_user_namespace_that_lacks_it() {
        let everybody = "         0          0 4294967295\n";
        assert_eq!(foreign_root_of(everybody, "65534\n"), None);
        assert_eq!(foreign_root_of("0 100000 65536\n", "65534\n"), Some(65534));
        assert_eq!(foreign_root_of("1000 1000 1\n", "65534\n"), Some(65534));
        assert_eq!(foreign_root_of("0 1000 1\n1 0 1\n", "65534\n"), None);
    }

    #[test]
    fn a_directory_that_others_control_is_refused() {
        let base = env::temp_dir().join(format!("partage-place-{}", std::process::id()));
        let own = base.join("own");
        std::fs::create_dir_all(&base).expect("make a test directory");
        make_own_dir(&own).expect("a fresh directory is fine");
        assert_eq!(own.metadata().expect("it is there").mode() & 0o777, 0o700);
        make_own_dir(&own).expect("and again");

        let link = base.join("link");
        symlink(&own, &link).expect("make a link");
        assert!(
            make_own_dir(&link)
                .expect_err("a link")
                .message
                .contains("symbolic link")
        );

        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).expect("chmod");
        assert!(
            make_own_dir(&own)
                .expect_err("open to all")
                .message
                .contains("mode 777")
        );
        assert_eq!(
            make_own_dir(Path::new("/proc/partage")).expect_err("nowhere").kind,
            Kind::Failed
        );
        std::fs::remove_dir_all(&base).expect("clean up");
    }
}
