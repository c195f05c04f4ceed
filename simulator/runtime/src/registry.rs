// SPDX-License-Identifier: Apache-2.0
//! The fat binaries, kernels and variables that the program registers, each loaded at its first use.
//!
//! A kernel is known by the address of its host function, a variable by that of its shadow. A handle of a fat binary
//! is the address of its [`Binary`], which is never freed.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

use partage_abi::types::*;

use crate::context::check;
use crate::{driver, error, turn};

/// One registered fat binary.
pub struct Binary {
    image: AtomicPtr<c_void>,
    library: Mutex<CuLibrary>,
}

/// What is registered under a host address: its name in the binary.
#[derive(Clone, Copy)]
struct Named {
    binary: &'static Binary,
    /// The program's own string, there as long as the binary is registered.
    name: *const c_char,
    bytes: usize,
    /// Where the program reads the address of a managed variable.
    managed: *mut *mut c_void,
}

// SAFETY: the pointers are the program's constants, which it keeps until it unregisters the binary.
unsafe impl Send for Named {}
// SAFETY: as above; nothing is written through them but once, under the registry's lock.
unsafe impl Sync for Named {}

#[derive(Default)]
struct Registry {
    kernels: HashMap<usize, (Named, CuKernel)>,
    variables: HashMap<usize, Named>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn change<T>(with: impl FnOnce(&mut Registry) -> T) -> Result<T, CuResult> {
    let _turn = turn::begin()?;
    Ok(with(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner)))
}

fn consult<T>(with: impl FnOnce(&Registry) -> T) -> Result<T, CuResult> {
    let _turn = turn::begin()?;
    Ok(with(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner)))
}

impl Binary {
    /// The binary behind a handle.
    ///
    /// # Safety
    /// The handle is one that [`register`] gave.
    unsafe fn of(handle: *mut *mut c_void) -> Option<&'static Self> {
        // SAFETY: the caller says that it is ours; they are never freed.
        unsafe { handle.cast::<Self>().as_ref() }
    }

    /// The library, loaded now if it was not.
    fn library(&self) -> Result<CuLibrary, CuResult> {
        let turn = turn::begin()?;
        let mut library = turn::lock(&self.library, &turn);
        let image = self.image.load(Ordering::Acquire);
        if library.is_null() {
            let (none, no_values) = (core::ptr::null_mut(), core::ptr::null_mut());
            let done = driver::cuLibraryLoadData(&mut *library, image, none, no_values, 0, none, no_values, 0);
            if !done.is_success() {
                *library = CuLibrary::NULL;
                return Err(done);
            }
        }
        Ok(*library)
    }
}

/// Registers a fat binary; nothing is loaded.
pub fn register(image: *mut c_void) -> *mut *mut c_void {
    let binary = Binary {
        image: AtomicPtr::new(image),
        library: Mutex::new(CuLibrary::NULL),
    };
    core::ptr::from_ref::<Binary>(Box::leak(Box::new(binary)))
        .cast_mut()
        .cast()
}

/// Forgets what a binary registered, and unloads it.
///
/// # Safety
/// The handle is one that [`register`] gave.
pub unsafe fn unregister(handle: *mut *mut c_void) {
    // SAFETY: the caller's promise.
    let Some(binary) = (unsafe { Binary::of(handle) }) else {
        return;
    };
    let forgotten = change(|registry| {
        registry
            .kernels
            .retain(|_, (named, _)| !core::ptr::eq(named.binary, binary));
        registry
            .variables
            .retain(|_, named| !core::ptr::eq(named.binary, binary));
    });
    // A forked child has no driver, and nothing to unload.
    if let (Ok(()), Ok(turn)) = (forgotten, turn::begin()) {
        let library = core::mem::take(&mut *turn::lock(&binary.library, &turn));
        if !library.is_null() {
            // The device may be gone by now: then so is the library.
            let _ = driver::cuLibraryUnload(library);
        }
    }
}

/// Registers a kernel.
///
/// # Safety
/// The handle is one that [`register`] gave; the name is there until it is unregistered.
pub unsafe fn kernel(handle: *mut *mut c_void, host: *const c_void, name: *const c_char) {
    // SAFETY: the caller's promise.
    if let Some(binary) = unsafe { Binary::of(handle) } {
        let managed = core::ptr::null_mut();
        let named = Named {
            binary,
            name,
            bytes: 0,
            managed,
        };
        // A forked child launches nothing: what it registers may be missing.
        let _ = change(|registry| registry.kernels.insert(host.addr(), (named, CuKernel::NULL)));
    }
}

