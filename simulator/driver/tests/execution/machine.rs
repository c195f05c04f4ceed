// SPDX-License-Identifier: Apache-2.0
//! A machine for one test, the child process that runs it, and the driver's functions as the child calls them.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use partage_abi::driver::signatures;
use partage_abi::types::*;
use partage_machine::{Machine, Spec};

/// Names the test whose body the process is to run.
const BODY: &str = "PARTAGE_SIM_TEST_BODY";
/// How long a body may take on a busy machine. One that waits for ever must not stop the whole run.
const PATIENCE: Duration = Duration::from_secs(120);

const KERNELS: &str = include_str!("../../../../cuda-tests/kernels/test_kernels.ptx");
const TIME_KERNELS: &str = include_str!("../../../../cuda-tests/kernels/time_kernels.ptx");

/// `append(log, value)`: writes `value` behind what is in `log`, whose first word counts what follows.
const APPEND: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry append(.param .u64 log, .param .u32 value)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [log];
    ld.param.u32 %r1, [value];
    cvta.to.global.u64 %rd2, %rd1;
    atom.global.add.u32 %r2, [%rd2], 1;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4+4], %r1;
    ret;
}
";

/// The folder of a machine, removed at the end.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes a machine of `devices` small devices.
pub fn make(devices: usize) -> Folder {
    make_of(Spec::new(devices, "h200", Some(1 << 30)))
}

/// Makes a machine.
pub fn make_of(spec: Spec) -> Folder {
    partage_machine::signals::pass_none_on();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("partage-sim-{}-{number}", std::process::id()));
    Machine::create(&folder, &spec).expect("a machine can be made");
    Folder(folder)
}

/// Starts the body of a test in a child on a machine. `role` is what the body asks for with [`role`].
pub fn start(test: &str, folder: &Path, role: &str) -> Child {
    command(test, folder, role).spawn().expect("a child starts")
}

/// The command of [`start`].
pub fn command(test: &str, folder: &Path, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    // A client whose kernel hangs would outlive a run of the tests that is killed.
    // SAFETY: one system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(BODY, role)
        .env("PARTAGE_SIM_DIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Waits for a child and asserts that it succeeded.
pub fn finish(mut child: Child, what: &str) {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            assert!(status.success(), "{what}: {status}");
            return;
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{what} did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What this process is in its test; `None` in the process that runs the tests.
pub fn role() -> Option<String> {
    std::env::var(BODY).ok()
}

/// Runs the body of a test in a child on a machine of its own.
pub fn run_on_machine(test: &str, devices: usize, body: impl FnOnce(&Driver)) {
    if role().is_some() {
        return body(&Driver::open());
    }
    let folder = make(devices);
    finish(start(test, &folder.0, "body"), test);
}

/// As [`run_on_machine`], on a machine with one device that is otherwise as `change` says. The child's standard error
/// goes to `said`.
pub fn run_on_changed(test: &str, change: impl FnOnce(&mut Spec), said: impl FnOnce(&str), body: impl FnOnce(&Driver)) {
    if role().is_some() {
        return body(&Driver::open());
    }
    let mut spec = Spec::new(1, "h200", Some(1 << 30));
    change(&mut spec);
    let folder = make_of(spec);
    let errors = folder.0.join("stderr.txt");
    let mut command = command(test, &folder.0, "body");
    command.stderr(std::fs::File::create(&errors).expect("the folder is ours"));
    let child = command.spawn().expect("a child starts");
    finish(child, &format!("{test}, which says its errors in {}", errors.display()));
    said(&std::fs::read_to_string(&errors).unwrap_or_default());
}

/// Declares tests that run on a machine with one device: `name => |driver| { … }`.
macro_rules! on_machine {
    ($( $(#[$attribute:meta])* $name:ident => |$driver:ident| $body:block )*) => { $(
        #[test]
        $(#[$attribute])*
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let test = path.split_once("::").map_or(path, |(_, test)| test);
            $crate::machine::run_on_machine(test, 1, |$driver: &$crate::machine::Driver| $body);
        }
    )* };
}
pub(crate) use on_machine;

/// The driver in this process.
pub struct Driver {
    library: libloading::Library,
    /// The context made at the start, current in the first thread.
    pub context: CuContext,
    module: OnceLock<[usize; 3]>,
}

/// Calls a function of the driver and gives its code.
macro_rules! code {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $driver.symbol::<partage_abi::driver::signatures::$name>(stringify!($name));
        // SAFETY: the signature is the table's, and the arguments are right for it.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use code;

/// Calls a function of the driver and asserts that it succeeds.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::machine::code!($driver, $name($($argument),*)),
            partage_abi::types::CuResult::SUCCESS,
            stringify!($name)
        )
    };
}
pub(crate) use call;

/// Asserts that a function of the driver answers a code.
macro_rules! refused {
    ($code:ident: $driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::machine::code!($driver, $name($($argument),*)),
            partage_abi::types::CuResult::$code,
            stringify!($name)
        )
    };
}
pub(crate) use refused;

fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let name = "libpartage_sim_cuda.so";
    let folders = exe.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", exe.display()))
}

