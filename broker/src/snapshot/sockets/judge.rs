// SPDX-License-Identifier: Apache-2.0
//! What becomes of each socket of a table: a pure judgement.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use partage_protocol::snapshot::{Carries, Outside, SavedSocket, SavedSockets};

use super::addresses::{Tcp, TcpState};
use super::found::Finding;
use super::table::{Open, Table};

/// How CRIU is to be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// TCP connections to outside that are closed at a restore, by both addresses.
    pub outward: Vec<(SocketAddr, SocketAddr)>,
    /// TCP connections inside the tree, by both sockets.
    pub pairs: Vec<(u64, u64)>,
    /// Where TCP sockets listen.
    pub listening: Vec<SocketAddr>,
    /// Some unix sockets send messages to a name of the machine's: CRIU has them do so again.
    pub is_named: bool,
    /// Unix sockets to outside that are closed at a restore, with what each carries.
    pub closed: BTreeMap<u64, Carries>,
    /// Unix sockets to outside that are the first process's standard streams.
    pub streams: Vec<u64>,
}

impl Plan {
    /// Does CRIU close the TCP connections? It closes all of a tree or none.
    #[must_use]
    pub fn closes_all(&self) -> bool {
        !self.outward.is_empty() && self.pairs.is_empty()
    }

    /// What a restore has to know of it.
    #[must_use]
    pub fn to_save(&self) -> SavedSockets {
        let closed = self.closed.iter();
        let is_tcp_closed = self.closes_all();
        SavedSockets {
            is_tcp_closed,
            ended: if is_tcp_closed {
                Vec::new()
            } else {
                self.outward.clone()
            },
            is_named: self.is_named,
            closed: closed
                .map(|(inode, carries)| SavedSocket {
                    inode: *inode,
                    carries: *carries,
                })
                .collect(),
            listening: self.listening.clone(),
            streams: self.streams.clone(),
        }
    }
}

/// How a connection stands to the tree.
enum Tie<'a> {
    /// It is none.
    Apart,
    /// Its other end is the tree's too.
    Inside(&'a Tcp),
    /// It has ended on the other side, which is gone from this machine.
    Ended,
    /// Its other end has not accepted it.
    NotAccepted,
    /// To outside.
    Outside,
}

/// What is to be done with the sockets of a table.
///
/// # Errors
/// What speaks against it, at least one.
pub fn judge(table: &Table, outside: Outside) -> Result<Plan, Vec<Finding>> {
    let mut plan = Plan::default();
    let mut found = Vec::new();
    let mut outward = None;
    let mut inward = None;
    for open in &table.open {
        let Some(tcp) = table.tcp.get(&open.inode) else {
            continue;
        };
        let (pid, fd, peer) = (open.pid, open.fd, tcp.remote);
        match tie_of(table, tcp) {
            Tie::Apart | Tie::Ended => {}
            Tie::Inside(other) => {
                inward = inward.or(Some(pid));
                plan.pairs.push((open.inode, other.inode));
            }
            Tie::NotAccepted => found.push(Finding::NotAccepted { pid, fd, peer }),
            Tie::Outside if outside == Outside::Close => {
                outward = outward.or(Some((pid, peer)));
                plan.outward.push((tcp.local, tcp.remote));
            }
            Tie::Outside => found.push(Finding::Tcp { pid, fd, peer }),
        }
    }
    let listening = table
        .tcp
        .values()
        .filter(|tcp| tcp.state == TcpState::Listening && table.has(tcp.inode));
    plan.listening = listening.map(|tcp| tcp.local).collect();
    plan.pairs.sort_unstable();
    plan.pairs.dedup();
    plan.outward.sort_unstable();
    plan.outward.dedup();
    if let Some((inside, (pid, peer))) = inward.zip(outward).filter(|_| !table.can_end) {
        let outside = pid;
        found.push(Finding::Mixed { inside, outside, peer });
    }
    for open in &table.open {
        judge_unix(table, open, outside, &mut plan, &mut found);
    }
    found.extend(table.unsaved.iter().cloned());
    // A child has what its parent has.
    let mut named: Vec<Finding> = Vec::new();
    for finding in found {
        if !named.contains(&finding) {
            named.push(finding);
        }
    }
    match named.is_empty() {
        true => Ok(plan),
        false => Err(named),
    }
}

fn judge_unix(table: &Table, open: &Open, outside: Outside, plan: &mut Plan, found: &mut Vec<Finding>) {
    let Some(unix) = table.unix.get(&open.inode) else {
        return;
    };
    let is_inside = |inode: u64| table.has(inode) || table.own.contains(&inode);
    if unix.peer == 0 || is_inside(unix.peer) {
        return;
    }
    let peer = table
        .unix
        .get(&unix.peer)
        .map_or_else(String::new, |peer| peer.name.clone());
    if table.streams.contains(&open.inode) {
        // As with a pipe: those of whoever restores take its place.
        if !plan.streams.contains(&open.inode) {
            plan.streams.push(open.inode);
        }
    } else if unix.carries == Carries::Messages && peer.starts_with('/') {
        plan.is_named = true;
    } else if outside == Outside::Close {
        plan.closed.insert(open.inode, unix.carries);
    } else {
        let (pid, fd) = (open.pid, open.fd);
        found.push(Finding::Unix { pid, fd, peer });
    }
}

