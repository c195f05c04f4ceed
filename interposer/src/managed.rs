// SPDX-License-Identifier: Apache-2.0
//! A managed host while its broker is away: its programs get no memory until it is back, unless it left word that some
//! may ([`without_broker`]).

use core::ffi::c_int;

use partage_protocol::without_broker::{self, MOST_BYTES, NAME};

use crate::guest::sys;
use crate::guest::text::Text;
use crate::settings::{PATH_BYTES, Settings};

/// Is nobody at the socket's folder to be waited for, and memory closed meanwhile? Only where the host is managed: by
/// the word of a broker that was there, or by the folder that only root makes.
pub fn is_closed(settings: &Settings) -> bool {
    let mut path = Text::<PATH_BYTES>::new();
    path.push(settings.socket_dir.as_bytes()).push("/client/").push(NAME);
    if !path.is_complete() {
        return false;
    }
    let Some(fd) = c_int::try_from(sys::open(path.as_c_str(), libc::O_RDONLY | libc::O_NONBLOCK, 0))
        .ok()
        .filter(|fd| *fd >= 0)
    else {
        return settings.is_system_dir;
    };
    let mut text = [0; MOST_BYTES];
    let length = usize::try_from(sys::read(fd, &mut text)).unwrap_or(0);
    sys::close(fd);
    let mut groups = [0; 64];
    // With more of them than can be asked for, a line that closes one of them could be missed.
    let Some(groups) = sys::groups(&mut groups) else {
        return true;
    };
    let who = is_of_first_namespace().then_some((sys::effective_uid(), groups));
    !without_broker::is_open(text.get(..length).unwrap_or(&[]), who)
}

/// Do this process's numbers of users mean what they mean to the broker?
fn is_of_first_namespace() -> bool {
    let mut map = [0; 64];
    let Ok(fd) = c_int::try_from(sys::open(c"/proc/self/uid_map", libc::O_RDONLY, 0)) else {
        return false;
    };
    let length = usize::try_from(sys::read(fd, &mut map)).unwrap_or(0);
    sys::close(fd);
    let text = map.get(..length).unwrap_or(&[]);
    let mut words = text
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    // Each user is himself.
    words.next() == Some(b"0") && words.next() == Some(b"0") && words.next() == Some(b"4294967295")
}
