// SPDX-License-Identifier: Apache-2.0
//! The first process of a restored job's namespaces: has CRIU restore the tree under its old numbers, passes signals
//! on, and ends with the tree's first process, with its code. What is left of the tree then ends with the namespace.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use partage_protocol::message::RESTORE_NAME;
use partage_protocol::snapshot::{IMAGES, MANIFEST, Manifest, Shared};

use super::order::{RESTORED, RestoreOrder};
use super::parent::{self, Restored};
use super::{criu, folder, own_mounts, shared, sockets};
use crate::host::proc::SHARED_MEMORY;

/// Passed on to the tree's first process.
const FORWARDED: &[Signal] = &[
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// The process. Precondition: it is the first of a new pid namespace, and its parent waits for it.
pub fn serve(order: &str) -> ExitCode {
    let order: RestoreOrder = match serde_json::from_str(order) {
        Ok(order) => order,
        Err(error) => {
            eprintln!("partaged: no order: {error}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: the caller left this descriptor open for us, and nobody else in this process has it.
    let mut report = unsafe { File::from_raw_fd(order.report) };
    // SAFETY: as above.
    let verified = unsafe { OwnedFd::from_raw_fd(order.verified) };
    // CRIU and what it makes get neither: its last step opens the pipe by our number.
    for fd in [report.as_fd(), verified.as_fd()] {
        let _ = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC));
    }
    // What is ignored stays so: blocked, it would come in spite of that.
    let mut waited: SigSet = FORWARDED
        .iter()
        .copied()
        .filter(|signal| !is_ignored(*signal))
        .collect();
    waited.add(Signal::SIGCHLD);
    match begin(&order, &waited) {
        Ok(restored) => {
            // SAFETY: the caller left it open for us, and its last user, CRIU, has ended.
            drop(unsafe { OwnedFd::from_raw_fd(order.folder) });
            let is_heard = writeln!(report, "{RESTORED}").is_ok();
            drop((report, verified));
            // The job has its own streams, and whoever reads ours would wait for its end.
            let _ = let_go_of_streams();
            if !is_heard {
                // Nobody is there to be its parent.
                return ExitCode::FAILURE;
            }
            ExitCode::from(wait(restored, &waited))
        }
        Err(why) => {
            let _ = writeln!(report, "{why}");
            ExitCode::FAILURE
        }
    }
}

fn begin(order: &RestoreOrder, waited: &SigSet) -> Result<Restored, String> {
    let system = |what: &'static str| move |errno: Errno| format!("cannot {what}: {}", errno.desc());
    if std::process::id() != 1 {
        return Err("this process is not the first of a pid namespace".to_owned());
    }
    let generation = folder::way_to(&order.folder).join(&order.generation);
    let text = std::fs::read(generation.join(MANIFEST))
        .map_err(|error| format!("cannot read {MANIFEST} of {}: {error}", order.generation))?;
    let manifest = Manifest::parse(&text).map_err(|unfit| unfit.to_string())?;
    // By this name a library knows that it must start no broker here.
    nix::sys::prctl::set_name(RESTORE_NAME).map_err(system("take its name"))?;
    // Its parent is the job's first process: without it nobody would hear of the job's end.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(system("follow its parent"))?;
    waited.thread_block().map_err(system("block signals"))?;
    if !has_terminal() {
        // CRIU gives the tree our session. One that began here can be saved again; a terminal's stays as it is.
        nix::unistd::setsid().map_err(system("begin a session"))?;
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(system("make a mount namespace"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(system("keep mounts private"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).map_err(system("mount /proc"))?;
    own_mounts::sockets(&manifest.socket_dir, &order.sockets)?;
    own_mounts::library(&manifest, &generation)?;
    own_shared(&manifest.shared, &generation)?;
    sockets::can_restore(&manifest.sockets)?;
    let images = generation.join(IMAGES);
    let restore = || criu::restore(order, &images, &manifest);
    parent::restore_below(manifest.parent, restore, || {
        // SAFETY: the caller left them open for us; this copy of the process uses none.
        drop(unsafe { [order.folder, order.report, order.verified].map(|fd| OwnedFd::from_raw_fd(fd)) });
        let _ = let_go_of_streams();
    })
}

/// Is this signal ignored by this process?
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeros is a valid sigaction; without a new action the call only writes the old one there.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut now);
        asked == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Puts nothing where standard input, output and error are.
fn let_go_of_streams() -> nix::Result<()> {
    let null = nix::fcntl::open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)
}

/// Has this process's session a terminal?
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// What the job had of `/dev/shm`, in one that nobody else sees.
fn own_shared(saved: &Shared, generation: &Path) -> Result<(), String> {
    if saved.is_empty() {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("shm"), SHARED_MEMORY, Some("tmpfs"), flags, Some("mode=1777"))
        .map_err(|errno| format!("cannot mount a {} of the job's own: {}", SHARED_MEMORY, errno.desc()))?;
    shared::make(saved, generation, Path::new(SHARED_MEMORY))
}

/// Waits for the end of the tree's first process, and for whatever is left to us.
fn wait(Restored { root, child }: Restored, waited: &SigSet) -> u8 {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return u8::try_from(code & 0xff).unwrap_or(1),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return 128 + signal as u8,
            Ok(WaitStatus::StillAlive) => {}
            Ok(_) | Err(Errno::EINTR) => continue,
            // Nothing is left, and it was not the first's end that said so: it was never ours.
            Err(_) => return 1,
        }
        let Ok(signal) = waited.wait() else { continue };
        if signal != Signal::SIGCHLD {
            let _ = kill(root, signal);
        }
    }
}
