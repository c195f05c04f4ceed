// SPDX-License-Identifier: Apache-2.0
//! What a broker said of the devices that a lazy job has or would have.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use partage_protocol::message::{MAX_DEVICES, NO_INDEX};
use partage_protocol::page::{DEVICE_IS_MIG, DeviceInfo, GrantLine};

use crate::guest::lock::Lock;
use crate::guest::text;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// What the broker said last. All-zero memory is "not asked yet".
pub struct Foreseen {
    /// The devices, in job order: UUID, index, size and limit.
    pub lines: [GrantLine; MAX_DEVICES],
    /// How many, plus one; 0: nobody said.
    pub count: AtomicU32,
    /// When it was asked last; 0: never.
    pub asked_ns: AtomicU64,
    /// Of the thread that asks.
    pub asking: Lock,
}

// SAFETY: all-zero memory is "not asked yet"; nothing else lies in this room.
unsafe impl Room for Foreseen {
    const OWNER: Owner = Owner::Foreseen;
}

/// What a broker said to this process.
pub fn of(state: &State) -> &Foreseen {
    state.room()
}

impl Foreseen {
    /// Takes over what a document lists.
    pub fn take(&self, document: &[u8]) {
        const DEVICE: &[u8] = br#"{"uuid":""#;
        let mut count = 0;
        for at in 0..document.len() {
            let Some(entry) = document.get(at..).and_then(|rest| rest.strip_prefix(DEVICE)) else {
                continue;
            };
            let (Some(uuid), Some(line)) = (text::parse_uuid(until(entry, b'"')), self.lines.get(count)) else {
                return;
            };
            let entry = until(entry, b'}');
            line.show_device(&DeviceInfo {
                uuid,
                index: number(entry, br#""index":"#).map_or(NO_INDEX, |index| index as u32),
                flags: if entry.starts_with(b"MIG-") { DEVICE_IS_MIG } else { 0 },
                total: number(entry, br#""total_bytes":"#).unwrap_or(0),
            });
            let limit = number(entry, br#""limit_bytes":"#).unwrap_or(u64::MAX);
            line.limit.store(limit, Ordering::Relaxed);
            count += 1;
        }
        self.count.store(count as u32 + 1, Ordering::Release);
    }
}

fn until(text: &[u8], end: u8) -> &[u8] {
    text.split(|byte| *byte == end).next().unwrap_or(&[])
}

fn number(entry: &[u8], key: &[u8]) -> Option<u64> {
    let behind = (0..entry.len()).find_map(|at| entry.get(at..)?.strip_prefix(key))?;
    text::parse_number(until(behind, b','))
}
