// SPDX-License-Identifier: Apache-2.0
//! What work is charged that comes to an idle device between two observations of it.

use partage_scheduling::{ClientKey, Config, DeviceKey, Event, JobKey, Observation, Scheduler, Terms};

const MS: u64 = 1_000_000;
const DEVICE: DeviceKey = DeviceKey(0);

/// Each client's job is charged so much, in ms, for the 50 ms in which these came.
fn charged(came: &[Observation]) -> Vec<u64> {
    let (mut scheduler, mut out) = (Scheduler::new(Config::default()), Vec::new());
    let jobs: Vec<JobKey> = came.iter().map(|seen| JobKey(seen.client.0)).collect();
    for (seen, &job) in came.iter().zip(&jobs) {
        let (device, terms) = (DEVICE, Terms::default());
        scheduler.step(0, Event::JobTerms { job, device, terms }, &mut out);
        let client = seen.client;
        scheduler.step(0, Event::ClientJoined { client, job, device }, &mut out);
    }
    let idle: Vec<Observation> = came.iter().map(|seen| Observation::idle(seen.client)).collect();
    for (now, seen) in [(100 * MS, &*idle), (150 * MS, came)] {
        scheduler.step(now, Event::Observe { device: DEVICE, seen }, &mut out);
    }
    let views = scheduler.view(150 * MS);
    let used = |job: &JobKey| {
        views
            .iter()
            .find(|view| view.job == *job)
            .map_or(0, |view| view.used_ns)
    };
    jobs.iter().map(|job| used(job) / MS).collect()
}

/// Of a long unit whose length is not known, for so many ms.
fn came(client: u64, ms: u64) -> Observation {
    Observation {
        is_busy: true,
        since_ns: Some((150 - ms) * MS),
        unit_ns: 100 * MS,
        ..Observation::idle(ClientKey(client))
    }
}

#[test]
fn one_unit_that_is_still_there_is_charged_from_when_it_came() {
    for ms in [0, 1, 10, 50] {
        assert_eq!(charged(&[came(1, ms)]), [ms]);
    }
}

#[test]
fn half_of_the_interval_is_charged_where_nobody_can_say() {
    let unsaid = Observation {
        since_ns: None,
        ..came(1, 1)
    };
    assert_eq!(charged(&[unsaid]), [25]);
    // Something had retired before: it came and went, and is charged a unit at most.
    let more = Observation {
        retired: 1,
        ..came(1, 1)
    };
    assert_eq!(charged(&[more]), [25]);
    // Nobody knows what of the time which of two had.
    assert_eq!(charged(&[came(1, 1), came(2, 40)]), [12, 12]);
    let gone = Observation {
        retired: 1,
        unit_ns: 10 * MS,
        ..Observation::idle(ClientKey(2))
    };
    let [first, second] = charged(&[came(1, 1), gone])[..] else {
        unreachable!()
    };
    assert!(first + second >= 25 && second == 10, "{first} {second}");
}

/// Whose length is known is charged what retires, sooner or later; the other has what is left of the time since the first came.
#[test]
fn one_whose_length_is_known_does_not_hide_when_the_other_came() {
    let known = Observation {
        busy_ns: Some(0),
        retired: 7,
        unit_ns: MS / 5,
        ..came(2, 20)
    };
    assert_eq!(charged(&[came(1, 4), known]), [10, 10]);
}
