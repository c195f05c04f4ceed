// SPDX-License-Identifier: Apache-2.0
//! The real libraries behind our exports: which object each is, and the addresses of its functions.
//!
//! A library is *adopted* when the program first shows it to us (a look-up through its handle) or when a hook first
//! needs it and finds it loaded or loads it; never before. There can be two drivers in one process: the one of the
//! program's own linker namespace, and one inside a `dlmopen` namespace; each is served by its own set of hooks, so
//! that the calls of one driver never reach the other. What is adopted is pinned: our exports may hold its addresses.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use partage_abi::HOOKED;
use partage_abi::nvml::{self, NvmlReturn};
use partage_abi::types::CuResult;

use crate::guest::elf::Object;
use crate::guest::linker;
use crate::guest::weak;
use crate::names::{self, DRIVER_PLACES, Names};

/// Calls the real function of a row; the library's "not there" answer where it has none.
macro_rules! call {
    ($real:expr, $symbol:ident($($argument:expr),*)) => {
        // SAFETY: the address of the function of that name, whose type the table declares, or of one that looks at no
        // argument; the arguments are the program's, or ours of the same types.
        unsafe {
            core::mem::transmute::<*const (), partage_abi::signatures::$symbol>(
                $real.function(const { crate::names::driver_place(partage_abi::Symbol::$symbol) })
            )($($argument),*)
        }
    };
}
pub(crate) use call;

/// [`call`] for NVML.
macro_rules! call_nvml {
    ($symbol:ident($($argument:expr),*)) => {
        // SAFETY: as for the driver.
        unsafe {
            core::mem::transmute::<*const (), partage_abi::nvml::signatures::$symbol>(
                crate::real::NVML.function(const { crate::names::nvml_place(partage_abi::nvml::Symbol::$symbol) })
            )($($argument),*)
        }
    };
}
pub(crate) use call_nvml;

/// The body of a naked function that returns a number and looks at nothing.
#[cfg(target_arch = "x86_64")]
macro_rules! answer {
    ($code:expr) => {
        core::arch::naked_asm!("mov eax, {code}", "ret", code = const $code)
    };
}

/// The body of a naked function that returns a number and looks at nothing.
#[cfg(target_arch = "aarch64")]
macro_rules! answer {
    ($code:expr) => {
        core::arch::naked_asm!("mov w0, {code}", "ret", code = const $code)
    };
}

/// One library: the driver, a driver in another namespace, or NVML. All zeros until adopted, so that it takes no room
/// in the file.
pub struct Library {
    /// Where the object is mapped; 0 until adopted.
    base: AtomicUsize,
    /// The addresses of all hooked rows are filled in.
    ready: AtomicU32,
    /// Handle to look further functions up with.
    handle: AtomicPtr<c_void>,
    /// Addresses of functions by [place](names); null until looked up, or where the library has none. NVML has fewer.
    addresses: [AtomicPtr<()>; DRIVER_PLACES],
}

const _: () = assert!(names::NVML_PLACES <= DRIVER_PLACES);

/// The driver of the program's own namespace.
pub static DRIVER: Library = Library::new();
/// A driver that the program loaded with `dlmopen`.
pub static SECOND_DRIVER: Library = Library::new();
/// NVML.
pub static NVML: Library = Library::new();

/// Stands for a function that the driver does not have, whatever it takes.
#[unsafe(naked)]
unsafe extern "C" fn no_driver() -> CuResult {
    answer!(CuResult::STUB_LIBRARY.0)
}

/// Stands for a function that NVML does not have.
#[unsafe(naked)]
unsafe extern "C" fn no_nvml() -> NvmlReturn {
    answer!(NvmlReturn::LIBRARY_NOT_FOUND.0)
}

unsafe extern "C" {
    static partage_hooks: [i32; HOOKED.len()];
    static partage_second_hooks: [i32; HOOKED.len()];
    static partage_nvml_hooks: [i32; nvml::HOOKED.len()];
}

/// What [`Library::adopt`] made of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// This library is that object.
    Yes,
    /// This library is another object already.
    Taken,
}

