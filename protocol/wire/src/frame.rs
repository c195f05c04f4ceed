// SPDX-License-Identifier: Apache-2.0
//! The head of a packet that carries a piece of a JSON document.

/// First four bytes of every JSON packet.
pub const MAGIC: [u8; 4] = *b"PTGJ";
/// Flag of a document's last packet.
pub const LAST: u16 = 1;
/// Bytes of the head: [`MAGIC`], the flags, zeros.
pub const HEAD: usize = 8;

/// The head of a packet. `is_last`: it is the document's last packet.
#[must_use]
pub const fn head(is_last: bool) -> [u8; HEAD] {
    let flags = (if is_last { LAST } else { 0 }).to_le_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], flags[0], flags[1], 0, 0]
}

/// The piece of a document in a packet, and whether it is the document's last; `None` if it is no JSON packet.
#[must_use]
pub fn piece(packet: &[u8]) -> Option<(&[u8], bool)> {
    let flags = packet.strip_prefix(&MAGIC)?.first()?;
    Some((packet.get(HEAD..)?, flags & LAST as u8 != 0))
}
