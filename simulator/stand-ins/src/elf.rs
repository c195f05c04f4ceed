// SPDX-License-Identifier: Apache-2.0
//! The shared object of a stand-in: two segments, one of code and tables, one of the slots that its code jumps by.
//!
//! Each name is exported with the library's version, as programs linked against the vendor's library ask for it. What
//! the provider has leads there; anything else leads to the refusal. The loader fills the slots before any code runs.

use object::Endianness;
use object::elf;
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, Rel, SectionHeader, Sym, Verdef, Writer};

use crate::code::Processor;

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the import of that place.
    Import(usize),
    /// To the refusal at that place among the imports, which answers the code.
    Refusal(usize, i32),
    /// Nowhere: the number is answered.
    Answer(i32),
}

/// What a stand-in is made of.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) processor: Processor,
    pub(crate) soname: String,
    /// The symbols' version, where the vendor's library has one.
    pub(crate) version: Option<String>,
    /// The sonames of the providers.
    pub(crate) needed: Vec<String>,
    /// Names of providers' functions.
    pub(crate) imports: Vec<String>,
    /// Exported names.
    pub(crate) exports: Vec<(String, Target)>,
}

/// Segments begin on a page of any kernel.
const PAGE: usize = 0x1_0000;
/// Program headers: two segments, the dynamic table, the stack.
const SEGMENTS: u32 = 4;
/// `DT_FLAGS_1` bit: the file is never unloaded.
const DF_1_NODELETE: u64 = 8;

/// Offsets in the file. The first segment's addresses are its offsets; the second lies one page further.
#[derive(Default)]
struct Places {
    hash: usize,
    symbols: usize,
    strings: usize,
    versions: usize,
    definitions: usize,
    relocations: usize,
    code: usize,
    names: usize,
    first_end: usize,
    dynamic: usize,
    slots: usize,
}

