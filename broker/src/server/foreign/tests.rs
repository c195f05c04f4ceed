// SPDX-License-Identifier: Apache-2.0
//! Descriptors whose close lasts an hour, with and without tables of their own.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use partage_protocol::units::ClientId;

use super::Foreign;
use crate::peer::ConnectionId;
use crate::testing::refuse_call;

fn connection() -> (OwnedFd, OwnedFd) {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair")
}

fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe")
}

fn send(connection: &OwnedFd, descriptor: OwnedFd) {
    let rights = [descriptor.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&rights)];
    let slices = [IoSlice::new(b"x")];
    sendmsg::<()>(connection.as_raw_fd(), &slices, &control, MsgFlags::empty(), None).expect("sent");
}

/// What it has to send is not taken, and its last close waits an hour for that.
fn lingering(listener: &TcpListener) -> OwnedFd {
    let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 3600,
    };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).expect("told");
    stream.set_nonblocking(true).expect("told");
    while stream.write(&[0; 65536]).is_ok() {}
    stream.into()
}

/// Each read of `end` waits until the other end is closed by all.
fn wait_until_closed(end: OwnedFd) {
    assert_eq!(File::from(end).read(&mut [0]).expect("a pipe"), 0);
}

fn close_and_check_without_waiting(foreign: &Foreign) {
    let (ours, theirs) = connection();
    let (read, write) = pipe();
    send(&theirs, write);
    assert!(foreign.check(ConnectionId(1), 0, ClientId(7), ours.as_fd()));
    let checked = loop {
        let _ = poll(&mut [PollFd::new(foreign.bell(), PollFlags::POLLIN)], PollTimeout::NONE);
        if let Some(checked) = foreign.checked().pop() {
            break checked;
        }
    };
    assert_eq!(checked.connection, ConnectionId(1));
    assert!(checked.pages.is_err());
    wait_until_closed(read);

    let (read, write) = pipe();
    send(&theirs, write);
    foreign.close(ConnectionId(1), 0, ours);
    wait_until_closed(read);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback device");
    let (ours, theirs) = connection();
    send(&theirs, lingering(&listener));
    foreign.close(ConnectionId(2), 0, ours);
}

#[test]
fn where_the_system_refuses_tables_foreign_descriptors_are_closed_off_the_loop_all_the_same() {
    let thread = std::thread::spawn(|| {
        let usual = Foreign::start().expect("started");
        close_and_check_without_waiting(&usual);
        refuse_call(libc::SYS_unshare, libc::CLONE_FILES as u32);
        let foreign = Foreign::start().expect("a container's broker starts too");
        assert!(foreign.note().is_some_and(|note| note.contains("unshare")));
        close_and_check_without_waiting(&foreign);
    });
    assert!(thread.join().is_ok());
}
