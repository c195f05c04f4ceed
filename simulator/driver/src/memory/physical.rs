// SPDX-License-Identifier: Apache-2.0
//! Physical memory without an address.
//!
//! Memory that can be shared lies in a file of its own, so that a descriptor of that file is all that another process
//! needs. While such a descriptor is the only thing that is left of the memory it costs nobody anything; who imports it
//! then pays for it, or is refused.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};

use partage_abi::types::{CuMemAllocationProp, CuResult};
use partage_abi::values::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
use partage_machine::backing::{Kept, out_of_the_way};
use partage_machine::ranges::RangeId;

use super::lock::lock;
use super::shared::{Hold, Ticket, shared};
use super::windows::windows;
use crate::state::{Answer, Driver, driver};

/// Physical memory, made by `cuMemCreate` or imported.
#[derive(Debug)]
pub struct Physical {
    /// The machine device; of host memory the first one.
    pub device: usize,
    /// That device as the program numbers it; -1 for host memory.
    pub ordinal: i32,
    /// Its length, a multiple of [`LARGE_PAGE`].
    pub bytes: u64,
    /// What it was asked for with.
    pub properties: CuMemAllocationProp,
    pub(super) place: Place,
    /// How often the handle is held.
    holds: Mutex<u32>,
    /// The part in the range that others hold too, once it was exported or when it was imported.
    pub(super) shared: Mutex<Option<Hold>>,
}

/// Where physical memory is.
#[derive(Debug)]
pub enum Place {
    /// At an offset of the device's window.
    Window(u64),
    /// In a file of its own, as memory that can be shared is.
    Own(Own),
    /// In a file of its own, in the host's memory.
    Host(File),
}

// SAFETY: the pointer in the properties is the program's and is only handed back.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

impl Drop for Physical {
    /// With the last handle and the last mapping the memory goes back to the device.
    fn drop(&mut self) {
        let (Ok(driver), Ok(windows)) = (driver(), windows()) else {
            return;
        };
        match &self.place {
            Place::Window(offset) => windows.give_physical(driver, self.device, *offset, self.bytes),
            // What others hold too is let go of with the hold.
            Place::Own(_) if lock(&self.shared).is_none() => {
                driver.machine().release(self.device, self.bytes);
            }
            Place::Own(_) | Place::Host(_) => {}
        }
    }
}

impl Physical {
    /// Holds the handle once more.
    pub fn hold(&self) {
        *lock(&self.holds) += 1;
    }

    /// Lets go of the handle; true when nobody holds it any more.
    pub fn let_go(&self) -> bool {
        let mut holds = lock(&self.holds);
        *holds = holds.saturating_sub(1);
        *holds == 0
    }

    /// Whether it is host memory.
    pub fn is_host(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }

    /// The file that it alone lies in. INVALID_VALUE for memory that lies in a device's window, OPERATING_SYSTEM when
    /// the program has closed the file.
    fn file(&self) -> Answer<File> {
        let file = match &self.place {
            Place::Window(_) => return Err(CuResult::INVALID_VALUE),
            Place::Host(file) => file.try_clone().ok(),
            Place::Own(own) => own.file(),
        };
        file.ok_or(CuResult::OPERATING_SYSTEM)
    }

    /// A descriptor for other processes, close-on-exec. INVALID_VALUE for memory that was not asked for with one.
    pub fn export(&self, driver: &Driver) -> Answer<OwnedFd> {
        if self.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        let file = self.file()?;
        let mut hold = lock(&self.shared);
        if !self.is_host() && hold.is_none() {
            *hold = Some(shared().share(driver, self.device, self.bytes)?);
        }
        let flags = &self.properties.allocFlags;
        let usage = flags.usage.to_ne_bytes();
        let location = self.properties.location;
        let ticket = Ticket {
            machine: driver.machine().spec().id,
            bytes: self.bytes,
            kind: location.kind,
            number: if self.is_host() {
                location.id
            } else {
                driver.place_of(self.device) as i32
            },
            flags: [flags.compressionType, flags.gpuDirectRDMACapable, usage[0], usage[1]],
            id: hold.as_ref().map_or(
                RangeId {
                    place: u64::MAX,
                    serial: 0,
                },
                |hold| hold.id,
            ),
        };
        ticket.write(&file).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        // SAFETY: duplicates a descriptor that is open.
        let given = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
        if given < 0 {
            return Err(CuResult::OPERATING_SYSTEM);
        }
        // SAFETY: just made, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(given) })
    }
}

impl Physical {
    /// A fresh piece, whose handle is held once.
    pub(super) fn new(
        device: usize,
        ordinal: i32,
        bytes: u64,
        properties: CuMemAllocationProp,
        place: Place,
    ) -> Arc<Self> {
        let made = Arc::new(Self {
            device,
            ordinal,
            bytes,
            properties,
            place,
            holds: Mutex::new(1),
            shared: Mutex::default(),
        });
        if matches!(made.place, Place::Own(_)) {
            note(&made);
        }
        made
    }
}

/// A file that one piece of physical memory of a device lies in, with the page behind it that says what it is.
#[derive(Debug)]
pub struct Own {
    /// Whether another process made it, or this one for another.
    pub(super) is_imported: bool,
    /// `None` while the process is checkpointed.
    pub(super) file: Mutex<Option<Kept<File>>>,
}

impl Own {
    /// Memory in this file.
    pub(super) fn new(file: File, is_imported: bool) -> Self {
        Self {
            is_imported,
            file: Mutex::new(Some(Kept::new(file))),
        }
    }

    /// Its file, behind a descriptor more. `None` when the program has closed it.
    pub(super) fn file(&self) -> Option<File> {
        let file = lock(&self.file);
        let file = file.as_ref()?.get()?.try_clone().ok()?;
        Some(out_of_the_way(file))
    }
}

/// What lies in files of its own.
static OWN: Mutex<(Vec<Weak<Physical>>, usize)> = Mutex::new((Vec::new(), FEW));
/// As long as no more are noted, nobody looks which are gone.
const FEW: usize = 64;

fn note(made: &Arc<Physical>) {
    let mut own = lock(&OWN);
    let (noted, limit) = &mut *own;
    if noted.len() >= *limit {
        noted.retain(|known| known.strong_count() > 0);
        *limit = FEW.max(2 * noted.len());
    }
    noted.push(Arc::downgrade(made));
}

/// All that lies in files of its own.
pub(super) fn all_own() -> Vec<Arc<Physical>> {
    lock(&OWN).0.iter().filter_map(Weak::upgrade).collect()
}
