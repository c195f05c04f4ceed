// SPDX-License-Identifier: Apache-2.0
//! Reads what a cubin (an ELF file of machine code) says about its kernels and variables; its code is not executed.

use crate::translate::{Parameter, VariableInfo};

/// What a cubin tells about a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CubinKernel {
    /// Name.
    pub name: String,
    /// Parameters in order.
    pub parameters: Vec<Parameter>,
    /// Static shared memory in bytes.
    pub shared: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Most threads of a block, 0 when the file says nothing.
    pub max_threads: u32,
}

/// What a cubin tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cubin {
    /// Kernels by place in the symbol table.
    pub kernels: Vec<CubinKernel>,
    /// Variables in device memory.
    pub variables: Vec<VariableInfo>,
    /// First bytes of each variable.
    pub images: Vec<Vec<u8>>,
}

/// `e_machine` of device code.
const EM_CUDA: u16 = 190;
const SYMBOLS: u32 = 2;
const NO_BITS: u32 = 8;
const IS_OBJECT: u8 = 1;
const IS_FUNCTION: u8 = 2;
/// Bit of a symbol's `st_other`: the function is a kernel.
const IS_ENTRY: u8 = 0x10;
/// Kinds of entries in `.nv.info` sections.
const INFO_MAX_THREADS: u8 = 0x05;
const INFO_PARAMETER: u8 = 0x17;
const INFO_REGISTERS: u8 = 0x2f;

