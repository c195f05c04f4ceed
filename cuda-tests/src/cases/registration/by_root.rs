// SPDX-License-Identifier: Apache-2.0
//! What root registers of another user's process: a ceiling for that user.

use crate::cases::control_group::{Group, ID, Waiting, register};
use crate::cases::ruled_host::Host;
use crate::cases::user::{OWNER, is_root, open_to_all};
use crate::rig::Rig;

const CLASSES: &str = "schema = 1\n\n[class.small]\nmem = \"1GiB\"\ncompute_max = \"50%\"\n";

/// The owner sets each of these, from outside the group: those that are refused, and then those that are not.
fn owner_sets(rig: &Rig, id: &str, refused: &[&str], words: &str, taken: &[&str]) {
    for setting in refused {
        let (code, said) = OWNER.say(rig, &["set", id, setting]);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code == Some(3) && said.contains(words), "{setting}: {code:?}: {said}");
    }
    for setting in taken {
        let (code, said) = OWNER.say(rig, &["set", id, setting]);
        assert_eq!(code, Some(0), "{setting}: {said}");
    }
}

pub fn ceiling(rig: &Rig) {
    if !is_root() {
        return rig.note("skipped: only root registers other users' processes".to_owned());
    }
    let Some(group) = Group::make(rig, ID) else { return };
    let mut host = Host::start(rig, CLASSES);
    open_to_all(rig);
    rig.installed();
    for (options, words) in [
        (&["-m", "1GiB", "--compute-max", "50%"][..], "registration by root, "),
        (&["--class", "small"], "registration by root, class small, "),
    ] {
        let mut first = Waiting::of_user(rig, &group, &OWNER);
        let (code, said) = register(rig, &first.pid(), &[options, &["-g", "0"]].concat());
        assert_eq!(code, Some(0), "{said}");
        let id = rig.jobs()[0]["job"].as_str().expect("an id").to_owned();
        let refused = ["mem=8GiB", "mem=none", "compute-max=60%", "compute-max=none"];
        let taken = ["mem=512MiB", "mem=1GiB", "compute-max=40%", "compute-max=50%"];
        owner_sets(rig, &id, &refused, words, &taken);
        assert!(host.reload(&format!("{CLASSES}# read again\n")));
        host = host.again();
        owner_sets(rig, &id, &refused, words, &taken);
        let (_, why) = OWNER.say(rig, &["why", &id]);
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            why.contains("root registered it with ") && why.contains("only an administrator may raise it"),
            "{why}"
        );
        // Root raises it, and that is the ceiling of the next broker, too.
        let output = rig.output(rig.partage(&["set", &id, "mem=2GiB"]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        host = host.again();
        let words = "registration by root, mem = 2GiB";
        owner_sets(rig, &id, &["mem=3GiB", "mem=none"], words, &["mem=1GiB", "mem=2GiB"]);
        first.kill();
        rig.eventually(crate::cases::ruled_host::SOON, "the job is over", || {
            rig.jobs().is_empty()
        });
    }
}
