// SPDX-License-Identifier: Apache-2.0
//! Helpers that are shell scripts, and time that is the test's: hung, slow, crashing and recovering devices.

use std::os::fd::AsFd;

use partage_protocol::units::SECOND_NS;

use super::adapter::Nvml;
use super::slot::{SAMPLE_DEADLINE_NS, SLOW_NS};
use crate::helper::process::HelperCommand;
use crate::host::gpu::{Driver, Gpu, GpuEvent, Look};

/// Helpers that are a shell script.
fn adapter(script: &str) -> Nvml {
    let program = "/bin/sh".into();
    let arguments = vec!["-c".into(), script.into()];
    Nvml::new(HelperCommand { program, arguments }).expect("an epoll set")
}

const TWO_DEVICES: &str = r#"{"devices":[
        {"uuid":"GPU-a","index":0,"model":"m","total":10,"reserved":0},
        {"uuid":"GPU-b","index":1,"model":"m","total":10,"reserved":0}]}"#;

/// Answers the list and place 0; does `at_one` when asked for place 1.
fn script(at_one: &str) -> String {
    let list = TWO_DEVICES.replace('\n', " ");
    format!(
        r#"while read ask; do case "$ask" in
                *open*) echo '{list}' >&0 ;;
                *0*) echo '{{"sample":{{"used":1,"free":9,"processes":[]}}}}' >&0 ;;
                *) {at_one} ;;
            esac; done"#
    )
}

/// Events in order until one is as wanted. Time is the test's: it jumps to the next deadline when nothing is to be
/// read for 50 ms.
fn until(nvml: &mut Nvml, now_ns: &mut u64, is_it: impl Fn(&GpuEvent) -> bool) -> Vec<GpuEvent> {
    let mut seen = Vec::new();
    for _ in 0..200 {
        let events = nvml.events(*now_ns);
        nvml.begin(*now_ns);
        for event in events {
            if matches!(event, GpuEvent::Asking { .. } | GpuEvent::Slow { .. }) {
                continue;
            }
            let is_last = is_it(&event);
            seen.push(event);
            if is_last {
                return seen;
            }
        }
        let mut polled = [nix::poll::PollFd::new(nvml.descriptor(), nix::poll::PollFlags::POLLIN)];
        if nix::poll::poll(&mut polled, 50u16) == Ok(0)
            && let Some(deadline) = nvml.deadline_ns()
        {
            *now_ns = deadline.max(*now_ns);
        }
    }
    panic!("never happened; seen {seen:?}");
}

fn is_sample_of(uuid: &'static str) -> impl Fn(&GpuEvent) -> bool {
    move |event| matches!(event, GpuEvent::Sample { uuid: of, .. } if of == uuid)
}

#[test]
fn a_hung_device_is_lost_within_its_deadline_and_the_others_go_on() {
    let mut nvml = adapter(&script("exec sleep 1000"));
    let mut now_ns = SECOND_NS;
    nvml.look(now_ns, Look::All);
    let seen = until(&mut nvml, &mut now_ns, |event| matches!(event, GpuEvent::Lost { .. }));
    assert_eq!(seen[0], GpuEvent::Driver(Driver::Ok));
    assert!(matches!(&seen[1], GpuEvent::Devices(list) if list.len() == 2));
    assert!(is_sample_of("GPU-a")(&seen[2]), "{seen:?}");
    assert!(matches!(seen.last(), Some(GpuEvent::Lost { uuid, .. }) if uuid == "GPU-b"));
    assert!(
        (SECOND_NS + SAMPLE_DEADLINE_NS..SECOND_NS * 10).contains(&now_ns),
        "{now_ns}"
    );
    // Looks after that meet the healthy device alone, at once.
    for _ in 0..3 {
        let asked = now_ns;
        nvml.look(now_ns, Look::All);
        let seen = until(&mut nvml, &mut now_ns, is_sample_of("GPU-a"));
        assert!(seen.iter().all(|event| !is_sample_of("GPU-b")(event)));
        assert!(now_ns < asked + SAMPLE_DEADLINE_NS);
    }
}

/// Events until one is as wanted, while time stands still.
fn at(nvml: &mut Nvml, now_ns: u64, is_it: impl Fn(&GpuEvent) -> bool) -> Vec<GpuEvent> {
    let mut seen = Vec::new();
    for _ in 0..200 {
        let events = nvml.events(now_ns);
        nvml.begin(now_ns);
        let is_there = events.iter().any(&is_it);
        seen.extend(events);
        if is_there {
            return seen;
        }
        let mut polled = [nix::poll::PollFd::new(nvml.descriptor(), nix::poll::PollFlags::POLLIN)];
        let _ = nix::poll::poll(&mut polled, 50u16);
    }
    panic!("never happened; seen {seen:?}");
}

