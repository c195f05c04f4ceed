// SPDX-License-Identifier: Apache-2.0
//! Processes of no job that use devices' time: who is told, and what it does to jobs.

use crate::host::{Host, broker_view, mem, uuid};
use crate::measured_time::{cause, measured, named, slow, ten_seconds, time_of, two_jobs};
use partage_policy::{Action, Event, JobTime, UnmanagedLoad};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

/// What the dispatcher was told last of processes of no job.
fn shown_strangers(host: &Host) -> Option<UnmanagedLoad> {
    host.commands.iter().rev().find_map(|command| match command {
        Action::ShowUnmanaged { load, .. } => Some(*load),
        _ => None,
    })
}

#[test]
fn processes_that_nobody_controls_are_named_as_the_cause() {
    let (mut host, first, _) = two_jobs();
    let time = JobTime {
        asked_ppm: 1_000_000,
        ..measured(first)
    };
    ten_seconds(&mut host, time, 0);
    assert_eq!(cause(&host, first), named("none", &[]));
    // A context alone takes no time, and where NVML does not say nobody is taken to be busy.
    for part in [None, Some(0), Some(40_000)] {
        host.strangers.insert(77, (uuid(1), GIB, None));
        part.map(|part| host.busy.insert(77, part));
        host.measure();
        assert_eq!(cause(&host, first), named("none", &[]), "{part:?}");
    }
    host.busy.insert(77, 510_000);
    host.measure();
    assert_eq!(cause(&host, first), named("unmanaged", &["pid 77"]));
    assert_eq!(
        slow(&host, 1, first),
        "GPU 0: pid 77 uses 51 % of its time without Partage, which cannot share that out: of 100.0 % that this job \
         may have beside other jobs, it got 49.8 % of GPU 0 in the last second and 50.0 % in the last minute; start \
         that program with `partage run` as well, or end it"
    );
    assert_eq!(
        time_of(&host, first).expect("measured").held_by.as_deref(),
        Some("unmanaged")
    );
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.devices[0].unmanaged_time, Some(0.51));
    assert_eq!(
        status.devices[0].unmanaged_notes,
        ["GPU 0: pid 77 uses 51 % of its time without Partage, which cannot share that out"]
    );
    // Under another user's broker it is not without Partage.
    host.other_brokers.insert(77, "alice".to_owned());
    host.measure();
    assert_eq!(
        slow(&host, 1, first),
        "GPU 0: pid 77 uses 51 % of its time, managed by alice's broker and not by this one, which cannot share that \
         out: of 100.0 % that this job may have beside other jobs, it got 49.8 % of GPU 0 in the last second and 50.0 \
         % in the last minute; one broker for everybody shares it: sudo partage install"
    );
    // Of two processes one is without: then that is said.
    host.strangers.insert(78, (uuid(1), GIB, None));
    host.busy.insert(78, 100_000);
    host.measure();
    assert!(slow(&host, 1, first).contains("pids 77, 78 use 61 % of its time without Partage"));
    host.strangers.remove(&78);
    host.busy.remove(&78);
    host.other_brokers.clear();
    host.now_ns += 3 * SECOND_NS;
    host.measure();
    // Whoever has all that it may have is not slowed down.
    host.step(Event::Time(vec![measured(first)]));
    assert_ne!(cause(&host, first), named("unmanaged", &["pid 77"]));
}

#[test]
fn whoever_shares_a_device_out_is_told_of_strangers_that_use_as_much_as_a_job() {
    let (mut host, first, _) = two_jobs();
    let (_, process) = host.admitted(1, mem(""));
    let records = host.records();
    let here = JobId(records.last().expect("three").id);
    let client = host.attach(here, process);
    assert!(host.allocate(client, 0, GIB));
    host.busy.insert(process.pid, 700_000);
    host.strangers.insert(77, (uuid(1), GIB, None));
    host.strangers.insert(78, (uuid(1), GIB, None));
    let look = |host: &mut Host, parts: [u32; 2]| {
        host.busy.insert(77, parts[0]);
        host.busy.insert(78, parts[1]);
        host.now_ns += SECOND_NS / 2;
        host.measure();
    };
    look(&mut host, [10_000, 0]);
    assert_eq!(shown_strangers(&host), None);
    // One job has a program there: half of an even part is a quarter.
    look(&mut host, [200_000, 0]);
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Felt));
    look(&mut host, [200_000, 60_000]);
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Crowding), "together");
    // Two seconds of looks without are needed.
    for _ in 0..3 {
        look(&mut host, [30_000, 0]);
        assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Crowding));
    }
    look(&mut host, [30_000, 0]);
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Felt));
    // A device that is idle at times is not always wanted by them.
    host.busy.insert(process.pid, 250_000);
    look(&mut host, [0, 600_000]);
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Felt));
    look(&mut host, [0, 750_000]);
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Crowding));
    // Who is gone is not waited for.
    host.strangers.clear();
    host.measure();
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Quiet));
    host.strangers.insert(78, (uuid(1), GIB, None));
    host.measure();
    assert_eq!(shown_strangers(&host), Some(UnmanagedLoad::Crowding));
    let why = "off the bus".to_owned();
    host.step(Event::DeviceLost { device: uuid(1), why });
    assert_eq!(
        (shown_strangers(&host), cause(&host, first)),
        (Some(UnmanagedLoad::Quiet), None)
    );
}

#[test]
fn a_stranger_that_uses_time_is_an_event_once_a_minute() {
    let mut host = Host::new(&[8]);
    host.strangers.insert(77, (uuid(1), GIB, None));
    let told = |host: &Host| {
        let texts = host.commands.iter().filter_map(|command| match command {
            Action::Publish {
                kind: "unmanaged-busy",
                text,
                ..
            } => Some(text.clone()),
            _ => None,
        });
        texts.collect::<Vec<_>>()
    };
    for second in 0..90 {
        host.busy.insert(77, if second % 5 == 0 { 300_000 } else { 0 });
        host.measure();
        host.now_ns += SECOND_NS;
    }
    let text = "pid 77 uses 30 % of the time of GPU 0 without Partage, which cannot share it out";
    assert_eq!(told(&host), [text, text]);
}