impl Object {
    /// The file's bytes.
    ///
    /// # Errors
    /// The writer's, where memory is short.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, object::write::Error> {
        let mut file = Vec::new();
        let mut strings = Strings::default();
        let imports: Vec<_> = self.imports.iter().map(|name| name.as_bytes()).collect();
        let mut writer = Writer::new(Endianness::Little, true, &mut file);
        strings.soname = Some(writer.add_dynamic_string(self.soname.as_bytes()));
        strings.version = self
            .version
            .as_ref()
            .map(|version| writer.add_dynamic_string(version.as_bytes()));
        strings.origin = Some(writer.add_dynamic_string(b"$ORIGIN"));
        strings.needed = self
            .needed
            .iter()
            .map(|name| writer.add_dynamic_string(name.as_bytes()))
            .collect();
        strings.imports = imports.iter().map(|name| writer.add_dynamic_string(name)).collect();
        strings.exports = self
            .exports
            .iter()
            .map(|(name, _)| writer.add_dynamic_string(name.as_bytes()))
            .collect();
        let code = Code::of(self);
        let (places, text) = self.reserve(&mut writer, &code);
        self.write_headers(&mut writer, &places)?;
        self.write_tables(&mut writer, &places, &strings, &code, text);
        self.write_code(&mut writer, &places, &code);
        self.write_second(&mut writer, &places, &strings);
        self.write_sections(&mut writer, &places);
        Ok(file)
    }

    fn is_versioned(&self) -> bool {
        self.version.is_some()
    }

    /// `DT_NEEDED`s, and soname, path, hash, strings (2), symbols (2), relocations (3), flags, the end; versions (3).
    fn dynamic_entries(&self) -> usize {
        self.needed.len() + 12 + if self.is_versioned() { 3 } else { 0 }
    }

    fn reserve(&self, writer: &mut Writer<'_>, code: &Code) -> (Places, object::write::elf::SectionIndex) {
        let mut places = Places::default();
        writer.reserve_file_header();
        writer.reserve_program_headers(SEGMENTS);
        writer.reserve_null_section_index();
        writer.reserve_hash_section_index();
        writer.reserve_dynsym_section_index();
        writer.reserve_dynstr_section_index();
        if self.is_versioned() {
            writer.reserve_gnu_versym_section_index();
            writer.reserve_gnu_verdef_section_index();
        }
        let text = writer.reserve_section_index();
        writer.reserve_dynamic_section_index();
        writer.reserve_shstrtab_section_index();
        writer.reserve_null_dynamic_symbol_index();
        for _ in 0..self.imports.len() + self.exports.len() {
            writer.reserve_dynamic_symbol_index();
        }
        let symbols = writer.dynamic_symbol_count();
        places.hash = writer.reserve_hash(buckets(symbols), symbols);
        places.symbols = writer.reserve_dynsym();
        places.strings = writer.reserve_dynstr();
        if self.is_versioned() {
            places.versions = writer.reserve_gnu_versym();
            places.definitions = writer.reserve_gnu_verdef(2, 2);
        }
        places.relocations = writer.reserve_relocations(self.imports.len(), true);
        places.code = writer.reserve(code.size, 16);
        places.names = writer.reserve(code.names.len(), 1);
        places.first_end = places.names + code.names.len();
        places.dynamic = writer.reserve_dynamic(self.dynamic_entries());
        places.slots = writer.reserve(self.imports.len() * 8, 8);
        writer.reserve_shstrtab();
        writer.reserve_section_headers();
        (places, text)
    }

    fn write_headers(&self, writer: &mut Writer<'_>, places: &Places) -> Result<(), object::write::Error> {
        writer.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: self.processor.machine(),
            e_entry: 0,
            e_flags: 0,
        })?;
        writer.write_align_program_headers();
        let dynamic = places.dynamic as u64;
        let second = (places.slots + self.imports.len() * 8) as u64 - dynamic;
        let tables = self.dynamic_entries() as u64 * 16;
        let headers = [
            (
                elf::PT_LOAD,
                elf::PF_R | elf::PF_X,
                0,
                0,
                places.first_end as u64,
                PAGE as u64,
            ),
            (
                elf::PT_LOAD,
                elf::PF_R | elf::PF_W,
                dynamic,
                second_address(places.dynamic),
                second,
                PAGE as u64,
            ),
            (
                elf::PT_DYNAMIC,
                elf::PF_R | elf::PF_W,
                dynamic,
                second_address(places.dynamic),
                tables,
                8,
            ),
            (elf::PT_GNU_STACK, elf::PF_R | elf::PF_W, 0, 0, 0, 16),
        ];
        for (p_type, p_flags, p_offset, p_vaddr, size, p_align) in headers {
            let (p_filesz, p_memsz) = (size, size);
            writer.write_program_header(&ProgramHeader {
                p_type,
                p_flags,
                p_offset,
                p_vaddr,
                p_paddr: p_vaddr,
                p_filesz,
                p_memsz,
                p_align,
            });
        }
        Ok(())
    }

    /// Symbols, their names, versions and hash table, and the relocations of the slots.
    fn write_tables(
        &self,
        writer: &mut Writer<'_>,
        places: &Places,
        strings: &Strings,
        code: &Code,
        text: object::write::elf::SectionIndex,
    ) {
        let first = 1 + self.imports.len();
        let symbols = (first + self.exports.len()) as u32;
        writer.write_hash(buckets(symbols), symbols, |symbol| {
            let export = (symbol as usize).checked_sub(first)?;
            Some(elf::hash(self.exports[export].0.as_bytes()))
        });
        writer.write_null_dynamic_symbol();
        let undefined = |name| Sym {
            name: Some(name),
            section: None,
            st_info: (elf::STB_GLOBAL << 4) | elf::STT_FUNC,
            st_other: elf::STV_DEFAULT,
            st_shndx: elf::SHN_UNDEF,
            st_value: 0,
            st_size: 0,
        };
        for name in &strings.imports {
            writer.write_dynamic_symbol(&undefined(*name));
        }
        for (name, (at, size)) in strings.exports.iter().zip(&code.places) {
            writer.write_dynamic_symbol(&Sym {
                section: Some(text),
                st_value: (places.code + at) as u64,
                st_size: *size as u64,
                ..undefined(*name)
            });
        }
        writer.write_dynstr();
        self.write_versions(writer, strings);
        writer.write_align_relocation();
        for import in 0..self.imports.len() {
            writer.write_relocation(
                true,
                &Rel {
                    r_offset: second_address(places.slots + import * 8),
                    r_sym: 1 + import as u32,
                    r_type: self.processor.address_of_symbol(),
                    r_addend: 0,
                },
            );
        }
    }

    fn write_versions(&self, writer: &mut Writer<'_>, strings: &Strings) {
        if let (Some(soname), Some(version)) = (strings.soname, strings.version) {
            writer.write_null_gnu_versym();
            for _ in &self.imports {
                // Of no version.
                writer.write_gnu_versym(elf::VER_NDX_GLOBAL);
            }
            for _ in &self.exports {
                writer.write_gnu_versym(2);
            }
            writer.write_align_gnu_verdef();
            let mut define = |flags, index, name| {
                let (version, aux_count) = (elf::VER_DEF_CURRENT, 1);
                writer.write_gnu_verdef(&Verdef {
                    version,
                    flags,
                    index,
                    aux_count,
                    name,
                });
            };
            define(elf::VER_FLG_BASE, elf::VER_NDX_GLOBAL, soname);
            define(0, 2, version);
        }
    }

    fn write_code(&self, writer: &mut Writer<'_>, places: &Places, code: &Code) {
        writer.write_align(16);
        let slot = |import: usize| second_address(places.slots + import * 8);
        for ((_, target), ((at, _), name)) in self.exports.iter().zip(code.places.iter().zip(&code.name_of)) {
            let at = (places.code + at) as u64;
            let name = (places.names + name) as u64;
            writer.write(&match target {
                Target::Import(import) => self.processor.forward(at, slot(*import)),
                Target::Answer(number) => self.processor.answer(*number),
                Target::Refusal(import, answer) => {
                    self.processor
                        .refusal(at, slot(*import), name, places.names as u64, *answer)
                }
            });
        }
        writer.write(&code.names);
    }

    fn write_second(&self, writer: &mut Writer<'_>, places: &Places, strings: &Strings) {
        writer.write_align_dynamic();
        for name in &strings.needed {
            writer.write_dynamic_string(elf::DT_NEEDED, *name);
        }
        let named = [(elf::DT_SONAME, strings.soname), (elf::DT_RUNPATH, strings.origin)];
        for (tag, name) in named {
            writer.write_dynamic_string(tag, name.expect("added"));
        }
        let strings_size = writer.dynstr_len() as u64;
        let mut numbers = vec![
            (elf::DT_HASH, places.hash as u64),
            (elf::DT_STRTAB, places.strings as u64),
            (elf::DT_STRSZ, strings_size),
            (elf::DT_SYMTAB, places.symbols as u64),
            (elf::DT_SYMENT, 24),
            (elf::DT_RELA, places.relocations as u64),
            (elf::DT_RELASZ, self.imports.len() as u64 * 24),
            (elf::DT_RELAENT, 24),
            (elf::DT_FLAGS_1, DF_1_NODELETE),
        ];
        if self.is_versioned() {
            numbers.push((elf::DT_VERSYM, places.versions as u64));
            numbers.push((elf::DT_VERDEF, places.definitions as u64));
            numbers.push((elf::DT_VERDEFNUM, 2));
        }
        numbers.push((elf::DT_NULL, 0));
        for (tag, number) in numbers {
            writer.write_dynamic(tag, number);
        }
        writer.write_align(8);
        writer.write(&vec![0; self.imports.len() * 8]);
    }

    /// What a linker reads.
    fn write_sections(&self, writer: &mut Writer<'_>, places: &Places) {
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_hash_section_header(places.hash as u64);
        writer.write_dynsym_section_header(places.symbols as u64, 1);
        writer.write_dynstr_section_header(places.strings as u64);
        if self.is_versioned() {
            writer.write_gnu_versym_section_header(places.versions as u64);
            writer.write_gnu_verdef_section_header(places.definitions as u64);
        }
        writer.write_section_header(&SectionHeader {
            name: None,
            sh_type: elf::SHT_PROGBITS,
            sh_flags: u64::from(elf::SHF_ALLOC | elf::SHF_EXECINSTR),
            sh_addr: places.code as u64,
            sh_offset: places.code as u64,
            sh_size: (places.first_end - places.code) as u64,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 16,
            sh_entsize: 0,
        });
        writer.write_dynamic_section_header(second_address(places.dynamic));
        writer.write_shstrtab_section_header();
    }
}

