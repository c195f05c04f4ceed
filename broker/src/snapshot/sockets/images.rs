// SPDX-License-Identifier: Apache-2.0
//! What CRIU wrote of TCP connections: their queues, by sequence numbers.
//!
//! The network is not locked while CRIU saves one process after the other, and the kernel may deliver what a stopped
//! process had sent. What comes to an end that is saved already, from one that is not yet, would be in neither: the
//! sender's image begins behind the end of the receiver's.

use std::path::Path;

use super::super::images::{entries, fields};

/// Fields of CRIU's `tcp_stream_entry`: the number after the last byte received, the bytes that are sent and not
/// acknowledged or not sent, the number after the last of them.
const RECEIVED: u64 = 2;
const QUEUED: u64 = 3;
const WRITTEN: u64 = 4;

/// One end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    received: u32,
    queued: u32,
    written: u32,
}

/// Do the images of both ends agree? One without an image was closed, or is another one's copy.
pub fn agree(images: &Path, (one, other): (u64, u64)) -> bool {
    match (end(images, one), end(images, other)) {
        (Some(one), Some(other)) => has_all(one, other) && has_all(other, one),
        _ => true,
    }
}

/// Has the receiver, or the sender's queue, every byte? An end of the stream counts as a byte, which CRIU may or may
/// not count.
fn has_all(sender: End, receiver: End) -> bool {
    let acknowledged = sender.written.wrapping_sub(sender.queued);
    let ahead = acknowledged.wrapping_sub(receiver.received).cast_signed();
    ahead <= 1
}

fn end(images: &Path, inode: u64) -> Option<End> {
    let image = std::fs::read(images.join(format!("tcp-stream-{inode:x}.img"))).ok()?;
    let mut end = End::default();
    // The bytes of the queues come after it.
    for field in fields(&image, entries(&image).next()?) {
        match field.number {
            RECEIVED => end.received = field.value as u32,
            QUEUED => end.queued = field.value as u32,
            WRITTEN => end.written = field.value as u32,
            _ => {}
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::super::super::images::made::{self, field};
    use super::*;

    fn image(received: u64, queued: u64, written: u64) -> Vec<u8> {
        let parts = [(1, 300), (2, received), (3, queued), (4, written), (13, 1)];
        let message: Vec<u8> = parts
            .iter()
            .flat_map(|(number, value)| field(*number, *value))
            .collect();
        let mut file = made::image(&[message]);
        // The bytes of the queues.
        file.extend([0xff; 300]);
        file
    }

    #[test]
    fn a_byte_that_neither_end_has_is_found() {
        let folder = std::env::temp_dir().join(format!("partage-images-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let judge = |one: Vec<u8>, other: Vec<u8>| {
            std::fs::write(folder.join("tcp-stream-1f.img"), one).expect("ours");
            std::fs::write(folder.join("tcp-stream-20.img"), other).expect("ours");
            agree(&folder, (0x1f, 0x20))
        };
        // Sent up to 5000, of which 100 are not acknowledged.
        assert!(judge(image(900, 100, 5000), image(4900, 0, 900)));
        // They arrived, and the acknowledgement is under way.
        assert!(judge(image(900, 100, 5000), image(5000, 0, 900)));
        // Around the end of the numbers.
        assert!(judge(image(900, 10, 4), image(u64::from(u32::MAX) - 2, 0, 900)));
        // The receiver was saved before 50 of them came, and the sender after they were acknowledged.
        assert!(!judge(image(900, 50, 5000), image(4900, 0, 900)));
        assert!(!judge(image(850, 0, 5000), image(5000, 0, 900)));
        std::fs::remove_file(folder.join("tcp-stream-20.img")).expect("there");
        assert!(agree(&folder, (0x1f, 0x20)));
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
