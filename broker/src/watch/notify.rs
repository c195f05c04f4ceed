// SPDX-License-Identifier: Apache-2.0
//! Tells a service manager that the broker is ready (`NOTIFY_SOCKET`, sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends the state, such as `READY=1`; does nothing without a service manager.
///
/// # Errors
/// The system's, when there is one and it cannot be reached.
pub fn notify(socket: Option<std::ffi::OsString>, state: &str) -> std::io::Result<()> {
    let Some(name) = socket else { return Ok(()) };
    let address = match name.as_bytes().split_first() {
        Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(&name)?,
    };
    let sender = UnixDatagram::unbound()?;
    // The event loop asks: a manager that does not read must not keep it.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn readiness_arrives_at_a_path_and_at_an_abstract_name() {
        let scratch = Scratch::new("notify");
        let path = scratch.path().join("s");
        let listener = UnixDatagram::bind(&path).expect("bound");
        notify(Some(path.into_os_string()), "READY=1").expect("sent");
        let mut buffer = [0; 32];
        let length = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"READY=1");

        let name = format!("partage-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixDatagram::bind_addr(&address).expect("bound");
        notify(Some(format!("@{name}").into()), "STOPPING=1").expect("sent");
        let length = listener.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"STOPPING=1");
        notify(None, "READY=1").expect("nothing to do");
    }
}
