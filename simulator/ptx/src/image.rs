// SPDX-License-Identifier: Apache-2.0
//! Module images as programs hand them over: PTX text, cubins, fat binaries, and pointers to any of them.

use std::fmt;

use crate::cubin::{self, elf_bytes, is_elf};
use crate::error::ParseError;
use crate::fatbin::{self, Entry, EntryKind, FatbinError};
use crate::module::Module;
use crate::syntax::Source;

/// How many kernels a refusal names: a library of them may have thousands.
const MOST_NAMES: usize = 3;

/// Largest PTX text whose end is looked for.
const LONGEST_TEXT: usize = 1 << 30;

/// Why an image cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It is no PTX, no cubin and no fat binary.
    Unknown,
    /// A fat binary that cannot be read.
    Fatbin(FatbinError),
    /// A fat binary without an entry for this architecture.
    NoEntry {
        /// Architecture of the device.
        arch: u32,
    },
    /// PTX for a newer architecture than the device's.
    NewerTarget {
        /// Architecture of the text.
        target: u32,
        /// Architecture of the device.
        arch: u32,
    },
    /// PTX of a newer version than the driver's.
    NewerVersion {
        /// Version of the text.
        version: (u32, u32),
        /// Newest version that the driver reads.
        newest: (u32, u32),
    },
    /// PTX that cannot be translated.
    Ptx(ParseError),
    /// Machine code, which the loader does not take.
    MachineCode {
        /// Names of its kernels.
        kernels: Vec<String>,
        /// Architecture of the device.
        arch: u32,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(formatter, "the image is neither PTX nor a cubin nor a fat binary"),
            Self::Fatbin(FatbinError::Damaged) => write!(formatter, "the fat binary is damaged"),
            Self::Fatbin(FatbinError::Compression) => write!(formatter, "the fat binary does not unpack"),
            Self::NoEntry { arch } => write!(formatter, "the fat binary has no code for sm_{arch}"),
            Self::NewerTarget { target, arch } => {
                write!(
                    formatter,
                    "ptxas fatal : target sm_{target} is newer than the device's sm_{arch}"
                )
            }
            Self::NewerVersion { version, newest } => write!(
                formatter,
                "ptxas application ptx input, line 1; fatal : Unsupported .version {}.{}; current version is '{}.{}'",
                version.0, version.1, newest.0, newest.1
            ),
            Self::MachineCode { kernels, arch } => write!(
                formatter,
                "{} {} machine code for sm_{arch}, which is not executed here",
                some_of(kernels),
                if kernels.len() > 1 { "are" } else { "is" },
            ),
            Self::Ptx(error) => {
                write!(
                    formatter,
                    "ptxas application ptx input, line {}; error : {}",
                    error.line, error.reason
                )
            }
        }
    }
}

/// The first few names, and how many more there are.
fn some_of(names: &[String]) -> String {
    if names.is_empty() {
        return "the image".to_owned();
    }
    let named = names[..names.len().min(MOST_NAMES)].join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl std::error::Error for ImageError {}

impl From<ParseError> for ImageError {
    fn from(error: ParseError) -> Self {
        Self::Ptx(error)
    }
}

/// What a device and its driver can load.
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    /// Architecture of the device: 90 for sm_90.
    pub arch: u32,
    /// Newest PTX version, as (major, minor).
    pub newest_ptx: (u32, u32),
    /// Takes machine code for kernels that do nothing; otherwise refuses it.
    pub takes_machine_code: bool,
}

/// An image that has been recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// PTX text.
    Ptx(String),
    /// A cubin.
    Cubin(Vec<u8>),
    /// What [`join`] made: the texts to link.
    Joined(Vec<String>),
}

impl Loader {
    /// Finds what an image holds for this device.
    pub fn choose(&self, data: &[u8]) -> Result<Image, ImageError> {
        if is_elf(data) {
            return Ok(Image::Cubin(data.to_vec()));
        }
        if data.starts_with(&JOINED_MAGIC) {
            return joined_texts(data).map(Image::Joined).ok_or(ImageError::Unknown);
        }
        if data.starts_with(&fatbin::MAGIC.to_le_bytes()) {
            let entries = fatbin::entries(data).map_err(ImageError::Fatbin)?;
            let best = fatbin::best(&entries, self.arch).ok_or(ImageError::NoEntry { arch: self.arch })?;
            return self.entry(best);
        }
        text(data).map(Image::Ptx)
    }

    fn entry(&self, entry: &Entry<'_>) -> Result<Image, ImageError> {
        let contents = entry.contents().map_err(ImageError::Fatbin)?;
        match entry.kind {
            EntryKind::Ptx => text(&contents).map(Image::Ptx),
            _ => Ok(Image::Cubin(contents)),
        }
    }