struct Section<'d> {
    name: &'d str,
    kind: u32,
    data: &'d [u8],
    bytes: u64,
    link: u32,
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn text_at(data: &[u8], at: usize) -> Option<&str> {
    let rest = data.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Length of an ELF file from its header and section headers; `head` must hold the 64 bytes of the header.
pub fn elf_bytes(head: &[u8], section: impl Fn(u64) -> Option<[u8; 64]>) -> Option<u64> {
    let (table, size, count) = (u64_at(head, 40)?, u16_at(head, 58)?, u16_at(head, 60)?);
    let mut end = table.checked_add(u64::from(size) * u64::from(count))?;
    for index in 0..u64::from(count) {
        let header = section(table + index * u64::from(size))?;
        if u32_at(&header, 4)? != NO_BITS {
            end = end.max(u64_at(&header, 24)?.checked_add(u64_at(&header, 32)?)?);
        }
    }
    // Program headers stand at the very end of what the compiler writes.
    let programs = u64_at(head, 32)?.checked_add(u64::from(u16_at(head, 54)?) * u64::from(u16_at(head, 56)?))?;
    Some(end.max(programs))
}

/// True for the beginning of an ELF file.
pub fn is_elf(data: &[u8]) -> bool {
    data.starts_with(b"\x7fELF")
}

/// Reads a cubin; `None` when it is none.
pub fn read(data: &[u8]) -> Option<Cubin> {
    if !is_elf(data) || data.get(4) != Some(&2) || u16_at(data, 18)? != EM_CUDA {
        return None;
    }
    let sections = sections(data)?;
    let mut cubin = Cubin::default();
    for table in sections.iter().filter(|section| section.kind == SYMBOLS) {
        let names = sections.get(table.link as usize)?.data;
        for (number, symbol) in table.data.chunks_exact(24).enumerate() {
            let name = text_at(names, u32_at(symbol, 0)? as usize)?;
            let (info, other, section) = (symbol[4], symbol[5], u16_at(symbol, 6)?);
            let (value, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
            let Some(section) = sections.get(usize::from(section)) else {
                continue;
            };
            match info & 15 {
                IS_FUNCTION if other & IS_ENTRY != 0 => cubin.kernels.push(kernel(&sections, name, number as u32)?),
                IS_OBJECT => variable(&mut cubin, section, name, value, size)?,
                _ => {}
            }
        }
    }
    Some(cubin)
}

fn sections(data: &[u8]) -> Option<Vec<Section<'_>>> {
    let (table, size, count) = (
        u64_at(data, 40)? as usize,
        usize::from(u16_at(data, 58)?),
        usize::from(u16_at(data, 60)?),
    );
    let header = |index: usize| data.get(table.checked_add(index * size)?..)?.get(..64);
    let contents = |header: &[u8]| {
        if u32_at(header, 4)? == NO_BITS {
            return Some(0..0);
        }
        let start = usize::try_from(u64_at(header, 24)?).ok()?;
        Some(start..start.checked_add(usize::try_from(u64_at(header, 32)?).ok()?)?)
    };
    let names = data.get(contents(header(usize::from(u16_at(data, 62)?))?)?)?;
    let mut found = Vec::with_capacity(count);
    for index in 0..count {
        let header = header(index)?;
        found.push(Section {
            name: text_at(names, u32_at(header, 0)? as usize)?,
            kind: u32_at(header, 4)?,
            data: data.get(contents(header)?)?,
            bytes: u64_at(header, 32)?,
            link: u32_at(header, 40)?,
        });
    }
    Some(found)
}

fn kernel(sections: &[Section<'_>], name: &str, symbol: u32) -> Option<CubinKernel> {
    let mut kernel = CubinKernel {
        name: name.to_owned(),
        ..CubinKernel::default()
    };
    let of = |prefix: &str| {
        sections
            .iter()
            .find(|section| section.name.strip_prefix(prefix) == Some(name))
    };
    kernel.shared = of(".nv.shared.").map_or(0, |section| section.bytes as u32);
    for section in sections.iter().filter(|section| section.name == ".nv.info") {
        each_info(section.data, |kind, value| {
            if kind == INFO_REGISTERS && u32_at(value, 0) == Some(symbol) {
                kernel.registers = u32_at(value, 4).unwrap_or(0);
            }
        })?;
    }
    if let Some(section) = of(".nv.info.") {
        let mut parameters = Vec::new();
        each_info(section.data, |kind, value| match kind {
            INFO_PARAMETER => parameters.extend(parameter(value)),
            INFO_MAX_THREADS => {
                let size = |at| u32_at(value, at).unwrap_or(1);
                kernel.max_threads = size(0).saturating_mul(size(4)).saturating_mul(size(8));
            }
            _ => {}
        })?;
        parameters.sort_by_key(|(ordinal, _)| *ordinal);
        kernel.parameters = parameters.into_iter().map(|(_, parameter)| parameter).collect();
    }
    Some(kernel)
}

/// An entry: index, ordinal (16 bits), offset (16 bits), and a word whose bits from 18 on are the size.
fn parameter(value: &[u8]) -> Option<(u16, Parameter)> {
    let size = u32_at(value, 8)? >> 18;
    Some((
        u16_at(value, 4)?,
        Parameter {
            offset: u32::from(u16_at(value, 6)?),
            size,
            align: 1,
        },
    ))
}

/// Entries are a format, a kind, and either two bytes of value, or their number and as many bytes.
fn each_info(data: &[u8], mut each: impl FnMut(u8, &[u8])) -> Option<()> {
    const SIZED: u8 = 4;
    let mut at = 0;
    while at + 4 <= data.len() {
        let (format, kind) = (data[at], data[at + 1]);
        let length = if format == SIZED {
            usize::from(u16_at(data, at + 2)?)
        } else {
            0
        };
        let value = data.get(at + 4..at + 4 + length)?;
        each(kind, if format == SIZED { value } else { &data[at + 2..at + 4] });
        at += 4 + length;
    }
    Some(())
}

fn variable(cubin: &mut Cubin, section: &Section<'_>, name: &str, value: u64, size: u64) -> Option<()> {
    let is_constant = section.name.starts_with(".nv.constant3");
    if !(is_constant || section.name.starts_with(".nv.global")) || size > 1 << 40 {
        return Some(());
    }
    let image = if section.data.is_empty() {
        Vec::new()
    } else {
        section
            .data
            .get(value as usize..value.checked_add(size)? as usize)?
            .to_vec()
    };
    cubin.variables.push(VariableInfo {
        name: name.to_owned(),
        bytes: size,
        align: 16,
        is_constant,
        is_managed: false,
    });
    cubin.images.push(image);
    Some(())
}
