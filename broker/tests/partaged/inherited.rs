// SPDX-License-Identifier: Apache-2.0
//! A private broker sheds what the shell that started it was limited to, and says what it cannot shed.

use partage_protocol::admin::Reply;
use partage_protocol::units::GIB;

use crate::client::ClientProcess;
use crate::rig::Rig;

#[test]
fn soft_limits_niceness_and_processors_of_the_first_shell_are_shed() {
    let mut rig = Rig::stopped(1, 16 * GIB);
    // One block for a file: the ledger alone is beyond it.
    rig.start_in_shell(
        "ulimit -S -f 1; ulimit -S -n 60; ulimit -S -v 4000000; ulimit -S -t 1; exec nice -n 7 \"$0\" \"$@\"",
    );
    let mut client = ClientProcess::start(&rig);
    client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    let broker = rig.status().broker;
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", broker.pid)).expect("ours");
    let limits = read("limits");
    for name in ["Max file size", "Max address space", "Max cpu time"] {
        let line = limits.lines().find(|line| line.starts_with(name)).expect(name);
        let words: Vec<&str> = line[name.len()..].split_whitespace().collect();
        assert_eq!(words[0], words[1], "{line}");
    }
    let stat = read("stat");
    let nice = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(16))
        .expect("field 19");
    let may_be_nicer = nix::unistd::geteuid().is_root();
    let is_said = broker.notes.iter().any(|note| note.contains("nice 7"));
    assert_eq!(
        (nice == "0", is_said),
        (may_be_nicer, !may_be_nicer),
        "{nice}: {:?}",
        broker.notes
    );
}

/// Root without the right to raise a limit, as any other user.
const POWERLESS: &str = "setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource -- ";

#[test]
fn a_hard_limit_is_said_to_the_first_run_and_in_status() {
    let mut rig = Rig::stopped(1, 16 * GIB);
    let powerless = if nix::unistd::geteuid().is_root() {
        POWERLESS
    } else {
        ""
    };
    rig.start_in_shell(&format!("ulimit -n 1000; exec {powerless}\"$0\" \"$@\""));
    let notes = rig.status().broker.notes;
    assert!(notes.iter().any(|note| note.contains("ulimit -n 1000")), "{notes:?}");
    let says = |name: &str| {
        let request = format!(r#"{{"verb":"run","mem":"1GiB","name":"{name}"}}"#);
        match ClientProcess::start(&rig).run(&request) {
            Reply::Admitted(admitted) => {
                let mut notes = admitted.notes.iter();
                notes.any(|note| note.contains("ulimit -n 1000: it refuses clients early"))
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(says("first"), "the first run is told");
    assert!(!says("second"), "and no other");
}

#[test]
fn a_log_in_the_foreground_has_no_colours_in_a_file() {
    let mut rig = Rig::stopped(1, 16 * GIB);
    let file = rig.folder.path().join("said");
    rig.start_in_shell(&format!("exec \"$0\" \"$@\" --foreground 2>{}", file.display()));
    let said = std::fs::read_to_string(file).expect("written");
    assert!(said.contains("starting") && !said.contains('\x1b'), "{said}");
}

/// Containers often keep this right from root.
fn may_raise() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("always there");
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    const SYS_RESOURCE: u32 = 24;
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> SYS_RESOURCE & 1 == 1)
}

#[test]
fn a_hard_limit_is_raised_by_a_broker_that_may() {
    if !may_raise() {
        println!("SKIPPED: a_hard_limit_is_raised_by_a_broker_that_may: it needs CAP_SYS_RESOURCE");
        return;
    }
    let mut rig = Rig::stopped(1, 16 * GIB);
    rig.start_in_shell("ulimit -n 1000; exec \"$0\" \"$@\"");
    let broker = rig.status().broker;
    assert!(
        !broker.notes.iter().any(|note| note.contains("ulimit")),
        "{:?}",
        broker.notes
    );
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", broker.pid)).expect("ours");
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    assert!(line.is_some_and(|line| line.contains("4096")), "{limits}");
}
