// SPDX-License-Identifier: Apache-2.0
//! Private brokers of other users: each promises a GPU alone, so two of them may promise the same one twice.
//!
//! Seen are those in the directories where `run` puts them. Whether one listens is in the kernel's table of sockets,
//! which every user may read; the directory itself is its owner's alone, and its owner is asked of the kernel.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::unistd::{Uid, User};
use partage_protocol::private_broker;
use serde_json::{Value, json};

use crate::launch::place::{Place, private_dir};

/// A private broker that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherBroker {
    /// Its owner.
    pub uid: u32,
    /// Its owner's login name, or the uid in digits.
    pub user: String,
    /// Its socket directory.
    pub dir: PathBuf,
}

/// Every private broker that can be seen, the caller's own too.
pub fn all() -> Vec<OtherBroker> {
    // Anybody's socket may have a name that is no text: that hides no other one.
    let table = std::fs::read(private_broker::SOCKETS).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let found = private_broker::listening(&table).into_iter().filter_map(|uid| {
        let dir = private_dir(uid);
        // Anybody may make a directory of this name, and a socket with this path in another mount namespace.
        let data = dir.symlink_metadata().ok()?;
        (data.is_dir() && data.uid() == uid).then(|| OtherBroker {
            uid,
            user: name(uid),
            dir,
        })
    });
    found.collect()
}

/// Those of other users, for a caller whose own broker is the private one in its usual place. A directory of the
/// caller's choice is a world of its own, as `partage sim` makes one.
pub fn beside(place: &Place) -> Vec<OtherBroker> {
    let uid = Uid::effective().as_raw();
    if place.dir != private_dir(uid) {
        return Vec::new();
    }
    all().into_iter().filter(|other| other.uid != uid).collect()
}

/// `alice has a broker of their own …`; nothing where there is none.
pub fn sentence(others: &[OtherBroker]) -> Option<String> {
    let names: Vec<&str> = others.iter().map(|other| other.user.as_str()).collect();
    let who = match names.as_slice() {
        [] => return None,
        [one] => format!("{one} has a private broker"),
        [all @ .., last] => format!("{} and {last} have private brokers", all.join(", ")),
    };
    Some(format!(
        "{who} on this host as well: what one broker promises of a GPU, another may promise again; one broker for \
         everybody: sudo partage install"
    ))
}

/// In a document.
pub fn json(others: &[OtherBroker]) -> Value {
    let one = |other: &OtherBroker| json!({ "uid": other.uid, "user": other.user, "socket_dir": other.dir });
    others.iter().map(one).collect()
}

/// The login name of a user, or the uid in digits.
pub fn name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::place::Rule;

    #[test]
    fn others_are_named_in_one_sentence() {
        let of = |user: &str| OtherBroker {
            uid: 1001,
            user: user.to_owned(),
            dir: "/tmp/partage-1001".into(),
        };
        assert_eq!(sentence(&[]), None);
        let one = sentence(&[of("alice")]).expect("one");
        assert!(one.starts_with("alice has a private broker on this host"), "{one}");
        let three = sentence(&[of("alice"), of("bob"), of("carol")]).expect("three");
        assert!(
            three.starts_with("alice, bob and carol have private brokers on"),
            "{three}"
        );
    }

    #[test]
    fn a_directory_of_the_callers_choice_has_no_others_beside_it() {
        let place = Place {
            dir: "/tmp/machine/broker".into(),
            rule: Rule::Private,
        };
        assert_eq!(beside(&place), []);
    }
}
