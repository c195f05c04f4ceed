// SPDX-License-Identifier: Apache-2.0
//! What tells machines and their devices from each other.

use std::fs::File;

/// The same for the same machine and index, different for all others.
pub(super) fn uuid(machine: u64, index: u64) -> [u8; 16] {
    let high = mix(machine ^ mix(index + 1));
    let low = mix(high ^ machine.rotate_left(32));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    // A random (version 4) UUID of the usual variant, as real devices have.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The id of a machine with a name: its devices have the same UUIDs whenever a machine of that name is made.
pub fn id_of(name: &str) -> u64 {
    let id = name.bytes().fold(0, |id, byte| mix(id ^ u64::from(byte)));
    // As a random one.
    (id >> 1).max(1)
}

/// The id of a machine without a name.
pub(crate) fn random_id() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    // TOML integers are signed, and 0 means "none".
    Ok((u64::from_ne_bytes(bytes) >> 1).max(1))
}
