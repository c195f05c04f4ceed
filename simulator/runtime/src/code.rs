// SPDX-License-Identifier: Apache-2.0
//! The code that a program registers before it starts, and which kernel or variable of the driver a name of the
//! program's stands for.
//!
//! A fat binary is loaded at the first use of one of its kernels or variables: a framework registers hundreds, and a
//! process uses a few.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError, RwLock};

use partage_abi::types::{CuDevicePtr, CuFunction, CuKernel, CuLibrary};

use crate::driver::call;
use crate::error::{Answer, Code};

/// A fat binary that was registered.
struct Binary {
    /// As the program gave it; it stays until the program unregisters it.
    wrapper: usize,
    /// The driver's library, once it was loaded.
    library: Mutex<usize>,
}

/// A kernel or a variable of the program's.
struct Symbol {
    binary: &'static Binary,
    name: &'static CStr,
    /// The driver's kernel, once it was asked for; 0 before.
    kernel: std::sync::atomic::AtomicUsize,
}

/// By the address that the program knows it by.
static SYMBOLS: RwLock<Option<HashMap<usize, &'static Symbol>>> = RwLock::new(None);

/// Loads a fat binary, and answers its handle: an address, which code that `nvcc` made keeps.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaRegisterFatBinary(wrapper: *mut c_void) -> *mut *mut c_void {
    let binary = Box::new(Binary {
        wrapper: wrapper.expose_provenance(),
        library: Mutex::new(0),
    });
    // For ever: kernels point to it, and unregistering happens while a process ends.
    ptr::from_ref::<Binary>(Box::leak(binary)).cast_mut().cast()
}

/// All symbols of a fat binary were registered.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// The library that had the fat binary goes.
///
/// # Safety
/// The handle is one that [`partage___cudaRegisterFatBinary`] gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn partage___cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    let Ok(mut symbols) = SYMBOLS.try_write() else {
        // A forked child, while another thread of its parent held the lock: it has no driver anyway.
        return;
    };
    // SAFETY: the caller's promise; it is never freed.
    let binary: &'static Binary = unsafe { &*handle.cast::<Binary>() };
    if let Some(symbols) = symbols.as_mut() {
        symbols.retain(|_, symbol| !ptr::eq(symbol.binary, binary));
    }
    // The driver's library stays: kernels of it may run, and the process is ending or the driver already gone.
}

fn register(handle: *mut *mut c_void, host: *const c_void, name: *const c_char) {
    // SAFETY: a handle of ours, and the text of the program's fat binary, which lies in the same library as the host
    // address and so lives as long as that is asked for.
    let (binary, name) = unsafe { (&*handle.cast::<Binary>(), CStr::from_ptr(name)) };
    let symbol = Box::leak(Box::new(Symbol {
        binary,
        name,
        kernel: std::sync::atomic::AtomicUsize::new(0),
    }));
    let mut symbols = SYMBOLS.write().unwrap_or_else(PoisonError::into_inner);
    symbols.get_or_insert_with(HashMap::new).insert(host.addr(), symbol);
}

/// A kernel: the address of the program's function, and its name in the fat binary.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_void,
    _device_fun: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp_size: *mut c_int,
) {
    register(handle, host, name);
}

/// A variable.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_void,
    _address: *mut c_char,
    name: *const c_char,
    _is_extern: c_int,
    _size: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    register(handle, host, name);
}

impl Binary {
    fn library(&self) -> Result<CuLibrary, Code> {
        let mut held = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if *held == 0 {
            let mut library = CuLibrary(ptr::null_mut());
            let wrapper = ptr::with_exposed_provenance(self.wrapper);
            call!(cuLibraryLoadData(
                &raw mut library,
                wrapper,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            ))?;
            *held = library.0.expose_provenance();
        }
        Ok(CuLibrary(ptr::with_exposed_provenance_mut(*held)))
    }
}

fn symbol(host: *const c_void) -> Option<&'static Symbol> {
    let symbols = SYMBOLS.read().unwrap_or_else(PoisonError::into_inner);
    symbols.as_ref()?.get(&host.addr()).copied()
}

/// The driver's kernel for a function of the program's.
///
/// # Errors
/// Nobody registered it, or the driver's word about its fat binary.
pub fn kernel(host: *const c_void) -> Result<CuKernel, Code> {
    use std::sync::atomic::Ordering;
    let symbol = symbol(host).ok_or(Code::INVALID_DEVICE_FUNCTION)?;
    let known = symbol.kernel.load(Ordering::Acquire);
    if known != 0 {
        return Ok(CuKernel(ptr::with_exposed_provenance_mut(known)));
    }
    let mut kernel = CuKernel(ptr::null_mut());
    call!(cuLibraryGetKernel(
        &raw mut kernel,
        symbol.binary.library()?,
        symbol.name.as_ptr()
    ))?;
    symbol.kernel.store(kernel.0.expose_provenance(), Ordering::Release);
    Ok(kernel)
}

/// The driver's function, in the thread's context, for a function of the program's; a kernel that the program got from
/// [`kernel`] or a library is taken too.
///
/// # Errors
/// As [`kernel`].
pub fn function(host: *const c_void) -> Result<CuFunction, Code> {
    let kernel = match kernel(host) {
        Err(Code::INVALID_DEVICE_FUNCTION) => CuKernel(host.cast_mut()),
        found => found?,
    };
    let mut function = CuFunction(ptr::null_mut());
    let found = call!(cuKernelGetFunction(&raw mut function, kernel));
    found.map_err(|code| match code {
        // No kernel of the driver's: the program gave an address that nobody registered.
        Code(400) => Code::INVALID_DEVICE_FUNCTION,
        code => code,
    })?;
    Ok(function)
}

/// Where a variable of the program's lies in the thread's context, and its bytes.
///
/// # Errors
/// Nobody registered it, or the driver's word.
pub fn variable(host: *const c_void) -> Result<(CuDevicePtr, usize), Code> {
    let symbol = symbol(host).ok_or(Code::INVALID_SYMBOL)?;
    let (mut at, mut bytes) = (0, 0);
    call!(cuLibraryGetGlobal(
        &raw mut at,
        &raw mut bytes,
        symbol.binary.library()?,
        symbol.name.as_ptr()
    ))?;
    Ok((at, bytes))
}

/// A count of threads or blocks in three directions, as the program's compiler passes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Dim3 {
    pub(crate) x: c_uint,
    pub(crate) y: c_uint,
    pub(crate) z: c_uint,
}

/// What `<<<...>>>` says.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: usize,
    pub(crate) stream: *mut c_void,
}

thread_local! {
    static CONFIGURED: std::cell::RefCell<Vec<Configuration>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Keeps a configuration for the launch that follows. Answers 0, or a number at which the launch is left out.
#[unsafe(no_mangle)]
pub extern "C" fn partage___cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: *mut c_void,
) -> c_uint {
    let configuration = Configuration {
        grid,
        block,
        shared,
        stream,
    };
    let pushed = CONFIGURED.try_with(|kept| kept.borrow_mut().push(configuration));
    c_uint::from(pushed.is_err())
}

/// Gives back the newest configuration.
///
/// # Safety
/// All are places of the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn partage___cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared: *mut usize,
    stream: *mut *mut c_void,
) -> c_int {
    let popped = CONFIGURED.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
    let answer: Answer = popped.ok_or(Code::MISSING_CONFIGURATION).map(|kept| {
        // SAFETY: the caller's promise.
        unsafe {
            *grid = kept.grid;
            *block = kept.block;
            *shared = kept.shared;
            *stream = kept.stream;
        }
    });
    crate::error::told(answer)
}
