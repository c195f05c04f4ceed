// SPDX-License-Identifier: Apache-2.0
//! Whose jobs a broker suspends, moves and saves, at whose word, and as which user it calls the driver.

use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Stdio};

use super::faults::{helper_of, set_faults};
use super::refusals::{Trace, filled_behind};
use super::said::{ok, state};
use crate::cases::Case;
use crate::cases::ruled_host::{Host, bare};
use crate::cases::user::{MEMBER, OTHER, OWNER, User, is_root, open_to_all};
use crate::client::{Client, PATIENCE};
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "the trace of calls is the simulated driver's";
    vec![
        Case::new("residence::a_job_with_a_process_of_another_user_is_not_touched", mixed).simulated(why),
        Case::new(
            "residence::a_managed_broker_acts_for_each_job_as_its_user",
            as_their_user,
        )
        .simulated(why),
        Case::new("residence::a_private_broker_does_not_touch_a_job_of_root", of_root).simulated(why),
    ]
}

pub(super) fn is_skipped(case: &str) -> bool {
    if !is_root() {
        println!("SKIPPED: residence::{case}: only root can act as another user");
    }
    !is_root()
}

/// A file that helpers of every user may write their calls to.
fn trace_for_all(rig: &Rig) -> Trace {
    use std::os::unix::fs::PermissionsExt;
    let path = rig.dir.join("trace");
    std::fs::write(&path, "").expect("writable");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
    Trace(path)
}

/// The job is root's, and one of its processes another user's.
fn mixed(rig: &Rig) {
    if is_skipped("a_job_with_a_process_of_another_user_is_not_touched") {
        return;
    }
    let trace = trace_for_all(rig);
    let host = Host::traced(rig, "schema = 1\n", &trace.0);
    let wrapper = [
        "/usr/bin/setpriv",
        "--reuid=65534",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ];
    let mut client = filled_behind(rig, &["-m", "1GiB", "-g", "0", "--name", "two"], &wrapper);
    let reason = format!("pid {} runs as uid 65534, and the job belongs to uid 0", client.pid());
    trace.is_untouched(rig, "two", (&reason, "start the whole job as one user"));
    client.expect("check a 165", "check 0 0");
    drop(host);
}

/// A client of this user with half a GiB that it has written.
pub(super) fn filled_of(rig: &Rig, user: &User, name: &str) -> Client {
    let program = open_to_all(rig);
    let mut command = user.partage(rig);
    command.args(["run", "-m", "1GiB", "-g", "0", "--name", name, "--"]);
    command.arg(program).arg("dlopen");
    let mut client = Client::start(command);
    client.ready();
    client.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    client
}

