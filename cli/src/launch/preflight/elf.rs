// SPDX-License-Identifier: Apache-2.0
//! The few facts of an ELF file that decide whether a library can be preloaded into it.
//!
//! Reads only headers, and only what lies inside the file: any bytes give an answer, none a panic. Little-endian 64-bit
//! (the machines Partage runs on); of other classes only the class is told.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest program header table and dynamic string table that are read, in bytes.
const MOST: usize = 4 << 20;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A 64-bit program or library of this machine.
    Elf {
        /// The dynamic loader it asks for; none is a static program (or the loader itself, or a library).
        interpreter: Option<String>,
    },
    /// ELF of another word size or machine: `32-bit`, `machine 183`.
    ForeignElf(String),
    /// A script, with the rest of its first line after `#!`.
    Script(String),
    /// Neither: execvp hands such a file to /bin/sh.
    Other,
}

/// Reads what a file is.
///
/// # Errors
/// The file cannot be read.
pub fn kind(path: &Path) -> std::io::Result<FileKind> {
    let (file, head) = open(path)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        return Ok(FileKind::Script(String::from_utf8_lossy(line).trim().to_owned()));
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(FileKind::Other);
    }
    if head.get(4) != Some(&2) {
        return Ok(FileKind::ForeignElf("32-bit".to_owned()));
    }
    let machine = u16_at(&head, 18).unwrap_or(0);
    if machine != OWN_MACHINE {
        return Ok(FileKind::ForeignElf(format!(
            "for another processor (ELF machine {machine})"
        )));
    }
    let interpreter = || {
        let segment = segments(&file, &head)?.into_iter().find(|s| s.kind == PT_INTERP)?;
        let bytes = read_at(&file, segment.offset, segment.size)?;
        let path = bytes.split(|&b| b == 0).next()?;
        Some(String::from_utf8_lossy(path).into_owned())
    };
    Ok(FileKind::Elf {
        interpreter: interpreter(),
    })
}

#[cfg(target_arch = "x86_64")]
const OWN_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OWN_MACHINE: u16 = 183;

/// The highest `GLIBC_x.y` that a library needs; none when it needs no versioned symbol.
pub fn newest_glibc_needed(path: &Path) -> std::io::Result<Option<(u32, u32)>> {
    let (file, head) = open(path)?;
    let versions = versions_needed(&file, &head).unwrap_or_default();
    Ok(versions.iter().filter_map(|version| glibc_version(version)).max())
}

/// A file and its beginning.
fn open(path: &Path) -> std::io::Result<(File, Vec<u8>)> {
    let file = File::open(path)?;
    let mut head = Vec::new();
    (&file).take(512).read_to_end(&mut head)?;
    Ok((file, head))
}

/// `GLIBC_2.17` as (2, 17).
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

/// The libraries that a program names as needed, by soname; none when the file cannot be read.
pub fn libraries_needed(path: &Path) -> Vec<String> {
    let read = || {
        let (file, head) = open(path).ok()?;
        let dynamic = Dynamic::read(&file, &head)?;
        let names = dynamic.entries().filter(|(tag, _)| *tag == DT_NEEDED);
        Some(names.filter_map(|(_, at)| dynamic.name(at)).collect())
    };
    read().unwrap_or_default()
}

/// The dynamic section of a file: what its loader reads (section headers may be stripped).
struct Dynamic {
    segments: Vec<Segment>,
    section: Vec<u8>,
    strings: Vec<u8>,
}

impl Dynamic {
    fn read(file: &File, head: &[u8]) -> Option<Self> {
        let segments = segments(file, head)?;
        let place = segments.iter().find(|s| s.kind == PT_DYNAMIC)?;
        let section = read_at(file, place.offset, place.size)?;
        let mut dynamic = Self {
            segments,
            section,
            strings: Vec::new(),
        };
        let at = dynamic.offset_of(dynamic.value(DT_STRTAB)?)?;
        dynamic.strings = read_at(file, at, dynamic.value(DT_STRSZ)?)?;
        Some(dynamic)
    }

