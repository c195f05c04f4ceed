// SPDX-License-Identifier: Apache-2.0
//! What speaks against saving a tree, in words.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

/// One thing that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A TCP connection to outside.
    Tcp {
        /// Whose.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// With whom.
        peer: SocketAddr,
    },
    /// A unix socket that is connected to outside.
    Unix {
        /// Whose.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// The other side's name; empty where it has none.
        peer: String,
    },
    /// A TCP connection inside the job that its other end has not accepted yet.
    NotAccepted {
        /// Whose.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// Whom it is connected to.
        peer: SocketAddr,
    },
    /// TCP connections inside and to outside, where the kernel ends no single one.
    Mixed {
        /// Who has one inside.
        inside: u32,
        /// Who has one to outside.
        outside: u32,
        /// With whom.
        peer: SocketAddr,
    },
    /// System V shared memory.
    SharedMemory {
        /// Whose.
        pid: u32,
        /// As the kernel names it.
        name: String,
    },
    /// A POSIX message queue.
    Queue {
        /// Whose.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { pid, fd, peer } => {
                write!(
                    out,
                    "pid {pid} has a TCP connection to {peer}, outside the job (descriptor {fd})"
                )
            }
            Self::Unix { pid, fd, peer } if peer.is_empty() => {
                write!(
                    out,
                    "pid {pid} has a unix socket to another process outside the job (descriptor {fd})"
                )
            }
            Self::Unix { pid, fd, peer } => {
                write!(
                    out,
                    "pid {pid} has a unix socket to {peer}, outside the job (descriptor {fd})"
                )
            }
            Self::NotAccepted { pid, fd, peer } => {
                write!(
                    out,
                    "pid {pid} has a TCP connection that {peer} has not accepted yet (descriptor {fd})"
                )
            }
            Self::Mixed { inside, outside, peer } => write!(
                out,
                "pid {outside} has a TCP connection to {peer}, outside the job, and pid {inside} one inside it, and \
                 this kernel does not end single ones (CONFIG_INET_DIAG_DESTROY, CAP_NET_ADMIN)"
            ),
            Self::SharedMemory { pid, name } => {
                write!(
                    out,
                    "pid {pid} has System V shared memory attached ({name}), which CRIU cannot save"
                )
            }
            Self::Queue { pid, fd, name } => write!(
                out,
                "pid {pid} has the POSIX message queue {name} open (descriptor {fd}), which CRIU cannot save"
            ),
        }
    }
}

/// Findings that are named.
const NAMED: usize = 3;

/// What a user is told of a job: what was found, and what works instead.
#[must_use]
pub fn remedy(found: &[Finding], job: &str, folder: &Path) -> String {
    let mut text: Vec<String> = found.iter().take(NAMED).map(Finding::to_string).collect();
    if let more @ 1.. = found.len().saturating_sub(NAMED) {
        text.push(format!("{more} more"));
    }
    let is_closable = |finding: &Finding| matches!(finding, Finding::Tcp { .. } | Finding::Unix { .. });
    let passes = |finding: &Finding| matches!(finding, Finding::NotAccepted { .. });
    let hint = if found.iter().all(is_closable) {
        let folder = for_a_shell(&folder.display().to_string());
        format!("To save it, and have these closed at a restore: partage checkpoint {job} --out {folder} --tcp close")
    } else if found.iter().all(passes) {
        "Try again".to_owned()
    } else {
        format!("It can be suspended: partage suspend {job}")
    };
    format!("{job} cannot be saved: {}. {hint}", text.join("; "))
}

/// A word as it is typed.
fn for_a_shell(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_needs_it() {
        assert_eq!(for_a_shell("/data/train-1"), "/data/train-1");
        assert_eq!(for_a_shell("/my data/it's"), "'/my data/it'\\''s'");
        assert_eq!(for_a_shell(""), "''");
    }

    #[test]
    fn the_remedy_is_for_all_that_was_found() {
        let peer = "10.0.0.7:443".parse().expect("an address");
        let tcp = Finding::Tcp { pid: 7, fd: 4, peer };
        let unix = Finding::Unix {
            pid: 8,
            fd: 5,
            peer: "/run/x".to_owned(),
        };
        let queue = Finding::Queue {
            pid: 8,
            fd: 6,
            name: "/q".to_owned(),
        };
        let early = Finding::NotAccepted { pid: 7, fd: 4, peer };
        let say = |found: &[Finding]| remedy(found, "j3", Path::new("/data"));
        let text = say(&[tcp.clone(), unix.clone()]);
        let wanted = "j3 cannot be saved: pid 7 has a TCP connection to 10.0.0.7:443, outside the job (descriptor 4); \
                      pid 8 has a unix socket to /run/x, outside the job (descriptor 5). To save it, and have these \
                      closed at a restore: partage checkpoint j3 --out /data --tcp close";
        assert_eq!(text, wanted);
        assert!(say(&[tcp.clone(), queue.clone()]).ends_with(". It can be suspended: partage suspend j3"));
        assert!(say(&[early]).ends_with(" yet (descriptor 4). Try again"));
        let many = say(&[tcp.clone(), tcp.clone(), tcp, unix, queue]);
        assert!(many.contains("; 2 more. ") && !many.contains("/run/x"), "{many}");
    }
}