/// Registers a variable.
///
/// # Safety
/// As of [`kernel`]; `managed` is null or where the program reads the variable's address.
pub unsafe fn variable(
    handle: *mut *mut c_void,
    host: *const c_void,
    name: *const c_char,
    bytes: usize,
    managed: *mut *mut c_void,
) {
    // SAFETY: the caller's promise.
    if let Some(binary) = unsafe { Binary::of(handle) } {
        let named = Named {
            binary,
            name,
            bytes,
            managed,
        };
        // As of a kernel.
        let _ = change(|registry| registry.variables.insert(host.addr(), named));
    }
}

/// The kernel behind a host function; a handle of a kernel is one too. Precondition: the thread has a context.
pub fn find_kernel(host: *const c_void) -> Result<CuKernel, CuResult> {
    let Some((named, known)) = consult(|registry| registry.kernels.get(&host.addr()).copied())? else {
        let mut name = core::ptr::null();
        let given = CuKernel(host.cast_mut());
        check(driver::cuKernelGetName(&mut name, given)).map_err(|_| error::INVALID_FUNCTION)?;
        return Ok(given);
    };
    if !known.is_null() {
        return Ok(known);
    }
    let mut kernel = CuKernel::NULL;
    let found = driver::cuLibraryGetKernel(&mut kernel, named.binary.library()?, named.name);
    match found {
        CuResult::NOT_FOUND => return Err(error::INVALID_FUNCTION),
        other => check(other)?,
    }
    change(|registry| {
        if let Some(entry) = registry.kernels.get_mut(&host.addr()) {
            entry.1 = kernel;
        }
    })?;
    Ok(kernel)
}

/// The kernel behind a host function as a function of the thread's context. Precondition: it has one.
pub fn find_function(host: *const c_void) -> Result<CuFunction, CuResult> {
    let mut function = CuFunction::NULL;
    match find_kernel(host) {
        Ok(kernel) => check(driver::cuKernelGetFunction(&mut function, kernel))?,
        // A `cudaFunction_t` is accepted as well.
        Err(code) if code == error::INVALID_FUNCTION => {
            let mut loaded = 0;
            function = CuFunction(host.cast_mut());
            check(driver::cuFuncIsLoaded(&mut loaded, function)).map_err(|_| code)?;
        }
        Err(code) => return Err(code),
    }
    Ok(function)
}

/// Address and bytes of a variable. Precondition: the thread has a context.
pub fn find_variable(host: *const c_void) -> Result<(CuDevicePtr, usize), CuResult> {
    let named = consult(|registry| registry.variables.get(&host.addr()).copied())?.ok_or(error::INVALID_SYMBOL)?;
    let library = named.binary.library()?;
    let (mut address, mut bytes) = (0, named.bytes);
    let found = if named.managed.is_null() {
        driver::cuLibraryGetGlobal(&mut address, &mut bytes, library, named.name)
    } else {
        driver::cuLibraryGetManaged(&mut address, &mut bytes, library, named.name)
    };
    match found {
        CuResult::NOT_FOUND => Err(error::INVALID_SYMBOL),
        other => check(other).map(|()| (address, bytes)),
    }
}

/// Writes the addresses of a binary's managed variables to where the program reads them. Precondition: the thread has
/// a context.
///
/// # Safety
/// The handle is one that [`register`] gave.
pub unsafe fn place_managed(handle: *mut *mut c_void) -> Result<(), CuResult> {
    // SAFETY: the caller's promise.
    let Some(binary) = (unsafe { Binary::of(handle) }) else {
        return Err(CuResult::INVALID_VALUE);
    };
    let managed: Vec<_> = consult(|registry| {
        let all = registry.variables.iter();
        let ours = all.filter(|(_, named)| !named.managed.is_null() && core::ptr::eq(named.binary, binary));
        ours.map(|(host, named)| (*host, *named)).collect()
    })?;
    for (host, named) in managed {
        let (address, _) = find_variable(core::ptr::without_provenance(host))?;
        // SAFETY: the program registered this place as the one that it reads the address from.
        unsafe { *named.managed = core::ptr::with_exposed_provenance_mut(address as usize) };
    }
    Ok(())
}

/// The name of a kernel in its binary.
pub fn name_of(host: *const c_void) -> Option<&'static CStr> {
    let named = consult(|registry| registry.kernels.get(&host.addr()).copied()).ok()??;
    // SAFETY: the program's constant, there while the binary is registered.
    Some(unsafe { CStr::from_ptr(named.0.name) })
}
