// SPDX-License-Identifier: Apache-2.0
//! Which devices a process sees, and in which order: `CUDA_DEVICE_ORDER` and `CUDA_VISIBLE_DEVICES` as the vendor's
//! driver reads them.
//!
//! Rules: the first entry decides whether the list is of indices or of UUIDs; an index is read like `strtoul` (so
//! `1gpu` is 1); the first entry that names no device, or several, ends the list; a device named twice empties it.

use partage_machine::Device;

/// What UUIDs begin with.
const KINDS: [&str; 2] = ["GPU-", "MIG-"];

/// Machine indices of the devices that the process can open, in the order that indices count in: `PCI_BUS_ID`, or by
/// default the fastest first.
pub fn order(devices: &[Device], reachable: &[usize], wanted: Option<&str>) -> Vec<usize> {
    let mut order = reachable.to_vec();
    if wanted != Some("PCI_BUS_ID") {
        // Multiprocessors times clock; equal devices stay in PCI order.
        let speed = |&index: &usize| {
            let attribute = |number| i64::from(devices[index].attribute(number).unwrap_or(0));
            std::cmp::Reverse(attribute(16) * attribute(13))
        };
        order.sort_by_key(speed);
    }
    order
}

/// The machine indices that a value of `CUDA_VISIBLE_DEVICES` leaves visible. `uuids` are the texts `GPU-…` by
/// machine index, `MIG-…` of a device in MIG mode. Only devices of `order` are found.
pub fn select(order: &[usize], uuids: &[String], value: Option<&str>) -> Vec<usize> {
    let mut selected = match value {
        Some(value) => listed(order, uuids, value),
        None => order.to_vec(),
    };
    // A process computes on whole devices, or on one instance.
    let is_instance = |device: &usize| uuids.get(*device).is_some_and(|uuid| uuid.starts_with("MIG-"));
    match selected.first().is_some_and(is_instance) {
        true => selected.truncate(1),
        false => selected.retain(|device| !is_instance(device)),
    }
    selected
}

fn listed(order: &[usize], uuids: &[String], value: &str) -> Vec<usize> {
    let is_uuids = KINDS.iter().any(|kind| value.trim_start().starts_with(kind));
    let mut selected: Vec<usize> = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let found = if is_uuids {
            by_uuid(entry, uuids, order)
        } else {
            by_index(entry, order)
        };
        match found {
            Some(device) if selected.contains(&device) => return Vec::new(),
            Some(device) => selected.push(device),
            None => break,
        }
    }
    selected
}

fn by_uuid(entry: &str, uuids: &[String], order: &[usize]) -> Option<usize> {
    let kind = KINDS.iter().find(|kind| entry.starts_with(**kind))?;
    let prefix = entry[kind.len()..].to_ascii_lowercase();
    let is_match = |uuid: &String| {
        uuid.strip_prefix(kind)
            .is_some_and(|digits| digits.starts_with(&prefix))
    };
    let mut matches = order.iter().copied().filter(|&index| is_match(&uuids[index]));
    match (matches.next(), matches.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

fn by_index(entry: &str, order: &[usize]) -> Option<usize> {
    let entry = entry.strip_prefix('+').unwrap_or(entry);
    let digits = entry.len() - entry.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    order.get(entry[..digits].parse::<usize>().ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_vendor_reads_them() {
        let uuids: Vec<String> = ["GPU-aa11-x", "GPU-aa22-y", "GPU-bb33-z"].map(str::to_owned).to_vec();
        let select = |value| select(&[0, 1, 2], &uuids, value);
        let cases: &[(Option<&str>, &[usize])] = &[
            (None, &[0, 1, 2]),
            (Some(""), &[]),
            (Some("-1"), &[]),
            (Some("NoDevFiles"), &[]),
            (Some("1"), &[1]),
            (Some("2,0"), &[2, 0]),
            (Some(" 1 , 2 "), &[1, 2]),
            (Some("0,-1,1"), &[0]),
            (Some("0,3,1"), &[0]),
            (Some("0,,1"), &[0]),
            (Some("1gpu,2"), &[1, 2]),
            (Some("1,1"), &[]),
            (Some("GPU-bb33-z"), &[2]),
            (Some("GPU-bb"), &[2]),
            (Some("GPU-BB33,GPU-aa1"), &[2, 0]),
            (Some("GPU-aa"), &[]),
            (Some("GPU-bb,1"), &[2]),
            (Some("GPU-bb,GPU-bb33"), &[]),
            (Some("MIG-bb"), &[]),
            (Some("0,GPU-bb"), &[0]),
            (Some("99999999999999999999"), &[]),
        ];
        for (value, expected) in cases {
            assert_eq!(select(*value), *expected, "{value:?}");
        }
    }

    #[test]
    fn a_process_sees_whole_devices_or_one_instance() {
        let uuids: Vec<String> = ["MIG-aa11-x", "GPU-aa22-y", "MIG-bb33-z"].map(str::to_owned).to_vec();
        let select = |value| select(&[0, 1, 2], &uuids, value);
        let cases: &[(Option<&str>, &[usize])] = &[
            (None, &[0]),
            (Some("1"), &[1]),
            (Some("1,0"), &[1]),
            (Some("2,1"), &[2]),
            (Some("MIG-bb"), &[2]),
            (Some("MIG-bb33-z,MIG-aa11-x"), &[2]),
            (Some("MIG-aa22"), &[]),
            (Some("GPU-aa11"), &[]),
        ];
        for (value, expected) in cases {
            assert_eq!(select(*value), *expected, "{value:?}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_not_there() {
        let uuids: Vec<String> = ["GPU-aa11-x", "GPU-aa22-y", "GPU-bb33-z"].map(str::to_owned).to_vec();
        let select = |value| select(&[1, 2], &uuids, value);
        assert_eq!(select(None), [1, 2]);
        assert_eq!(select(Some("0")), [1], "indices count what is there");
        assert_eq!(select(Some("GPU-aa")), [1], "and a beginning is of what is there");
        assert_eq!(
            select(Some("GPU-aa11,GPU-bb33")),
            [0; 0],
            "the list ends at what is not there"
        );
    }
}