impl Library {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            ready: AtomicU32::new(0),
            handle: AtomicPtr::new(core::ptr::null_mut()),
            addresses: [const { AtomicPtr::new(core::ptr::null_mut()) }; DRIVER_PLACES],
        }
    }

    fn is_nvml(&self) -> bool {
        core::ptr::eq(self, &raw const NVML)
    }

    fn names(&self) -> Names {
        if self.is_nvml() { names::nvml() } else { names::driver() }
    }

    /// Name to load it by, and the start of its soname.
    fn file(&self) -> &'static CStr {
        if self.is_nvml() {
            c"libnvidia-ml.so.1"
        } else {
            c"libcuda.so.1"
        }
    }

    /// What to call for the function of a place: where the library is not there or does not have it, a function that
    /// says so.
    #[inline(always)]
    pub fn function(&self, place: usize) -> *const () {
        match self.addresses.get(place).map(|address| address.load(Ordering::Acquire)) {
            Some(address) if !address.is_null() => address,
            _ => self.function_looked_up(place),
        }
    }

    #[cold]
    #[inline(never)]
    fn function_looked_up(&self, place: usize) -> *const () {
        self.look_up(place).unwrap_or(if self.is_nvml() {
            no_nvml as *const ()
        } else {
            no_driver as *const ()
        })
    }

    /// Address of the function of a place, if the library is there and has it.
    #[cold]
    pub fn look_up(&self, place: usize) -> Option<*const ()> {
        if self.ready.load(Ordering::Acquire) == 0 {
            self.find()?;
        }
        let kept = self.addresses.get(place)?;
        let mut address = kept.load(Ordering::Acquire);
        if address.is_null() {
            address = ask_linker(self.handle.load(Ordering::Acquire), self.names().c_str(place)?)?;
            kept.store(address, Ordering::Release);
        }
        Some(address)
    }

    /// Finds the library for a hook that needs it: loaded already, else loaded now.
    fn find(&self) -> Option<()> {
        if core::ptr::eq(self, &raw const SECOND_DRIVER) {
            // It is only ever shown to us.
            return None;
        }
        // SAFETY: the name is a C string; a library's constructors are the program's business as with its own dlopen.
        let handle = unsafe {
            let loaded = linker::open(self.file().as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if loaded.is_null() {
                linker::open(self.file().as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL)
            } else {
                loaded
            }
        };
        if handle.is_null() {
            weak::forget_dlerror();
            return None;
        }
        // The first hooked row of either table is its initialisation, there since the first release.
        let first = ask_linker(handle, self.names().c_str(0)?)?;
        let base = base_of(first)?;
        (self.adopt(base, handle) == Adopted::Yes).then_some(())
    }

    /// Makes the object at `base` this library, unless another object is. `handle` finds the object's functions.
    pub fn adopt(&self, base: usize, handle: *mut c_void) -> Adopted {
        if let Err(other) = self.base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Acquire)
            && other != base
        {
            return Adopted::Taken;
        }
        if self.ready.load(Ordering::Acquire) == 0 {
            // Two threads may both be here: they write the same values.
            self.handle.store(handle, Ordering::Release);
            let names = self.names();
            for (place, kept) in self.addresses.iter().enumerate().take(names.hooked()) {
                if let Some(address) = names.c_str(place).and_then(|name| ask_linker(handle, name)) {
                    kept.store(address, Ordering::Release);
                }
            }
            weak::forget_dlerror();
            pin(base);
            self.ready.store(1, Ordering::Release);
        }
        Adopted::Yes
    }

    /// Is this library the object at `base`?
    pub fn is_at(&self, base: usize) -> bool {
        self.base.load(Ordering::Acquire) == base
    }

    /// Has this library been adopted?
    pub fn is_adopted(&self) -> bool {
        self.ready.load(Ordering::Acquire) != 0
    }

    /// Handle for further look-ups; null before adoption.
    pub fn handle(&self) -> *mut c_void {
        self.handle.load(Ordering::Acquire)
    }

    /// Which hooked row's function is at `address`: its place.
    pub fn hooked_at(&self, address: *const ()) -> Option<usize> {
        let mut hooked = self.addresses.iter().take(self.names().hooked());
        hooked.position(|kept| core::ptr::eq(kept.load(Ordering::Acquire), address))
    }

    /// Does this library export the function of that place?
    pub fn has(&self, place: usize) -> bool {
        let kept = self.addresses.get(place);
        kept.is_some_and(|kept| !kept.load(Ordering::Acquire).is_null())
    }

    /// Our function for a hooked row, to hand out in the place of this library's.
    pub fn hook(&self, place: usize) -> Option<*const ()> {
        // SAFETY: the tables that `entry` makes, which nothing writes; each has a line for each hooked
        // row of its library.
        let table: &'static [i32] = unsafe {
            if self.is_nvml() {
                &partage_nvml_hooks
            } else if core::ptr::eq(self, &raw const DRIVER) {
                &partage_hooks
            } else {
                &partage_second_hooks
            }
        };
        let distance = *table.get(place)?;
        Some(table.as_ptr().cast::<()>().wrapping_byte_offset(distance as isize))
    }

    /// Which hooked row has this name: its place.
    pub fn hooked_named(&self, name: &[u8]) -> Option<usize> {
        self.names().hooked_named(name)
    }

    /// Is the object at `base` a copy of this library, by its soname?
    pub fn is_copy(&self, base: usize) -> bool {
        // SAFETY: `base` comes from `base_of`: an object is mapped there.
        let object = unsafe { Object::at(base as *const c_void) };
        // `libcuda.so`: the file a program finds may be any `libcuda.so.…`, its soname is the driver's.
        let stem = self.file().to_bytes().strip_suffix(b".1").unwrap_or(b"");
        object.is_some_and(|object| object.soname().starts_with(stem))
    }
}

fn ask_linker(handle: *mut c_void, name: &CStr) -> Option<*mut ()> {
    let address = linker::real_dlsym(handle, name);
    (!address.is_null()).then_some(address.cast())
}

/// Where the object that holds `address` is mapped.
pub fn base_of(address: *const ()) -> Option<usize> {
    let info = weak::dladdr(address.cast())?;
    (!info.dli_fbase.is_null()).then_some(info.dli_fbase as usize)
}

/// Keeps the object mapped although the program may close its last handle. An object in another namespace stays as
/// long as that namespace's program keeps it: no portable call reaches it from here.
fn pin(base: usize) {
    const RTLD_NODELETE: c_int = 0x1000;
    if let Some(info) = weak::dladdr(base as *const c_void).filter(|info| !info.dli_fname.is_null()) {
        // SAFETY: the name the linker gives is a C string, of an object that is loaded.
        unsafe { linker::open(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY | RTLD_NODELETE) };
        weak::forget_dlerror();
    }
}
