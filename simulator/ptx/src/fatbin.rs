// SPDX-License-Identifier: Apache-2.0
//! Reads fat binaries: containers of PTX texts and cubins for several architectures.
//!
//! A wrapper (`__fatBinC_Wrapper_t`, as linked into programs) leads to a header, which entries follow. Each entry has
//! a header of its own and a payload that may be compressed.

use std::io::Read;

/// First word of a wrapper.
pub const WRAPPER_MAGIC: u32 = 0x466243b1;
/// First word of a container.
pub const MAGIC: u32 = 0xba55ed50;
/// Bytes of a container's header before its entries, at least.
pub const HEADER_BYTES: usize = 16;

const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const COMPRESSED_LZ4: u64 = 0x2000;
const COMPRESSED_ZSTD: u64 = 0x8000;
/// Largest payload that is unpacked: a claim beyond it is a damaged file.
const LARGEST: u64 = 1 << 30;

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// Something else, such as intermediate code.
    Other(u16),
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'d> {
    /// What it holds.
    pub kind: EntryKind,
    /// Architecture as the number after `sm_` or `compute_`.
    pub arch: u32,
    payload: &'d [u8],
    flags: u64,
    unpacked: u64,
}

/// Why a container cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatbinError {
    /// It is none, or it is cut short.
    Damaged,
    /// The payload does not unpack to what its header says.
    Compression,
}

fn word<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], FatbinError> {
    data.get(at..at + N)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(FatbinError::Damaged)
}

/// Bytes of a container, its header included, from its first 16 bytes.
pub fn container_bytes(head: &[u8]) -> Result<u64, FatbinError> {
    if u32::from_le_bytes(word(head, 0)?) != MAGIC {
        return Err(FatbinError::Damaged);
    }
    let header = u64::from(u16::from_le_bytes(word(head, 6)?));
    u64::from_le_bytes(word(head, 8)?)
        .checked_add(header)
        .ok_or(FatbinError::Damaged)
}

/// The entries of a container.
pub fn entries(data: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let total = usize::try_from(container_bytes(data)?).map_err(|_| FatbinError::Damaged)?;
    let data = data.get(..total).ok_or(FatbinError::Damaged)?;
    let mut at = usize::from(u16::from_le_bytes(word(data, 6)?));
    let mut found = Vec::new();
    while at < data.len() {
        let kind = match u16::from_le_bytes(word(data, at)?) {
            KIND_PTX => EntryKind::Ptx,
            KIND_ELF => EntryKind::Cubin,
            other => EntryKind::Other(other),
        };
        let header = u32::from_le_bytes(word(data, at + 4)?) as usize;
        let size = usize::try_from(u64::from_le_bytes(word(data, at + 8)?)).map_err(|_| FatbinError::Damaged)?;
        let packed = u32::from_le_bytes(word(data, at + 16)?) as usize;
        let arch = u32::from_le_bytes(word(data, at + 28)?);
        let flags = u64::from_le_bytes(word(data, at + 40)?);
        let unpacked = u64::from_le_bytes(word(data, at + 56)?);
        let start = at.checked_add(header).ok_or(FatbinError::Damaged)?;
        let end = start.checked_add(size).ok_or(FatbinError::Damaged)?;
        let mut payload = data.get(start..end).ok_or(FatbinError::Damaged)?;
        if flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) != 0 {
            payload = payload.get(..packed).ok_or(FatbinError::Damaged)?;
        }
        if header == 0 {
            return Err(FatbinError::Damaged);
        }
        found.push(Entry {
            kind,
            arch,
            payload,
            flags,
            unpacked,
        });
        at = end;
    }
    Ok(found)
}

impl Entry<'_> {
    /// The payload, unpacked.
    pub fn contents(&self) -> Result<Vec<u8>, FatbinError> {
        if self.flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) == 0 {
            return Ok(self.payload.to_vec());
        }
        if self.unpacked > LARGEST {
            return Err(FatbinError::Compression);
        }
        let size = self.unpacked as usize;
        if self.flags & COMPRESSED_LZ4 != 0 {
            return lz4_flex::block::decompress(self.payload, size).map_err(|_| FatbinError::Compression);
        }
        let mut contents = Vec::with_capacity(size);
        let decoder = ruzstd::decoding::StreamingDecoder::new(self.payload).map_err(|_| FatbinError::Compression)?;
        decoder
            .take(LARGEST)
            .read_to_end(&mut contents)
            .map_err(|_| FatbinError::Compression)?;
        if contents.len() == size {
            Ok(contents)
        } else {
            Err(FatbinError::Compression)
        }
    }
}

/// The best entry for a device of architecture `arch`: PTX first, because it can be executed, then cubins of the same
/// generation; among those the newest that the device can take.
pub fn best<'e, 'd>(entries: &'e [Entry<'d>], arch: u32) -> Option<&'e Entry<'d>> {
    let fits = |entry: &&Entry<'_>| match entry.kind {
        EntryKind::Ptx => entry.arch <= arch,
        EntryKind::Cubin => entry.arch <= arch && entry.arch / 10 == arch / 10,
        EntryKind::Other(_) => false,
    };
    entries
        .iter()
        .filter(fits)
        .max_by_key(|entry| (entry.kind == EntryKind::Ptx, entry.arch))
}
