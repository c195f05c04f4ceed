// SPDX-License-Identifier: Apache-2.0
//! The devices as the program sees them: which slot of the job each ordinal is.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use partage_abi::MAX_ORDINALS;

use crate::attachment::job::Job;

/// In a list of slots: a device that is not the job's.
pub const FOREIGN: i32 = -1;
/// There: a device whose name the driver does not tell. Not shared, and not kept from the program.
pub const NAMELESS: i32 = -2;

/// What the driver shows. All-zero memory is "unknown".
pub struct Ordinals {
    /// Ordinals filled in below, plus one; 0 while unknown.
    pub known: AtomicU32,
    /// The broker's `placement` under which they were learnt.
    pub placement_known: AtomicU32,
    /// Slot of each ordinal as the program sees them, or [`FOREIGN`].
    pub slots: [AtomicI32; MAX_ORDINALS],
    /// UUID of each ordinal, as two words in memory order.
    uuids: [[AtomicU64; 2]; MAX_ORDINALS],
    /// The driver initialised under our masking.
    pub is_masked: AtomicBool,
    /// It was said that the driver shows devices of others.
    pub has_told_foreign: AtomicBool,
}

impl Ordinals {
    /// The UUID of an ordinal as the program sees it; zeros while unknown.
    pub fn uuid(&self, ordinal: usize) -> [u8; 16] {
        let mut uuid = [0; 16];
        if let Some([low, high]) = self.uuids.get(ordinal) {
            let (first, second) = uuid.split_at_mut(8);
            first.copy_from_slice(&low.load(Ordering::Relaxed).to_ne_bytes());
            second.copy_from_slice(&high.load(Ordering::Relaxed).to_ne_bytes());
        }
        uuid
    }

    /// Notes the UUID of an ordinal.
    pub fn set_uuid(&self, ordinal: usize, uuid: &[u8; 16]) {
        if let Some([low, high]) = self.uuids.get(ordinal) {
            let (first, second) = uuid.split_at(8);
            low.store(first.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
            high.store(second.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
        }
    }

    /// Numbers the slots as the job does. Precondition: [`Attachment::ledger`](super::Attachment::ledger) is held.
    pub fn number_slots(&self, job: &Job) {
        for (ordinal, slot) in self.slots.iter().enumerate() {
            let uuid = self.uuid(ordinal);
            let other = if uuid == [0; 16] { NAMELESS } else { FOREIGN };
            let to = job.slot_of(&uuid).map_or(other, |to| to as i32);
            slot.store(to, Ordering::Relaxed);
        }
    }
}
