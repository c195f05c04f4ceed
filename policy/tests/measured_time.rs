// SPDX-License-Identifier: Apache-2.0
//! What jobs got of their devices' time, as users are shown it, and the cause of slowness that `why` names.

mod host;

use host::{Host, broker_view, caller, uuid};
use partage_policy::{Action, Cause, Event, JobTime, Process, Regime, TargetQuery, TimeState};
use partage_protocol::admin::{Reply, RunRequest, TimeView};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

/// A job that has all that it wants.
fn measured(job: JobId) -> JobTime {
    JobTime {
        job,
        device: uuid(1),
        asked_ppm: 500_000,
        got_1s_ppm: 498_400,
        got_60s_ppm: 500_100,
        waited_ns: 0,
        state: TimeState::Open,
        cause: Cause::None,
        unit_ns: 20_000,
        regime: Regime::Overlap,
        is_not_draining: false,
    }
}

fn time_of(host: &Host, job: JobId) -> Option<TimeView> {
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    view.devices[0].time.clone()
}

/// The sentence about time.
fn slow(host: &Host, uid: u32, job: JobId) -> String {
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(uid), &target, host.now_ns, &host.board) else {
        panic!("it answers")
    };
    let found = why.sentences.iter().find(|text| text.contains("in the last second"));
    found.unwrap_or_else(|| panic!("{:#?}", why.sentences)).clone()
}

/// Two jobs on one device: alice's `train` and bob's.
fn two_jobs() -> (Host, JobId, JobId) {
    let mut host = Host::new(&[8]);
    let mut named = host::mem("");
    named.name = Some("train".into());
    let (first, _) = host.admitted(1, named);
    let (second, _) = host.admitted(2, host::mem(""));
    (host, first, second)
}

/// Ten seconds, of which the job waited `waited_ns` in all.
fn ten_seconds(host: &mut Host, time: JobTime, waited_ns: u64) {
    host.step(Event::Time(vec![time]));
    host.now_ns += 10 * SECOND_NS;
    let waited_ns = time.waited_ns + waited_ns;
    host.step(Event::Time(vec![JobTime { waited_ns, ..time }]));
}

#[test]
fn what_was_measured_is_shown_until_it_is_measured_no_more() {
    let (mut host, first, second) = two_jobs();
    assert_eq!(time_of(&host, first), None);
    let held = JobTime {
        state: TimeState::Waiting,
        cause: Cause::Neighbour(second),
        waited_ns: 7,
        regime: Regime::Turns,
        ..measured(first)
    };
    host.step(Event::Time(vec![held, measured(second)]));
    let view = time_of(&host, first).expect("measured");
    assert_eq!(
        (view.asked, view.got_1s, view.got_60s, view.waited_ns),
        (0.5, 0.4984, 0.5001, 7)
    );
    assert_eq!(
        (view.state.as_str(), view.held_by.as_deref(), view.regime.as_str()),
        ("waiting", Some("j2"), "turns")
    );
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.devices[0].regime.as_deref(), Some("turns"));
    host.step(Event::Time(vec![measured(second)]));
    assert_eq!(time_of(&host, first), None);
    host.step(Event::Time(Vec::new()));
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(
        (time_of(&host, second), status.devices[0].regime.as_deref()),
        (None, None)
    );
}

#[test]
fn nothing_is_kept_of_jobs_that_are_gone_or_elsewhere() {
    let (mut host, first, _) = two_jobs();
    let elsewhere = JobTime {
        device: uuid(9),
        ..measured(first)
    };
    host.step(Event::Time(vec![elsewhere, measured(JobId(77))]));
    assert_eq!(time_of(&host, first), None);
    host.step(Event::Time(vec![measured(first)]));
    let pid = host.policy.job_view(first, &caller(1), &host.board).expect("known").pid;
    let process = Process {
        pid,
        start: u64::from(pid),
    };
    host.finish(first, process);
    assert_eq!(time_of(&host, first), None);
}

#[test]
fn waiting_is_counted_over_the_last_minute() {
    let (mut host, first, _) = two_jobs();
    for second in 0..200_u64 {
        // It stood at the gate for a tenth of each second of the first hundred.
        let waited_ns = second.min(100) * SECOND_NS / 10;
        host.step(Event::Time(vec![JobTime {
            waited_ns,
            ..measured(first)
        }]));
        let expected = (waited_ns - (second.saturating_sub(60)).min(100) * SECOND_NS / 10) as f64;
        let got = time_of(&host, first).expect("measured").waited_60s_ns as f64;
        assert!(
            (got - expected).abs() <= SECOND_NS as f64 / 5.0,
            "second {second}: {got} and not {expected}"
        );
        host.now_ns += SECOND_NS;
    }
}

#[test]
fn a_cap_is_named_as_the_cause() {
    let mut host = Host::new(&[8]);
    let request = RunRequest {
        compute_max: Some("25%".into()),
        ..host::mem("")
    };
    let (job, _) = host.admitted(1, request);
    let time = JobTime {
        asked_ppm: 250_000,
        got_1s_ppm: 249_000,
        got_60s_ppm: 250_000,
        state: TimeState::Capped,
        cause: Cause::Cap,
        ..measured(job)
    };
    ten_seconds(&mut host, time, 7 * SECOND_NS);
    assert_eq!(
        slow(&host, 1, job),
        "GPU 0: its cap of 25 % (--compute-max 25%) holds it back: it got 24.9 % of GPU 0 in the last second and 25.0 % in \
         the last minute; it waited 7s in the last 10s; raise it with: partage set j1 compute-max=PCT, or none"
    );
}