    /// Loads one or several images as one module.
    pub fn load(&self, images: &[Image]) -> Result<Module, ImageError> {
        if let [Image::Cubin(data)] = images {
            let cubin = cubin::read(data).ok_or(ImageError::Unknown)?;
            if !self.takes_machine_code {
                return Err(ImageError::MachineCode {
                    kernels: cubin.kernels.into_iter().map(|kernel| kernel.name).collect(),
                    arch: self.arch,
                });
            }
            return Ok(Module::from_cubin(cubin));
        }
        let mut texts = Vec::new();
        for image in images {
            match image {
                Image::Ptx(text) => texts.push(text.as_str()),
                Image::Joined(parts) => texts.extend(parts.iter().map(String::as_str)),
                // Machine code cannot be joined to anything.
                Image::Cubin(_) => return Err(ImageError::Unknown),
            }
        }
        Module::link(&texts, |source| self.check(source))
    }

    /// Refuses text that is newer than the device or the driver.
    fn check(&self, source: &Source<'_>) -> Result<(), ImageError> {
        if source.version > self.newest_ptx {
            return Err(ImageError::NewerVersion {
                version: source.version,
                newest: self.newest_ptx,
            });
        }
        let digits: String = source.target.chars().filter(char::is_ascii_digit).collect();
        match digits.parse() {
            Ok(target) if target > self.arch => Err(ImageError::NewerTarget {
                target,
                arch: self.arch,
            }),
            _ => Ok(()),
        }
    }
}

/// First bytes of a joined image; no text, ELF file or fat binary begins so.
const JOINED_MAGIC: [u8; 8] = *b"\x01PTXJOIN";

/// Puts texts that are to be linked into one image: the magic, the length of the whole, then each text after its
/// length, all numbers being 64 bits.
pub fn join(texts: &[String]) -> Vec<u8> {
    let mut image = JOINED_MAGIC.to_vec();
    image.extend_from_slice(&[0; 8]);
    for text in texts {
        image.extend_from_slice(&(text.len() as u64).to_le_bytes());
        image.extend_from_slice(text.as_bytes());
    }
    let total = image.len() as u64;
    image[8..16].copy_from_slice(&total.to_le_bytes());
    image
}

fn joined_texts(data: &[u8]) -> Option<Vec<String>> {
    let length = |at: usize| {
        let bytes: [u8; 8] = data.get(at..at.checked_add(8)?)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let (mut at, end) = (16, length(8)?);
    let mut texts = Vec::new();
    while at < end {
        let bytes = length(at)?;
        let text = data.get(at + 8..(at + 8).checked_add(bytes)?)?;
        texts.push(std::str::from_utf8(text).ok()?.to_owned());
        at += 8 + bytes;
    }
    Some(texts)
}

fn text(data: &[u8]) -> Result<String, ImageError> {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let text = std::str::from_utf8(&data[..end]).map_err(|_| ImageError::Unknown)?;
    // Whatever else it says, a text has its version first, after blanks and comments; an image without is no PTX.
    if text.contains(".version") {
        Ok(text.to_owned())
    } else {
        Err(ImageError::Unknown)
    }
}

/// The bytes of an image at a pointer, whose length only the image itself tells.
///
/// # Safety
/// `image` leads to a whole PTX text with its terminating zero, cubin, fat binary or fat binary wrapper.
pub unsafe fn bytes_at<'a>(image: *const u8) -> Option<&'a [u8]> {
    // SAFETY: each of the four is at least four bytes long; a shorter text ends with its zero, found byte by byte.
    unsafe {
        let mut head = [0u8; 4];
        for (at, byte) in head.iter_mut().enumerate() {
            *byte = *image.add(at);
            if *byte == 0 {
                break;
            }
        }
        let length = match u32::from_le_bytes(head) {
            fatbin::WRAPPER_MAGIC => {
                // Magic and version, then the pointer.
                let inner = image.add(8).cast::<*const u8>().read_unaligned();
                return if inner.is_null() { None } else { bytes_at(inner) };
            }
            fatbin::MAGIC => {
                let header = std::slice::from_raw_parts(image, fatbin::HEADER_BYTES);
                fatbin::container_bytes(header).ok()?
            }
            _ if JOINED_MAGIC.starts_with(&head) => image.add(8).cast::<u64>().read_unaligned(),
            _ if is_elf(&head) => elf_bytes(std::slice::from_raw_parts(image, 64), |offset| {
                Some(image.add(offset as usize).cast::<[u8; 64]>().read_unaligned())
            })?,
            _ => (0..LONGEST_TEXT).find(|at| *image.add(*at) == 0)? as u64,
        };
        Some(std::slice::from_raw_parts(image, length as usize))
    }
}
