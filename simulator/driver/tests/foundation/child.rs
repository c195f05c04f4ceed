// SPDX-License-Identifier: Apache-2.0
//! A machine for one test, and child processes that load the driver on it. A child is this same test program, told to
//! run one test; it finds its part of it by its role.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;
use partage_machine::{Machine, Spec};

/// Names the role of a child; absent in the process that runs the tests.
const ROLE: &str = "PARTAGE_SIM_TEST_ROLE";
/// Longer than any body takes on a busy machine.
const PATIENCE_MS: i32 = 120_000;
pub const MIB: u64 = 1 << 20;

/// A machine in a folder of its own, removed at the end.
pub struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// A machine of `devices` devices with 1 GiB each, on which a context costs 16 MiB.
    pub fn new(devices: usize) -> Self {
        let mut spec = Spec::new(devices, "h200", Some(1024 * MIB));
        spec.devices
            .iter_mut()
            .for_each(|device| device.context_bytes = Some(16 * MIB));
        Self::of(&spec)
    }

    pub fn of(spec: &Spec) -> Self {
        partage_machine::signals::pass_none_on();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("partage-found-{}-{number}", std::process::id()));
        Machine::create(&folder, spec).expect("a machine can be made");
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The machine, looked at from outside.
    pub fn machine(&self) -> Machine {
        Machine::open(&self.0).expect("the machine is there")
    }

    /// Runs a role of a test in a child with these variables, and asserts that it succeeds.
    pub fn run(&self, test: &str, role: &str, variables: &[(&str, &str)]) {
        let mut child = command(test, role);
        child.env("PARTAGE_SIM_DIR", &self.0).envs(variables.iter().copied());
        let status = wait(child.spawn().expect("a child starts"));
        assert!(status.success(), "{test} as {role} with {variables:?}: {status}");
    }

    /// Starts a role of a test in a child that speaks with the test over pipes.
    pub fn start(&self, test: &str, role: &str) -> Partner {
        let mut child = command(test, role);
        child
            .env("PARTAGE_SIM_DIR", &self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = child.spawn().expect("a child starts");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Partner { child, to, from }
    }
}

/// How a child ended. One that hangs is killed, so that it fails its test instead of stopping the whole run.
fn wait(mut child: Child) -> ExitStatus {
    // SAFETY: a system call on our own child.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let mut wait = libc::pollfd {
        fd: handle as i32,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor; it becomes readable when the child ends.
    let ended = unsafe { libc::poll(&mut wait, 1, PATIENCE_MS) };
    if ended != 1 {
        child.kill().expect("our own child");
    }
    // SAFETY: made above.
    unsafe { libc::close(handle as i32) };
    child.wait().expect("our own child")
}

/// A child that is told single bytes and answers with single bytes.
pub struct Partner {
    pub child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Partner {
    /// Waits until the child says `byte`. Other output, of the test harness, is passed over.
    pub fn hear(&mut self, byte: u8) {
        self.hear_one_of([byte]);
    }

    /// Waits until the child says one of `bytes`.
    pub fn hear_one_of<const N: usize>(&mut self, bytes: [u8; N]) -> u8 {
        use std::io::Read;
        let mut heard = [0];
        while !bytes.contains(&heard[0]) {
            assert_eq!(
                self.from.read(&mut heard).expect("the pipe is open"),
                1,
                "the child ended"
            );
        }
        heard[0]
    }

    pub fn tell(&mut self, byte: u8) {
        use std::io::Write;
        self.to.write_all(&[byte]).expect("the child listens");
    }

    pub fn kill(mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }

    pub fn finish(mut self) {
        drop(self.to);
        // Read to the end, so that the child never waits for room in the pipe.
        std::io::copy(&mut self.from, &mut std::io::sink()).expect("readable");
        assert!(self.child.wait().expect("our own child").success());
    }
}

/// Says a byte to the test that started this child. The bytes are above ASCII: the harness prints none of them.
pub fn say(byte: u8) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(&[byte])
        .and_then(|()| out.flush())
        .expect("the test listens");
}

/// Waits for a byte of the test; `None` when it has closed the pipe.
pub fn listen() -> Option<u8> {
    use std::io::Read;
    let mut byte = [0];
    (std::io::stdin().read(&mut byte).expect("readable") == 1).then_some(byte[0])
}

fn command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    arguments(&mut command, test, role);
    command
}

/// Lets a command that runs another one run a role of a test in a child.
pub fn again(command: &mut Command, test: &str, role: &str) {
    command.arg(std::env::current_exe().expect("the test's own path"));
    arguments(command, test, role);
}

fn arguments(command: &mut Command, test: &str, role: &str) {
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role);
    // What the test runner was started under must not reach the child.
    for name in [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "PARTAGE_SIM_DIR",
        "PARTAGE_SIM_FAULTS",
        "LD_PRELOAD",
    ] {
        command.env_remove(name);
    }
}

/// What this process is in its test; `None` in the one that runs the tests.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs the body in a child on a machine of one device.
pub fn in_child(test: &str, body: impl FnOnce(&Cuda)) {
    match role() {
        Some(_) => body(&Cuda::load()),
        None => Folder::new(1).run(test, "body", &[]),
    }
}

/// The driver in this process.
pub struct Cuda(libloading::Library);

impl Cuda {
    /// Loads the library that was built beside this test.
    pub fn load() -> Self {
        let exe = std::env::current_exe().expect("the test's own path");
        let mut folders = exe.ancestors().skip(1).take(2);
        let path = folders.find_map(|folder| Some(folder.join("libpartage_sim_cuda.so")).filter(|path| path.exists()));
        // SAFETY: our own library, whose constructors do nothing.
        Self(unsafe { libloading::Library::new(path.expect("the library is beside the test")) }.expect("it loads"))
    }

    /// A function by name.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: callers name the type that the table gives this symbol.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Initialises the driver and makes a context on a device.
    pub fn context(&self, device: CuDevice) -> CuContext {
        let mut context = CuContext::NULL;
        ok!(self, cuInit(0));
        ok!(self, cuCtxCreate_v2(&mut context, 0, device));
        context
    }

    pub fn allocate(&self, bytes: u64) -> Result<u64, CuResult> {
        let mut address = 0;
        match code!(self, cuMemAlloc_v2(&mut address, bytes as usize)) {
            CuResult::SUCCESS => Ok(address),
            code => Err(code),
        }
    }

    /// Bytes of the current device that are in use.
    pub fn used(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        ok!(self, cuMemGetInfo_v2(&mut free, &mut total));
        (total - free) as u64
    }
}

/// Calls a function of the driver and gives its code.
macro_rules! code {
    ($cuda:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $cuda.symbol::<partage_abi::driver::signatures::$name>(stringify!($name));
        // SAFETY: the signature is the table's, and the arguments are right for it.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use code;

/// Calls a function of the driver and asserts that it succeeds.
macro_rules! ok {
    ($cuda:expr, $name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::child::code!($cuda, $name($($argument),*)),
            partage_abi::types::CuResult::SUCCESS,
            stringify!($name)
        )
    };
}
pub(crate) use ok;

/// Asserts that a function of the driver answers a code.
macro_rules! refused {
    ($code:ident: $cuda:expr, $name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::child::code!($cuda, $name($($argument),*)),
            partage_abi::types::CuResult::$code,
            stringify!($name)
        )
    };
}
pub(crate) use refused;