/// The address of what lies at an offset of the second segment.
fn second_address(offset: usize) -> u64 {
    (offset + PAGE) as u64
}

fn buckets(symbols: u32) -> u32 {
    (symbols / 2).max(1)
}

/// Names in the table of dynamic strings.
#[derive(Default)]
struct Strings {
    soname: Option<StringId>,
    version: Option<StringId>,
    origin: Option<StringId>,
    needed: Vec<StringId>,
    imports: Vec<StringId>,
    exports: Vec<StringId>,
}

/// How long the code is, and the names that refusals tell.
struct Code {
    size: usize,
    /// From the code's start, and how long, for each export.
    places: Vec<(usize, usize)>,
    /// The library's name, then those of the refused functions, each with a zero behind it.
    names: Vec<u8>,
    /// Where the export's name is among them; 0 for one that is not refused.
    name_of: Vec<usize>,
}

impl Code {
    fn of(object: &Object) -> Self {
        let mut names = object.soname.as_bytes().to_vec();
        names.push(0);
        let mut code = Self {
            size: 0,
            places: Vec::new(),
            names,
            name_of: Vec::new(),
        };
        for (name, target) in &object.exports {
            let size = match target {
                Target::Import(_) => object.processor.forward_size(),
                Target::Refusal(..) => object.processor.refusal_size(),
                Target::Answer(_) => object.processor.answer_size(),
            };
            code.places.push((code.size, size));
            code.size += size;
            if matches!(target, Target::Refusal(..)) {
                code.name_of.push(code.names.len());
                code.names.extend(name.as_bytes());
                code.names.push(0);
            } else {
                code.name_of.push(0);
            }
        }
        code
    }
}
