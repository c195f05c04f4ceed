// SPDX-License-Identifier: Apache-2.0
//! Tells a service manager that the event loop still turns (`WATCHDOG_USEC`, sd_watchdog_enabled(3)).

use std::ffi::OsString;

use tracing::warn;

use super::notify::notify;

/// A sign of life is due this many times in the manager's time: it waits for the whole of it.
const SIGNS: u64 = 3;

/// When the next sign of life is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watchdog {
    socket: OsString,
    every_ns: u64,
    due_ns: u64,
}

impl Watchdog {
    /// What this process's environment asks for.
    #[must_use]
    pub fn asked() -> Option<Self> {
        let variable = |name| std::env::var(name).ok();
        let every_ns = every(
            std::process::id(),
            variable("WATCHDOG_PID").as_deref(),
            variable("WATCHDOG_USEC").as_deref(),
        )?;
        let socket = std::env::var_os("NOTIFY_SOCKET")?;
        Some(Self {
            socket,
            every_ns,
            due_ns: 0,
        })
    }

    /// When the loop has to turn at the latest.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// The loop turned: says so where it is due.
    pub fn turned(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = now_ns + self.every_ns;
        if let Err(error) = notify(Some(self.socket.clone()), "WATCHDOG=1") {
            warn!(%error, "the service manager's watchdog was not told");
        }
    }
}

/// Nanoseconds from one sign of life to the next; `None` where nobody waits for any from this process.
fn every(own: u32, pid: Option<&str>, micros: Option<&str>) -> Option<u64> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let micros: u64 = micros?.parse().ok()?;
    (micros > 0).then(|| micros.saturating_mul(1_000) / SIGNS)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_sign_is_due_in_less_than_half_the_time_of_whom_it_is_asked() {
        assert_eq!(every(7, None, Some("30000000")), Some(10_000_000_000));
        assert_eq!(every(7, Some("7"), Some("30000000")), Some(10_000_000_000));
        for (pid, micros) in [
            (Some("8"), Some("30000000")),
            (Some(""), Some("30000000")),
            (None, None),
            (None, Some("0")),
            (None, Some("soon")),
        ] {
            assert_eq!(every(7, pid, micros), None, "{pid:?} {micros:?}");
        }
    }

    #[test]
    fn a_loop_that_does_not_turn_says_nothing() {
        let scratch = Scratch::new("watchdog");
        let path = scratch.path().join("s");
        let manager = UnixDatagram::bind(&path).expect("bound");
        manager.set_nonblocking(true).expect("set");
        let mut watchdog = Watchdog {
            socket: path.into_os_string(),
            every_ns: 100,
            due_ns: 0,
        };
        let heard = || {
            let mut buffer = [0; 32];
            let mut count = 0;
            while let Ok(length) = manager.recv(&mut buffer) {
                assert_eq!(&buffer[..length], b"WATCHDOG=1");
                count += 1;
            }
            count
        };
        for (now_ns, expected) in [(5, 1), (6, 0), (104, 0), (105, 1), (1_000, 1), (1_001, 0)] {
            watchdog.turned(now_ns);
            assert_eq!(heard(), expected, "at {now_ns}");
        }
        assert_eq!(watchdog.due_ns(), 1_100);
    }
}