fn tie_of<'a>(table: &'a Table, tcp: &Tcp) -> Tie<'a> {
    if matches!(tcp.state, TcpState::Listening | TcpState::Unconnected) {
        return Tie::Apart;
    }
    let is_other = |other: &&Tcp| other.local == tcp.remote && other.remote == tcp.local && other.inode != tcp.inode;
    let is_ours = |other: &&Tcp| other.inode != 0 && table.has(other.inode);
    let others = || table.tcp.values().chain(&table.without_process).filter(is_other);
    if let Some(other) = others().find(is_ours) {
        return Tie::Inside(other);
    }
    let is_gone = others().all(|other| other.inode == 0 && other.state == TcpState::Ending);
    match tcp.state {
        TcpState::Ending if is_gone && is_local(tcp) => Tie::Ended,
        TcpState::Established | TcpState::Asking
            if listens(table, tcp.remote) && others().all(|other| other.inode == 0) =>
        {
            Tie::NotAccepted
        }
        _ => Tie::Outside,
    }
}

/// Were both ends on this machine?
fn is_local(tcp: &Tcp) -> bool {
    tcp.local.ip() == tcp.remote.ip() || tcp.remote.ip().is_loopback()
}

/// Does a socket of the tree wait for connections there?
fn listens(table: &Table, at: SocketAddr) -> bool {
    let mut listening = table.tcp.values().filter(|tcp| tcp.state == TcpState::Listening);
    listening.any(|tcp| {
        let local = tcp.local;
        table.has(tcp.inode) && local.port() == at.port() && (local.ip() == at.ip() || local.ip().is_unspecified())
    })
}

#[cfg(test)]
mod tests {
    use super::super::diag::Unix;
    use super::*;

    const JOB: [u32; 2] = [10, 11];

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn tcp(local: &str, remote: &str, state: TcpState, inode: u64) -> Tcp {
        Tcp {
            local: address(local),
            remote: address(remote),
            state,
            inode,
        }
    }

    /// The first process has socket 1, the second one socket 2; nobody of the job has any other.
    fn table(sockets: &[Tcp]) -> Table {
        let open = JOB.iter().zip(1..).map(|(pid, inode)| Open {
            pid: *pid,
            fd: 5,
            inode,
        });
        let (apart, had): (Vec<Tcp>, Vec<Tcp>) = sockets.iter().partition(|tcp| tcp.inode == 0);
        Table {
            open: open.collect(),
            tcp: had.into_iter().map(|tcp| (tcp.inode, tcp)).collect(),
            without_process: apart,
            ..Table::default()
        }
    }

    const HERE: &str = "127.0.0.1:40000";
    const THERE: &str = "127.0.0.1:80";
    const FAR: &str = "10.0.0.7:443";
    const STATES: [TcpState; 5] = [
        TcpState::Established,
        TcpState::Asking,
        TcpState::Listening,
        TcpState::Unconnected,
        TcpState::Ending,
    ];