#[test]
fn a_slow_device_is_waited_for_beside_the_others() {
    let folder = crate::testing::Scratch::new("nvml");
    let flag = folder.path().join("answers");
    let slow = format!(
        r#"while [ ! -e {} ]; do sleep 0.01; done; echo '{{"sample":{{"used":2,"free":8,"processes":[]}}}}' >&0"#,
        flag.display()
    );
    let mut nvml = adapter(&script(&slow));
    let is_slow = |event: &GpuEvent| matches!(event, GpuEvent::Slow { uuid } if uuid == "GPU-b");
    let is_asking = |event: &GpuEvent| matches!(event, GpuEvent::Asking { uuid } if uuid == "GPU-b");
    for round in 1..3 {
        let mut now_ns = round * SECOND_NS;
        nvml.look(now_ns, Look::All);
        at(&mut nvml, now_ns, is_asking);
        now_ns += SLOW_NS;
        at(&mut nvml, now_ns, is_slow);
        for _ in 0..3 {
            nvml.look(now_ns, Look::Device("GPU-a".to_owned()));
            at(&mut nvml, now_ns, is_sample_of("GPU-a"));
        }
        // Somebody wants a look that begins now: it comes after the one that is under way.
        nvml.look(now_ns, Look::Device("GPU-b".to_owned()));
        assert!(
            nvml.deadline_ns().is_some_and(|due| due > now_ns),
            "nothing to do meanwhile"
        );
        std::fs::write(&flag, "").expect("written");
        let seen = at(&mut nvml, now_ns, is_sample_of("GPU-b"));
        assert!(
            seen.iter().all(|event| !matches!(event, GpuEvent::Lost { .. })),
            "{seen:?}"
        );
        at(&mut nvml, now_ns, is_asking);
        at(&mut nvml, now_ns, is_sample_of("GPU-b"));
        assert!(nvml.lost.is_empty() && nvml.spare.is_some(), "kept for the next time");
        std::fs::remove_file(&flag).expect("there");
    }
    // The spare one dies: nobody spins over its socket.
    let spare = nvml.spare.as_ref().expect("kept").process.pid();
    let held = crate::host::pidfd::PidFd::open(spare).expect("it runs");
    assert!(held.signal(libc::SIGKILL));
    let mut polled = [nix::poll::PollFd::new(held.as_fd(), nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut polled, 5000u16), Ok(1), "ended");
    nvml.events(9 * SECOND_NS);
    assert!(nvml.spare.is_none());
}

#[test]
fn a_helper_that_crashes_at_a_device_loses_that_device_and_one_that_recovers_comes_back() {
    let folder = crate::testing::Scratch::new("nvml");
    let flag = folder.path().join("works");
    let healthy = r#"echo '{"sample":{"used":2,"free":8,"processes":[{"pid":7,"used":2}]}}' >&0"#;
    let at_one = format!("if [ -e {} ]; then {healthy}; else exit 1; fi", flag.display());
    let mut nvml = adapter(&script(&at_one));
    let mut now_ns = SECOND_NS;
    nvml.look(now_ns, Look::All);
    until(
        &mut nvml,
        &mut now_ns,
        |event| matches!(event, GpuEvent::Lost { uuid, .. } if uuid == "GPU-b"),
    );
    std::fs::write(&flag, "").expect("written");
    let seen = until(&mut nvml, &mut now_ns, is_sample_of("GPU-b"));
    let Some(GpuEvent::Sample { sample, .. }) = seen.last() else {
        panic!("{seen:?}")
    };
    let expected = crate::host::gpu::GpuProcess {
        pid: 7,
        used: Some(2),
        is_graphics_only: false,
        busy_percent: None,
    };
    assert_eq!((sample.used, &sample.processes[..]), (2, &[expected][..]));
    // From now on the main helper looks at it again.
    nvml.look(now_ns, Look::All);
    until(&mut nvml, &mut now_ns, is_sample_of("GPU-b"));
    assert!(nvml.lost.is_empty());
}

#[test]
fn a_mismatch_is_a_state_and_nonsense_a_failure() {
    let mismatch = r#"while read ask; do echo '{"driver":{"state":"mismatch","why":"w"}}' >&0; done"#;
    let mut nvml = adapter(mismatch);
    let mut now_ns = SECOND_NS;
    until(&mut nvml, &mut now_ns, |event| {
        *event == GpuEvent::Driver(Driver::Mismatch("w".into()))
    });
    let mut nvml = adapter("while read ask; do echo nonsense >&0; done");
    let seen = until(&mut nvml, &mut now_ns, |event| matches!(event, GpuEvent::Driver(_)));
    assert!(matches!(&seen[0], GpuEvent::Driver(Driver::Failed(_))), "{seen:?}");
}

#[test]
fn helpers_are_killed_with_the_adapter() {
    let mut nvml = adapter("exec sleep 1000");
    nvml.events(0);
    let pid = nvml.main.helper.as_ref().expect("started").process.pid();
    let held = crate::host::pidfd::PidFd::open(pid).expect("it runs");
    assert!(!held.has_ended());
    drop(nvml);
    let mut polled = [nix::poll::PollFd::new(held.as_fd(), nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut polled, 5000u16), Ok(1), "ended");
}
