// SPDX-License-Identifier: Apache-2.0
//! Where private brokers are found by others: the names of their directories, and the kernel's table of sockets.

use std::collections::BTreeSet;

/// A private broker's directory is this with its owner's uid.
pub const PREFIX: &str = "/tmp/partage-";
/// The kernel's table of unix sockets, of the reader's network namespace.
pub const SOCKETS: &str = "/proc/net/unix";
/// The name of the thread that the library starts in a client's process: what shows in `/proc/PID/task/TID/comm`.
/// The case `install::without_it_other_users_brokers_are_named` fails when the library names it otherwise.
pub const LIBRARY_THREAD: &str = "partage";

/// The kernel's flag of a socket that listens.
const ACCEPTS: u32 = 1 << 16;

/// The uids in whose directory a broker listens, as the table of sockets shows it: one line a socket, `number: count
/// protocol flags type state inode path`, the path as it was when the socket was bound.
#[must_use]
pub fn listening(table: &str) -> BTreeSet<u32> {
    table.lines().filter_map(of_line).collect()
}

fn of_line(line: &str) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let rest = fields.nth(3)?.strip_prefix(PREFIX)?;
    let (uid, socket) = rest.split_once('/')?;
    // A broker binds its socket beside the name that it gets then.
    let is_brokers = matches!(socket, "client/client.sock" | "client/client.new");
    let digits = uid.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = digits && (uid == "0" || !uid.starts_with('0'));
    (flags & ACCEPTS != 0 && is_brokers && is_plain).then(|| uid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
ffff8b0: 00000002 00000000 00010000 0005 01 28573 /tmp/partage-1001/client/client.new
ffff8b1: 00000003 00000000 00000000 0005 03 28574 /tmp/partage-1002/client/client.new
ffff8b2: 00000002 00000000 00010000 0005 01 28575 /tmp/partage-0/client/client.sock
ffff8b3: 00000002 00000000 00010000 0005 01 28576 /tmp/partage-7/admin.new
ffff8b4: 00000002 00000000 00010000 0005 01 28577 /tmp/partage-sim-0/client/client.new
ffff8b5: 00000002 00000000 00010000 0005 01 28578 /tmp/partage-01/client/client.new
ffff8b6: 00000002 00000000 00010000 0001 01 28579 @/tmp/partage-8/client/client.new
ffff8b7: 00000003 00000000 00000000 0001 03 28580
";

    #[test]
    fn brokers_that_listen_are_found_and_nothing_else() {
        assert_eq!(listening(TABLE).into_iter().collect::<Vec<_>>(), [0, 1001]);
        assert!(listening("").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC*") {
            let _ = listening(&text);
        }

        #[test]
        fn exactly_the_planted_are_found(
            lines in prop::collection::vec((any::<u32>(), any::<bool>(), any::<bool>()), 0..20),
        ) {
            let mut wanted = BTreeSet::new();
            let mut table = String::new();
            for (uid, accepts, is_new) in lines {
                let flags = if accepts { "00010000" } else { "00000000" };
                let end = if is_new { "new" } else { "sock" };
                table += &format!("f: 00000002 00000000 {flags} 0005 01 1 /tmp/partage-{uid}/client/client.{end}\n");
                if accepts {
                    wanted.insert(uid);
                }
            }
            prop_assert_eq!(listening(&table), wanted);
        }
    }
}
