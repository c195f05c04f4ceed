// SPDX-License-Identifier: Apache-2.0
//! Memory of others at addresses of this process: mappings of their files, and what names them. The calls that make and
//! use it are in `exports`.
//!
//! It costs this process nothing as long as somebody else pays for it. Its addresses lie in the window that programs
//! manage, outside of what they have reserved there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use partage_abi::types::{CuDevice, CuResult};
use partage_machine::process;
use partage_machine::ranges::RangeId;

use super::shared::Hold;
use super::space::LARGE_PAGE;
use super::windows::{Windows, windows};
use crate::state::{Answer, Driver};

const PAGE: u64 = 4096;

/// A mapping of a file that is not ours, until it is dropped.
#[derive(Debug)]
pub struct Foreign {
    /// Where it is in the space.
    place: u64,
    length: u64,
    /// How often it was opened and not closed.
    pub(super) opens: Mutex<u32>,
    /// The parts in the ranges that it lies in, if others can hold them.
    pub(super) holds: Vec<Hold>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Ok(windows) = windows() {
            windows.give_managed(self.place, self.length);
        }
    }
}

impl Foreign {
    /// Nothing is reached at its addresses any more.
    pub(super) fn hide(&self, windows: &Windows) {
        windows.space.unmap(self.place, self.length);
    }

    /// Maps a part of a file at addresses of their own. The first one, which is answered too, is as far into a page as
    /// the part is.
    pub(super) fn map(
        windows: &Windows,
        file: &File,
        from: u64,
        bytes: u64,
        holds: Vec<Hold>,
    ) -> Answer<(u64, Arc<Self>)> {
        let (first, lead) = (from / PAGE * PAGE, from % PAGE);
        let pages = lead
            .checked_add(bytes)
            .and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let pages = pages.ok_or(CuResult::INVALID_VALUE)?;
        let length = pages
            .checked_next_multiple_of(LARGE_PAGE)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let place = windows.take_managed(length)?;
        // Gives the addresses back when the mapping fails.
        let foreign = Arc::new(Self {
            place,
            length,
            opens: Mutex::new(1),
            holds,
        });
        windows.space.map(place, file, first, pages)?;
        Ok((windows.space.visible(place) + lead, foreign))
    }
}

/// Whether an allocation can be exported.
#[derive(Debug, Default)]
pub enum Sharing {
    /// Nobody else has heard of it.
    #[default]
    Alone,
    /// It was exported.
    Shared(Hold),
    /// It is no longer the program's.
    Over,
}

/// The file behind the memory of a process on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// By which the machine knows the process.
    ticket: u64,
    seat: u16,
    fd: u32,
    inode: u64,
}

impl Origin {
    /// That of this process.
    pub fn here(driver: &Driver, device: usize) -> Answer<Self> {
        let file = windows()?.open_device(driver, device)?;
        let file = file.get().ok_or(CuResult::OPERATING_SYSTEM)?;
        let about = file.metadata().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        let machine = driver.machine();
        Ok(Self {
            ticket: machine.own_ticket(),
            seat: machine.own_place() as u16,
            fd: file.as_raw_fd() as u32,
            inode: about.ino(),
        })
    }

    /// The seat of its process.
    pub fn seat(&self) -> usize {
        usize::from(self.seat)
    }

    /// Whether it is this process's own.
    pub fn is_here(&self, driver: &Driver) -> bool {
        self.ticket == driver.machine().own_ticket()
    }

    /// As four words.
    pub fn words(&self) -> [u64; 4] {
        let Self {
            ticket,
            seat,
            fd,
            inode,
        } = *self;
        [ticket, seat.into(), fd.into(), inode]
    }

    /// From the four words.
    pub fn of_words([ticket, seat, fd, inode]: [u64; 4]) -> Self {
        Self {
            ticket,
            seat: seat as u16,
            fd: fd as u32,
            inode,
        }
    }

    /// The file, if its process still lives and this one can see it.
    pub fn open(&self, driver: &Driver) -> Option<File> {
        // Nobody asks about the own ticket: that would give it up.
        let pid = match self.is_here(driver) {
            true => std::process::id(),
            false => driver.machine().holder(self.ticket)?,
        };
        let path = process::folder(pid).join("fd").join(self.fd.to_string());
        let file = File::options().read(true).write(true).open(path).ok()?;
        (file.metadata().ok()?.ino() == self.inode).then_some(file)
    }
}

/// What a legacy handle says: which bytes of which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    pub(super) machine: u32,
    pub(super) device: u16,
    pub(super) origin: Origin,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) id: RangeId,
}

impl Export {
    /// Length of a handle.
    pub const BYTES: usize = 64;
    const MAGIC: u32 = 0x5049_5043;

    /// As the program carries it around.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut raw = Vec::with_capacity(Self::BYTES);
        for word in [Self::MAGIC, self.machine, 0, self.origin.fd] {
            raw.extend(word.to_ne_bytes());
        }
        raw.extend([self.origin.seat.to_ne_bytes(), self.device.to_ne_bytes()].concat());
        raw.extend((self.id.place as u32).to_ne_bytes());
        for word in [
            self.origin.ticket,
            self.origin.inode,
            self.offset,
            self.bytes,
            self.id.serial,
        ] {
            raw.extend(word.to_ne_bytes());
        }
        raw.try_into().unwrap_or([0; Self::BYTES])
    }

    /// What a handle says; `None` when it is none of ours.
    pub fn decode(raw: &[u8; Self::BYTES]) -> Option<Self> {
        let small = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(raw.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        if small(0)? != Self::MAGIC {
            return None;
        }
        Some(Self {
            machine: small(4)?,
            device: half(18)?,
            origin: Origin {
                fd: small(12)?,
                seat: half(16)?,
                ticket: long(24)?,
                inode: long(32)?,
            },
            offset: long(40)?,
            bytes: long(48)?,
            id: RangeId {
                place: u64::from(small(20)?),
                serial: long(56)?,
            },
        })
    }
}

/// The device as the program numbers it. INVALID_DEVICE when it does not see it.
pub fn ordinal_of(driver: &Driver, device: usize) -> Answer<CuDevice> {
    let place = driver.visible.iter().position(|visible| *visible == device);
    place.map(|place| place as CuDevice).ok_or(CuResult::INVALID_DEVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_exported_and_others_say_nothing() {
        let export = Export {
            machine: 0x1234_5678,
            device: 15,
            origin: Origin {
                ticket: u64::MAX - 1,
                seat: 1023,
                fd: 700,
                inode: 1 << 40,
            },
            offset: 3 << 33,
            bytes: 512,
            id: RangeId {
                place: 16_383,
                serial: 1 << 50,
            },
        };
        let raw = export.encode();
        assert_eq!(Export::decode(&raw), Some(export));
        assert_eq!(Origin::of_words(export.origin.words()), export.origin);
        assert_eq!(Export::decode(&[0; Export::BYTES]), None);
    }
}
