// SPDX-License-Identifier: Apache-2.0
//! Login names by uid, looked up once each.

use std::collections::BTreeMap;

use nix::unistd::{Uid, User};

/// Names known so far.
#[derive(Debug, Default)]
pub struct Users {
    names: BTreeMap<u32, String>,
}

impl Users {
    /// The login name, or the uid in digits.
    pub fn name(&mut self, uid: u32) -> String {
        self.names.entry(uid).or_insert_with(|| look_up(uid)).clone()
    }
}

impl Users {
    /// The uid of a login name, or of a uid in digits: as the local file has it.
    pub fn uid(&self, name: &str) -> Option<u32> {
        let text = std::fs::read_to_string("/etc/passwd").ok()?;
        let line = text.lines().find(|line| line.split(':').next() == Some(name));
        let local = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
        local.or_else(|| name.parse().ok())
    }
}

/// The local file first: it answers at once, while a name service over the network can take its time.
fn look_up(uid: u32) -> String {
    let local = std::fs::read_to_string("/etc/passwd")
        .ok()
        .and_then(|text| in_passwd(&text, uid));
    let served = || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    local.or_else(served).unwrap_or_else(|| uid.to_string())
}

fn in_passwd(text: &str, uid: u32) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_file_and_unknown_uids_are_digits() {
        let text = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(in_passwd(text, 1000).as_deref(), Some("alice"));
        assert_eq!(in_passwd(text, 7), None);
        assert_eq!(Users::default().name(0), "root");
        assert_eq!(Users::default().name(4_000_000_123), "4000000123");
    }
}