/// A line of `/proc/PID/status`.
fn line_of(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// It acts as its user, in that user's groups, and the user can neither signal nor trace nor read it.
fn is_closed_and_of(helper: u32, user: &User) -> bool {
    use std::os::unix::fs::MetadataExt;
    // Real and saved: nobody's, so that no user may send it a signal.
    let all = ["4294967280", user.uid, "4294967280", user.uid].join(" ");
    let facts = std::fs::metadata(format!("/proc/{helper}/mem"));
    line_of(helper, "Uid:") == Some(all)
        && line_of(helper, "Groups:").is_some_and(|groups| groups.split(' ').any(|group| group == "65531"))
        && facts.is_ok_and(|facts| facts.uid() == 0)
}

fn as_their_user(rig: &Rig) {
    if is_skipped("a_managed_broker_acts_for_each_job_as_its_user") {
        return;
    }
    let trace = trace_for_all(rig);
    let host = Host::traced(rig, "schema = 1\n", &trace.0);
    let mut client = filled_of(rig, &MEMBER, "theirs");
    let done = |arguments: &[&str]| {
        let (code, said) = MEMBER.say(rig, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
    };
    // Somebody else's word changes nothing.
    let verbs: [&[&str]; 4] = [
        &["suspend", "j1"],
        &["resume", "j1"],
        &["migrate", "j1", "--to", "1"],
        &["drain", "0"],
    ];
    for verb in verbs {
        let (code, said) = OTHER.say(rig, verb);
        assert_eq!(code, Some(3), "{verb:?}: {said}");
        assert!(!said.contains("theirs"), "{said}");
    }
    assert_eq!((state(rig, "theirs").as_str(), trace.calls()), ("running", 0));
    // Its owner's does, and the driver is called as the owner.
    set_faults(rig, "stands:lock");
    let mut suspend = MEMBER.partage(rig);
    suspend.args(["suspend", "theirs"]).stdout(Stdio::null());
    let mut suspend = suspend.spawn().expect("it starts");
    rig.eventually(PATIENCE, "the helper is its owner's", || {
        helper_of(host.broker.id()).is_some_and(|helper| is_closed_and_of(helper, &MEMBER))
    });
    set_faults(rig, "");
    assert!(suspend.wait().expect("ours").success());
    assert_eq!(state(rig, "theirs"), "suspended");
    // The next broker knows whose it is.
    let host = host.again();
    done(&["resume", "theirs"]);
    client.expect("check a 165", "check 0 0");
    done(&["migrate", "theirs", "--to", "1"]);
    client.expect("check a 165", "check 0 0");
    // Root's does, too.
    ok(rig, &["suspend", "theirs"]);
    ok(rig, &["resume", "theirs"]);
    client.expect("check a 165", "check 0 0");
    saves_for_nobody_else(rig);
    assert_eq!(state(rig, "theirs"), "running");
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
    drop(host);
}

/// A snapshot's files are its owner's, and only a broker of that user writes them. Each command is refused before CRIU
/// would be run: no machine needs one for them.
fn saves_for_nobody_else(rig: &Rig) {
    let own = "no job of uid 65532 is saved here: a snapshot is written by a broker of the job's own user, and this \
               one is uid 0's; suspend and migrate work";
    let is_refused = |mut command: Command, uid: u32, text: &str| {
        let out = rig.dir.join(format!("out-{uid}"));
        std::fs::DirBuilder::new().mode(0o700).create(&out).expect("ours");
        std::os::unix::fs::chown(&out, Some(uid), None).expect("root may");
        command.args(["checkpoint", "j1", "--out"]).arg(&out);
        command.env("PARTAGE_CRIU", rig.dir.join("no-criu"));
        let output = rig.output(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(text), "{said}");
    };
    is_refused(MEMBER.partage(rig), MEMBER.number(), own);
    is_refused(
        OTHER.partage(rig),
        OTHER.number(),
        "; ask its owner or an administrator",
    );
    is_refused(rig.partage(&[]), 0, own);
}

/// Root's program attaches to a user's broker, which cannot call the driver as root.
fn of_root(rig: &Rig) {
    if is_skipped("a_private_broker_does_not_touch_a_job_of_root") {
        return;
    }
    let trace = trace_for_all(rig);
    open_to_all(rig);
    std::os::unix::fs::chown(&rig.dir, Some(OWNER.number()), None).expect("root may");
    let mut start = OWNER.partage(rig);
    start.args(["broker", "start"]).env("PARTAGE_SIM_TRACE", &trace.0);
    let started = rig.output(start);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let mut client = bare(rig, &[]);
    client.ready();
    client.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    // Its user has no word in it,
    let pid = client.pid().to_string();
    for verb in [&["suspend", pid.as_str()][..], &["migrate", &pid, "--to", "1"]] {
        let (code, said) = OWNER.say(rig, verb);
        assert_eq!(code, Some(3), "{verb:?}: {said}");
        let text = "j1 belongs to root; ask its owner or an administrator";
        assert!(said.contains(text), "{verb:?}: {said}");
    }
    // and may drain a GPU of its own broker.
    let (code, said) = OWNER.say(rig, &["drain", "0"]);
    assert_eq!(code, Some(1), "{said}");
    let text = "this broker cannot act for uid 0; use a managed broker, which root starts";
    assert!(said.contains(text), "{said}");
    assert_eq!(trace.calls(), 0);
    client.expect("check a 165", "check 0 0");
    client.kill();
}
