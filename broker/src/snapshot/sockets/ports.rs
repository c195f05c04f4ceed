// SPDX-License-Identifier: Apache-2.0
//! The ports at which a restored tree listens again.
//!
//! A port is not free at once when a tree was killed: for a minute the kernel keeps what is left of each connection
//! (`TIME_WAIT`), and a program that did not ask for `SO_REUSEADDR` cannot listen there. The kernel is told to forget
//! those, and where it does not, they are waited for.

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::addresses::{self, Tcp, TcpState};
use super::diag;

/// `TCP_TIMEWAIT_LEN` is 60 seconds.
const PATIENCE: Duration = Duration::from_secs(65);
const PAUSE: Duration = Duration::from_millis(50);

/// What stands at the ports.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Free,
    /// Somebody listens there.
    Taken(SocketAddr),
    /// Connections that have ended.
    Ended(Vec<Tcp>),
}

/// Waits until a tree can listen at its ports again.
///
/// # Errors
/// A sentence: somebody else does.
pub fn wait_until_free(ports: &[SocketAddr]) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match standing(ports, &table()) {
            Standing::Free => return Ok(()),
            Standing::Taken(at) => {
                return Err(format!(
                    "another program listens at {at}, where a process of the job did: end it"
                ));
            }
            // CRIU says which port it is.
            Standing::Ended(_) if Instant::now() >= until => return Ok(()),
            Standing::Ended(left) => {
                for tcp in left {
                    // Not every kernel can, or lets us: they end by themselves.
                    let _ = diag::destroy(tcp.local, tcp.remote);
                }
            }
        }
        sleep(PAUSE);
    }
}

fn table() -> Vec<Tcp> {
    let read = |name: &&str| std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let tables = ["tcp", "tcp6"].iter().map(read);
    tables.flat_map(|text| addresses::parse(&text)).collect()
}

fn standing(ports: &[SocketAddr], table: &[Tcp]) -> Standing {
    let meets = |one: IpAddr, other: IpAddr| one == other || one.is_unspecified() || other.is_unspecified();
    let is_one = |at: SocketAddr| {
        ports
            .iter()
            .any(|own| own.port() == at.port() && meets(own.ip(), at.ip()))
    };
    let there: Vec<&Tcp> = table.iter().filter(|tcp| is_one(tcp.local)).collect();
    if let Some(taken) = there.iter().find(|tcp| tcp.state == TcpState::Listening) {
        return Standing::Taken(taken.local);
    }
    let has_ended = |tcp: &&&Tcp| tcp.state == TcpState::Ending && tcp.inode == 0;
    let ended: Vec<Tcp> = there.iter().filter(has_ended).map(|tcp| **tcp).collect();
    match ended.is_empty() {
        true => Standing::Free,
        false => Standing::Ended(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(local: &str, state: TcpState, inode: u64) -> Tcp {
        Tcp {
            local: local.parse().expect("an address"),
            remote: "127.0.0.1:5000".parse().expect("an address"),
            state,
            inode,
        }
    }

    #[test]
    fn who_listens_there_and_what_has_ended_there_is_in_the_way() {
        let judge = |own: &str, there: Tcp| standing(&[own.parse().expect("an address")], &[there]);
        let ended = tcp("127.0.0.1:80", TcpState::Ending, 0);
        let listens = tcp("0.0.0.0:80", TcpState::Listening, 7);
        for own in ["127.0.0.1:80", "0.0.0.0:80", "[::]:80"] {
            assert_eq!(judge(own, ended), Standing::Ended(vec![ended]), "{own}");
            assert_eq!(judge(own, listens), Standing::Taken(listens.local), "{own}");
        }
        assert_eq!(judge("127.0.0.1:81", ended), Standing::Free);
        assert_eq!(judge("10.0.0.1:80", ended), Standing::Free);
        assert_eq!(
            judge("127.0.0.1:80", tcp("127.0.0.1:80", TcpState::Established, 7)),
            Standing::Free
        );
        assert_eq!(standing(&[], &[ended, listens]), Standing::Free);
    }
}
