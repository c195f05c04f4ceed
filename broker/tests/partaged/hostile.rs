// SPDX-License-Identifier: Apache-2.0
//! Peers that misbehave harm no one else: garbage, half messages, strange descriptors, floods.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use partage_broker::host::pidfd::PidFd;
use partage_broker::state::pages::PagePair;
use partage_protocol::admin::{EventsRequest, Reply, Request};
use partage_protocol::message::{Ask, ENVIRONMENT_BYTES, Hello, REFUSED_IDENTITY, ToClient};
use partage_protocol::units::{ClientId, GIB};
use zerocopy::IntoBytes;

use crate::client::ClientProcess;
use crate::rig::{PATIENCE, Rig, Wire};

pub fn hello() -> Hello {
    Hello {
        header: Hello::header(0),
        token: [0; 32],
        client: 0,
        environment_limit: 0,
        pid: 0,
        flags: 0,
        environment_length: 0,
        nodes: 0,
        environment: [0; ENVIRONMENT_BYTES],
    }
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);

    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = seed;
    let mut next = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let valid = hello();
    for round in 0..2000 {
        let wire = Wire::connect(&rig.client_socket()).expect("connected");
        let mut packet = match round % 4 {
            0 => (0..next() % 300 + 1).map(|_| next() as u8).collect::<Vec<u8>>(),
            1 => valid.as_bytes()[..next() as usize % size_of::<Hello>() + 1].to_vec(),
            2 => [
                b"PTGJ\x01\0\0\0".to_vec(),
                (0..next() % 64).map(|_| next() as u8).collect(),
            ]
            .concat(),
            _ => valid.as_bytes().to_vec(),
        };
        let place = next() as usize % packet.len();
        packet[place] ^= 1 << (next() % 8);
        let _ = wire.send(&packet, &[]);
        let _ = wire.send(&packet, &[]);
    }
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(rig.job(&job).devices[0].used_bytes, GIB);
}

#[test]
fn a_message_before_hello_a_second_hello_and_a_wrong_ask_are_ends_or_answers() {
    let rig = Rig::new(1, 16 * GIB);
    let ask = Ask {
        header: Ask::header(9),
        slot: 77,
        reserved: 0,
        wanted: u64::MAX,
        request: u64::MAX,
    };
    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.send(ask.as_bytes(), &[]).expect("sent");
    assert!(wire.receive().is_none(), "closed");

    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.send(hello().as_bytes(), &[]).expect("sent");
    let (packet, fds) = wire.receive().expect("welcomed");
    assert!(matches!(ToClient::decode(&packet), Ok(ToClient::Welcome(_))) && fds.len() == 2);
    wire.send(ask.as_bytes(), &[]).expect("sent");
    let (packet, _) = wire.receive().expect("answered");
    match ToClient::decode(&packet) {
        Ok(ToClient::Answer(answer)) => {
            assert_eq!(
                (answer.header.sequence, answer.verdict),
                (9, partage_protocol::message::VERDICT_INVALID)
            );
        }
        other => panic!("{other:?}"),
    }
    wire.send(hello().as_bytes(), &[]).expect("sent");
    assert!(wire.receive().is_none(), "closed");
}

#[test]
fn another_major_is_refused_with_a_reason() {
    let rig = Rig::without_driver();
    let mut hello = hello();
    hello.header.major = 99;
    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.send(hello.as_bytes(), &[]).expect("sent");
    let (packet, _) = wire.receive().expect("refused");
    match ToClient::decode(&packet) {
        Ok(ToClient::Refused(refused)) => assert_eq!(refused.code, partage_protocol::message::REFUSED_VERSION),
        other => panic!("{other:?}"),
    }
    assert!(wire.receive().is_none(), "closed");
}

/// Both pages of a client, in the order in which it has them: the kernel lets another process of its user open them.
fn pages_of(pid: u32) -> Vec<OwnedFd> {
    ["partage-grants", "partage-use"]
        .into_iter()
        .filter_map(|name| {
            let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
            let is_it = |path: &std::path::Path| {
                std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(&format!("/memfd:{name}")))
            };
            let path = files.map(|file| file.path()).find(|path| is_it(path))?;
            Some(
                std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)
                    .ok()?
                    .into(),
            )
        })
        .collect()
}

