// SPDX-License-Identifier: Apache-2.0
//! JSON documents on a SEQPACKET socket: cut into packets, put together again with bounds.
//!
//! A packet is eight bytes of head (`PTGJ`, flags, zero) and up to [`CHUNK`] bytes of UTF-8. The last packet of a
//! document carries [`LAST`]. A document longer than [`MAX_DOCUMENT`] is refused by the reader, so a peer cannot make
//! the other side hold more.

use partage_wire::frame::{HEAD, head, piece};
pub use partage_wire::frame::{LAST, MAGIC};

use crate::message::MAX_PACKET;

/// Most document bytes in one packet.
pub const CHUNK: usize = MAX_PACKET - HEAD;
/// Longest document a reader accepts, in bytes.
pub const MAX_DOCUMENT: usize = 16 * 1024 * 1024;

/// Why packets do not make a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Not a JSON packet.
    Magic,
    /// More than [`MAX_DOCUMENT`] bytes.
    TooLong,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => write!(f, "packet is not part of a JSON document"),
            Self::TooLong => write!(f, "document is longer than {MAX_DOCUMENT} bytes"),
        }
    }
}
impl std::error::Error for FrameError {}

/// Is this packet part of a JSON document (rather than a binary message)?
#[must_use]
pub fn is_json(packet: &[u8]) -> bool {
    packet.get(..4) == Some(&MAGIC[..])
}

/// Cuts a document into packets.
pub fn packets(document: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let count = document.len().div_ceil(CHUNK).max(1);
    (0..count).map(move |i| {
        let part = &document[i * CHUNK..document.len().min((i + 1) * CHUNK)];
        let mut packet = Vec::with_capacity(HEAD + part.len());
        packet.extend_from_slice(&head(i + 1 == count));
        packet.extend_from_slice(part);
        packet
    })
}

/// Puts packets together; one per connection and direction.
#[derive(Debug, Default)]
pub struct Assembler {
    bytes: Vec<u8>,
}

impl Assembler {
    /// Takes one packet; gives the document when it was the last.
    ///
    /// # Errors
    /// [`FrameError`]; the connection should be closed then.
    pub fn push(&mut self, packet: &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        let (part, is_last) = piece(packet).ok_or(FrameError::Magic)?;
        if self.bytes.len() + part.len() > MAX_DOCUMENT {
            return Err(FrameError::TooLong);
        }
        self.bytes.extend_from_slice(part);
        Ok(is_last.then(|| std::mem::take(&mut self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_every_edge_length_survive() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let document: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut assembler = Assembler::default();
            let parts: Vec<_> = packets(&document).collect();
            let (last, first) = parts.split_last().expect("at least one packet");
            for part in first {
                assert_eq!(assembler.push(part), Ok(None));
            }
            assert_eq!(assembler.push(last), Ok(Some(document)));
        }
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(Assembler::default().push(b"PTG"), Err(FrameError::Magic));
        assert_eq!(Assembler::default().push(b"PTGMxxxxxxxx"), Err(FrameError::Magic));
    }
}
