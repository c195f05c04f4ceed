// SPDX-License-Identifier: Apache-2.0
//! The real libraries behind our exports: which object each is, and the addresses of its functions.
//!
//! A library is *adopted* when the program first shows it to us (a look-up through its handle) or when a hook first
//! needs it and finds it loaded or loads it; never before. There can be two drivers in one process: the one of the
//! program's own linker namespace, and one inside a `dlmopen` namespace; each is served by its own set of hooks, so
//! that the calls of one driver never reach the other. What is adopted is pinned: our exports may hold its addresses.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use partage_abi::{ROWS, nvml};

use crate::elf::Object;
use crate::names::{self, DRIVER_NAMES, DRIVER_ROWS, NVML_NAMES, NVML_ROWS, Name};
use crate::resolve;
use crate::weak;

/// One library: the driver, a driver in another namespace, or NVML.
pub struct Library {
    /// Names of its hooked rows.
    names: &'static [Name],
    /// Their rows in the table.
    rows: &'static [u16],
    /// Name to load it by, and the start of its soname.
    file: &'static CStr,
    /// A hook may load it; a second driver is only ever shown to us.
    may_load: bool,
    /// Where the object is mapped; 0 until adopted.
    base: AtomicUsize,
    /// The addresses of all hooked rows are filled in.
    ready: AtomicU32,
    /// Handle to look further functions up with.
    handle: AtomicPtr<c_void>,
    /// Address of each row's function; null until looked up, or where the library has none.
    addresses: &'static [AtomicPtr<()>],
}

static DRIVER_ADDRESSES: [AtomicPtr<()>; ROWS.len()] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ROWS.len()];
static SECOND_ADDRESSES: [AtomicPtr<()>; ROWS.len()] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ROWS.len()];
static NVML_ADDRESSES: [AtomicPtr<()>; nvml::ROWS.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; nvml::ROWS.len()];

/// The driver of the program's own namespace.
pub static DRIVER: Library = Library::new(&DRIVER_NAMES, &DRIVER_ROWS, c"libcuda.so.1", true, &DRIVER_ADDRESSES);
/// A driver that the program loaded with `dlmopen`.
pub static SECOND_DRIVER: Library =
    Library::new(&DRIVER_NAMES, &DRIVER_ROWS, c"libcuda.so.1", false, &SECOND_ADDRESSES);
/// NVML.
pub static NVML: Library = Library::new(&NVML_NAMES, &NVML_ROWS, c"libnvidia-ml.so.1", true, &NVML_ADDRESSES);

/// What [`Library::adopt`] made of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// This library is that object.
    Yes,
    /// This library is another object already.
    Taken,
}

impl Library {
    const fn new(
        names: &'static [Name],
        rows: &'static [u16],
        file: &'static CStr,
        may_load: bool,
        addresses: &'static [AtomicPtr<()>],
    ) -> Self {
        Self {
            names,
            rows,
            file,
            may_load,
            base: AtomicUsize::new(0),
            ready: AtomicU32::new(0),
            handle: AtomicPtr::new(core::ptr::null_mut()),
            addresses,
        }
    }

    /// Address of the function of a row and name, if the library is there and has it.
    #[inline]
    pub fn address(&self, row: usize, name: &CStr) -> Option<*const ()> {
        let address = self.addresses.get(row)?.load(Ordering::Acquire);
        if address.is_null() {
            self.look_up(row, name)
        } else {
            Some(address)
        }
    }

    #[cold]
    fn look_up(&self, row: usize, name: &CStr) -> Option<*const ()> {
        if self.ready.load(Ordering::Acquire) == 0 {
            self.find()?;
        }
        let place = self.addresses.get(row)?;
        let mut address = place.load(Ordering::Acquire);
        if address.is_null() {
            address = ask_linker(self.handle.load(Ordering::Acquire), name)?;
            place.store(address, Ordering::Release);
        }
        Some(address)
    }

    /// Finds the library for a hook that needs it: loaded already, else loaded now.
    fn find(&self) -> Option<()> {
        if !self.may_load {
            return None;
        }
        // SAFETY: `file` is a C string; a library's constructors are the program's business as with its own dlopen.
        let handle = unsafe {
            let loaded = weak::dlopen(self.file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if loaded.is_null() {
                weak::dlopen(self.file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL)
            } else {
                loaded
            }
        };
        if handle.is_null() {
            resolve::forget_linker_error();
            return None;
        }
        // The first hooked row of either table is its initialisation, there since the first release.
        let first = ask_linker(handle, names::as_c_str(self.names.first()?))?;
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
            for (name, row) in self.names.iter().zip(self.rows) {
                let place = self.addresses.get(usize::from(*row));
                if let (Some(place), Some(address)) = (place, ask_linker(handle, names::as_c_str(name))) {
                    place.store(address, Ordering::Release);
                }
            }
            resolve::forget_linker_error();
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

    /// Which hooked row's function is at `address`: its position among the hooked rows.
    pub fn hooked_at(&self, address: *const ()) -> Option<usize> {
        self.rows.iter().position(|row| {
            let place = self.addresses.get(usize::from(*row));
            place.is_some_and(|place| core::ptr::eq(place.load(Ordering::Acquire), address))
        })
    }

    /// Does this library export the hooked row of that position?
    pub fn has(&self, position: usize) -> bool {
        let place = self
            .rows
            .get(position)
            .and_then(|row| self.addresses.get(usize::from(*row)));
        place.is_some_and(|place| !place.load(Ordering::Acquire).is_null())
    }

    /// Which hooked row has this name: its position among the hooked rows.
    pub fn hooked_named(&self, name: &[u8]) -> Option<usize> {
        self.names
            .iter()
            .position(|hooked| names::as_c_str(hooked).to_bytes() == name)
    }

    /// Is the object at `base` a copy of this library, by its soname?
    pub fn is_copy(&self, base: usize) -> bool {
        // SAFETY: `base` comes from `base_of`: an object is mapped there.
        let object = unsafe { Object::at(base as *const c_void) };
        // `libcuda.so`: the file a program finds may be any `libcuda.so.…`, its soname is the driver's.
        let stem = self.file.to_bytes().strip_suffix(b".1").unwrap_or(b"");
        object.is_some_and(|object| object.soname().starts_with(stem))
    }
}

fn ask_linker(handle: *mut c_void, name: &CStr) -> Option<*mut ()> {
    let address = resolve::real_dlsym(handle, name);
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
        unsafe { weak::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY | RTLD_NODELETE) };
        resolve::forget_linker_error();
    }
}