#[test]
fn another_clients_id_and_another_clients_pages_are_refused() {
    let rig = Rig::new(1, 16 * GIB);
    let mut victim = ClientProcess::start(&rig);
    let job = victim.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    let stolen = pages_of(victim.pid());
    assert_eq!(stolen.len(), 2, "both are found");
    let lent = || [stolen[0].as_fd(), stolen[1].as_fd()];
    // This process is a client as well.
    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.send(hello().as_bytes(), &[]).expect("sent");
    let (packet, own) = wire.receive().expect("welcomed");
    let Ok(ToClient::Welcome(welcome)) = ToClient::decode(&packet) else {
        panic!("refused");
    };
    let others = (1..welcome.client).find(|id| PagePair::take_back(lent(), ClientId(*id)).is_ok());
    let others = others.expect("the victim came first");
    let unknown = welcome.client + 1_000;
    for (client, pages) in [
        (others, &[][..]),
        (others, &stolen),
        (others, &own),
        (welcome.client, &stolen),
        (unknown, &stolen),
        (unknown, &own),
        (unknown, &[]),
    ] {
        let mut hello = hello();
        hello.client = client;
        let another = Wire::connect(&rig.client_socket()).expect("connected");
        let fds: Vec<&OwnedFd> = pages.iter().collect();
        another.send(hello.as_bytes(), &fds).expect("sent");
        let (packet, given) = another.receive().expect("answered");
        match ToClient::decode(&packet) {
            Ok(ToClient::Refused(refused)) => assert_eq!(refused.code, REFUSED_IDENTITY, "{client}"),
            other => panic!("{client} with {} pages: {other:?}", pages.len()),
        }
        assert!(given.is_empty() && another.receive().is_none(), "{client}: closed");
    }
    // Neither of the two lost anything by it.
    assert_eq!(victim.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(rig.job(&job).devices[0].used_bytes, GIB);
    assert_eq!(rig.job(&job).clients.len(), 1);
}

#[test]
fn strange_descriptors_are_refused_and_none_stays_open() {
    let rig = Rig::new(1, 16 * GIB);
    let broker = rig.status().broker.pid;
    let count = || std::fs::read_dir(format!("/proc/{broker}/fd")).expect("ours").count();
    let before = count();
    let files: Vec<OwnedFd> = (0..200)
        .map(|_| std::fs::File::open("/dev/null").expect("there").into())
        .collect();
    for number in [1, 2, 3, 200] {
        let mut hello = hello();
        hello.client = 12345;
        let wire = Wire::connect(&rig.client_socket()).expect("connected");
        let fds: Vec<&OwnedFd> = files[..number].iter().collect();
        wire.send(hello.as_bytes(), &fds).expect("sent");
        let (packet, _) = wire.receive().expect("refused");
        assert!(matches!(ToClient::decode(&packet), Ok(ToClient::Refused(_))));
        assert!(wire.receive().is_none(), "closed");
    }
    let deadline = Instant::now() + PATIENCE;
    while count() > before {
        assert!(Instant::now() < deadline, "{} descriptors, {before} before", count());
    }
}

/// Sends a packet twice (the second waits behind the first) with `count` connections to `listener` whose last close
/// takes an hour: what they have to send is not taken, and they are told to wait for that.
///
/// In a table of descriptors of its own: a process that another test starts meanwhile would have them too, and close
/// them last.
fn send_with_lingering(rig: &Rig, listener: &std::net::TcpListener, packet: &[u8], count: usize) {
    let address = listener.local_addr().expect("bound");
    let lingering = || {
        let mut stream = std::net::TcpStream::connect(address).expect("connected");
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 3600,
        };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).expect("told");
        stream.set_nonblocking(true).expect("told");
        while std::io::Write::write(&mut stream, &[0; 65536]).is_ok() {}
        OwnedFd::from(stream)
    };
    let send = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).expect("a table of its own");
        let wire = Wire::connect(&rig.client_socket()).expect("connected");
        let held: Vec<OwnedFd> = (0..count).map(|_| lingering()).collect();
        let fds: Vec<&OwnedFd> = held.iter().collect();
        for _ in 0..2 {
            wire.send(packet, &fds).expect("sent");
        }
    };
    std::thread::scope(|scope| scope.spawn(send).join().expect("sent"));
}

#[test]
fn a_descriptor_that_takes_an_hour_to_close_makes_nobody_wait() {
    let mut rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    let broker = PidFd::open(rig.status().broker.pid).expect("it runs");
    let mut back = hello();
    back.client = 12345;
    let mut command = b"PTGJ\0\0\0\0".to_vec();
    command.resize(64, b' ');
    // Garbage; a message out of place; a client that comes back; half a command.
    let packets = [
        b"x".to_vec(),
        hello().as_bytes().to_vec(),
        back.as_bytes().to_vec(),
        command,
    ];
    // Takes none of them, and is there until the end.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of the loopback device");
    for packet in &packets {
        // Stopped until nobody else has them: whoever closes them last is who waits.
        broker.signal(libc::SIGSTOP);
        for count in [1, 2, 3] {
            send_with_lingering(&rig, &listener, packet, count);
        }
        broker.signal(libc::SIGCONT);
        // Each answer is awaited for much less than an hour.
        rig.status();
    }
    // A kernel that can refuses them at the administrators' socket.
    let wire = Wire::connect(&rig.socket_dir().join("admin.sock")).expect("connected");
    let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("there"));
    if let Err(error) = wire.send(b"x", &[&file]) {
        assert_eq!(error, nix::Error::EPERM);
    }
    drop((file, wire));
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    assert!(matches!(rig.ask(&Request::StopBroker), Reply::Done { .. }));
    rig.wait_for_exit();
    rig.start();
    rig.status();
}

#[test]
fn ten_thousand_silent_connections_do_not_keep_anyone_out() {
    partage_broker::server::limits::raise_descriptor_limit();
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let mut open = Vec::new();
    for _ in 0..10_000 {
        match Wire::connect(&rig.client_socket()) {
            Ok(wire) => open.push(wire),
            Err(error) => panic!("after {}: {error}", open.len()),
        }
    }
    let mut newcomer = ClientProcess::start(&rig);
    newcomer.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    assert_eq!(newcomer.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    let broker = rig.status().broker.pid;
    let descriptors = std::fs::read_dir(format!("/proc/{broker}/fd")).expect("ours").count();
    assert!(descriptors < 700, "{descriptors} descriptors");
}

#[test]
fn a_command_that_never_reads_does_not_stop_the_others() {
    let rig = Rig::new(1, 16 * GIB);
    let deaf: Vec<Wire> = (0..20)
        .map(|_| {
            let wire = Wire::connect(&rig.client_socket()).expect("connected");
            wire.request(&Request::Events(EventsRequest {
                follow: true,
                ..EventsRequest::default()
            }));
            wire
        })
        .collect();
    for _ in 0..200 {
        assert!(matches!(
            rig.ask(&Request::Ps { all: true, after: None }),
            Reply::Ps { .. }
        ));
    }
    drop(deaf);
    let mut client = ClientProcess::start(&rig);
    client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
}
