// SPDX-License-Identifier: Apache-2.0
//! What Partage stands on: socket directory, broker, kernel, libc, PATH.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socketpair, sockopt};
use nix::sys::utsname::uname;
use partage_protocol::admin::StatusView;

use super::check::Check;
use super::library::glibc_version;
use crate::commands::snapshot::criu;
use crate::failure::{Kind, Outcome};
use crate::launch::broker_process::BrokerProcess;
use crate::launch::container;
use crate::launch::place::{Place, Rule};
use crate::launch::preflight::find::find;
use crate::launch::variables;

/// Everything that is not driver or library.
pub fn checks(place: &Place, status: &Outcome<StatusView>) -> Vec<Check> {
    let all = [
        socket_dir(place),
        broker(place, status),
        kernel(),
        libc_note(),
        path(),
        variables(),
        saving(),
    ];
    container().into_iter().chain(all).collect()
}

/// The container that the caller is in, and the GPUs that it was given.
fn container() -> Option<Check> {
    let found = container::here().filter(|found| found.is_of_runtime)?;
    let nodes = container::openable_nodes();
    let gpus: Vec<String> = (0..32)
        .filter(|bit| nodes >> bit & 1 != 0)
        .map(|bit| bit.to_string())
        .collect();
    Some(match gpus.is_empty() {
        true => {
            let text = format!("{}, with no /dev/nvidiaN that opens", found.what);
            Check::warn("container", text, "give it a GPU, e.g. --device nvidia.com/gpu=0")
        }
        false => {
            let text = format!("{}, with /dev/nvidia{}", found.what, gpus.join(", "));
            Check::ok("container", text)
        }
    })
}

/// Can jobs be saved on disk? Nothing else needs CRIU.
fn saving() -> Check {
    let found = criu::find().and_then(|path| {
        let version = criu::version(&path)?;
        criu::may_restore().map(|()| format!("CRIU {version} ({}): jobs can be saved", path.display()))
    });
    match found {
        Ok(text) => Check::ok("checkpoint", text),
        // Nobody needs it for the limits.
        Err(failure) => Check::off("checkpoint", format!("jobs cannot be saved: {}", failure.sentence())),
    }
}

fn socket_dir(place: &Place) -> Check {
    const NAME: &str = "socket dir";
    let dir = place.dir.display();
    let kind = match place.rule {
        Rule::Private => "yours",
        Rule::Managed => "this host's",
    };
    let longest = place.client_socket().as_os_str().len();
    if longest > 107 {
        let text = format!("{dir} is too long for a socket address ({longest} of 107 bytes)");
        return Check::fail(NAME, text, "choose a shorter one: --socket-dir DIR");
    }
    let result = match place.rule {
        Rule::Private => place.prepare(),
        Rule::Managed => place.check(),
    };
    match result {
        Ok(()) => Check::ok(NAME, format!("{dir} ({kind})")),
        Err(failure) => Check::failed(NAME, &failure),
    }
}

fn broker(place: &Place, status: &Outcome<StatusView>) -> Check {
    const NAME: &str = "broker";
    match status {
        Ok(status) => {
            let broker = &status.broker;
            let text = format!(
                "pid {}, {}, version {}, driver: {}",
                broker.pid, broker.kind, broker.version, broker.driver
            );
            if broker.driver.starts_with("driver mismatch") {
                let fix = "reboot, or reload the driver's module, then: partage broker stop";
                return Check::fail(NAME, text, fix);
            }
            let own = format!("{} ({})", env!("PARTAGE_VERSION"), env!("PARTAGE_COMMIT"));
            if !broker.version.contains(env!("PARTAGE_VERSION")) {
                let text = format!("{text}; this is {own}");
                return Check::warn(NAME, text, "they work together; to change it: partage broker stop");
            }
            if !broker.notes.is_empty() {
                let fix = "partage broker stop, then start it from a shell without them: partage broker start";
                return Check::warn(NAME, format!("{text}; {}", broker.notes.join("; ")), fix);
            }
            if !broker.errors.is_empty() {
                let fix = "partage config; the tables [metrics] and [notify] count from the broker's next start";
                return Check::fail(NAME, format!("{text}; {}", broker.errors.join("; ")), fix);
            }
            if broker.kind == "private" {
                return Check::ok(NAME, format!("{text}; promises hold among your own jobs only"));
            }
            if broker.is_admin {
                return Check::ok(NAME, format!("{text}; you are an administrator there"));
            }
            Check::ok(NAME, text)
        }
        Err(failure) if failure.kind == Kind::NoBroker && place.rule == Rule::Private => {
            Check::ok(NAME, "none runs; the next `partage run` starts one")
        }
        Err(failure) => Check::failed(NAME, failure),
    }
}

