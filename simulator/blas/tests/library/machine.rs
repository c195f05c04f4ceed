// SPDX-License-Identifier: Apache-2.0
//! A machine for one test, the child process that runs it, and both libraries as the child calls them.

use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_machine::{Machine, Spec};

const BODY: &str = "PARTAGE_SIM_BLAS_TEST_BODY";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A library that was built beside the test.
pub fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    let folders = exe.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}: build partage-sim", exe.display()))
}

/// Runs a body in a child on a machine of its own, and gives what the child wrote to stderr.
pub fn run_on_machine(test: &str, body: impl FnOnce(&Blas)) -> Option<String> {
    if std::env::var_os(BODY).is_some() {
        body(&Blas::open());
        return None;
    }
    partage_machine::signals::pass_none_on();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("partage-sim-blas-{}-{number}", std::process::id()));
    Machine::create(&folder, &Spec::new(1, "h200", Some(1 << 30))).expect("a machine can be made");
    let folder = Folder(folder);
    let driver = built("libpartage_sim_cuda.so");
    let libraries = Machine::link_libraries(&folder.0, &driver, &driver).expect("its libraries can be linked");
    let output = Command::new(std::env::current_exe().expect("the test's own path"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(BODY, "body")
        .env("PARTAGE_SIM_DIR", &folder.0)
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .expect("a child starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{test}: {}\n{said}", output.status);
    Some(said)
}

/// Declares tests that run on a machine: `name => |blas| { … }`.
macro_rules! on_machine {
    ($( $name:ident => |$blas:ident| $body:block )*) => { $(
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let test = path.split_once("::").map_or(path, |(_, test)| test);
            $crate::machine::run_on_machine(test, |$blas: &$crate::machine::Blas| $body);
        }
    )* };
}
pub(crate) use on_machine;

/// Calls a function: `call!(blas, cublasSetStream_v2(handle: *mut c_void, stream: *mut c_void))`.
macro_rules! call {
    ($blas:expr, $name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        let function = $blas.symbol::<unsafe extern "C" fn($($type),*) -> i32>(stringify!($name));
        // SAFETY: the types are those of the public header, and the arguments are right for the call.
        unsafe { function($($value),*) }
    }};
}
pub(crate) use call;

/// Both libraries, and a handle.
pub struct Blas {
    driver: libloading::Library,
    library: libloading::Library,
    /// A handle of cublas.
    pub handle: *mut c_void,
}

impl Blas {
    fn open() -> Self {
        // SAFETY: our own libraries, whose constructors do nothing.
        let (driver, library) = unsafe {
            (
                libloading::Library::new("libcuda.so.1").expect("the driver loads"),
                libloading::Library::new(built("libpartage_sim_blas.so")).expect("the library loads"),
            )
        };
        let mut blas = Self {
            driver,
            library,
            handle: std::ptr::null_mut(),
        };
        let mut handle = std::ptr::null_mut();
        assert_eq!(call!(blas, cublasCreate_v2(&mut handle => *mut *mut c_void)), 0);
        blas.handle = handle;
        blas
    }

    /// A function of the library, by cublas's name, or of the driver.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        let ours = format!("partage_{name}");
        // SAFETY: callers name the type that the public header gives this name.
        let found = unsafe {
            self.library
                .get::<T>(ours.as_bytes())
                .or_else(|_| self.driver.get::<T>(name.as_bytes()))
        };
        *found.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// True where the library answers a name.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: only looked up.
        unsafe {
            self.library
                .get::<*const c_void>(format!("partage_{name}").as_bytes())
                .is_ok()
        }
    }

    /// Device memory with some bytes.
    pub fn memory(&self, bytes: &[u8]) -> u64 {
        let mut address = 0;
        assert_eq!(
            call!(self, cuMemAlloc_v2(&mut address => *mut u64, bytes.len().max(1) => usize)),
            0
        );
        self.write(address, bytes);
        address
    }

    /// Writes device memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        assert_eq!(
            call!(self, cuMemcpyHtoD_v2(address => u64, bytes.as_ptr() => *const u8, bytes.len() => usize)),
            0
        );
    }

    /// Reads device memory after all work.
    pub fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        assert_eq!(call!(self, cuCtxSynchronize()), 0);
        let mut read = vec![0; bytes];
        assert_eq!(
            call!(self, cuMemcpyDtoH_v2(read.as_mut_ptr() => *mut u8, address => u64, bytes => usize)),
            0
        );
        read
    }

    /// Frees device memory.
    pub fn free(&self, addresses: &[u64]) {
        for address in addresses {
            assert_eq!(call!(self, cuMemFree_v2(*address => u64)), 0);
        }
    }
}
