// SPDX-License-Identifier: Apache-2.0
//! Reads the tables of objects that the dynamic linker has mapped.
//!
//! Needed for two questions that `dlsym` cannot answer for us: where is the `dlsym` that stands behind ours (asking
//! `dlvsym` allocates when a version is missing, and musl has none), and which library does an address belong to.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::text::bytes_of;

/// What we need of one mapped object.
pub struct Object {
    base: usize,
    strings: *const c_char,
    symbols: *const Symbol,
    gnu_hash: *const u32,
    hash: *const u32,
    soname: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

#[repr(C)]
struct Dynamic {
    tag: isize,
    value: usize,
}

#[repr(C)]
struct Header {
    start: [u8; 32],
    program_headers: usize,
    middle: [u8; 14],
    program_header_size: u16,
    program_header_count: u16,
}

const DT_NULL: isize = 0;
const DT_HASH: isize = 4;
const DT_STRTAB: isize = 5;
const DT_SYMTAB: isize = 6;
const DT_SONAME: isize = 14;
const DT_GNU_HASH: isize = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

impl Object {
    /// The object whose program headers these are.
    ///
    /// # Safety
    /// `headers` are `count` headers of an object mapped at `base`, which stays mapped.
    unsafe fn from_headers(base: usize, headers: *const libc::Elf64_Phdr, count: usize) -> Option<Self> {
        for i in 0..count {
            // SAFETY: within `count`, by the caller's contract.
            let header = unsafe { &*headers.add(i) };
            if header.p_type == libc::PT_DYNAMIC {
                // SAFETY: the segment is mapped at its address plus the base.
                return unsafe { Self::from_dynamic(base, (base + header.p_vaddr as usize) as *const Dynamic) };
            }
        }
        None
    }

    /// # Safety
    /// `entry` begins a dynamic section of an object mapped at `base`, which ends with DT_NULL.
    unsafe fn from_dynamic(base: usize, mut entry: *const Dynamic) -> Option<Self> {
        let mut object = Self {
            base,
            strings: core::ptr::null(),
            symbols: core::ptr::null(),
            gnu_hash: core::ptr::null(),
            hash: core::ptr::null(),
            soname: usize::MAX,
        };
        // glibc has added the base to these addresses already, musl has not.
        let place = |value: usize| if value < base { base + value } else { value };
        loop {
            // SAFETY: not past DT_NULL yet.
            let Dynamic { tag, value } = unsafe { entry.read() };
            match tag {
                DT_NULL => break,
                DT_HASH => object.hash = place(value) as _,
                DT_STRTAB => object.strings = place(value) as _,
                DT_SYMTAB => object.symbols = place(value) as _,
                DT_GNU_HASH => object.gnu_hash = place(value) as _,
                DT_SONAME => object.soname = value,
                _ => {}
            }
            // SAFETY: as above.
            entry = unsafe { entry.add(1) };
        }
        (!object.strings.is_null() && !object.symbols.is_null()).then_some(object)
    }

    /// The object mapped at `base`, as `dladdr` tells it.
    ///
    /// # Safety
    /// An ELF object is mapped at `base` and stays so.
    pub unsafe fn at(base: *const c_void) -> Option<Self> {
        // SAFETY: the caller's contract; an object's first page holds its header.
        let header = unsafe { &*base.cast::<Header>() };
        if !header.start.starts_with(b"\x7fELF") {
            return None;
        }
        let headers = (base as usize + header.program_headers) as *const libc::Elf64_Phdr;
        // SAFETY: program headers lie in the first segment of every object that a linker makes.
        unsafe { Self::from_headers(base as usize, headers, header.program_header_count.into()) }
    }

    /// The name that the object was given at its making; empty without one.
    pub fn soname(&self) -> &[u8] {
        if self.soname == usize::MAX {
            return &[];
        }
        // SAFETY: DT_SONAME is an offset in the object's string table.
        unsafe { bytes_of(self.strings.add(self.soname)) }
    }

    /// Address of a function that the object defines.
    pub fn function(&self, name: &CStr) -> Option<*const ()> {
        // SAFETY: the tables are the object's own, read by the rules of their format.
        unsafe {
            if !self.gnu_hash.is_null() {
                self.by_gnu_hash(name)
            } else if !self.hash.is_null() {
                let buckets = self.hash.read() as usize;
                let symbols = self.hash.add(1).read() as usize;
                (0..symbols).find_map(|i| self.defined(i, name)).filter(|_| buckets > 0)
            } else {
                None
            }
        }
    }