#[test]
fn a_neighbour_is_named_as_far_as_the_caller_may_know_it() {
    let (mut host, first, second) = two_jobs();
    let time = JobTime {
        state: TimeState::Waiting,
        cause: Cause::Neighbour(first),
        ..measured(second)
    };
    ten_seconds(&mut host, time, 5 * SECOND_NS);
    assert!(
        slow(&host, 2, second).starts_with("GPU 0: it shares the device with j1 (alice): its share is 50.0 %, it got")
    );
    assert!(slow(&host, 0, second).contains("j1 (alice/train)"));
    host.set_terms(caller(1), "j1", &[("weight", "300")]);
    assert!(slow(&host, 2, second).contains("j1 (alice) (weight 100 against 300): its share"));
}

#[test]
fn a_higher_priority_is_named_as_the_cause() {
    let (mut host, first, second) = two_jobs();
    host.set_terms(caller(1), "j1", &[("priority", "high")]);
    let time = JobTime {
        cause: Cause::Priority(first),
        state: TimeState::Waiting,
        ..measured(second)
    };
    ten_seconds(&mut host, time, SECOND_NS);
    assert!(
        slow(&host, 2, second).starts_with("GPU 0: j1 (alice) has priority high, this job normal, so that one's work")
    );
    assert!(time_of(&host, second).expect("measured").is_held_by_priority);
}

#[test]
fn processes_that_nobody_controls_are_named_as_the_cause() {
    let (mut host, first, _) = two_jobs();
    let time = JobTime {
        cause: Cause::Unmanaged,
        ..measured(first)
    };
    ten_seconds(&mut host, time, 0);
    assert!(slow(&host, 1, first).starts_with("GPU 0: processes that cannot be seen here use it without Partage"));
    host.strangers.insert(77, (uuid(1), GIB, None));
    host.measure();
    assert!(slow(&host, 1, first).starts_with("GPU 0: pid 77 uses it without Partage"));
}

#[test]
fn a_job_that_got_less_and_hardly_waited_is_told_of_its_own_cpu_side() {
    let (mut host, first, _) = two_jobs();
    let idle = JobTime {
        asked_ppm: 1_000_000,
        got_1s_ppm: 120_000,
        got_60s_ppm: 120_000,
        state: TimeState::Idle,
        ..measured(first)
    };
    ten_seconds(&mut host, idle, SECOND_NS / 100);
    assert_eq!(
        slow(&host, 1, first),
        "GPU 0: nothing of Partage holds it back: it may have 100.0 %, it got 12.0 % of GPU 0 in the last second and 12.0 % \
         in the last minute, and it hardly waited; the GPU was idle because the program gave it no work: look at its CPU \
         side (input, Python, synchronisation)"
    );
    let (mut host, first, _) = two_jobs();
    ten_seconds(&mut host, idle, SECOND_NS);
    assert!(slow(&host, 1, first).ends_with("it waited 1s in the last 10s, and not at the moment"));
    let (mut host, first, _) = two_jobs();
    ten_seconds(&mut host, measured(first), 0);
    assert!(
        slow(&host, 1, first).ends_with("of 50.0 % that it may have, and hardly waited"),
        "nothing is wrong"
    );
}

#[test]
fn a_device_that_a_job_does_not_use_is_not_worth_a_sentence() {
    let (mut host, first, _) = two_jobs();
    let unused = JobTime {
        got_1s_ppm: 0,
        got_60s_ppm: 0,
        state: TimeState::Idle,
        unit_ns: 0,
        ..measured(first)
    };
    ten_seconds(&mut host, unused, 0);
    let target = TargetQuery {
        text: first.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(1), &target, host.now_ns, &host.board) else {
        panic!("it answers")
    };
    assert_eq!(
        why.sentences[0],
        "j1 runs within its limits, and nothing was denied to it"
    );
    assert!(
        !why.sentences.iter().any(|text| text.contains("last second")),
        "{:#?}",
        why.sentences
    );
}

#[test]
fn work_that_does_not_end_is_named_and_announced_once() {
    let (mut host, first, _) = two_jobs();
    let stuck = JobTime {
        is_not_draining: true,
        state: TimeState::Open,
        ..measured(first)
    };
    ten_seconds(&mut host, stuck, 0);
    assert_eq!(time_of(&host, first).expect("measured").state, "not draining");
    assert!(slow(&host, 1, first).starts_with("GPU 0: its work does not end"));
    let announced = |host: &Host| {
        let is_it = |action: &Action| {
            matches!(
                action,
                Action::Publish {
                    kind: "not-draining",
                    ..
                }
            )
        };
        host.commands.iter().filter(|command| is_it(&command.action)).count()
    };
    assert_eq!(announced(&host), 1);
    host.step(Event::Time(vec![measured(first)]));
    host.step(Event::Time(vec![stuck]));
    assert_eq!(announced(&host), 2, "again when it happened again");
}
