// SPDX-License-Identifier: Apache-2.0
//! Descriptors on their way between the processes of a test: children send them to the test and get them from it, as
//! ancillary data of a socket.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Where the children of a test find it.
pub struct Hub(UnixListener);

impl Hub {
    /// Precondition: once per folder.
    pub fn new(folder: &Path) -> Self {
        Self(UnixListener::bind(folder.join("hub")).expect("a socket"))
    }

    /// The descriptor that the next child sends.
    pub fn get(&self) -> File {
        receive(&self.0.accept().expect("a child").0)
    }

    /// Sends a descriptor to the next child that asks.
    pub fn give(&self, file: &File) {
        send(&self.0.accept().expect("a child").0, file.as_raw_fd());
    }
}

/// The connection of a child to its test.
pub fn hub() -> UnixStream {
    let folder = std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test");
    UnixStream::connect(Path::new(&folder).join("hub")).expect("the test listens")
}

/// Room for the ancillary data of one descriptor, aligned as its header must be.
const WORDS: usize = 8;

pub fn send(to: &UnixStream, descriptor: RawFd) {
    let data = [IoSlice::new(b"d")];
    let mut room = [0_u64; WORDS];
    // SAFETY: the message and all it leads to live during the call; the header is inside the room for it.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = data.as_ptr().cast_mut().cast();
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        libc::sendmsg(to.as_raw_fd(), &message, 0)
    };
    assert_eq!(sent, 1, "{}", std::io::Error::last_os_error());
}

pub fn receive(from: &UnixStream) -> File {
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let mut room = [0_u64; WORDS];
    // SAFETY: as above; the kernel fills the header when it answers with a descriptor, which is then ours.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = data.as_mut_ptr().cast();
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        assert_eq!(libc::recvmsg(from.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC), 1);
        let header = libc::CMSG_FIRSTHDR(&message);
        assert!(!header.is_null(), "no descriptor came");
        File::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
    }
}
