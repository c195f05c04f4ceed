// SPDX-License-Identifier: Apache-2.0
//! Refunds of memory that the driver has let go of: frees in stream order that their streams came to, and allocations
//! that outlived their pool.

use core::ffi::c_uint;

use partage_abi::types::CuResult;
use partage_abi::values::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;

use super::entries::{remove, with};
use super::table::{Leaving, Standing};
use crate::attachment;
use crate::memory::account;
use crate::memory::allocations::Allocation;
use crate::memory::words::Operation;
use crate::real::call;
use crate::real::{self, Library};
use crate::state::State;
use crate::stream::StreamName;

impl Leaving {
    /// Was it freed in this stream?
    pub fn is_on(&self, stream: &StreamName) -> bool {
        // The handles 0 to 2 name default streams, one of them by the flavour of the call.
        self.stream == stream.handle.0 as u64 && (self.stream > 2 || self.is_per_thread == stream.is_per_thread)
    }

    /// Gives back what it was charged.
    pub fn refund(&self, state: &State) {
        if self.is_allocation {
            account::refund(state, self.charge);
        } else {
            account::release(state, &self.charge, self.charge.bytes);
        }
    }
}

/// Refunds frees under way. Answers their bytes.
pub fn refund_left(state: &'static State, is_meant: &dyn Fn(&Leaving) -> bool) -> u64 {
    let mut given_back = 0_u64;
    while let Some(leaving) = with(state, |table| table.take_left(is_meant)) {
        let operation = Operation::begin_again(attachment::of(state), &leaving.charge);
        leaving.refund(state);
        drop(operation);
        given_back = given_back.saturating_add(leaving.charge.bytes);
    }
    given_back
}

/// Does the driver know the address? Whatever else it says, it does.
pub fn is_known(real: &Library, address: u64) -> bool {
    let mut kind: c_uint = 0;
    call!(
        real,
        cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    ) != CuResult::INVALID_VALUE
}

/// Refunds frees under way that their streams have come to: the driver knows the address no more. One that it gave out
/// again meanwhile waits for a synchronisation. Answers the bytes, and whether any are left.
pub fn refund_arrived(state: &'static State, is_meant: &dyn Fn(&Leaving) -> bool) -> (u64, bool) {
    let (mut given_back, mut is_left) = (0_u64, false);
    let left = with(state, |table| table.left(is_meant));
    for address in left.into_iter().filter(|address| *address != 0) {
        let mut drivers = [&real::DRIVER, &real::SECOND_DRIVER].into_iter();
        if drivers.any(|real| real.is_adopted() && is_known(real, address)) {
            is_left = true;
            continue;
        }
        given_back = given_back.saturating_add(refund_left(state, &|leaving| leaving.address == address));
    }
    (given_back, is_left)
}

/// An allocation of a pool was freed: the bytes that are to be refunded for it, because its pool was destroyed before
/// and its account has let go of them here.
pub fn outlived_its_pool(state: &State, allocation: &Allocation) -> u64 {
    with(state, |table| {
        let Some(entry) = allocation.pool().and_then(|pool| table.get(pool)) else {
            return 0;
        };
        entry.live = entry.live.saturating_sub(allocation.charge.bytes);
        let (id, live) = (entry.id, entry.live);
        if entry.standing != Standing::Destroyed {
            return 0;
        }
        let bytes = entry.account.close(live);
        if live == 0 {
            remove(state, table, id);
        }
        bytes
    })
}
