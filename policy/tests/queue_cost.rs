// SPDX-License-Identifier: Apache-2.0
//! What a long queue costs: how often the clients' words are read says how often a device is looked at.

use crate::host::{Counted, Host, caller, mem, uuid};
use partage_policy::{Event, Measurement, Process, Run, Ticket};
use partage_protocol::units::{ClientId, GIB};

const DEVICES: u8 = 2;

/// So many requests wait for one of two devices, which each have a job with a client.
fn queue(waiting: u64) -> (Host, ClientId) {
    let mut host = Host::new(&[16; DEVICES as usize]);
    let mut last = None;
    for _ in 0..DEVICES {
        let (job, process) = host.admitted(1, mem("12GiB"));
        let client = host.attach(job, process);
        assert!(host.allocate(client, 0, GIB));
        last = Some(client);
    }
    for number in 0..waiting {
        let pid = 100_000 + u32::try_from(number).expect("few");
        let mut token = [0; 32];
        token[..8].copy_from_slice(&(1_000 + number).to_le_bytes());
        let run = Run {
            ticket: Ticket(1_000 + number),
            caller: partage_policy::Caller {
                process: Process { pid, start: 1 },
                ..caller(2)
            },
            request: mem("8GiB"),
            token,
            cgroup: None,
            other_cgroups: Vec::new(),
            groups: Vec::new(),
            unix_ns: 0,
            registered: None,
        };
        let _ = host.policy.step(host.now_ns, Event::Run(Box::new(run)), &host.board);
    }
    assert_eq!(host.policy.queue().count() as u64, waiting);
    (host, last.expect("two devices"))
}

/// How often words are looked up for an event.
fn looks(host: &mut Host, event: Event) -> u64 {
    let counted = Counted::new(&host.board);
    let _ = host.policy.step(host.now_ns, event, &counted);
    counted.looks.get()
}

#[test]
fn an_event_looks_at_each_device_as_often_whoever_waits() {
    let events = |client| {
        let measured = Measurement {
            device: uuid(1),
            used_bytes: GIB,
            free_bytes: 15 * GIB,
            processes: Vec::new(),
            telemetry: partage_policy::Telemetry::default(),
        };
        let notice = Event::Notice {
            client,
            what: u32::MAX,
            slot: 0,
            value: 0,
        };
        [
            Event::Measured(measured),
            Event::Tick,
            notice,
            Event::ClientAway(client),
        ]
    };
    let of = |waiting| {
        let (mut host, client) = queue(waiting);
        events(client).map(|event| looks(&mut host, event))
    };
    let [few, many] = [1, 1_000].map(of);
    assert_eq!(few, many);
    let [_, tick, notice, away] = many;
    assert!((1..=16).contains(&tick), "{tick}: one picture of each device");
    assert_eq!((notice, away), (0, 0), "they change nobody's room");
}
