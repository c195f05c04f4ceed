// SPDX-License-Identifier: Apache-2.0
//! Clients that lie and processes that no job owns, against the simulated machine's own books.

use std::time::{Duration, Instant};

use partage_protocol::admin::{JobView, Reply, Request};
use partage_protocol::units::{GIB, MIB};

use crate::client::ClientProcess;
use crate::rig::{PATIENCE, Rig};

const CONTEXT: u64 = 512 * MIB;

fn configured(rules: &str) -> Rig {
    Rig::configured(1, 16 * GIB, &format!("schema = 1\n[audit]\n{rules}\n"))
}

/// What the driver holds for a process.
fn truth(rig: &Rig, pid: u32) -> u64 {
    let machine = rig.machine.as_ref().expect("a machine");
    let own = machine.occupants(0).into_iter().filter(|occupant| occupant.pid == pid);
    own.map(|occupant| occupant.used).sum()
}

fn within(bound: Duration, what: &str, is_it: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_it() {
        assert!(since.elapsed() < bound, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn notes(view: &JobView) -> String {
    view.notes.join("\n")
}

#[test]
fn whatever_a_client_writes_its_job_is_charged_with_what_the_driver_holds() {
    let rig = Rig::with_contexts(1, 16 * GIB, CONTEXT);
    let events = rig.follow();
    let mut liar = ClientProcess::start(&rig);
    let job = liar.run_and_attach(r#"{"verb":"run","mem":"6GiB"}"#);
    assert_eq!(liar.call("context 0"), "ok");
    assert_eq!(liar.call(&format!("reserve 0 {}", 3 * GIB)), "ok");
    let mut sibling = liar.sibling(&rig);
    assert_eq!(sibling.call("attach"), format!("attached {job}"));
    let held = 3 * GIB + CONTEXT;
    assert_eq!(truth(&rig, liar.pid()), held);
    // It denies, it exaggerates, it calls all of it managed, it says that it never rests.
    for lie in [
        "lie 0 0 used",
        "lie 0 18446744073709551615 used",
        "lie 0 4096 used",
        "lie 0 18446744073709551615 managed",
        "lie 0 18446744073709551615 started",
    ] {
        assert_eq!(liar.call(lie), "ok");
        std::thread::sleep(Duration::from_millis(1100));
        let used = rig.job(&job).devices[0].used_bytes;
        assert!(used >= held, "{lie}: {used}");
        // Nobody gets what it holds.
        let answer = sibling.call(&format!("reserve 0 {}", 6 * GIB - held + 1));
        assert_ne!(answer, "ok", "{lie}");
    }
    assert!(events.wait_for("drift").text.contains("claims to hold"));
    while !events.wait_for("drift").text.contains("contradicts itself") {}
    assert!(notes(&rig.job(&job)).contains("drifts"));
    // Another job has all that it was promised.
    let mut other = ClientProcess::start(&rig);
    other.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(other.call(&format!("reserve 0 {}", 7 * GIB)), "ok");
}

#[test]
fn a_client_that_hides_an_allocation_from_the_start_is_charged_for_it() {
    let rig = Rig::new(1, 16 * GIB);
    let mut liar = ClientProcess::start(&rig);
    let job = liar.run_and_attach(r#"{"verb":"run","mem":"6GiB"}"#);
    // Never at rest, as it says, and nothing charged.
    assert_eq!(liar.call("lie 0 1 started"), "ok");
    assert_eq!(liar.call(&format!("hold 0 {}", 5 * GIB)), "true");
    // After five seconds in which it never rested, and whatever a busy machine takes beyond that.
    within(Duration::from_secs(30), "charged all the same", || {
        rig.job(&job).devices[0].used_bytes == 5 * GIB
    });
    assert!(notes(&rig.job(&job)).contains("unaudited"), "{}", notes(&rig.job(&job)));
}

#[test]
fn a_client_that_drifts_is_barred_or_killed_by_policy() {
    let rig = configured("drift = \"deny-new\"");
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"6GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(client.call(&format!("lie 0 {} used", 2 * GIB)), "ok");
    within(Duration::from_secs(3), "barred", || {
        notes(&rig.job(&job)).contains("nothing more is granted")
    });
    assert_eq!(client.call("reserve 0 512"), "Limit");
    assert_eq!(client.call(&format!("lie 0 {GIB} used")), "ok");
    within(Duration::from_secs(2), "free again", || rig.job(&job).notes.is_empty());
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");

    let rig = configured("drift = \"kill\"\ntolerance = \"1MiB\"");
    let events = rig.follow();
    let mut client = ClientProcess::start(&rig);
    let mut bystander = ClientProcess::start(&rig);
    bystander.run_and_attach(r#"{"verb":"run","mem":"2GiB"}"#);
    assert_eq!(bystander.call(&format!("reserve 0 {GIB}")), "ok");
    client.run_and_attach(r#"{"verb":"run","mem":"6GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {GIB}")), "ok");
    assert_eq!(client.call(&format!("lie 0 {} used", GIB + 2 * MIB)), "ok");
    assert_eq!(events.wait_for("drift-killed").pid, Some(client.pid()));
    let status = client.child.wait().expect("reaped");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(libc::SIGKILL)
    );
    assert_eq!(bystander.call("reserve 0 512"), "ok");
}

#[test]
fn a_gpu_process_of_no_job_is_listed_bars_its_device_or_is_killed() {
    for rules in ["", "unmanaged = \"deny-new\"", "unmanaged = \"kill\""] {
        let rig = configured(rules);
        let events = rig.follow();
        let mut job = ClientProcess::start(&rig);
        job.run_and_attach(r#"{"verb":"run","mem":"2GiB"}"#);
        let mut stranger = ClientProcess::start(&rig);
        assert_eq!(stranger.call(&format!("hold 0 {GIB}")), "true");
        if rules.contains("kill") {
            assert_eq!(events.wait_for("unmanaged-killed").pid, Some(stranger.pid()));
            let status = stranger.child.wait().expect("reaped");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(libc::SIGKILL)
            );
            assert_eq!(job.call("reserve 0 512"), "ok");
            continue;
        }
        events.wait_for("unmanaged");
        let Reply::Ps { unmanaged, .. } = rig.ask(&Request::Ps {
            all: false,
            after: None,
        }) else {
            panic!("ps")
        };
        let [view] = unmanaged.as_slice() else {
            panic!("{unmanaged:?}")
        };
        let uid = nix::unistd::geteuid().as_raw();
        assert_eq!((view.pid, view.uid, view.used_bytes), (stranger.pid(), Some(uid), GIB));
        let name = std::fs::read_to_string(format!("/proc/{}/comm", view.pid)).expect("it lives");
        assert_eq!(view.command.as_deref(), Some(name.trim_end()));
        assert!(view.user.is_some());
        let mut newcomer = ClientProcess::start(&rig);
        let reply = newcomer.run(r#"{"verb":"run","mem":"1GiB"}"#);
        match (rules, reply) {
            ("", Reply::Admitted(_)) => {}
            (_, Reply::Error(error)) if !rules.is_empty() => {
                assert!(
                    error.message.contains(&format!("pid {}", stranger.pid())),
                    "{}",
                    error.message
                );
            }
            (_, other) => panic!("{rules}: {other:?}"),
        }
        stranger.kill();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut next = ClientProcess::start(&rig);
            if matches!(next.run(r#"{"verb":"run","mem":"1GiB"}"#), Reply::Admitted(_)) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "the stranger is gone and its device still barred"
            );
        }
    }
}
