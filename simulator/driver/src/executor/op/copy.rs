// SPDX-License-Identifier: Apache-2.0
//! Copies in one to three dimensions, between addresses and arrays.

use std::sync::atomic::Ordering;

use partage_abi::types::{CuArray, CuResult, c_void};
use partage_machine::timeline::{Engine, FULL};

use crate::context::Context;
use crate::executor::place::Place;
use crate::memory::memory;
use crate::state::{Answer, driver};

/// What one end of a copy is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The program's memory.
    Host,
    /// Memory of the driver.
    Device,
    /// Either: the address tells.
    Unified,
    /// The array with this handle. Addresses in it count from its first byte.
    Array(u64),
}

/// One end of a copy. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What it is said to be.
    pub side: Side,
    /// Address of the first byte.
    pub address: u64,
    /// From one row to the next.
    pub pitch: u64,
    /// From one plane to the next.
    pub plane: u64,
}

/// A copy of `depth` planes of `height` rows of `width` bytes.
#[derive(Clone, Debug)]
pub struct Copy {
    /// To where.
    pub to: End,
    /// From where.
    pub from: End,
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Planes.
    pub depth: u64,
    /// The content, if it was taken when the copy was submitted: what `from` holds by then does not matter.
    pub staged: Option<std::sync::Arc<[u8]>>,
}

/// Where the bytes of one end are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Host memory that the driver does not know.
    Pageable,
    /// Host memory that the driver knows.
    Pinned,
    /// Memory of the device with this index in the machine.
    Device(usize),
    /// Managed memory.
    Managed,
}

impl End {
    /// One row at an address.
    pub fn linear(side: Side, address: u64) -> Self {
        Self {
            side,
            address,
            pitch: 0,
            plane: 0,
        }
    }

    /// A box in an array: its place and extent, both as x in bytes, y and z. INVALID_VALUE if it is not inside, or
    /// not of whole elements.
    pub fn in_array(handle: CuArray, place: [u64; 3], extent: [u64; 3]) -> Answer<Self> {
        let grid = memory()?.array(handle)?.shape.grid()?;
        Ok(Self {
            side: Side::Array(handle.0 as u64),
            address: grid.offset(place, extent)?,
            pitch: grid.pitch,
            plane: grid.pitch * grid.rows,
        })
    }

    /// The array it is in.
    pub fn array(&self) -> Option<CuArray> {
        match self.side {
            Side::Array(handle) => Some(CuArray(handle as *mut c_void)),
            Side::Host | Side::Device | Side::Unified => None,
        }
    }

    /// Bytes of an element, if it is in an array.
    pub fn element(&self) -> Answer<Option<u64>> {
        let Some(array) = self.array() else {
            return Ok(None);
        };
        Ok(Some(memory()?.array(array)?.shape.grid()?.element))
    }

    /// Where it is.
    pub fn location(&self) -> Answer<Location> {
        if let Some(array) = self.array() {
            // One that is destroyed is nowhere, like an address that nobody knows; reaching it tells.
            let found = memory()?.array(array);
            return Ok(found.map_or(Location::Pageable, |found| Location::Device(found.memory().device)));
        }
        Ok(match memory()?.find(self.address) {
            None => Location::Pageable,
            Some(found) if found.is_host() => Location::Pinned,
            Some(found) if found.is_managed() => Location::Managed,
            Some(found) => Location::Device(found.device),
        })
    }

    /// Whether the program asked that copies of this memory always be synchronous.
    pub fn wants_synchronous(&self) -> Answer<bool> {
        if self.array().is_some() {
            return Ok(false);
        }
        Ok(memory()?
            .find(self.address)
            .is_some_and(|found| found.sync_copies.load(Ordering::Relaxed)))
    }
}

