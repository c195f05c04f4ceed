// SPDX-License-Identifier: Apache-2.0
//! Memory of others: allocations that another process exported, and files that another interface made.

use std::fs::File;
use std::sync::{Arc, PoisonError};

use partage_abi::types::CuResult;
use partage_machine::ranges::RangeId;

use super::allocation::{Allocation, AllocationKind};
use super::allocations::Memory;
use super::foreign::{Export, Foreign, Origin, Sharing, ordinal_of};
use super::lock::lock;
use super::shared::shared;
use crate::context::Context;
use crate::state::{Answer, Driver};

impl Memory {
    /// Makes the allocation of linear device memory that an address is in ready for other processes. INVALID_VALUE for
    /// any other memory.
    pub fn export(&self, driver: &Driver, address: u64) -> Answer<Export> {
        let found = self.find(address).ok_or(CuResult::INVALID_VALUE)?;
        if !matches!(found.kind, AllocationKind::Device) {
            return Err(CuResult::INVALID_VALUE);
        }
        let origin = Origin::here(driver, found.device)?;
        let mut sharing = lock(&found.sharing);
        if let Sharing::Alone = *sharing {
            *sharing = Sharing::Shared(shared().share(driver, found.device, found.cost)?);
        }
        let Sharing::Shared(hold) = &*sharing else {
            return Err(CuResult::INVALID_VALUE);
        };
        Ok(Export {
            machine: driver.machine().spec().id as u32,
            device: driver.place_of(found.device) as u16,
            origin,
            offset: self.windows.window_offset(found.device, found.address),
            bytes: found.bytes,
            id: hold.id,
        })
    }

    /// Opens what another process exported, for a context; what it has open already is counted once more.
    /// INVALID_HANDLE for a handle of another machine, INVALID_CONTEXT for one of this process, MAP_FAILED when the
    /// memory is gone.
    pub fn open_export(&self, driver: &Driver, context: &Context, export: &Export) -> Answer<u64> {
        if export.machine != driver.machine().spec().id as u32 {
            return Err(CuResult::INVALID_HANDLE);
        }
        if export.origin.is_here(driver) {
            return Err(CuResult::INVALID_CONTEXT);
        }
        let device = driver.number_of(export.device.into());
        let device = device.ok_or(CuResult::INVALID_DEVICE)?;
        let ordinal = ordinal_of(driver, device)?;
        let _one_at_a_time = self.opening_exports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, foreign)) = self.opened(context, export.id) {
            *lock(&foreign.opens) += 1;
            return Ok(address);
        }
        let hold = shared().join(driver, export.id, export.origin.seat());
        let hold = hold.ok_or(CuResult::MAP_FAILED)?;
        let file = export.origin.open(driver).ok_or(CuResult::MAP_FAILED)?;
        let foreign = Foreign::map(self.windows, &file, export.offset, export.bytes, vec![hold]);
        let (address, foreign) = foreign.map_err(|_| CuResult::MAP_FAILED)?;
        let kind = AllocationKind::Opened(foreign);
        let made = Allocation::new(context, kind, address, export.bytes, self.windows.alias_of(address)?);
        made.let_reach(1 << device);
        Ok(self
            .enter(Allocation {
                device,
                ordinal,
                ..made
            })
            .address)
    }

    /// Closes once what a context has opened. INVALID_VALUE when it is no such address. After the last
    /// time nothing leads to the memory any more.
    pub fn close_export(&self, context: &Context, address: u64) -> Answer {
        let _one_at_a_time = self.opening_exports.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self
            .find(address)
            .filter(|found| found.address == address && found.context == context.home.0);
        let found = found.ok_or(CuResult::INVALID_VALUE)?;
        let AllocationKind::Opened(foreign) = &found.kind else {
            return Err(CuResult::INVALID_VALUE);
        };
        let mut opens = lock(&foreign.opens);
        *opens = opens.saturating_sub(1);
        if *opens == 0 {
            self.take(address, |_| true);
        }
        Ok(())
    }

    /// Maps a part of a file of another interface, for a context.
    pub fn map_external(&self, context: &Context, file: &File, from: u64, bytes: u64) -> Answer<u64> {
        let (address, foreign) = Foreign::map(self.windows, file, from, bytes, Vec::new())?;
        let kind = AllocationKind::External(foreign);
        let made = Allocation::new(context, kind, address, bytes, self.windows.alias_of(address)?);
        Ok(self.enter(made).address)
    }

    /// The memory behind a handle that a context has open.
    fn opened(&self, context: &Context, id: RangeId) -> Option<(u64, Arc<Foreign>)> {
        let of_context = |found: &Allocation| match &found.kind {
            AllocationKind::Opened(foreign) if found.context == context.home.0 => {
                let is_it = foreign.holds.iter().any(|hold| hold.id == id);
                is_it.then(|| (found.address, foreign.clone()))
            }
            _ => None,
        };
        self.look_for(of_context)
    }
}