    /// # Safety
    /// `gnu_hash` is the object's DT_GNU_HASH table.
    unsafe fn by_gnu_hash(&self, name: &CStr) -> Option<*const ()> {
        let wanted = name.to_bytes().iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: bucket count, first symbol, bloom words, shift; bloom words; buckets; chains.
        unsafe {
            let buckets = self.gnu_hash.read();
            let first = self.gnu_hash.add(1).read() as usize;
            let bloom = self.gnu_hash.add(2).read() as usize;
            let table = self.gnu_hash.add(4 + 2 * bloom);
            let mut index = table.add(wanted.checked_rem(buckets)? as usize).read() as usize;
            if index < first {
                return None;
            }
            loop {
                let hash = table.add(buckets as usize + index - first).read();
                if hash | 1 == wanted | 1
                    && let Some(address) = self.defined(index, name)
                {
                    return Some(address);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// `index` is within the object's symbol table.
    unsafe fn defined(&self, index: usize, name: &CStr) -> Option<*const ()> {
        // SAFETY: the caller's contract; names are offsets in the string table.
        unsafe {
            let symbol = &*self.symbols.add(index);
            (symbol.section != 0
                && symbol.info & 15 == STT_FUNC
                && bytes_of(self.strings.add(symbol.name as usize)) == name.to_bytes())
            .then(|| (self.base + symbol.value) as *const ())
        }
    }
}

/// The two functions behind our `dlsym`.
#[derive(Clone, Copy)]
pub struct Behind {
    /// The next `dlsym` in load order: libc's, or that of another hooking library.
    pub next: *const (),
    /// Where the object of `next` is mapped.
    pub next_start: usize,
    /// Its end.
    pub next_end: usize,
    /// Libc's own.
    pub libc: *const (),
}

struct Search {
    ours: usize,
    is_past_ours: bool,
    found: Behind,
}

/// Finds what stands behind our `dlsym`, whose address is `ours`. Takes no memory.
pub fn find_dlsym(ours: *const ()) -> Option<Behind> {
    let found = Behind {
        next: core::ptr::null(),
        next_start: 0,
        next_end: 0,
        libc: core::ptr::null(),
    };
    let mut search = Search {
        ours: ours as usize,
        is_past_ours: false,
        found,
    };
    // SAFETY: `visit` takes what the linker hands it and a `Search`.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let mut found = search.found;
    if found.libc.is_null() {
        found.libc = found.next;
    }
    if found.next.is_null() {
        found.next = found.libc;
    }
    (!found.next.is_null()).then_some(found)
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `find_dlsym` passes a `Search`, the linker a description of a mapped object.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let base = info.dlpi_addr as usize;
    // SAFETY: as the linker says.
    let (start, end) = unsafe { extent(base, info.dlpi_phdr, info.dlpi_phnum.into()) };
    if (start..end).contains(&search.ours) {
        search.is_past_ours = true;
        return 0;
    }
    // SAFETY: as the linker says.
    let Some(object) = (unsafe { Object::from_headers(base, info.dlpi_phdr, info.dlpi_phnum.into()) }) else {
        return 0;
    };
    let Some(address) = object.function(c"dlsym") else {
        return 0;
    };
    if search.is_past_ours && search.found.next.is_null() {
        search.found = Behind {
            next: address,
            next_start: start,
            next_end: end,
            ..search.found
        };
    }
    let soname = object.soname();
    if soname.starts_with(b"libc.") || soname.starts_with(b"libdl.") || soname.starts_with(b"ld-musl") {
        search.found.libc = address;
        return 1;
    }
    0
}

/// # Safety
/// `headers` are `count` headers of an object mapped at `base`.
unsafe fn extent(base: usize, headers: *const libc::Elf64_Phdr, count: usize) -> (usize, usize) {
    let (mut start, mut end) = (usize::MAX, 0);
    for i in 0..count {
        // SAFETY: within `count`.
        let header = unsafe { &*headers.add(i) };
        if header.p_type == libc::PT_LOAD {
            let from = base.wrapping_add(header.p_vaddr as usize);
            start = start.min(from);
            end = end.max(from.wrapping_add(header.p_memsz as usize));
        }
    }
    (start, end)
}
