// SPDX-License-Identifier: Apache-2.0
//! What a caller and the thread of a target say to each other: one packet each.
//!
//! A question is two numbers, which operation and its argument; to restore, the argument is how many pairs of devices
//! follow. An answer is two numbers, the code and the state.

use super::map::{Pair, UUID_BYTES};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The state.
    State,
    /// To be locked, within this many milliseconds; 0 for however long it takes.
    Lock { timeout_ms: u32 },
    /// To be unlocked.
    Unlock,
    /// To leave the devices; `is_custom`: into storage of the caller's.
    Checkpoint { is_custom: bool },
    /// To come back to the devices. `None`: arguments that no machine would take.
    Restore { pairs: Option<Vec<Pair>> },
}

/// Bytes of an answer, and of a question before its pairs.
pub const BYTES: usize = 8;
/// Pairs that a question holds at most: more than any machine has devices.
pub const MOST_PAIRS: usize = 64;
/// Bytes of a question at most.
pub const MOST_BYTES: usize = BYTES + MOST_PAIRS * PAIR_BYTES;
const PAIR_BYTES: usize = 2 * UUID_BYTES;
/// The argument that says that no pairs follow because they make no sense.
const NONSENSE: u32 = u32::MAX;

/// A packet of two numbers.
pub type Packet = [u8; BYTES];

impl Operation {
    /// As it is sent.
    pub fn packet(&self) -> Vec<u8> {
        match self {
            Self::State => join(1, 0).to_vec(),
            Self::Lock { timeout_ms } => join(2, *timeout_ms).to_vec(),
            Self::Unlock => join(3, 0).to_vec(),
            Self::Checkpoint { is_custom } => join(4, u32::from(*is_custom)).to_vec(),
            Self::Restore { pairs: Some(pairs) } if pairs.len() <= MOST_PAIRS => {
                let mut packet = join(5, pairs.len() as u32).to_vec();
                for (old, new) in pairs {
                    packet.extend(old);
                    packet.extend(new);
                }
                packet
            }
            Self::Restore { .. } => join(5, NONSENSE).to_vec(),
        }
    }

    /// `None`: no caller of ours says that.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let (numbers, pairs) = packet.split_first_chunk::<BYTES>()?;
        let (number, argument) = split(numbers);
        if number == 5 {
            let pairs = read_pairs(argument, pairs)?;
            return Some(Self::Restore { pairs });
        }
        match (number, argument) {
            _ if !pairs.is_empty() => None,
            (1, 0) => Some(Self::State),
            (2, timeout_ms) => Some(Self::Lock { timeout_ms }),
            (3, 0) => Some(Self::Unlock),
            (4, 0) => Some(Self::Checkpoint { is_custom: false }),
            (4, 1) => Some(Self::Checkpoint { is_custom: true }),
            _ => None,
        }
    }
}

fn read_pairs(count: u32, bytes: &[u8]) -> Option<Option<Vec<Pair>>> {
    if count == NONSENSE {
        return bytes.is_empty().then_some(None);
    }
    let (pairs, rest) = bytes.as_chunks::<PAIR_BYTES>();
    if pairs.len() != count as usize || pairs.len() > MOST_PAIRS || !rest.is_empty() {
        return None;
    }
    let pair = |raw: &[u8; PAIR_BYTES]| {
        let (old, new) = raw.split_first_chunk()?;
        Some((*old, new.try_into().ok()?))
    };
    pairs.iter().map(pair).collect::<Option<Vec<_>>>().map(Some)
}

/// Two numbers as a packet: of an answer, the code and the state.
pub fn join(first: u32, second: u32) -> Packet {
    let mut packet = [0; BYTES];
    packet[..4].copy_from_slice(&first.to_le_bytes());
    packet[4..].copy_from_slice(&second.to_le_bytes());
    packet
}

/// The two numbers of a packet.
pub fn split(packet: &Packet) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = *packet;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_asked_is_read_back_and_nothing_else_is_understood() {
        let pair = |number| ([number; UUID_BYTES], [number + 1; UUID_BYTES]);
        for operation in [
            Operation::State,
            Operation::Lock { timeout_ms: 70_000 },
            Operation::Unlock,
            Operation::Checkpoint { is_custom: false },
            Operation::Checkpoint { is_custom: true },
            Operation::Restore { pairs: None },
            Operation::Restore { pairs: Some(vec![]) },
            Operation::Restore {
                pairs: Some((0..MOST_PAIRS as u8).map(pair).collect()),
            },
        ] {
            let packet = operation.packet();
            assert!(packet.len() <= MOST_BYTES);
            assert_eq!(Operation::read(&packet), Some(operation));
        }
        let too_many = Operation::Restore {
            pairs: Some(vec![pair(1); MOST_PAIRS + 1]),
        };
        assert_eq!(
            Operation::read(&too_many.packet()),
            Some(Operation::Restore { pairs: None })
        );
        for (first, second) in [(0, 0), (1, 1), (3, 1), (4, 2), (5, 1), (6, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(Operation::read(&join(first, second)), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_understood_is_said_the_same_way(packet in prop::collection::vec(0_u8..8, 0..200)) {
            if let Some(operation) = Operation::read(&packet) {
                prop_assert_eq!(operation.packet(), packet);
            }
        }

        #[test]
        fn pairs_are_read_back(count in 0_usize..=MOST_PAIRS, seed: [u8; UUID_BYTES]) {
            let pairs = (0..count).map(|number| (seed, [number as u8; UUID_BYTES])).collect();
            let operation = Operation::Restore { pairs: Some(pairs) };
            prop_assert_eq!(Operation::read(&operation.packet()), Some(operation));
        }
    }
}
