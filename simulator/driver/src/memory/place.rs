// SPDX-License-Identifier: Apache-2.0
//! Where an address is that a kernel should not have used, said in terms of the program's allocations.

use super::allocations::Memory;
use crate::context::Context;

/// Below this an address is taken for a null pointer with an offset.
const NULL_PAGE: u64 = 1 << 16;
/// Farther from any allocation than this, its neighbours say nothing about an address.
const FAR: u64 = 1 << 30;

impl Memory {
    /// What to tell about an address that an access of a kernel in `context` began at.
    pub fn describe_place(&self, address: u64, context: &Context) -> String {
        if address < NULL_PAGE {
            return format!("a null pointer with an offset of {address}");
        }
        let (before, after) = self.neighbours(address);
        let behind = before
            .as_ref()
            .map_or(u64::MAX, |found| address.saturating_sub(found.end()));
        let ahead = after.as_ref().map_or(u64::MAX, |found| found.address - address);
        let name = |bytes: u64, at: u64| format!("the allocation of {bytes} bytes at 0x{at:x}");
        match (before, after) {
            (Some(found), _) if address < found.end() => {
                let offset = address - found.address;
                let why = if found.is_reached_by(context) {
                    "beyond whose end the access goes".to_owned()
                } else {
                    format!("which is on device {} and out of this context's reach", found.ordinal)
                };
                format!("offset {offset} of {}, {why}", name(found.bytes, found.address))
            }
            (Some(found), _) if behind <= ahead && behind < FAR => {
                let offset = address - found.address;
                let of = name(found.bytes, found.address);
                format!("offset {offset} of {of}: {behind} bytes behind its end")
            }
            (_, Some(found)) if ahead < FAR => {
                format!("{ahead} bytes before {}", name(found.bytes, found.address))
            }
            _ => "with no allocation near it".to_owned(),
        }
    }
}