    #[test]
    fn both_ends_of_the_job_make_a_pair_whatever_else_is_so() {
        for (one, other) in STATES
            .iter()
            .flat_map(|one| STATES.iter().map(move |other| (*one, *other)))
        {
            let is_connection = |state| !matches!(state, TcpState::Listening | TcpState::Unconnected);
            let ends = [tcp(HERE, THERE, one, 1), tcp(THERE, HERE, other, 2)];
            for outside in [Outside::Refuse, Outside::Close] {
                let plan = judge(&table(&ends), outside).expect("nothing is outside");
                let wanted: Vec<(u64, u64)> = [(1, 2, one), (2, 1, other)]
                    .into_iter()
                    .filter(|(_, _, state)| is_connection(*state))
                    .map(|(own, peer, _)| (own, peer))
                    .collect();
                assert_eq!((plan.pairs, plan.outward), (wanted, Vec::new()), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn an_end_that_is_not_the_jobs_is_outside_in_every_state() {
        for state in STATES {
            for peer in [THERE, FAR] {
                for is_seen in [true, false] {
                    let other = tcp(peer, HERE, TcpState::Established, 3);
                    let all = [tcp(HERE, peer, state, 1), other];
                    let table = table(&all[..1 + usize::from(is_seen)]);
                    let is_none = matches!(state, TcpState::Listening | TcpState::Unconnected);
                    // The other end is gone from this machine, and nothing can come of it.
                    let is_over = state == TcpState::Ending && !is_seen && peer == THERE;
                    let refused = judge(&table, Outside::Refuse);
                    let closed = judge(&table, Outside::Close).expect("they can be closed");
                    assert_eq!(refused.is_ok(), is_none || is_over, "{state:?} {peer} {is_seen}");
                    assert_eq!(
                        (closed.closes_all(), closed.outward.len()),
                        (refused.is_err(), usize::from(refused.is_err()))
                    );
                    if let Err(found) = refused {
                        let peer = address(peer);
                        assert_eq!(found, [Finding::Tcp { pid: 10, fd: 5, peer }]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_connection_that_the_job_has_not_accepted_has_to_be_tried_again() {
        let listening = tcp("0.0.0.0:80", "0.0.0.0:0", TcpState::Listening, 2);
        let early = tcp(HERE, THERE, TcpState::Established, 1);
        let waiting = tcp(THERE, HERE, TcpState::Established, 0);
        for outside in [Outside::Refuse, Outside::Close] {
            let found = judge(&table(&[listening, early, waiting]), outside).expect_err("it is too early");
            let peer = address(THERE);
            assert_eq!(found, [Finding::NotAccepted { pid: 10, fd: 5, peer }]);
        }
        // Somebody else listens there.
        let others = Tcp { inode: 9, ..listening };
        assert!(matches!(
            judge(&table(&[others, early, waiting]), Outside::Refuse).expect_err("outside")[..],
            [Finding::Tcp { .. }]
        ));
    }

    #[test]
    fn connections_of_both_kinds_are_refused_by_name_where_the_kernel_ends_none() {
        let mut both = table(&[
            tcp(HERE, THERE, TcpState::Established, 1),
            tcp(THERE, HERE, TcpState::Established, 2),
            tcp("10.0.0.1:5", FAR, TcpState::Established, 3),
        ]);
        both.open.push(Open {
            pid: 11,
            fd: 6,
            inode: 3,
        });
        let found = judge(&both, Outside::Close).expect_err("CRIU closes all or none");
        let peer = address(FAR);
        let wanted = Finding::Mixed {
            inside: 10,
            outside: 11,
            peer,
        };
        assert_eq!(found, [wanted]);
        let found = judge(&both, Outside::Refuse).expect_err("one is outside");
        assert_eq!(found, [Finding::Tcp { pid: 11, fd: 6, peer }]);
        both.can_end = true;
        let plan = judge(&both, Outside::Close).expect("that one is ended");
        let saved = plan.to_save();
        assert_eq!(
            (saved.is_tcp_closed, saved.ended),
            (false, vec![(address("10.0.0.1:5"), peer)])
        );
    }

    /// Whose the other end of a unix socket is.
    #[derive(Clone, Copy, PartialEq)]
    enum Peer {
        None,
        Job,
        Broker,
        Other,
    }

    #[test]
    fn a_unix_socket_is_saved_closed_or_refused_by_its_other_end() {
        let kinds = [Carries::Bytes, Carries::Messages, Carries::Packets];
        let peers = [Peer::None, Peer::Job, Peer::Broker, Peer::Other];
        for (carries, peer) in kinds
            .iter()
            .flat_map(|kind| peers.iter().map(move |peer| (*kind, *peer)))
        {
            for (is_stream, name) in [(true, "/run/log"), (false, "/run/log"), (false, "@name"), (false, "")] {
                let mut table = table(&[]);
                let number = [0, 2, 3, 4][peers.iter().position(|one| *one == peer).expect("one")];
                let own = Unix {
                    carries,
                    peer: number,
                    name: String::new(),
                };
                let other = Unix {
                    carries,
                    peer: 1,
                    name: name.to_owned(),
                };
                table.unix = BTreeMap::from([(1, own), (number, other)]);
                table.unix.remove(&0);
                table.own = [3].into();
                table.streams = is_stream.then_some(1).into_iter().collect();
                let is_named = carries == Carries::Messages && name.starts_with('/');
                let refused = judge(&table, Outside::Refuse);
                let plan = judge(&table, Outside::Close).expect("it can be closed");
                let is_outside = peer == Peer::Other;
                assert_eq!(!plan.streams.is_empty(), is_outside && is_stream);
                assert_eq!(plan.is_named, is_outside && !is_stream && is_named);
                assert_eq!(!plan.closed.is_empty(), is_outside && !is_stream && !is_named);
                assert_eq!(refused.is_err(), !plan.closed.is_empty());
                if let Err(found) = refused {
                    let peer = name.to_owned();
                    assert_eq!(found, [Finding::Unix { pid: 10, fd: 5, peer }]);
                }
            }
        }
    }

    #[test]
    fn what_else_cannot_be_saved_is_said_with_all_the_rest_once() {
        let far = tcp(HERE, FAR, TcpState::Established, 1);
        let mut table = table(&[far]);
        let queue = Finding::Queue {
            pid: 11,
            fd: 7,
            name: "/q".to_owned(),
        };
        table.unsaved = vec![queue.clone(), queue.clone()];
        let peer = address(FAR);
        let found = judge(&table, Outside::Refuse).expect_err("both");
        assert_eq!(found, [Finding::Tcp { pid: 10, fd: 5, peer }, queue.clone()]);
        assert_eq!(judge(&table, Outside::Close), Err(vec![queue]));
    }
}
