// SPDX-License-Identifier: Apache-2.0
//! Who may pass a waiting request: nobody who could delay it, and everybody else. Every combination of small amounts of
//! memory and time of a holder, a request that waits and a later one, on one device and on two.

use crate::host::{Host, caller, mem};
use partage_policy::Process;
use partage_protocol::admin::RunRequest;
use partage_protocol::units::{GIB, JobId};

const DEVICE_GIB: u64 = 8;

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked {
    /// Limit and, unless `is_unpromised`, promise, in GiB; 0 for no limit and no promise.
    gib: u64,
    is_unpromised: bool,
    percent: u64,
}

const NOTHING: Asked = asked(0, 0);

const fn asked(gib: u64, percent: u64) -> Asked {
    Asked {
        gib,
        is_unpromised: false,
        percent,
    }
}

impl Asked {
    fn request(self) -> RunRequest {
        let text = |amount: u64, unit: &str| (amount > 0).then(|| format!("{amount}{unit}"));
        RunRequest {
            mem: text(self.gib, "GiB"),
            mem_request: self.is_unpromised.then(|| "1MiB".to_owned()),
            compute: text(self.percent, "%"),
            wait: true,
            ..mem("")
        }
    }

    fn promised(self) -> u64 {
        if self.is_unpromised { 0 } else { self.gib }
    }

    /// All that it may come to use.
    fn most(self) -> u64 {
        if self.gib == 0 { DEVICE_GIB } else { self.gib }
    }
}

fn all() -> Vec<Asked> {
    let mut all = Vec::new();
    for percent in [0, 30, 60, 100] {
        all.extend([0, 2, 4, 8].map(|gib| asked(gib, percent)));
        all.push(Asked {
            gib: 4,
            is_unpromised: true,
            percent,
        });
    }
    all
}

fn end(host: &mut Host, job: JobId) {
    let view = host.policy.job_view(job, &caller(0), &host.board).expect("known");
    let start = u64::from(view.pid);
    host.finish(job, Process { pid: view.pid, start });
    host.measure();
}

/// Takes all that it is given, in steps of a GiB.
fn fill(host: &mut Host, job: JobId) {
    let view = host.policy.job_view(job, &caller(0), &host.board).expect("known");
    let start = u64::from(view.pid);
    let client = host.attach(job, Process { pid: view.pid, start });
    let gib = (0..DEVICE_GIB).take_while(|_| host.allocate(client, 0, GIB)).count();
    assert!(gib as u64 <= DEVICE_GIB);
    host.measure();
}

/// One holder, one that waits for it, one later; answers whether the later one passed.
fn passes(holder: Asked, head: Asked, later: Asked) -> Option<bool> {
    let mut host = Host::new(&[DEVICE_GIB]);
    let (holding, _) = host.admitted(1, holder.request());
    let (head_ticket, _) = host.run(2, head.request());
    if host.job_of(head_ticket).is_some() {
        return None;
    }
    let (later_ticket, _) = host.run(3, later.request());
    let Some(job) = host.job_of(later_ticket) else {
        return Some(false);
    };
    // Whatever the later one does, the head comes as soon as what it waited for is there.
    fill(&mut host, job);
    end(&mut host, holding);
    assert!(
        host.job_of(head_ticket).is_some(),
        "{later:?} passed {head:?}, which waited for {holder:?}, and delays it"
    );
    Some(true)
}

#[test]
fn nobody_who_asked_later_delays_a_waiting_request_and_nobody_else_waits() {
    let (mut states, mut passed) = (0, 0);
    for holder in all() {
        for head in all() {
            for later in all() {
                let Some(has_passed) = passes(holder, head, later) else {
                    continue;
                };
                states += 1;
                passed += u32::from(has_passed);
                let memory_left = DEVICE_GIB - holder.promised();
                let fits_memory = later.promised() <= memory_left;
                let fits_time = later.percent + holder.percent <= 100;
                let is_beside_memory = head.promised() == 0 || later.most() + head.promised() <= memory_left;
                let is_beside_time = later.percent == 0 || later.percent + head.percent + holder.percent <= 100;
                // A mebibyte of promise is no round figure.
                let is_exact = ![holder, head, later].iter().any(|asked| asked.is_unpromised);
                if is_exact {
                    let should = fits_memory && fits_time && is_beside_memory && is_beside_time;
                    assert_eq!(
                        has_passed, should,
                        "{later:?} behind {head:?}, which waits for {holder:?}"
                    );
                }
            }
        }
    }
    println!("{states} states, {passed} passed");
    assert!(states > 4_000 && passed > 200, "{states} {passed}");
}

#[test]
fn what_asks_for_nothing_or_for_memory_only_does_not_wait_behind_a_request_for_time() {
    let holder = asked(2, 60);
    for later in [NOTHING, asked(4, 0), asked(6, 0)] {
        assert_eq!(passes(holder, asked(0, 60), later), Some(true), "{later:?}");
    }
    assert_eq!(
        passes(holder, asked(2, 60), asked(4, 0)),
        Some(true),
        "beside what is kept"
    );
    assert_eq!(passes(holder, asked(2, 60), asked(6, 0)), Some(false));
    assert_eq!(
        passes(holder, asked(2, 60), NOTHING),
        Some(false),
        "it may use the whole card"
    );
    assert_eq!(
        passes(holder, asked(0, 60), asked(0, 30)),
        Some(false),
        "time is first come, first served"
    );
}

/// Of two devices the head could use either, so it keeps its amounts on both.
#[test]
fn on_two_devices_a_head_finds_room_on_either() {
    let mut host = Host::new(&[DEVICE_GIB; 2]);
    let holders = [60, 70].map(|percent| host.admitted(1, asked(2, percent).request()).0);
    for holder in holders {
        let mut host = host.clone();
        let (head, _) = host.run(2, asked(4, 50).request());
        assert!(host.is_waiting(head));
        let small = [asked(2, 0), asked(2, 0)].map(|small| host.run(3, small.request()).0);
        assert!(small.iter().all(|ticket| host.job_of(*ticket).is_some()));
        let (third, _) = host.run(3, asked(2, 0).request());
        assert!(host.is_waiting(third), "it would take what the head needs");
        end(&mut host, holder);
        assert!(host.job_of(head).is_some());
    }
}
