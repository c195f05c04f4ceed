// SPDX-License-Identifier: Apache-2.0
//! Why `partaged` cannot start or go on, and the exit code that says so.

use std::path::PathBuf;

use crate::config::ConfigError;

/// What stops the broker. Errors of one client, job or device are answers to that client and do not stop the broker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket directory cannot be used.
    #[error("socket directory {}: {why}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file or socket in it cannot be made.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The verb (`open`, `lock`, `bind`, …).
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The configuration does not hold.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A managed broker that cannot see every process.
    #[error(
        "a managed broker serves the whole machine, and from inside this pid namespace it cannot see the processes \
         outside: start it on the host (a container with --pid host), or say --pid-namespace any"
    )]
    PidNamespace,
    /// A service manager gave other sockets than a broker's two.
    #[error("the sockets that the service manager gave: {0}")]
    Given(String),
    /// Somebody who is no broker listens in its place.
    #[error(
        "a service manager listens at {} for its own broker: start that one (systemctl start partaged)",
        .0.display()
    )]
    Held(PathBuf),
    /// The kernel refused something the event loop stands on.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// A failed system call that names no file.
    pub fn system(what: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |source| Self::System {
            what,
            source: source.into(),
        }
    }

    /// A failed operation on a file.
    pub fn file<E: Into<std::io::Error>>(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::File {
            what,
            path,
            source: source.into(),
        }
    }

    /// Exit code of the process: 2 for what the caller wrote, 1 for what the machine refused.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            _ => 1,
        }
    }
}
