// SPDX-License-Identifier: Apache-2.0
//! What a caller and the thread of a target say to each other: one packet each.

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The state.
    State,
    /// To be locked, within this many milliseconds; 0 for however long it takes.
    Lock { timeout_ms: u32 },
    /// To be unlocked.
    Unlock,
}

/// Bytes of either packet.
pub const BYTES: usize = 8;

/// A packet of two numbers.
pub type Packet = [u8; BYTES];

impl Operation {
    pub fn packet(self) -> Packet {
        match self {
            Self::State => join(1, 0),
            Self::Lock { timeout_ms } => join(2, timeout_ms),
            Self::Unlock => join(3, 0),
        }
    }

    /// `None`: no caller of ours says that.
    pub fn read(packet: &Packet) -> Option<Self> {
        match split(packet) {
            (1, 0) => Some(Self::State),
            (2, timeout_ms) => Some(Self::Lock { timeout_ms }),
            (3, 0) => Some(Self::Unlock),
            _ => None,
        }
    }
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
    use super::*;

    #[test]
    fn what_is_asked_is_read_back_and_nothing_else_is_understood() {
        for operation in [
            Operation::State,
            Operation::Lock { timeout_ms: 70_000 },
            Operation::Unlock,
        ] {
            assert_eq!(Operation::read(&operation.packet()), Some(operation));
        }
        for (first, second) in [(0, 0), (1, 1), (3, 1), (4, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(Operation::read(&join(first, second)), None);
        }
    }
}
