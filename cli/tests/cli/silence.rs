// SPDX-License-Identifier: Apache-2.0
//! A broker that is there and does not answer: every command ends, says which process it is, and what to do.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, listen, socket};
use partage_protocol::admin::{Reply, Request, Waiting};

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, hear, listen_in, next, say, status};

/// Longer than any command may take, with room for a busy machine.
const LONGEST: Duration = Duration::from_secs(40);

#[test]
fn every_command_names_a_broker_that_takes_connections_and_says_nothing() {
    let bench = Bench::new();
    let _deaf = listen_in(&bench.socket_dir());
    let commands: &[(&[&str], i32)] = &[
        (&["ps"], 5),
        (&["ps", "-a"], 5),
        (&["status"], 5),
        (&["get", "j1"], 5),
        (&["set", "j1", "mem=1GiB"], 5),
        (&["why", "j1"], 5),
        (&["stop", "j1", "--grace", "0s"], 5),
        (&["events"], 5),
        (&["events", "-f"], 5),
        (&["broker", "start"], 5),
        (&["broker", "stop"], 5),
        (&["run", "true"], 125),
        (&["run", "--dry-run", "true"], 125),
    ];
    let named = format!(
        "(pid {}) did not answer within 10 s; replace it: kill -9 ",
        std::process::id()
    );
    std::thread::scope(|scope| {
        for (arguments, code) in commands {
            let (bench, named) = (&bench, &named);
            scope.spawn(move || {
                let began = Instant::now();
                let (got, out, err) = result(bench.partage(arguments));
                assert_eq!((got, out.as_str()), (*code, ""), "{arguments:?}: {err}");
                assert!(err.contains(named), "{arguments:?}: {err}");
                assert!(began.elapsed() < LONGEST, "{arguments:?}: {:?}", began.elapsed());
            });
        }
        // Its answers are data: what is wrong stands in them.
        for (arguments, code) in [(&["doctor"][..], 1), (&["broker", "status"], 5)] {
            let (bench, named) = (&bench, &named);
            scope.spawn(move || {
                let began = Instant::now();
                let (got, out, err) = result(bench.partage(arguments));
                assert_eq!(got, code, "{arguments:?}: {err}");
                let said = out
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .replace(" fix: ", "; ");
                assert!(said.contains(named), "{arguments:?}: {out}");
                assert!(began.elapsed() < LONGEST, "{arguments:?}: {:?}", began.elapsed());
            });
        }
    });
}

/// A broker that takes no connections any more: the queue of its socket is full.
#[test]
fn a_broker_whose_socket_is_full_is_named_by_its_lock() {
    let bench = Bench::new();
    let full = listen_in(&bench.socket_dir());
    listen(&full, nix::sys::socket::Backlog::new(0).expect("a backlog")).expect("listens");
    let path = bench.socket_dir().join("client/client.sock");
    let waits = || -> OwnedFd {
        let waiting = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        connect(waiting.as_raw_fd(), &UnixAddr::new(&path).expect("short")).expect("the first one fits");
        waiting
    };
    let _first = waits();
    let lock = std::fs::File::create(bench.socket_dir().join("broker.lock")).expect("made");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("locked");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (arguments, code) in [(&["ps"][..], 5), (&["run", "true"], 125)] {
            let bench = &bench;
            scope.spawn(move || {
                let (got, _, err) = result(bench.partage(arguments));
                assert_eq!(got, code, "{err}");
                let named = format!("(pid {}) did not answer within 10 s", std::process::id());
                assert!(err.contains(&named), "{arguments:?}: {err}");
            });
        }
    });
    assert!(began.elapsed() < LONGEST);
}

/// Somebody who began to start the broker and stands still must not keep others waiting for ever.
#[test]
fn a_start_that_does_not_end_is_named() {
    let bench = Bench::new();
    std::fs::create_dir(bench.socket_dir()).expect("made");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(bench.socket_dir(), mode).expect("chmod");
    let lock = std::fs::File::create(bench.socket_dir().join("start.lock")).expect("made");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).expect("locked");
    let (code, _, err) = result(bench.partage(&["run", "true"]));
    assert_eq!(code, 125, "{err}");
    let named = format!(
        "(pid {}) has been starting the broker for more than 15 s",
        std::process::id()
    );
    assert!(err.contains(&named), "{err}");
}

/// The driver may take half a minute to open: a broker that answers others is waited for, and that is said.
#[test]
fn a_broker_that_waits_for_the_driver_is_waited_for_aloud() {
    let bench = Bench::new();
    let listener = listen_in(&bench.socket_dir());
    let dir = bench.socket_dir();
    let played = std::thread::spawn(move || {
        let run = next(&listener);
        assert!(matches!(hear(&run), Some(Request::Run(_))));
        let look = next(&listener);
        assert_eq!(hear(&look), Some(Request::Status));
        say(&look, &Reply::Status(status(&dir)));
        let waiting = Waiting {
            position: 1,
            reason: "no room".to_owned(),
            holders: vec![],
        };
        say(&run, &Reply::Waiting(waiting));
        say(&run, &Reply::Admitted(admitted()));
    });
    let (code, _, err) = result(bench.partage(&["run", "true"]));
    played.join().expect("asked as expected");
    assert_eq!(code, 0, "{err}");
    assert!(err.starts_with("partage: the broker is looking for the GPUs"), "{err}");
}
