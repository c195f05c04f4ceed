// SPDX-License-Identifier: Apache-2.0
//! Each violation is found where it is made, and nothing else is.

use std::sync::atomic::AtomicU64;

use partage_protocol::job_ledger::{JobLedger, Shared, Words};
use partage_protocol::request::RunRequest;
use partage_protocol::units::GIB;

use super::*;
use crate::caller::{Caller, Process, Ticket};
use crate::config::Config;
use crate::decisions::Policy;
use crate::event::{Attaching, DeviceSeen, DriverState, Event, Measurement, Membership, Run};
use crate::job::Slot;
use crate::machine::Reading;

const DEVICE: DeviceUuid = DeviceUuid {
    bytes: [1; 16],
    is_mig: false,
};
const JOB: JobId = JobId(1);
const CLIENT: ClientId = ClientId(7);

/// The words of one client on one slot.
#[derive(Default)]
struct OneClient {
    ledger: AtomicU64,
    overhead: AtomicU64,
    owed: AtomicU64,
    granted: AtomicU64,
    used: AtomicU64,
    settled: AtomicU64,
}

impl Machine for OneClient {
    type Word = AtomicU64;

    fn words(&self, _: ClientId, _: usize) -> Option<Words<'_, AtomicU64>> {
        let shared = Shared {
            granted: &self.granted,
            used: &self.used,
            settled: &self.settled,
        };
        Some(Words {
            ledger: &self.ledger,
            overhead: &self.overhead,
            owed: &self.owed,
            shared: Some(shared),
        })
    }

    fn reading(&self, _: ClientId, _: usize) -> Option<Reading> {
        None
    }
}

fn alice(process: Process) -> Caller {
    Caller {
        uid: 1,
        user: "alice".into(),
        is_admin: false,
        may_change_own: true,
        process,
        inside: None,
    }
}

/// A device of 16 GiB with a job of 4 GiB and 30 % of the time, and its client.
fn host() -> (Books, OneClient) {
    let (mut policy, machine) = (Policy::new(Config::default()), OneClient::default());
    let process = Process { pid: 5, start: 5 };
    let caller = alice(process);
    let seen = DeviceSeen {
        uuid: DEVICE,
        index: 0,
        model: "H200".into(),
        total_bytes: 16 * GIB,
        minor: None,
        is_unified: false,
        reserve_bytes: 0,
    };
    let request = RunRequest {
        mem: Some("4GiB".into()),
        compute: Some("30%".into()),
        command: vec!["train".into()],
        wait: true,
        ..RunRequest::default()
    };
    let run = Run {
        ticket: Ticket(1),
        caller,
        request,
        token: [3; 32],
        cgroup: None,
        other_cgroups: Vec::new(),
        groups: Vec::new(),
        unix_ns: 1,
        registered: None,
    };
    let attaching = Attaching {
        client: CLIENT,
        process,
        uid: 1,
        user: "alice".into(),
        unix_ns: 1,
        fresh_token: [4; 32],
        membership: Membership {
            by_kernel: Some(JOB),
            ..Membership::default()
        },
    };
    let measured = Measurement {
        device: DEVICE,
        used_bytes: 0,
        free_bytes: 16 * GIB,
        processes: Vec::new(),
        telemetry: crate::telemetry::Telemetry::default(),
    };
    let found = Event::Devices {
        driver: DriverState::Ok,
        found: vec![seen],
    };
    for event in [
        found,
        Event::Measured(measured),
        Event::Run(Box::new(run)),
        Event::Attach(Box::new(attaching)),
    ] {
        drop(policy.step(1, event, &machine));
        assert_eq!(policy.check(&machine), []);
    }
    assert!(Word::load(&machine.ledger) > 0, "the client was granted memory");
    ((*policy).clone(), machine)
}

fn broken(breaks: impl Fn(&mut Books)) -> Vec<Violation> {
    let (mut books, machine) = host();
    breaks(&mut books);
    books.check(&machine)
}

fn job(books: &mut Books) -> &mut crate::job::Facts {
    books.jobs.get_mut(&JOB).expect("it was admitted").facts_mut()
}

#[test]
fn promises_beyond_the_device_are_found_unless_a_broker_before_made_them() {
    let too_much = |books: &mut Books| {
        let job = job(books);
        job.record.devices[0].request = 17 * GIB;
        job.record.devices[0].limit = None;
        job.record.terms.promise_ppm = 1_000_001;
    };
    let found = broken(too_much);
    assert!(
        matches!(
            found.as_slice(),
            [Violation::MemoryPromised { .. }, Violation::TimePromised { .. }]
        ),
        "{found:?}"
    );
    let adopted = broken(|books| {
        too_much(books);
        job(books).is_adopted = true;
    });
    assert_eq!(adopted, []);
}

#[test]
fn a_driver_that_reserves_more_than_before_breaks_no_promise() {
    let found = broken(|books| {
        let job = job(books);
        job.record.devices[0].request = 15 * GIB;
        job.record.devices[0].limit = None;
        let device = books.devices.values_mut().next().expect("there is one");
        let mut seen = device.seen.clone();
        seen.reserve_bytes += 2 * GIB;
        device.see(seen);
    });
    assert_eq!(found, []);
}

#[test]
fn promises_beyond_limit_and_cap_are_found() {
    let past_limit = broken(|books| job(books).record.devices[0].limit = Some(GIB));
    assert_eq!(past_limit, [Violation::Promise { job: JOB }]);
    let past_cap = broken(|books| job(books).record.terms.cap_ppm = Some(200_000));
    assert_eq!(past_cap, [Violation::Promise { job: JOB }]);
}

#[test]
fn grants_beyond_the_books_are_found() {
    let (books, machine) = host();
    Word::store(&machine.ledger, 5 * GIB);
    let found = books.check(&machine);
    assert!(
        matches!(found.as_slice(), [Violation::Granted { job: JOB, .. }]),
        "{found:?}"
    );
    let (books, machine) = host();
    Word::store(&machine.granted, Word::load(&machine.ledger) + 1);
    let client = CLIENT;
    assert_eq!(books.check(&machine), [Violation::Unbooked { client, slot: 0 }]);
}

#[test]
fn references_that_lead_nowhere_are_found() {
    let client = CLIENT;
    let no_job = broken(|books| assert!(books.jobs.forget(JOB).is_some()));
    assert_eq!(no_job, [Violation::Client { client }]);
    let no_ledger = broken(|books| job(books).slots[0] = Slot::new(JobLedger::new(4 * GIB, 4 * GIB)));
    assert_eq!(no_ledger, [Violation::Books { job: JOB }]);
    let awaited = broken(|books| books.clients.break_awaited(ClientId(9)));
    assert_eq!(awaited, [Violation::Client { client: ClientId(9) }]);
    let queued = broken(|books| books.queue.join(JOB));
    assert_eq!(queued, [Violation::Queue { job: JOB }]);
    let no_client = broken(|books| books.clients.break_removed(CLIENT));
    assert_eq!(no_client, [Violation::Client { client }]);
}
