// SPDX-License-Identifier: Apache-2.0
//! The driver as this library calls it: public names only, found by `dlsym` in `libcuda.so.1`, so that a preloaded
//! library sees every call. Kernels come from libraries of the driver (`cuLibraryLoadData`), which belong to no
//! context: they may be loaded while a stream is captured, and one look-up serves all devices.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock};

use crate::kernels::{self, Kind};
use crate::status::{Outcome, Status, of_driver};
use crate::turn;

/// An address or handle of the driver.
pub type Handle = *mut c_void;

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal ($($argument:ty),*);)*) => {
        /// Functions of the driver.
        pub struct Driver {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Driver {
            /// Looks all of them up.
            fn find(library: *mut c_void) -> Option<Self> {
                Some(Self {
                    $($field: {
                        // SAFETY: a handle of `dlopen` and a C string.
                        let found = unsafe { libc::dlsym(library, concat!($name, "\0").as_ptr().cast()) };
                        if found.is_null() {
                            return None;
                        }
                        type Function = unsafe extern "C" fn($($argument),*) -> c_int;
                        // SAFETY: the driver's function of this name has this signature.
                        unsafe { core::mem::transmute::<*mut c_void, Function>(found) }
                    },)*
                })
            }
        }
    };
}
functions! {
    /// `cuInit`
    init = "cuInit"(c_uint);
    /// The context of this thread.
    context = "cuCtxGetCurrent"(*mut Handle);
    /// Makes a context this thread's.
    enter = "cuCtxSetCurrent"(Handle);
    /// A device by number.
    device = "cuDeviceGet"(*mut c_int, c_int);
    /// The context that the runtime uses on a device.
    primary = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    /// Loads PTX.
    load = "cuLibraryLoadData"(
        *mut Handle, *const c_void, *mut c_int, *mut Handle, c_uint, *mut c_int, *mut Handle, c_uint
    );
    /// A kernel by name.
    kernel = "cuLibraryGetKernel"(*mut Handle, Handle, *const c_char);
    /// Launches it.
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    /// Page-locked memory of the host.
    host_memory = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    /// Waits for a stream.
    wait = "cuStreamSynchronize"(Handle);
}

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
const PORTABLE_MAPPED: c_uint = 3;

/// The driver, where there is one.
pub fn driver() -> Outcome<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let found = DRIVER.get_or_init(|| {
        // SAFETY: a C string; the driver's constructors do nothing.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        let found = if library.is_null() { None } else { Driver::find(library) };
        turn::watch_forks();
        found
    });
    found.as_ref().ok_or(Status::NOT_INITIALIZED)
}

impl Driver {
    /// Sees to it that this thread has a context: the primary one of the first device where it has none yet.
    pub fn ensure_context(&self) -> Outcome<()> {
        let mut context = core::ptr::null_mut();
        // SAFETY: places for one value each; the driver checks handles.
        unsafe {
            of_driver((self.init)(0)).map_err(|_| Status::NOT_INITIALIZED)?;
            if (self.context)(&mut context) == 0 && !context.is_null() {
                return Ok(());
            }
            let mut device = 0;
            of_driver((self.device)(&mut device, 0)).map_err(|_| Status::NOT_INITIALIZED)?;
            of_driver((self.primary)(&mut context, device))?;
            of_driver((self.enter)(context))
        }
    }

    /// Launches a kernel of ours with one block of parameters.
    pub fn run<P>(&self, kernel: Kernel, grid: [u32; 3], threads: u32, stream: Handle, parameters: &P) -> Outcome<()> {
        let kernel = find(self, kernel)?;
        let mut parameters = [core::ptr::from_ref(parameters).cast_mut().cast::<c_void>()];
        let [x, y, z] = grid;
        // SAFETY: the kernel has one parameter, a block of `P`'s size, which the driver copies before it returns.
        of_driver(unsafe {
            let none = core::ptr::null_mut();
            (self.launch)(kernel, x, y, z, threads, 1, 1, 0, stream, parameters.as_mut_ptr(), none)
        })
    }
}

/// A kernel of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// Its module.
    pub kind: Kind,
    /// Its name there.
    pub name: &'static str,
}

/// Finds a kernel, loading its module where it is the first of it. A module stays: handles come and go.
fn find(driver: &Driver, kernel: Kernel) -> Outcome<Handle> {
    static LIBRARIES: Mutex<BTreeMap<Kind, usize>> = Mutex::new(BTreeMap::new());
    static KERNELS: Mutex<BTreeMap<Kernel, usize>> = Mutex::new(BTreeMap::new());
    let mut known = KERNELS.lock().unwrap_or_else(|broken| broken.into_inner());
    if let Some(found) = known.get(&kernel) {
        return Ok(*found as Handle);
    }
    let mut libraries = LIBRARIES.lock().unwrap_or_else(|broken| broken.into_inner());
    let library = match libraries.get(&kernel.kind) {
        Some(library) => *library as Handle,
        None => {
            let library = load(driver, kernel.kind)?;
            libraries.insert(kernel.kind, library as usize);
            library
        }
    };
    let name = CString::new(kernel.name).map_err(|_| Status::INTERNAL_ERROR)?;
    let mut found = core::ptr::null_mut();
    // SAFETY: a library of ours and a C string.
    of_driver(unsafe { (driver.kernel)(&mut found, library, name.as_ptr()) })?;
    known.insert(kernel, found as usize);
    Ok(found)
}

fn load(driver: &Driver, kind: Kind) -> Outcome<Handle> {
    let text = CString::new(kernels::module(kind)).map_err(|_| Status::INTERNAL_ERROR)?;
    let (mut library, none) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: a C string, and no options.
    of_driver(unsafe {
        let nothing = core::ptr::null_mut();
        (driver.load)(&mut library, text.as_ptr().cast(), none, nothing, 0, none, nothing, 0)
    })?;
    Ok(library)
}

/// A word of the host that kernels may write, for a result that is to be waited for. One at a time.
pub fn with_host_word<T>(then: impl FnOnce(&Driver, *mut u64) -> Outcome<T>) -> Outcome<T> {
    static WORD: Mutex<usize> = Mutex::new(0);
    let driver = driver()?;
    let mut word = WORD.lock().unwrap_or_else(|broken| broken.into_inner());
    if *word == 0 {
        let mut memory = core::ptr::null_mut();
        // SAFETY: a place for one address.
        of_driver(unsafe { (driver.host_memory)(&mut memory, 8, PORTABLE_MAPPED) })?;
        *word = memory as usize;
    }
    then(driver, *word as *mut u64)
}
