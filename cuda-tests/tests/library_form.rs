// SPDX-License-Identifier: Apache-2.0
//! The form of the release `libpartage.so`, as docs/decisions/0003-library-form.md promises it: what it exports, what
//! it needs, how large it is and of what, what it costs an exec; and that a program of another libc runs with it.
//!
//! Judged is the file that `PARTAGE_RELEASE_LIBRARY` names (`scripts/package --check` builds it for glibc 2.17 and runs
//! this); without the variable each test says that it was skipped. `PARTAGE_LIBRARY_WITH_SYMBOLS` names a build
//! of the same source that was not stripped, for the names of its functions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use object::elf::{FileHeader64, STB_GLOBAL, STB_WEAK};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

/// The largest library that every process of a job may be made to map, in bytes.
const LARGEST: u64 = 640 * 1024;
/// The relocations that the loader may have to do at each exec of every process of a job.
const MOST_RELOCATIONS: usize = 150;
/// Today's size of the x86-64 file, rounded up. It only shrinks: a change that makes the library larger has to say why
/// here, and one that makes it smaller by [`SLACK`] writes less.
///
/// 9 KB are for the exports of both drivers and of NVML, each of which compares its caller's stack pointer before it
/// jumps to its body (`interposer/src/entry/stub.rs`): after a jump out of a call the next one is charged.
/// Half a KB is for the limit of each process, which the program sees as its card (`docs/memory.md`).
/// 20 KB are for the hold that every call passes (`docs/decisions/0013-the-hold.md`), 1 KB for a job that moves: its
/// devices are learnt anew (`interposer/src/attachment/moved.rs`). 3 KB are for letting go of a broker's pages and
/// taking others in again (`docs/decisions/0017-snapshots.md`). 3 KB are for waiting for a host's broker with memory
/// closed, and for the GPUs that a process can open (`docs/containers.md`).
/// 22 KB are for what is opened with RTLD_DEEPBIND, its search paths included (`docs/decisions/0004-dlsym.md`), NVML in
/// a job that is away or lazy and its 22 exports more (`docs/suspend.md`), and a token in the library's own path.
/// 2 KB are for refusals that a program recovers from, device by device (`interposer/src/explain.rs`).
const TODAY: u64 = 331 * 1024;
/// Today's size of the aarch64 file, likewise: each instruction has four bytes, and unwind rows are longer.
const TODAY_AARCH64: u64 = 339 * 1024;
/// How far below today's size a file may be.
const SLACK: u64 = 8 * 1024;
/// The newest libc that may be needed.
const NEWEST_GLIBC: (u32, u32) = (2, 17);
/// What may be needed: libc and, where they are separate, its parts. Never the dynamic linker itself: a program of
/// another libc would have to find that file.
const MAY_NEED: [&str; 3] = ["libc.so.6", "libpthread.so.0", "libdl.so.2"];

struct Library {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The library, or a line that says why there is none to judge.
fn library() -> Option<Library> {
    let Some(path) = std::env::var_os("PARTAGE_RELEASE_LIBRARY").map(PathBuf::from) else {
        println!("skipped: PARTAGE_RELEASE_LIBRARY is not set; run scripts/package --check");
        return None;
    };
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(Library { path, bytes })
}

impl Library {
    fn elf(&self) -> ElfFile64<'_> {
        ElfFile64::parse(&*self.bytes).expect("a 64-bit ELF file")
    }

    /// Names of the dynamic symbols, with whether each is defined here.
    fn dynamic_symbols(&self) -> Vec<(String, bool)> {
        let elf = self.elf();
        elf.dynamic_symbols()
            .filter(|symbol| matches!(symbol.elf_symbol().st_bind(), STB_GLOBAL | STB_WEAK))
            .map(|symbol| (symbol.name().expect("a name").to_owned(), symbol.is_definition()))
            .collect()
    }