    /// Tag and value of each entry.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let pairs = self.section.chunks_exact(16);
        pairs.filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)))
    }

    fn value(&self, tag: u64) -> Option<u64> {
        self.entries().find(|(other, _)| *other == tag).map(|(_, value)| value)
    }

    /// Where in the file an address is.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let inside = |s: &&Segment| s.kind == PT_LOAD && (s.address..s.address + s.size).contains(&address);
        let segment = self.segments.iter().find(inside)?;
        Some(segment.offset + (address - segment.address))
    }

    fn name(&self, at: u64) -> Option<String> {
        let rest = self.strings.get(usize::try_from(at).ok()?..)?;
        let name = rest.split(|&b| b == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// Walks `.gnu.version_r` by way of the dynamic section.
fn versions_needed(file: &File, head: &[u8]) -> Option<Vec<String>> {
    let dynamic = Dynamic::read(file, head)?;
    let mut need = dynamic.offset_of(dynamic.value(DT_VERNEED)?)?;
    let mut names = Vec::new();
    // Elf64_Verneed: u16 version, u16 count, u32 file, u32 aux, u32 next.
    for _ in 0..dynamic.value(DT_VERNEEDNUM).unwrap_or(0).min(64) {
        let Some(record) = read_at(file, need, 16) else { break };
        let (Some(count), Some(first), Some(next)) = (u16_at(&record, 2), u32_at(&record, 8), u32_at(&record, 12))
        else {
            break;
        };
        let mut aux = need + u64::from(first);
        // Elf64_Vernaux: u32 hash, u16 flags, u16 other, u32 name, u32 next.
        for _ in 0..count {
            let Some(entry) = read_at(file, aux, 16) else { break };
            names.extend(u32_at(&entry, 8).and_then(|at| dynamic.name(at.into())));
            aux += u64::from(u32_at(&entry, 12).unwrap_or(0));
        }
        if next == 0 {
            break;
        }
        need += u64::from(next);
    }
    Some(names)
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

fn segments(file: &File, head: &[u8]) -> Option<Vec<Segment>> {
    let (at, size, count) = (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?);
    let table = read_at(file, at, u64::from(size) * u64::from(count)).filter(|_| size >= 56)?;
    let one = |p: &[u8]| {
        Some(Segment {
            kind: u32_at(p, 0)?,
            offset: u64_at(p, 8)?,
            address: u64_at(p, 16)?,
            size: u64_at(p, 32)?,
        })
    };
    // Sums of foreign numbers must not overflow later: such a segment lies outside any file.
    let is_sane = |s: &Segment| s.offset < 1 << 48 && s.address < 1 << 56 && s.size < 1 << 48;
    let segments = table.chunks_exact(usize::from(size)).filter_map(one);
    Some(segments.filter(is_sane).collect())
}

fn read_at(file: &File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|&l| l <= MOST)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
pub mod samples {
    //! Smallest files of each kind, made byte by byte: no compiler is needed to test the judgement.

    /// An ELF file with an optional PT_INTERP.
    pub fn elf(class: u8, machine: u16, interpreter: Option<&str>) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1, 0]);
        file[16..18].copy_from_slice(&3_u16.to_le_bytes());
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        if let Some(path) = interpreter {
            file[56..58].copy_from_slice(&1_u16.to_le_bytes());
            let mut header = vec![0; 56];
            header[0..4].copy_from_slice(&super::PT_INTERP.to_le_bytes());
            header[8..16].copy_from_slice(&120_u64.to_le_bytes());
            header[32..40].copy_from_slice(&(path.len() as u64 + 1).to_le_bytes());
            file.extend(header);
            file.extend(path.as_bytes());
            file.push(0);
        }
        file
    }

    /// The machine number of this processor.
    pub const MACHINE: u16 = super::OWN_MACHINE;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(name: &str, content: &[u8]) -> FileKind {
        let path = std::env::temp_dir().join(format!("partage-elf-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("write a sample");
        let kind = kind(&path).expect("read it");
        std::fs::remove_file(&path).expect("clean up");
        kind
    }

    #[test]
    fn each_kind_of_file_is_told_apart() {
        let elf = |interpreter: Option<&str>| FileKind::Elf {
            interpreter: interpreter.map(str::to_owned),
        };
        let musl = "/lib/ld-musl-x86_64.so.1";
        assert_eq!(kind_of("static", &samples::elf(2, samples::MACHINE, None)), elf(None));
        assert_eq!(
            kind_of("musl", &samples::elf(2, samples::MACHINE, Some(musl))),
            elf(Some(musl))
        );
        assert_eq!(
            kind_of("32", &samples::elf(1, 3, None)),
            FileKind::ForeignElf("32-bit".to_owned())
        );
        assert!(matches!(
            kind_of("risc-v", &samples::elf(2, 243, None)),
            FileKind::ForeignElf(_)
        ));
        assert_eq!(
            kind_of("script", b"#! /bin/sh -e\nexit"),
            FileKind::Script("/bin/sh -e".to_owned())
        );
        assert_eq!(kind_of("text", b"exit 3\n"), FileKind::Other);
        assert_eq!(kind_of("empty", b""), FileKind::Other);
    }

    #[test]
    fn this_program_is_dynamic_and_its_libc_version_is_read() {
        let program = std::env::current_exe().expect("own path");
        let FileKind::Elf {
            interpreter: Some(interpreter),
        } = kind(&program).expect("read")
        else {
            panic!("the test program is an ELF file with a loader")
        };
        assert!(interpreter.contains("ld-"), "{interpreter}");
        let (major, minor) = newest_glibc_needed(&program).expect("read").expect("needs glibc");
        assert!(major == 2 && (17..100).contains(&minor), "GLIBC_{major}.{minor}");
    }

    #[test]
    fn cut_and_overwritten_files_give_answers() {
        let whole = std::fs::read("/proc/self/exe").expect("own program");
        let path = std::env::temp_dir().join(format!("partage-elf-{}-cut", std::process::id()));
        let judge = |content: &[u8]| {
            std::fs::write(&path, content).expect("write");
            let _ = (kind(&path).expect("read"), newest_glibc_needed(&path).expect("read"));
        };
        // Every byte of the header and the program headers, and every length up to there.
        for at in 4..600 {
            let mut part = whole[..4096].to_vec();
            part[at] = !part[at];
            judge(&part);
            judge(&whole[..at]);
        }
        std::fs::remove_file(&path).expect("clean up");
    }
}
