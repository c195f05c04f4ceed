// SPDX-License-Identifier: Apache-2.0
//! To which devices a process comes back: pure.
//!
//! The old devices are all those of the machine that the process left, by its own numbers, whether it saw them or not.
//! Pairs must name each of them once as the old one, and each device of the machine of now once as the new one, of the
//! same model with the same memory. Without pairs a process comes back to the devices that it left.

use partage_machine::Device;
use partage_machine::spec::MapRule;

/// Bytes of an identity.
pub const UUID_BYTES: usize = 16;
/// A device's identity.
pub type Uuid = [u8; UUID_BYTES];
/// An old device, and the one that takes its place.
pub type Pair = (Uuid, Uuid);

/// What a map says of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'a> {
    /// Which it is.
    pub uuid: Uuid,
    /// Its model.
    pub model: &'a str,
    /// Its memory in bytes.
    pub memory: u64,
}

impl<'a> Known<'a> {
    /// What a map says of this one.
    pub fn of(device: &'a Device) -> Self {
        Self {
            uuid: device.uuid,
            model: &device.profile.name,
            memory: device.memory,
        }
    }
}

/// Where each of the `old` devices is among those of `now`. `None`: the pairs are refused.
pub fn places(
    old: &[Known<'_>],
    now: &[Known<'_>],
    pairs: &[Pair],
    rule: MapRule,
    is_masked: bool,
) -> Option<Vec<usize>> {
    if pairs.is_empty() {
        return old.iter().map(|old| place(now, old)).collect();
    }
    let is_refused = rule == MapRule::Unmasked && is_masked;
    if is_refused || pairs.len() != old.len() || now.len() != old.len() {
        return None;
    }
    let mut places = Vec::new();
    for device in old {
        let mut of_device = pairs.iter().filter(|(from, _)| *from == device.uuid);
        let (_, to) = of_device.next()?;
        let place = place(now, &Known { uuid: *to, ..*device })?;
        if places.contains(&place) {
            return None;
        }
        places.push(place);
    }
    Some(places)
}

/// The device with this identity, if it is of that model and size.
fn place(now: &[Known<'_>], wanted: &Known<'_>) -> Option<usize> {
    now.iter().position(|device| device == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device(number: u8) -> Known<'static> {
        Known {
            uuid: [number; UUID_BYTES],
            model: "h200",
            memory: 1 << 30,
        }
    }

    fn pair(from: u8, to: u8) -> Pair {
        ([from; UUID_BYTES], [to; UUID_BYTES])
    }

    #[test]
    fn only_whole_maps_between_equals_are_taken() {
        let (old, now) = ([device(1), device(2), device(3)], [device(3), device(1), device(2)]);
        let places = |pairs: &[Pair]| places(&old, &now, pairs, MapRule::Machine, true);
        assert_eq!(places(&[]), Some(vec![1, 2, 0]), "the same devices");
        assert_eq!(places(&[pair(1, 2), pair(2, 1), pair(3, 3)]), Some(vec![2, 1, 0]));
        assert_eq!(
            places(&[pair(3, 1), pair(1, 2), pair(2, 3)]),
            Some(vec![2, 0, 1]),
            "a cycle"
        );
        for refused in [
            vec![pair(1, 2)],
            vec![pair(1, 2), pair(2, 1)],
            vec![pair(1, 1), pair(2, 2), pair(3, 9)],
            vec![pair(1, 1), pair(2, 2), pair(9, 3)],
            vec![pair(1, 1), pair(2, 1), pair(3, 3)],
            vec![pair(1, 1), pair(1, 2), pair(3, 3)],
            vec![pair(1, 1), pair(2, 2), pair(3, 3), pair(3, 3)],
        ] {
            assert_eq!(places(&refused), None, "{refused:?}");
        }
    }

    #[test]
    fn other_models_other_sizes_and_absent_devices_are_refused() {
        let old = [device(1), device(2)];
        let other_model = Known {
            model: "l4",
            ..device(3)
        };
        let other_size = Known { memory: 1, ..device(3) };
        for third in [other_model, other_size] {
            let now = [device(1), third];
            let pairs = [pair(1, 1), pair(2, 3)];
            assert_eq!(places(&old, &now, &pairs, MapRule::Machine, false), None);
            assert_eq!(places(&old, &now, &[], MapRule::Machine, false), None, "2 is not there");
        }
        let more = [device(1), device(2), device(3)];
        let pairs = [pair(1, 1), pair(2, 2)];
        assert_eq!(
            places(&old, &more, &pairs, MapRule::Machine, false),
            None,
            "3 is not named"
        );
        assert_eq!(places(&old, &more, &[], MapRule::Machine, false), Some(vec![0, 1]));
    }

    #[test]
    fn the_other_rule_takes_no_pairs_of_a_masked_process() {
        let devices = [device(1), device(2)];
        let pairs = [pair(1, 2), pair(2, 1)];
        let places = |pairs: &[Pair], is_masked| places(&devices, &devices, pairs, MapRule::Unmasked, is_masked);
        assert_eq!(places(&pairs, false), Some(vec![1, 0]));
        assert_eq!(places(&pairs, true), None);
        assert_eq!(places(&[], true), Some(vec![0, 1]));
    }

    proptest! {
        #[test]
        fn a_permutation_leads_where_it_says_and_nothing_else_is_taken(
            to in Just((0_u8..6).collect::<Vec<_>>()).prop_shuffle(),
            wrong in 0_u8..6,
            with in 0_u8..8,
        ) {
            let devices: Vec<Known<'_>> = (0..6).map(device).collect();
            let pairs: Vec<Pair> = to.iter().enumerate().map(|(from, to)| pair(from as u8, *to)).collect();
            let expected: Vec<usize> = to.iter().map(|to| usize::from(*to)).collect();
            let found = places(&devices, &devices, &pairs, MapRule::Machine, false);
            prop_assert_eq!(found.as_ref(), Some(&expected));
            // One target replaced: a permutation no more, unless by itself.
            let mut changed = pairs.clone();
            changed[usize::from(wrong)].1 = [with; UUID_BYTES];
            let found = places(&devices, &devices, &changed, MapRule::Machine, false);
            prop_assert_eq!(found.is_some(), changed == pairs);
        }
    }
}
