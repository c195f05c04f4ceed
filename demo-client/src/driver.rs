// SPDX-License-Identifier: Apache-2.0
//! The few calls of the CUDA driver that the demo makes, looked up in `libcuda.so.1` as any CUDA program does.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: c_int = 2;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Function = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;
type CopyToHost = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;

/// A call that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The driver's library, or a function of it, is not there.
    Missing(String),
    /// A call gave this code.
    Code(&'static str, c_int),
    /// The driver shows no GPU.
    NoDevice,
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => to.write_str(what),
            Self::Code(call, code) => write!(to, "{call} failed with CUDA error {code}"),
            Self::NoDevice => to.write_str("the driver shows no GPU"),
        }
    }
}

fn done(call: &'static str, code: c_int) -> Result<(), Refusal> {
    match code {
        0 => Ok(()),
        code => Err(Refusal::Code(call, code)),
    }
}

/// The loader's own words.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The driver, with a context on the first GPU that this process sees.
pub struct Driver {
    library: Library,
    /// The GPU's model.
    pub name: String,
}

impl Driver {
    /// Loads the driver and makes a context.
    ///
    /// # Errors
    /// There is no driver, it has no GPU, or it refuses.
    pub fn open() -> Result<Self, Refusal> {
        // SAFETY: loading runs the driver's constructors, as in any CUDA program, which this process is.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| Refusal::Missing(format!("no CUDA driver: {}", reason(&error))))?;
        let mut driver = Self {
            library,
            name: String::new(),
        };
        let (mut count, mut context) = (0, null_mut());
        let mut name = [0; 128];
        // SAFETY: the pointers are to live variables of the sizes that these calls write; the name's length is given.
        unsafe {
            done("cuInit", driver.find::<Init>(c"cuInit")?(0))?;
            let code = driver.find::<Count>(c"cuDeviceGetCount")?(&raw mut count);
            done("cuDeviceGetCount", code)?;
            if count < 1 {
                return Err(Refusal::NoDevice);
            }
            let code = driver.find::<Name>(c"cuDeviceGetName")?(name.as_mut_ptr(), name.len() as c_int, 0);
            done("cuDeviceGetName", code)?;
            let code = driver.find::<Retain>(c"cuDevicePrimaryCtxRetain")?(&raw mut context, 0);
            done("cuDevicePrimaryCtxRetain", code)?;
            let code = driver.find::<SetCurrent>(c"cuCtxSetCurrent")?(context);
            done("cuCtxSetCurrent", code)?;
        }
        let bytes = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        driver.name = String::from_utf8(bytes).unwrap_or_default();
        Ok(driver)
    }

    /// Precondition: `T` is the type that cuda.h gives the function of this name.
    fn find<T: Copy>(&self, name: &CStr) -> Result<T, Refusal> {
        // SAFETY: the precondition; the types above have been those of cuda.h since CUDA 7.
        let found = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        let missing = || Refusal::Missing(format!("the driver has no {}", name.to_string_lossy()));
        found.map(|function| *function).map_err(|_| missing())
    }

    /// Has the driver what suspending a program takes (release 570 and later)?
    pub fn can_suspend(&self) -> bool {
        self.find::<Synchronize>(c"cuCheckpointProcessLock").is_ok()
    }

    /// Bytes that the GPU seems to have in all.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn total(&self) -> Result<u64, Refusal> {
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: two live numbers.
        let code = unsafe { self.find::<Info>(c"cuMemGetInfo_v2")?(&raw mut free, &raw mut total) };
        done("cuMemGetInfo", code).map(|()| total as u64)
    }

    /// Allocates.
    ///
    /// # Errors
    /// The driver refuses; [`OUT_OF_MEMORY`] past the limit.
    pub fn take(&self, bytes: usize) -> Result<u64, Refusal> {
        let mut address = 0;
        // SAFETY: a live number.
        let code = unsafe { self.find::<Alloc>(c"cuMemAlloc_v2")?(&raw mut address, bytes) };
        done("cuMemAlloc", code).map(|()| address)
    }

    /// Frees what [`Self::take`] gave.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn drop(&self, address: u64) -> Result<(), Refusal> {
        // SAFETY: the driver judges the address.
        done("cuMemFree", unsafe { self.find::<Free>(c"cuMemFree_v2")?(address) })
    }

    /// Loads a kernel from PTX.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<Kernel, Refusal> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the texts are terminated, the pointers are to live handles.
        unsafe {
            let code = self.find::<Load>(c"cuModuleLoadData")?(&raw mut module, ptx.as_ptr().cast());
            done("cuModuleLoadData", code)?;
            let code = self.find::<Function>(c"cuModuleGetFunction")?(&raw mut function, module, name.as_ptr());
            done("cuModuleGetFunction", code)?;
        }
        Ok(Kernel(function))
    }

    /// Runs the kernel `fill` on `count` numbers at `address`, and waits for it.
    ///
    /// # Errors
    /// The driver refuses, or the kernel fails.
    pub fn fill(&self, kernel: &Kernel, address: u64, count: u32, seed: u32) -> Result<(), Refusal> {
        const WIDTH: u32 = 256;
        let (mut address, mut count_there, mut seed) = (address, count, seed);
        let mut arguments: [*mut c_void; 3] = [
            (&raw mut address).cast(),
            (&raw mut count_there).cast(),
            (&raw mut seed).cast(),
        ];
        let (blocks, list, none) = (count.div_ceil(WIDTH), arguments.as_mut_ptr(), null_mut());
        // SAFETY: the three arguments live until the launch has read them, and have the kernel's types.
        unsafe {
            let launch = self.find::<Launch>(c"cuLaunchKernel")?;
            let code = launch(kernel.0, blocks, 1, 1, WIDTH, 1, 1, 0, none, list, null_mut());
            done("cuLaunchKernel", code)?;
            let code = self.find::<Synchronize>(c"cuCtxSynchronize")?();
            done("cuCtxSynchronize", code)
        }
    }

    /// The first `count` numbers at `address`.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn read(&self, address: u64, count: u32) -> Result<Vec<u32>, Refusal> {
        let mut numbers = vec![0_u32; count as usize];
        // SAFETY: the buffer is as long as what is copied.
        let code = unsafe {
            let copy = self.find::<CopyToHost>(c"cuMemcpyDtoH_v2")?;
            copy(numbers.as_mut_ptr().cast(), address, size_of_val(&*numbers))
        };
        done("cuMemcpyDtoH", code).map(|()| numbers)
    }
}

/// A function on the GPU.
pub struct Kernel(*mut c_void);
