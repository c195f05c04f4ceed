// SPDX-License-Identifier: Apache-2.0
//! System calls of sockets: connect, wait, and packets with descriptors.

use core::ffi::{c_char, c_int, c_void};

use super::{EINTR, call, now_ns, pad, timespec};

/// A SEQPACKET unix socket, close-on-exec.
pub fn socket() -> isize {
    call!(SYS_socket, libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)
}

/// Bounds how long `connect` may block.
pub fn set_send_timeout(fd: c_int, duration_ns: u64) {
    let time = libc::timeval {
        tv_sec: (duration_ns / 1_000_000_000) as _,
        tv_usec: (duration_ns % 1_000_000_000 / 1000) as _,
    };
    let _ = call!(
        SYS_setsockopt,
        fd,
        libc::SOL_SOCKET,
        libc::SO_SNDTIMEO,
        &raw const time,
        size_of_val(&time)
    );
}

/// Connects to a unix socket; `path` is without its final zero and shorter than `sun_path`.
pub fn connect(fd: c_int, path: &[u8]) -> isize {
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as _,
        sun_path: [0; 108],
    };
    if path.len() >= address.sun_path.len() {
        return -(libc::ENAMETOOLONG as isize);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as c_char;
    }
    call!(SYS_connect, fd, &raw const address, size_of_val(&address))
}

/// The user at the other end of a socket, as the kernel knows it.
pub fn peer_uid(fd: c_int) -> Option<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of_val(&peer) as u32;
    let result = call!(
        SYS_getsockopt,
        fd,
        libc::SOL_SOCKET,
        libc::SO_PEERCRED,
        &raw mut peer,
        &raw mut length
    );
    (result == 0).then_some(peer.uid)
}

/// Waits until `fd` has one of `events`; answers the events that came, 0 after `timeout_ns`.
pub fn poll(fd: c_int, events: i16, timeout_ns: u64) -> i16 {
    let end = now_ns().saturating_add(timeout_ns);
    loop {
        let mut entry = libc::pollfd { fd, events, revents: 0 };
        let time = timespec(end.saturating_sub(now_ns()));
        let result = call!(SYS_ppoll, &raw mut entry, 1, &raw const time, 0, 8);
        if result != EINTR {
            return if result > 0 { entry.revents } else { 0 };
        }
    }
}

/// Sends one packet with up to two descriptors; never raises SIGPIPE, and never waits for a reader: EAGAIN.
pub fn send(fd: c_int, packet: &[u8], descriptors: &[c_int]) -> isize {
    let mut control = Control::default();
    let count = descriptors.len().min(control.fds.len());
    for (to, from) in control.fds.iter_mut().zip(descriptors) {
        *to = *from;
    }
    control.length = size_of::<usize>() + 8 + count * size_of::<c_int>();
    let part = libc::iovec {
        iov_base: packet.as_ptr() as *mut c_void,
        iov_len: packet.len(),
    };
    // SAFETY: `msghdr` is plain numbers and pointers; zero is a value of each.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = (&raw const part).cast_mut();
    message.msg_iovlen = 1;
    if count > 0 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>() as _;
    }
    loop {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let result = call!(SYS_sendmsg, fd, &raw const message, flags);
        if result != EINTR {
            return result;
        }
    }
}

/// Receives one packet without waiting, and up to two descriptors (close-on-exec; -1 where none came).
pub fn receive(fd: c_int, buffer: &mut [u8]) -> (isize, [c_int; 2]) {
    let mut control = Control::default();
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: `msghdr` is plain numbers and pointers; zero is a value of each.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let mut result;
    loop {
        result = call!(
            SYS_recvmsg,
            fd,
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC
        );
        if result != EINTR {
            break;
        }
    }
    let mut descriptors = [-1; 2];
    let head = size_of::<usize>() + 8;
    if result >= 0 && control.kind == libc::SCM_RIGHTS && control.length > head {
        let count = (control.length - head) / size_of::<c_int>();
        for (to, from) in descriptors.iter_mut().zip(control.fds).take(count) {
            *to = from;
        }
    }
    (result, descriptors)
}

/// A `cmsghdr` with room for two descriptors, as the kernel lays it out on 64-bit machines.
#[repr(C)]
struct Control {
    length: usize,
    level: c_int,
    kind: c_int,
    fds: [c_int; 2],
}

impl Default for Control {
    fn default() -> Self {
        Self {
            length: 0,
            level: libc::SOL_SOCKET,
            kind: libc::SCM_RIGHTS,
            fds: [-1; 2],
        }
    }
}