/// Asks the kernel for each feature instead of believing a version number.
fn kernel() -> Check {
    const NAME: &str = "kernel";
    let release = uname().map_or_else(
        |_| "unknown".to_owned(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    if !has_pidfd() {
        let text = format!("{release}: no pidfd, so the death of a process is noticed late");
        let fix = "Linux 5.3 or newer, or a container whose seccomp filter allows pidfd_open";
        return Check::warn(NAME, text, fix);
    }
    if !has_sealed_memfd() {
        let text = format!("{release}: no sealable memfd");
        let fix = "Linux 3.17 or newer, or a container whose seccomp filter allows memfd_create";
        return Check::fail(NAME, text, fix);
    }
    let peer = if has_peer_pidfd() {
        "SO_PEERPIDFD"
    } else {
        "no SO_PEERPIDFD (pid and start time serve)"
    };
    Check::ok(NAME, format!("{release}: pidfd, memfd seals, {peer}"))
}

fn has_pidfd() -> bool {
    matches!(
        BrokerProcess::of(nix::unistd::getpid().as_raw()),
        BrokerProcess::Known(_)
    )
}

fn has_sealed_memfd() -> bool {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let made = memfd_create(c"partage-doctor", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING);
    made.and_then(|fd| {
        fcntl(
            &fd,
            FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW),
        )
    })
    .is_ok()
}

fn has_peer_pidfd() -> bool {
    let Ok((socket, _peer)) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC) else {
        return false;
    };
    getsockopt(&socket, sockopt::PeerPidfd).is_ok()
}

fn variables() -> Check {
    const NAME: &str = "variables";
    match variables::unknown() {
        unknown if unknown.is_empty() => Check::ok(NAME, "every PARTAGE_* variable is one that Partage reads"),
        unknown => Check::warn(NAME, unknown.join("; "), "correct or unset it (docs/cli.md lists them)"),
    }
}

fn libc_note() -> Check {
    match glibc_version() {
        Some((major, minor)) => {
            let text = format!("glibc {major}.{minor}; static and musl programs run without the limit");
            Check::ok("libc", text)
        }
        None => Check::warn("libc", "unknown libc", "NVIDIA's driver needs glibc"),
    }
}

fn path() -> Check {
    const NAME: &str = "PATH";
    let own = env::current_exe().and_then(std::fs::canonicalize).ok();
    let found = find(OsStr::new("partage"), env::var_os("PATH").as_deref());
    match (found, own) {
        (Ok(found), own) if found.canonicalize().ok() == own => Check::ok(NAME, found.display().to_string()),
        (Ok(found), Some(own)) => {
            let text = format!("`partage` means {}, this is {}", found.display(), own.display());
            Check::warn(NAME, text, "put the one you mean first in PATH")
        }
        (_, own) => {
            let dir = own.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).display();
            Check::warn(NAME, "`partage` is not in PATH", format!("export PATH=\"$PATH:{dir}\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn a_socket_directory_that_is_too_long_is_told_before_it_fails() {
        let place = Place {
            dir: format!("/tmp/{}", "x".repeat(100)).into(),
            rule: Rule::Private,
        };
        let check = socket_dir(&place);
        assert_eq!(check.state, State::Fail);
        assert!(check.text.contains("of 107 bytes"), "{}", check.text);
    }

    #[test]
    fn the_kernel_of_the_test_machine_has_what_the_broker_needs() {
        assert_eq!(kernel().state, State::Ok);
    }
}