    /// Values of a tag in the dynamic section, as strings of its string table.
    fn needed(&self) -> Vec<String> {
        let elf = self.elf();
        let endian = elf.endian();
        let header = FileHeader64::<Endianness>::parse(&*self.bytes).expect("a header");
        let segments = header.program_headers(endian, &*self.bytes).expect("program headers");
        let sections = header.sections(endian, &*self.bytes).expect("sections");
        let strings = sections
            .symbols(endian, &*self.bytes, object::elf::SHT_DYNSYM)
            .expect("symbols")
            .strings();
        let mut needed = Vec::new();
        for segment in segments {
            for entry in segment
                .dynamic(endian, &*self.bytes)
                .expect("a dynamic segment")
                .into_iter()
                .flatten()
            {
                if entry.tag32(endian) == Some(object::elf::DT_NEEDED) {
                    let name = entry.string(endian, strings).expect("a name");
                    needed.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
        needed
    }

    /// The symbol versions that it asks of others.
    fn needed_versions(&self) -> Vec<String> {
        let header = FileHeader64::<Endianness>::parse(&*self.bytes).expect("a header");
        let endian = header.endian().expect("an order of bytes");
        let sections = header.sections(endian, &*self.bytes).expect("sections");
        let Some((mut entries, link)) = sections.gnu_verneed(endian, &*self.bytes).expect("versions") else {
            return Vec::new();
        };
        let strings = sections.strings(endian, &*self.bytes, link).expect("strings");
        let mut versions = Vec::new();
        while let Some((_, mut names)) = entries.next().expect("an entry") {
            while let Some(version) = names.next().expect("a version") {
                versions.push(String::from_utf8_lossy(version.name(endian, strings).expect("a name")).into_owned());
            }
        }
        versions
    }
}

#[test]
fn exports_are_the_hooked_rows_dlsym_and_dlopen() {
    let Some(library) = library() else { return };
    let exported: BTreeSet<String> = library
        .dynamic_symbols()
        .into_iter()
        .filter_map(|(name, is_defined)| is_defined.then_some(name))
        .collect();
    let rows = partage_abi::ROWS.iter().chain(partage_abi::nvml::ROWS);
    let mut expected: BTreeSet<String> = rows
        .filter(|row| row.treatment.is_hooked())
        .map(|row| row.name().to_owned())
        .collect();
    expected.extend(["dlsym", "dlopen"].map(str::to_owned));
    assert_eq!(exported, expected);
}

#[test]
fn needs_libc_and_nothing_newer_than_its_oldest() {
    let Some(library) = library() else { return };
    let needed = library.needed();
    assert!(
        !needed.is_empty(),
        "without libc among its needs a program of another libc could not be told apart"
    );
    for name in &needed {
        assert!(MAY_NEED.contains(&name.as_str()), "needs {name}");
    }
    for version in library.needed_versions() {
        let number = version
            .strip_prefix("GLIBC_")
            .unwrap_or_else(|| panic!("version {version}"));
        let mut parts = number.split('.').map(|part| part.parse::<u32>().expect("a number"));
        let (major, minor) = (parts.next().expect("a major"), parts.next().unwrap_or(0));
        assert!((major, minor) <= NEWEST_GLIBC, "needs {version}");
    }
}

#[test]
fn calls_nothing_that_a_guest_must_not() {
    let Some(library) = library() else { return };
    for (name, is_defined) in library.dynamic_symbols() {
        // The allocator, threads' lazy storage, exit paths, output, and the proof that no panic is reachable.
        let refused = [
            "__tls_get_addr",
            "malloc",
            "calloc",
            "realloc",
            "free",
            "exit",
            "abort",
            "printf",
            "puts",
            "fwrite",
            "signal",
            "sigaction",
            "umask",
            "pthread_atfork",
            "__register_atfork",
            "partage_reachable_panic",
        ];
        assert!(is_defined || !refused.contains(&name.as_str()), "refers to {name}");
    }
}

/// The path in a function's mangled name: `_ZN7partage4real4DRIVER17h…E`. Others are shown as they are.
fn demangled(symbol: &str) -> String {
    let Some(mut rest) = symbol.strip_prefix("_ZN") else {
        return symbol.to_owned();
    };
    let mut parts = Vec::new();
    while let Some(digits) = rest
        .find(|letter: char| !letter.is_ascii_digit())
        .filter(|digits| *digits > 0)
    {
        let (length, after) = rest.split_at(digits);
        let length = length.parse().expect("digits");
        parts.push(&after[..length]);
        rest = &after[length..];
    }
    // The last part is a hash.
    parts.pop();
    parts.join("::")
}

#[test]
fn its_bytes_are_shown_and_do_not_grow() {
    let Some(library) = library() else { return };
    let elf = library.elf();
    let size = library.bytes.len() as u64;
    println!("{size} bytes, of these");
    let mut sections: Vec<(u64, String)> = elf
        .sections()
        .filter_map(|section| Some((section.file_range()?.1, section.name().ok()?.to_owned())))
        .collect();
    sections.sort_unstable_by(|one, other| other.cmp(one));
    for (bytes, name) in sections.iter().take(10) {
        println!("  {bytes:>7} {name}");
    }
    if let Some(path) = std::env::var_os("PARTAGE_LIBRARY_WITH_SYMBOLS") {
        let bytes = std::fs::read(path).expect("the file");
        let named: ElfFile64<'_> = ElfFile64::parse(&*bytes).expect("a 64-bit ELF file");
        let mut functions: Vec<(u64, &str)> = named
            .symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .map(|symbol| (symbol.size(), symbol.name().expect("a name")))
            .collect();
        functions.sort_unstable_by(|one, other| other.cmp(one));
        println!("its {} functions begin with", functions.len());
        for (bytes, name) in functions.iter().take(10) {
            println!("  {bytes:>7} {}", demangled(name));
        }
    }
    assert!(size <= LARGEST, "{size} bytes, more than {LARGEST}");
    let today = match elf.architecture() {
        object::Architecture::X86_64 => TODAY,
        object::Architecture::Aarch64 => TODAY_AARCH64,
        other => panic!("a library for {other:?}"),
    };
    assert!(size <= today, "{size} bytes, which were {today}");
    assert!(
        size + SLACK >= today,
        "{size} bytes are less than they were: lower what was"
    );
}

#[test]
fn the_loader_has_little_to_do_at_an_exec() {
    let Some(library) = library() else { return };
    let elf = library.elf();
    let relocations = elf.dynamic_relocations().map_or(0, Iterator::count);
    println!("{relocations} relocations");
    assert!(relocations > 0, "none are counted");
    assert!(
        relocations <= MOST_RELOCATIONS,
        "{relocations}, more than {MOST_RELOCATIONS}"
    );
    // Relocations of these forms are not counted above, and two tables of names are one too many.
    for section in [".relr.dyn", ".hash"] {
        assert!(elf.section_by_name(section).is_none(), "has {section}");
    }
}

/// The largest pages that kernels are built for: 64 KiB on aarch64, where GH200 hosts use them.
#[test]
fn its_segments_begin_on_a_page_of_any_kernel() {
    let Some(library) = library() else { return };
    let header = FileHeader64::<Endianness>::parse(&*library.bytes).expect("a header");
    let endian = header.endian().expect("an order of bytes");
    let page = match library.elf().architecture() {
        object::Architecture::Aarch64 => 64 * 1024,
        _ => 4096,
    };
    let segments = header
        .program_headers(endian, &*library.bytes)
        .expect("program headers");
    let loaded = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD);
    for segment in loaded {
        assert!(
            segment.p_align(endian) >= page,
            "a segment for pages of {} bytes",
            segment.p_align(endian)
        );
    }
}

#[test]
fn is_stripped_and_runs_nothing_at_load() {
    let Some(library) = library() else { return };
    let elf = library.elf();
    assert!(elf.symbols().next().is_none(), "is not stripped");
    // At an exit one function runs: it says who got past the library (`bypass.rs`).
    let exits = elf.section_by_name(".fini_array").map(|section| section.size());
    assert_eq!(exits, Some(8), "one function at an exit");
    for section in [".init", ".fini", ".preinit_array", ".ctors"] {
        assert!(elf.section_by_name(section).is_none(), "has {section}");
    }
    // On aarch64 two functions of the compiler's own library ask `getauxval` what the processor has (atomics in one
    // instruction), and keep the answers; nothing of ours.
    let of_the_compiler = match elf.architecture() {
        object::Architecture::Aarch64 => 16,
        _ => 0,
    };
    let starts = elf.section_by_name(".init_array").map_or(0, |section| section.size());
    assert!(starts <= of_the_compiler, "{starts} bytes of .init_array");
    let writable_code = elf.sections().any(|section| {
        let object::SectionFlags::Elf { sh_flags } = section.flags() else {
            return false;
        };
        let both = u64::from(object::elf::SHF_WRITE | object::elf::SHF_EXECINSTR);
        sh_flags & both == both
    });
    assert!(!writable_code, "has a section that is writable and executable");
}

#[test]
fn a_musl_program_runs_with_it_and_finds_its_symbols() {
    let Some(library) = library() else { return };
    let own = match std::env::consts::ARCH {
        "aarch64" => object::Architecture::Aarch64,
        _ => object::Architecture::X86_64,
    };
    if library.elf().architecture() != own {
        println!("skipped: the library is for another processor than this machine's");
        return;
    }
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        println!("skipped: musl-gcc is not here");
        return;
    }
    let folder = std::env::temp_dir().join(format!("partage-musl-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let (source, program) = (folder.join("musl.c"), folder.join("musl"));
    // Its own look-ups go through our dlsym: one that succeeds, one that fails with its error, one of our names.
    std::fs::write(
        &source,
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n\
         int main(void) {\n\
           void *self = dlopen(0, RTLD_NOW);\n\
           printf(\"%d %d %d %d %d\\n\", dlsym(self, \"printf\") != 0, dlsym(RTLD_NEXT, \"printf\") != 0,\n\
                  dlsym(self, \"no_such_symbol\") != 0, dlerror() != 0, dlsym(RTLD_DEFAULT, \"cuInit\") != 0);\n\
           return 7;\n\
         }\n",
    )
    .expect("writable");
    let built = Command::new("musl-gcc")
        .arg("-o")
        .args([&program, &source])
        .output()
        .expect("musl-gcc runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = |preload: bool| {
        let mut command = Command::new(&program);
        command.env_clear();
        if preload {
            command.env("LD_PRELOAD", &library.path);
        }
        command.output().expect("the program runs")
    };
    let (alone, with) = (run(false), run(true));
    std::fs::remove_dir_all(&folder).expect("ours to remove");
    assert_eq!(alone.status.code(), Some(7));
    assert_eq!(
        String::from_utf8_lossy(&with.stdout),
        String::from_utf8_lossy(&alone.stdout)
    );
    assert_eq!(with.stderr, alone.stderr);
    assert_eq!(with.status.code(), Some(7));
}
