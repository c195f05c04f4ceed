// SPDX-License-Identifier: Apache-2.0
//! Reads the tables of objects that the dynamic linker has mapped.
//!
//! Needed for questions that `dlsym` cannot answer for us: where is the `dlsym` or `dlopen` that stands behind ours
//! (asking `dlvsym` allocates when a version is missing, and musl has none), which library does an address belong to,
//! and what was an object bound to ([`needed`]).

pub mod needed;
pub mod objects;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;

use crate::guest::text::bytes_of;
use crate::guest::weak;

/// What we need of one mapped object.
pub struct Object {
    base: usize,
    strings: *const c_char,
    symbols: *const Symbol,
    gnu_hash: *const u32,
    hash: *const u32,
    soname: usize,
    /// What the linker filled in at load, and what it fills in at a first call: where the entries are, and their bytes.
    relocations: [(*const Relocation, usize); 2],
    /// What the linker made read-only once it had filled it in; where the object is mapped. Both only by its headers.
    protected: Range<usize>,
    extent: Range<usize>,
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

/// One entry of an object's tables for the linker.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: isize,
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
const DT_PLTRELSZ: isize = 2;
const DT_HASH: isize = 4;
const DT_STRTAB: isize = 5;
const DT_SYMTAB: isize = 6;
const DT_RELA: isize = 7;
const DT_RELASZ: isize = 8;
const DT_SONAME: isize = 14;
const DT_DEBUG: isize = 21;
const DT_JMPREL: isize = 23;
const DT_GNU_HASH: isize = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

impl Object {
    /// The object whose program headers these are.
    ///
    /// # Safety
    /// `headers` are `count` headers of an object mapped at `base`, which stays mapped.
    unsafe fn from_headers(base: usize, headers: *const libc::Elf64_Phdr, count: usize) -> Option<Self> {
        let mut object = None;
        let mut protected = 0..0;
        for i in 0..count {
            // SAFETY: within `count`, by the caller's contract.
            let header = unsafe { &*headers.add(i) };
            let start = base.wrapping_add(header.p_vaddr as usize);
            match header.p_type {
                // SAFETY: the segment is mapped at its address plus the base.
                libc::PT_DYNAMIC => object = unsafe { Self::from_dynamic(base, start as *const Dynamic) },
                libc::PT_GNU_RELRO => protected = start..start.wrapping_add(header.p_memsz as usize),
                _ => {}
            }
        }
        let mut object = object?;
        object.protected = protected;
        // SAFETY: the caller's contract.
        let (start, end) = unsafe { extent(base, headers, count) };
        object.extent = start..end;
        Some(object)
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
            relocations: [(core::ptr::null(), 0); 2],
            protected: 0..0,
            extent: 0..0,
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
                DT_RELA => object.relocations[0].0 = place(value) as _,
                DT_RELASZ => object.relocations[0].1 = value,
                DT_JMPREL => object.relocations[1].0 = place(value) as _,
                DT_PLTRELSZ => object.relocations[1].1 = value,
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

    /// Its function of a name that libc has too, if it has one, and whether it is libc.
    fn of_libc(&self, name: &CStr) -> Option<(*const (), bool)> {
        let soname = self.soname();
        let is_libc = [&b"libc."[..], b"libdl.", b"ld-musl"]
            .iter()
            .any(|start| soname.starts_with(start));
        Some((self.function(name)?, is_libc))
    }

    /// Address of a function that the object defines.
    pub fn function(&self, name: &CStr) -> Option<*const ()> {
        self.function_named(name.to_bytes())
    }

    /// The same for a name without its zero.
    pub fn function_named(&self, name: &[u8]) -> Option<*const ()> {
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
    unsafe fn by_gnu_hash(&self, name: &[u8]) -> Option<*const ()> {
        let wanted = name.iter().fold(5381_u32, |hash, byte| {
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
    unsafe fn defined(&self, index: usize, name: &[u8]) -> Option<*const ()> {
        // SAFETY: the caller's contract; names are offsets in the string table.
        unsafe {
            let symbol = &*self.symbols.add(index);
            (symbol.section != 0
                && symbol.info & 15 == STT_FUNC
                && bytes_of(self.strings.add(symbol.name as usize)) == name)
                .then(|| (self.base + symbol.value) as *const ())
        }
    }
}

/// The two functions behind one that we export in front of libc's.
#[derive(Clone, Copy)]
pub struct Behind {
    /// The next of its name in load order: libc's, or that of another hooking library.
    pub next: *const (),
    /// Where the object of `next` is mapped.
    pub next_start: usize,
    /// Its end.
    pub next_end: usize,
    /// Libc's own.
    pub libc: *const (),
}

/// The head of the linker's list (`struct r_debug`), which it keeps for debuggers.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Loaded,
    others: [usize; 3],
    /// The next namespace's, from version 2 on.
    next: *const Self,
}

/// One object of the linker's list (`struct link_map`).
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Loaded,
}

/// The first object of the linker's list, the program itself.
fn first_loaded() -> Option<*const Loaded> {
    debug().map(|debug| debug.first)
}

/// What the linker keeps for debuggers: the program's dynamic section says where. No function is called for it that
/// another library may stand in front of: the run-time libraries of sanitizers look symbols up before their own
/// `dl_iterate_phdr` is ready.
fn debug() -> Option<&'static Debug> {
    // SAFETY: reads what the kernel gave the process.
    let (headers, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    let headers = headers as *const libc::Elf64_Phdr;
    if headers.is_null() {
        return None;
    }
    let header = |kind| {
        // SAFETY: the program's own headers, `count` of them.
        let all = (0..count as usize).map(|i| unsafe { &*headers.add(i) });
        all.into_iter().find(|header| header.p_type == kind)
    };
    // Programs that are always mapped at one address may do without a header of the headers.
    let base = header(libc::PT_PHDR).map_or(0, |own| (headers as usize).wrapping_sub(own.p_vaddr as usize));
    let mut entry = base.wrapping_add(header(libc::PT_DYNAMIC)?.p_vaddr as usize) as *const Dynamic;
    loop {
        // SAFETY: the program's dynamic section, not past DT_NULL yet.
        let Dynamic { tag, value } = unsafe { entry.read() };
        match tag {
            DT_NULL => return None,
            // SAFETY: where the linker keeps its list, from before any code of a library ran.
            DT_DEBUG => return unsafe { (value as *const Debug).as_ref() },
            // SAFETY: as above.
            _ => entry = unsafe { entry.add(1) },
        }
    }
}

unsafe extern "C" {
    /// Our own dynamic section.
    #[link_name = "_DYNAMIC"]
    static OURS: Dynamic;
}

/// Finds what stands behind our function of that name. Takes no memory and calls nobody while no other library has one.
pub fn find_behind(name: &'static CStr) -> Option<Behind> {
    let mut found = Behind {
        next: core::ptr::null(),
        next_start: 0,
        next_end: 0,
        libc: core::ptr::null(),
    };
    let ours = &raw const OURS;
    if let Some(first) = first_loaded() {
        found.walk(first, ours, name);
    } else {
        // A program whose linker left the entry for debuggers out.
        let mut search = Search {
            name,
            ours: ours as usize,
            is_past_ours: false,
            found,
        };
        // SAFETY: `visit` takes what the linker hands it and a `Search`.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        found = search.found;
    }
    if found.libc.is_null() {
        found.libc = found.next;
    }
    if found.next.is_null() {
        found.next = found.libc;
    }
    (!found.next.is_null()).then_some(found)
}

impl Behind {
    /// Goes through the linker's list from its first object on, past the one whose dynamic section is `ours`.
    fn walk(&mut self, mut place: *const Loaded, ours: *const Dynamic, name: &CStr) {
        let mut is_past_ours = false;
        // Libc, with which the walk ends, and all before it are there from the start and stay: no thread changes them.
        // SAFETY: objects of the linker's list.
        while let Some(loaded) = unsafe { place.as_ref() } {
            place = loaded.next;
            if core::ptr::eq(loaded.dynamic, ours) {
                is_past_ours = true;
            } else if let Some((address, is_libc)) = loaded.of_libc(name) {
                if is_past_ours && self.next.is_null() {
                    self.next = address;
                    (self.next_start, self.next_end) = if is_libc { (0, 0) } else { loaded.extent(address) };
                }
                if is_libc {
                    self.libc = address;
                    return;
                }
            }
        }
    }
}

/// The same by the linker's own walk.
struct Search {
    name: &'static CStr,
    ours: usize,
    is_past_ours: bool,
    found: Behind,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: `find_behind` passes a `Search`, the linker a description of a mapped object.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let (base, headers, count) = (info.dlpi_addr as usize, info.dlpi_phdr, info.dlpi_phnum.into());
    // SAFETY: as the linker says.
    let (start, end) = unsafe { extent(base, headers, count) };
    if (start..end).contains(&search.ours) {
        search.is_past_ours = true;
        return 0;
    }
    // SAFETY: as the linker says.
    let object = unsafe { Object::from_headers(base, headers, count) };
    let Some((address, is_libc)) = object.and_then(|object| object.of_libc(search.name)) else {
        return 0;
    };
    let found = &mut search.found;
    if search.is_past_ours && found.next.is_null() {
        found.next = address;
        (found.next_start, found.next_end) = if is_libc { (0, 0) } else { (start, end) };
    }
    if is_libc {
        found.libc = address;
    }
    is_libc.into()
}

/// This library, by its own tables.
pub fn ours() -> Option<Object> {
    // SAFETY: this library's own function, and where its first page is.
    weak::dladdr(find_behind as *const c_void).and_then(|info| unsafe { Object::at(info.dli_fbase) })
}

impl Loaded {
    /// Its function of a name that libc has too, if it has one, and whether it is libc.
    fn of_libc(&self, name: &CStr) -> Option<(*const (), bool)> {
        // SAFETY: as the linker says.
        unsafe { Object::from_dynamic(self.base, self.dynamic) }?.of_libc(name)
    }

    /// From where to where it is mapped, asked by one of its functions; nowhere if nobody knows.
    fn extent(&self, function: *const ()) -> (usize, usize) {
        let Some(info) = weak::dladdr(function.cast()).filter(|info| !info.dli_fbase.is_null()) else {
            return (0, 0);
        };
        // SAFETY: where the linker mapped the object; its first page holds its header.
        let header = unsafe { &*info.dli_fbase.cast::<Header>() };
        if !header.start.starts_with(b"\x7fELF") {
            return (0, 0);
        }
        let headers = (info.dli_fbase as usize + header.program_headers) as *const libc::Elf64_Phdr;
        // SAFETY: as the header says.
        unsafe { extent(self.base, headers, header.program_header_count.into()) }
    }
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
