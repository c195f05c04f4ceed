// SPDX-License-Identifier: Apache-2.0
//! A host's broker that is given its sockets, as systemd does it: they stay open from one broker to the next, and who
//! comes in between waits.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::ruled_host::{SOON, command, config};
use super::{Case, tenth};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    const SIM: &str = "who connects when says nothing about a driver";
    vec![
        Case::new("given_sockets::restarts_lose_no_client_and_no_limit", restarts).simulated(SIM),
        Case::new("given_sockets::another_set_is_refused_and_named", wrong_sets).simulated(SIM),
        Case::new("given_sockets::the_watchdog_hears_of_a_loop_that_turns", watchdog).simulated(SIM),
    ]
}

/// Restarts under `scripts/test --soak`.
const RESTARTS: usize = 100;
/// Clients that come with each restart: the first half while the broker is about to end, the rest while none is there.
const COMERS: usize = 4;

/// Listens at `path` with a mode.
fn listen(path: &Path, kind: libc::c_int, mode: libc::mode_t) -> OwnedFd {
    let text = path.as_os_str().as_bytes();
    // SAFETY: plain numbers; zero is a value of each.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    assert!(text.len() < address.sun_path.len(), "{}", path.display());
    for (to, from) in address.sun_path.iter_mut().zip(text) {
        *to = *from as libc::c_char;
    }
    let name = CString::new(text).expect("a path");
    // SAFETY: the address and the name live through the calls, and the new descriptor is nobody else's.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let length = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        assert_eq!(libc::chmod(name.as_ptr(), mode), 0);
        assert_eq!(libc::listen(fd, 4096), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Who holds the sockets and starts brokers with them.
struct Holder<'a> {
    rig: &'a Rig,
    paths: [PathBuf; 2],
    sockets: [OwnedFd; 2],
}

impl<'a> Holder<'a> {
    fn new(rig: &'a Rig) -> Self {
        std::fs::write(config(rig), "schema = 1\n").expect("writable");
        let folder = rig.socket_dir();
        std::fs::create_dir_all(folder.join("client")).expect("writable");
        let paths = [folder.join("client/client.sock"), folder.join("admin.sock")];
        let sockets = [(&paths[0], 0o666), (&paths[1], 0o660)];
        let sockets = sockets.map(|(path, mode)| listen(path, libc::SOCK_SEQPACKET, mode));
        Self { rig, paths, sockets }
    }

    /// A broker that is told these names for these sockets, not started yet.
    fn broker(&self, sockets: [&OwnedFd; 2], names: &str) -> Command {
        let broker = command(self.rig);
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", "export LISTEN_PID=$$; exec \"$0\" \"$@\""])
            .arg(broker.get_program())
            .args(broker.get_args());
        shell.env_clear();
        shell.envs(broker.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", names);
        let given = sockets.map(AsRawFd::as_raw_fd);
        // SAFETY: between fork and exec only descriptors are copied. The copies come from above the two places, so
        // that the first does not take the second's.
        unsafe {
            shell.pre_exec(move || {
                let copies = given.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10));
                for (copy, place) in copies.into_iter().zip([3, 4]) {
                    if copy < 0 || libc::dup2(copy, place) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        shell.stdin(Stdio::null());
        shell
    }

    fn start(&self) -> Child {
        let [client, admin] = &self.sockets;
        let mut broker = self.broker([client, admin], "client:admin");
        broker.spawn().expect("the broker starts")
    }

    fn inodes(&self) -> [u64; 2] {
        [0, 1].map(|which| self.paths[which].metadata().expect("still there").ino())
    }
}

/// A client of a job of its own, on its way.
fn comer(rig: &Rig) -> Client {
    rig.client(&["-m", "1GiB", "-q"])
}

fn restarts(rig: &Rig) {
    let holder = Holder::new(rig);
    let inodes = holder.inodes();
    // Before any broker is there.
    let mut first = comer(rig);
    let mut broker = holder.start();
    first.ready();
    first.expect(&format!("alloc {} held", 256 * MIB), "alloc 0");
    let rounds = RESTARTS / tenth();
    for round in 0..rounds {
        let mut comers: Vec<Client> = (0..COMERS / 2).map(|_| comer(rig)).collect();
        // They are somewhere between their start and their limit when the broker ends.
        std::thread::sleep(Duration::from_millis(7 * (round as u64 % 20)));
        let signal = if round % 2 == 0 { libc::SIGKILL } else { libc::SIGTERM };
        // SAFETY: this case's own child.
        unsafe { libc::kill(broker.id().cast_signed(), signal) };
        broker.wait().expect("its end");
        comers.extend((0..COMERS / 2).map(|_| comer(rig)));
        let mut look = rig.partage(&["ps", "--json"]);
        let mut look = look.stdout(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(20));
        assert!(look.try_wait().expect("asked").is_none(), "nobody answers yet");
        broker = holder.start();
        assert!(look.wait().expect("its end").success(), "it was answered");
        for client in &mut comers {
            client.ready();
            client.expect(&format!("alloc {} over", 2 * GIB), "alloc 2");
            client.expect(&format!("alloc {} fits", 64 * MIB), "alloc 0");
            client.kill();
        }
        first.expect(&format!("alloc {} over", 2 * GIB), "alloc 2");
        first.expect(&format!("alloc {} more", 64 * MIB), "alloc 0");
        first.expect("free more", "free 0");
    }
    assert_eq!(holder.inodes(), inodes, "no broker made a socket of its own");
    // The last one is told to end, and leaves them, too.
    let stop = rig.output(rig.partage(&["broker", "stop"]));
    assert!(stop.status.success(), "{}", String::from_utf8_lossy(&stop.stderr));
    broker.wait().expect("its end");
    assert_eq!(holder.inodes(), inodes, "nor removed one");
    let mut broker = holder.start();
    rig.eventually(SOON, "only the first job is left", || rig.jobs().len() == 1);
    first.kill();
    rig.note(format!("{rounds} restarts, {} clients", rounds * COMERS));
    let _ = broker.kill();
    let _ = broker.wait();
}

/// What a service manager with a watchdog of 300 ms hears, and that a stopped broker says nothing.
fn watchdog(rig: &Rig) {
    let holder = Holder::new(rig);
    let path = rig.dir.join("notify.sock");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(SOON)).expect("set");
    let [client, admin] = &holder.sockets;
    let mut command = holder.broker([client, admin], "client:admin");
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut broker = command.spawn().expect("it starts");
    let hear = || {
        let mut buffer = [0; 4096];
        let length = manager.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    assert_eq!(hear().as_deref(), Some("READY=1"));
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(hear().as_deref(), Some("WATCHDOG=1"));
    }
    assert!(
        start.elapsed() >= Duration::from_millis(800),
        "no more often than asked"
    );
    // SAFETY: this case's own child.
    unsafe { libc::kill(broker.id().cast_signed(), libc::SIGSTOP) };
    manager.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
    while hear().is_some() {}
    manager.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
    assert_eq!(hear(), None, "it is stopped");
    let _ = broker.kill();
    let _ = broker.wait();
    for path in &holder.paths {
        std::fs::remove_file(path).expect("ours");
    }
}

fn wrong_sets(rig: &Rig) {
    let holder = Holder::new(rig);
    let [client, admin] = &holder.sockets;
    let elsewhere = listen(&rig.dir.join("elsewhere.sock"), libc::SOCK_SEQPACKET, 0o600);
    let stream = listen(&rig.dir.join("stream.sock"), libc::SOCK_STREAM, 0o600);
    for (sockets, names, said) in [
        ([client, admin], "client", "was given \"client\""),
        ([client, admin], "admin:client", "listens at"),
        ([client, &elsewhere], "client:admin", "`admin` listens at"),
        ([&stream, admin], "client:admin", "`client` is a Stream socket"),
    ] {
        let output = holder.broker(sockets, names).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.starts_with("partaged: the sockets that the service manager gave: ") && text.contains(said),
            "{text}"
        );
    }
    // By hand beside a service manager that listens: its clients would wait for ever.
    let output = command(rig).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("systemctl start partaged"),
        "{text}"
    );
    // What is left of them would keep the rig's end waiting.
    for path in &holder.paths {
        std::fs::remove_file(path).expect("ours");
    }
}