impl Copy {
    /// A copy of `bytes` bytes in one row.
    pub fn linear(to: End, from: End, bytes: u64) -> Self {
        Self {
            to,
            from,
            width: bytes,
            height: 1,
            depth: 1,
            staged: None,
        }
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// How many bytes are copied.
    pub fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// Checks that both ends hold what is copied, and that two arrays have elements of one size. INVALID_VALUE
    /// otherwise.
    pub fn check(&self) -> Answer {
        if let (Some(to), Some(from)) = (self.to.element()?, self.from.element()?)
            && to != from
        {
            return Err(CuResult::INVALID_VALUE);
        }
        if self.is_empty() {
            return Ok(());
        }
        for end in [&self.to, &self.from] {
            let is_narrow = self.height > 1 && end.pitch < self.width;
            if is_narrow || self.depth > 1 && end.plane < end.pitch.saturating_mul(self.height) {
                return Err(CuResult::INVALID_VALUE);
            }
        }
        self.check_end(&self.to)?;
        self.check_end(&self.from)
    }

    fn check_end(&self, end: &End) -> Answer {
        match self.reach(end) {
            Err(_) if end.side != Side::Host && memory()?.is_planned(end.address, self.extent(end)?) => Ok(()),
            reached => reached.map(drop),
        }
    }

    /// Takes the content now, so that the program may change it at once.
    pub fn stage(&mut self) -> Answer {
        let from = self.reach(&self.from)?;
        let mut bytes = vec![0; self.bytes() as usize];
        let packed = End {
            side: Side::Host,
            address: 0,
            pitch: self.width,
            plane: self.width * self.height,
        };
        // SAFETY: `from` reaches the extent of the source, and the vector holds exactly what is copied.
        unsafe { self.move_rows(bytes.as_mut_ptr(), &packed, from, &self.from) };
        self.staged = Some(bytes.into());
        Ok(())
    }

    /// The length of an end from the first byte to the last.
    fn extent(&self, end: &End) -> Answer<u64> {
        let planes = end.plane.checked_mul(self.depth - 1).ok_or(CuResult::INVALID_VALUE)?;
        let rows = end.pitch.checked_mul(self.height - 1).ok_or(CuResult::INVALID_VALUE)?;
        let extent = planes
            .checked_add(rows)
            .and_then(|before| before.checked_add(self.width));
        extent.ok_or(CuResult::INVALID_VALUE)
    }

    /// Where the driver reaches an end: all bytes from the first to the last.
    fn reach(&self, end: &End) -> Answer<*mut u8> {
        let extent = self.extent(end)?;
        match end.side {
            Side::Device => memory()?.resolve(end.address, extent),
            Side::Host | Side::Unified => memory()?.resolve_any(end.address, extent),
            Side::Array(handle) => memory()?.reach_array(CuArray(handle as *mut c_void), end.address, extent),
        }
    }

    /// Which engine copies, in how many nanoseconds, and what part of it.
    fn route(&self, context: &Context) -> Answer<(Engine, u64, u64)> {
        let driver = driver()?;
        let own = context.device;
        let side = |end: &End| {
            Ok(match end.location()? {
                Location::Device(device) => Some(device),
                Location::Managed => Some(own),
                Location::Pageable | Location::Pinned => None,
            })
        };
        let speed = driver.at(own).profile.speed;
        let (engine, rate) = match (side(&self.from)?, side(&self.to)?) {
            (None, Some(_)) => (Engine::Upload, speed.host_to_device),
            (Some(_), None) => (Engine::Download, speed.device_to_host),
            (Some(from), Some(to)) if from == to => (Engine::Compute, speed.device_to_device),
            // Between devices, through the bus; and between two places of the host.
            _ => (Engine::Download, speed.device_to_host),
        };
        let length = u128::from(self.bytes()) * 1_000_000_000 / u128::from(rate.max(1));
        Ok((engine, length as u64, FULL))
    }

    /// Carries it out; a failure becomes the context's.
    pub fn run(&self, place: &mut Place<'_>) -> u64 {
        let Ok((engine, need, demand)) = self.route(place.context) else {
            return place.seat.clock();
        };
        let context = place.context.clone();
        place.occupy(engine, Some(need), demand, || {
            if let Err(code) = self.carry_out() {
                context.stick(code);
            }
            None
        })
    }

    fn carry_out(&self) -> Answer {
        if let Some(code) = driver()?.faults.on_copy() {
            return Err(CuResult(code));
        }
        if self.is_empty() {
            return Ok(());
        }
        // Resolved again: the program may have freed one end since.
        let to = self.reach(&self.to).map_err(|_| CuResult::ILLEGAL_ADDRESS)?;
        match &self.staged {
            Some(bytes) => {
                let packed = End {
                    side: Side::Host,
                    address: 0,
                    pitch: self.width,
                    plane: self.width * self.height,
                };
                // SAFETY: `to` reaches the extent of the destination; the staged bytes are exactly what is copied.
                unsafe { self.move_rows(to, &self.to, bytes.as_ptr(), &packed) };
            }
            None => {
                let from = self.reach(&self.from).map_err(|_| CuResult::ILLEGAL_ADDRESS)?;
                // SAFETY: both pointers reach the extents of their ends.
                unsafe { self.move_rows(to, &self.to, from, &self.from) };
            }
        }
        Ok(())
    }

    /// # Safety
    /// Both pointers reach all bytes from the first to the last of their ends.
    unsafe fn move_rows(&self, to: *mut u8, to_end: &End, from: *const u8, from_end: &End) {
        for plane in 0..self.depth {
            for row in 0..self.height {
                let offset = |end: &End| (plane * end.plane + row * end.pitch) as usize;
                // SAFETY: inside the extents by the caller's promise; `copy` allows the two to overlap.
                unsafe { std::ptr::copy(from.add(offset(from_end)), to.add(offset(to_end)), self.width as usize) };
            }
        }
    }
}
