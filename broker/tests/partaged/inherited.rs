// SPDX-License-Identifier: Apache-2.0
//! A private broker sheds what the shell that started it was limited to, and says what it cannot shed.

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

#[test]
fn a_hard_limit_is_said() {
    let mut rig = Rig::stopped(1, 16 * GIB);
    rig.start_in_shell("ulimit -n 1000; exec \"$0\" \"$@\"");
    let notes = rig.status().broker.notes;
    assert!(notes.iter().any(|note| note.contains("ulimit -n 1000")), "{notes:?}");
}