impl Driver {
    /// Loads the driver of `PARTAGE_SIM_DIR` and makes a context.
    pub fn open() -> Self {
        // SAFETY: our own library, whose constructors do nothing.
        let library = unsafe { libloading::Library::new(library()) }.expect("the driver loads");
        let mut driver = Self {
            library,
            context: CuContext::NULL,
            module: OnceLock::new(),
        };
        call!(driver, cuInit(0));
        let mut context = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut context, 0, 0));
        driver.context = context;
        driver
    }

    /// A function by name.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: `T` is the signature of this name by the macros above.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A kernel that waits, in a module of the current context of its own.
    pub fn load(&self, name: &str) -> CuFunction {
        let text = std::ffi::CString::new(TIME_KERNELS).expect("no NUL");
        let name = std::ffi::CString::new(name).expect("no NUL");
        let (mut module, mut function) = (CuModule::NULL, CuFunction::NULL);
        call!(self, cuModuleLoadData(&mut module, text.as_ptr().cast()));
        call!(self, cuModuleGetFunction(&mut function, module, name.as_ptr()));
        function
    }

    /// A test kernel.
    pub fn kernel(&self, name: &str) -> CuFunction {
        let modules = self.module.get_or_init(|| {
            [KERNELS, TIME_KERNELS, APPEND].map(|text| {
                let text = std::ffi::CString::new(text).expect("no NUL");
                let mut module = CuModule::NULL;
                call!(self, cuModuleLoadData(&mut module, text.as_ptr().cast()));
                module.0 as usize
            })
        });
        let name = std::ffi::CString::new(name).expect("no NUL");
        for &module in modules {
            let mut function = CuFunction::NULL;
            let module = CuModule(module as *mut c_void);
            if code!(self, cuModuleGetFunction(&mut function, module, name.as_ptr())) == CuResult::SUCCESS {
                return function;
            }
        }
        panic!("no kernel {name:?}");
    }

    /// Launches a kernel in one block of one thread, with parameters laid out as 8-byte or 4-byte values.
    pub fn launch(&self, name: &str, stream: CuStream, parameters: &[Value]) {
        self.launch_in(self.kernel(name), stream, parameters);
    }

    /// The same, with a kernel that is known.
    pub fn launch_in(&self, kernel: CuFunction, stream: CuStream, parameters: &[Value]) {
        call!(
            self,
            cuLaunchKernel(
                kernel,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                pointers(parameters).as_mut_ptr(),
                std::ptr::null_mut()
            )
        );
    }

    /// Keeps the device busy for a while.
    pub fn spin(&self, stream: CuStream, milliseconds: u64) {
        self.launch("spin_ns", stream, &[Value::Long(milliseconds * 1_000_000)]);
    }

    /// A new stream.
    pub fn stream(&self, flags: u32) -> CuStream {
        let mut stream = CuStream::NULL;
        call!(self, cuStreamCreate(&mut stream, flags));
        stream
    }

    /// A new event.
    pub fn event(&self) -> CuEvent {
        let mut event = CuEvent::NULL;
        call!(self, cuEventCreate(&mut event, 0));
        event
    }

    /// Milliseconds between two events that were reached.
    pub fn elapsed(&self, start: CuEvent, end: CuEvent) -> f32 {
        let mut milliseconds = -1.0;
        call!(self, cuEventElapsedTime(&mut milliseconds, start, end));
        milliseconds
    }

    /// Zeroed device memory.
    pub fn memory(&self, bytes: usize) -> CuDevicePtr {
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&mut address, bytes));
        call!(self, cuMemsetD8_v2(address, 0, bytes));
        // Fills are not waited for, and streams that do not block do not wait for them.
        call!(self, cuCtxSynchronize());
        address
    }

    /// Words of device memory, after everything submitted has ended.
    pub fn words(&self, address: CuDevicePtr, count: usize) -> Vec<u32> {
        call!(self, cuCtxSynchronize());
        let mut words = vec![0u32; count];
        call!(self, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, count * 4));
        words
    }

    /// Appends a value to a log in stream order.
    pub fn append(&self, stream: CuStream, log: CuDevicePtr, value: u32) {
        self.launch("append", stream, &[Value::Long(log), Value::Word(value)]);
    }

    /// What was appended to a log.
    pub fn log(&self, log: CuDevicePtr) -> Vec<u32> {
        let words = self.words(log, 64);
        words[1..=words[0] as usize].to_vec()
    }
}

/// A kernel parameter.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// 8 bytes.
    Long(u64),
    /// 4 bytes.
    Word(u32),
}

/// The parameters as an array of pointers.
pub fn pointers(parameters: &[Value]) -> Vec<*mut c_void> {
    let place = |value: &Value| match value {
        Value::Long(value) => std::ptr::from_ref(value).cast_mut().cast(),
        Value::Word(value) => std::ptr::from_ref(value).cast_mut().cast(),
    };
    parameters.iter().map(place).collect()
}

/// Calls `condition` until it holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

// The signatures are used by the macros in the other files.
const _: Option<signatures::cuInit> = None;
