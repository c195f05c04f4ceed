// SPDX-License-Identifier: Apache-2.0
//! How much device memory a graph may take when it is launched.
//!
//! Each allocation node has an address for good, and nodes that are never alive at the same time may share addresses;
//! so what a launch takes at most is the length of all addresses together, not the sum of what the nodes ask. Where it
//! lies, memory comes in whole pages.

/// What one allocation node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The device, as the program numbers it.
    pub ordinal: i32,
}

/// What a launch takes of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The device, as the program numbers it.
    pub ordinal: i32,
    /// Bytes; 0 for no entry.
    pub bytes: u64,
}

/// Devices that one graph is charged on; more than that show as overhead.
pub const DEVICES: usize = 8;

/// What a launch takes of each device, the devices in the order of their addresses.
pub type Needs = [Need; DEVICES];

/// The page of a device's address translation.
const PAGE: u64 = 2 << 20;

/// What a graph with these blocks takes. Leaves them sorted.
pub fn needs(blocks: &mut [Block]) -> Needs {
    sort(blocks);
    let mut needs = Needs::default();
    let mut run: Option<Block> = None;
    for block in blocks {
        let end = block.address.saturating_add(block.bytes);
        match &mut run {
            // A block that begins in the run's last page is in the same run.
            Some(run)
                if run.ordinal == block.ordinal && block.address < page_up(run.address.saturating_add(run.bytes)) =>
            {
                run.bytes = run.bytes.max(end - run.address);
            }
            _ => {
                if let Some(done) = run.replace(*block) {
                    add(&mut needs, done);
                }
            }
        }
    }
    if let Some(done) = run {
        add(&mut needs, done);
    }
    needs
}

fn add(needs: &mut Needs, run: Block) {
    let first = run.address & !(PAGE - 1);
    let bytes = page_up(run.address.saturating_add(run.bytes)).saturating_sub(first);
    let place = needs
        .iter_mut()
        .find(|need| need.bytes == 0 || need.ordinal == run.ordinal);
    if let Some(need) = place {
        need.ordinal = run.ordinal;
        need.bytes = need.bytes.saturating_add(bytes);
    }
}

fn page_up(address: u64) -> u64 {
    address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// By address: Shell's sort, which needs no memory and has no way to panic.
fn sort(blocks: &mut [Block]) {
    let mut gap = blocks.len() / 2;
    while gap > 0 {
        for start in gap..blocks.len() {
            let mut at = start;
            while let Some(before) = at.checked_sub(gap)
                && let (Some(left), Some(right)) = (blocks.get(before).copied(), blocks.get(at).copied())
                && left.address > right.address
            {
                if let Some(place) = blocks.get_mut(before) {
                    *place = right;
                }
                if let Some(place) = blocks.get_mut(at) {
                    *place = left;
                }
                at = before;
            }
        }
        gap /= 2;
    }
}
