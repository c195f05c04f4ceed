// SPDX-License-Identifier: Apache-2.0
//! What graphs take: addresses together, not nodes one by one.

use partage_records::graph::{Block, DEVICES, Need, needs};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7000_0000_0000;

fn block(ordinal: i32, at_mib: u64, bytes: u64) -> Block {
    Block {
        address: BASE + at_mib * MIB,
        bytes,
        ordinal,
    }
}

fn total(blocks: &[Block]) -> Vec<(i32, u64)> {
    let mut blocks = blocks.to_vec();
    needs(&mut blocks)
        .iter()
        .filter(|need| need.bytes > 0)
        .map(|need| (need.ordinal, need.bytes))
        .collect()
}

#[test]
fn nothing_takes_nothing() {
    assert_eq!(needs(&mut []), [Need::default(); DEVICES]);
}

#[test]
fn a_small_allocation_takes_a_page() {
    assert_eq!(total(&[block(0, 0, 1)]), [(0, 2 * MIB)]);
    assert_eq!(total(&[block(0, 1, 2 * MIB)]), [(0, 4 * MIB)], "across a page's edge");
}

#[test]
fn what_shares_addresses_is_counted_once() {
    assert_eq!(total(&[block(0, 0, 64 * MIB), block(0, 0, 64 * MIB)]), [(0, 64 * MIB)]);
    assert_eq!(total(&[block(0, 0, 64 * MIB), block(0, 32, 64 * MIB)]), [(0, 96 * MIB)]);
    assert_eq!(total(&[block(0, 0, 512), block(0, 1, 512)]), [(0, 2 * MIB)], "one page");
    assert_eq!(
        total(&[block(0, 0, 64 * MIB), block(0, 10, 2 * MIB)]),
        [(0, 64 * MIB)],
        "inside"
    );
}

#[test]
fn devices_are_counted_apart() {
    assert_eq!(
        total(&[
            block(1, 512, MIB),
            block(0, 0, 4 * MIB),
            block(1, 0, 2 * MIB),
            block(0, 600, 2 * MIB)
        ])
        .len(),
        2
    );
    let many: Vec<_> = (0..20).map(|n| block(n, n as u64 * 10, MIB)).collect();
    assert_eq!(total(&many).len(), DEVICES, "more than are counted");
}

#[test]
fn no_address_overflows() {
    let odd = [
        Block {
            address: u64::MAX,
            bytes: u64::MAX,
            ordinal: 0,
        },
        Block {
            address: 0,
            bytes: u64::MAX,
            ordinal: 0,
        },
    ];
    let _ = total(&odd);
}

proptest! {
    /// Whatever the order, and however blocks overlap: the pages that any block touches.
    #[test]
    fn is_the_number_of_pages_touched(spans in prop::collection::vec((0_u64..64, 1_u64..40), 0..60)) {
        let blocks: Vec<_> = spans.iter().map(|&(at, half_mib)| block(0, at, half_mib * MIB / 2)).collect();
        let mut touched = std::collections::HashSet::new();
        for block in &blocks {
            let (first, last) = (block.address / (2 * MIB), (block.address + block.bytes - 1) / (2 * MIB));
            touched.extend(first..=last);
        }
        let bytes = touched.len() as u64 * 2 * MIB;
        let expected: Vec<_> = (bytes > 0).then_some((0, bytes)).into_iter().collect();
        prop_assert_eq!(total(&blocks), expected);
    }
}
