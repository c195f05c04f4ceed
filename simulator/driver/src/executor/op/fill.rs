// SPDX-License-Identifier: Apache-2.0
//! Memory sets.

use partage_abi::types::CuResult;
use partage_machine::timeline::{Engine, FULL};

use crate::executor::place::Place;
use crate::memory::memory;
use crate::state::{Answer, driver};

/// Sets `height` rows of `width` elements to one value.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Address of the first element.
    pub address: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// The value; its low bytes count.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl Fill {
    /// Checks size, alignment and bounds. INVALID_VALUE otherwise.
    pub fn check(&self) -> Answer {
        let is_size = matches!(self.element, 1 | 2 | 4);
        if !is_size || !self.address.is_multiple_of(self.element) {
            return Err(CuResult::INVALID_VALUE);
        }
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let row = self.width.checked_mul(self.element).ok_or(CuResult::INVALID_VALUE)?;
        if self.height > 1 && (self.pitch < row || !self.pitch.is_multiple_of(self.element)) {
            return Err(CuResult::INVALID_VALUE);
        }
        match self.reach() {
            Err(_) if memory()?.is_planned(self.address, self.extent()?) => Ok(()),
            reached => reached.map(drop),
        }
    }

    fn extent(&self) -> Answer<u64> {
        let rows = self.pitch.checked_mul(self.height - 1).ok_or(CuResult::INVALID_VALUE)?;
        rows.checked_add(self.width * self.element)
            .ok_or(CuResult::INVALID_VALUE)
    }

    fn reach(&self) -> Answer<*mut u8> {
        memory()?.resolve(self.address, self.extent()?)
    }

    /// Carries it out; a failure becomes the context's.
    pub fn run(&self, place: &mut Place<'_>) -> u64 {
        let Ok(driver) = driver() else {
            return place.seat.clock();
        };
        let rate = driver.at(place.context.device).profile.speed.device_to_device.max(1);
        let bytes = u128::from(self.width * self.element) * u128::from(self.height);
        let need = (bytes * 1_000_000_000 / u128::from(rate)) as u64;
        let context = place.context.clone();
        place.occupy(Engine::Compute, Some(need), FULL, || {
            if self.carry_out().is_err() {
                context.stick(CuResult::ILLEGAL_ADDRESS);
            }
            None
        })
    }

    fn carry_out(&self) -> Answer {
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        // Resolved again: the program may have freed it since.
        let start = self.reach()?;
        for row in 0..self.height {
            // SAFETY: `start` reaches all rows from the first byte to the last; the address is aligned to the element
            // (checked at submission), and the alias differs from it by whole pages.
            unsafe {
                let row = start.add((row * self.pitch) as usize);
                match self.element {
                    1 => std::slice::from_raw_parts_mut(row, self.width as usize).fill(self.value as u8),
                    2 => std::slice::from_raw_parts_mut(row.cast::<u16>(), self.width as usize).fill(self.value as u16),
                    _ => std::slice::from_raw_parts_mut(row.cast::<u32>(), self.width as usize).fill(self.value),
                }
            }
        }
        Ok(())
    }
}
