// SPDX-License-Identifier: Apache-2.0
//! What the broker writes to a job's terminal, where the job has a `/dev/pts` of its own, as a container has.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::process::Stdio;

use super::Case;
use super::matrix::python;
use crate::client::PATIENCE;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("terminal::a_line_for_a_container_goes_to_its_own_terminal", line)
            .simulated("the simulated machine's own namespaces and nodes"),
    ]
}

/// Starts the command after the number on the terminal of that number, and says what arrives there once it names us.
const SCRIPT: &str = "
import fcntl, os, sys, termios
wanted = '/dev/pts/' + sys.argv[1]
pairs = []
while not pairs or os.ttyname(pairs[-1][1]) != wanted:
    pairs.append(os.openpty())
master, slave = pairs[-1]
if os.fork() == 0:
    os.set_inheritable(slave, True)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.execvp(sys.argv[2], sys.argv[2:])
# With the job's end nobody holds it any more.
os.close(slave)
heard = b''
while b'partage: ' not in heard or not heard.endswith(b'\\n'):
    heard += os.read(master, 4096)
print(heard.decode(), flush=True)
";

/// A terminal of this machine: its master, its slave, which is held open, and its number.
fn terminal() -> (File, File, String) {
    // SAFETY: plain system calls on a descriptor that we own from here on; ptsname's text is copied at once.
    let (master, name) = unsafe {
        let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        let is_made = fd >= 0 && libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0;
        assert!(is_made, "a terminal");
        let name = std::ffi::CStr::from_ptr(libc::ptsname(fd))
            .to_string_lossy()
            .into_owned();
        (File::from_raw_fd(fd), PathBuf::from(name))
    };
    // SAFETY: sets a flag of our own descriptor.
    unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let number = name.file_name().expect("a number").to_string_lossy().into_owned();
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let slave = options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(&name);
    (master, slave.expect("its slave"), number)
}

fn line(rig: &Rig) {
    let (mut master, _slave, number) = terminal();
    // Out here: what the job is told comes from a broker that sees this machine's terminals.
    assert!(rig.output(rig.partage(&["broker", "start"])).status.success());
    let job = rig.run(&["--time-limit", "1s"], std::path::Path::new("/bin/sleep"), &["600"]);
    let mount = "mount -t devpts -o newinstance,ptmxmode=0666,mode=620 none /dev/pts && exec \"$@\"";
    let mut command = rig.command("/usr/bin/unshare");
    command.args(["--mount", "--propagation", "private", "/bin/sh", "-c", mount, "sh"]);
    command
        .arg(python())
        .args(["-c", SCRIPT, &number])
        .arg(job.get_program())
        .args(job.get_args());
    for (name, value) in job.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let mut held = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = String::new();
    let mut own = held.stdout.take().expect("piped");
    rig.eventually(PATIENCE, "it ends", || held.try_wait().expect("our child").is_some());
    own.read_to_string(&mut said).expect("text");
    if said.is_empty() {
        let mut why = String::new();
        held.stderr
            .take()
            .expect("piped")
            .read_to_string(&mut why)
            .expect("text");
        let is_refused = ["not permitted", "ermission denied"]
            .iter()
            .any(|words| why.contains(words));
        assert!(is_refused, "nothing arrived: {why}");
        rig.note("skipped: this machine lets us make no terminals of our own");
        return;
    }
    assert!(said.contains("partage: ") && said.contains("time limit"), "{said}");
    let mut bytes = [0; 4096];
    let other = master.read(&mut bytes);
    let is_silent = other
        .as_ref()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(is_silent, "{other:?} for {said}");
}
