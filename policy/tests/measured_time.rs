// SPDX-License-Identifier: Apache-2.0
//! What jobs got of their devices' time, as users are shown it, and the cause of slowness that `why` names.

use crate::host::{Host, broker_view, caller, mem, uuid};
use partage_policy::{
    Action, Adoption, Cause, Config, Event, JobTime, LedgerClient, Policy, Process, Regime, TargetQuery, TimeState,
};
use partage_protocol::admin::{Reply, RunRequest, TimeView};
use partage_protocol::units::{GIB, JobId, SECOND_NS};

/// A job that has all that it wants.
pub fn measured(job: JobId) -> JobTime {
    JobTime {
        job,
        device: uuid(1),
        asked_ppm: 500_000,
        got_1s_ppm: 498_400,
        got_60s_ppm: 500_100,
        used_ns: 0,
        corrected_ns: 0,
        stretch: 0,
        waited_ns: 0,
        state: TimeState::Open,
        waits_for: Cause::None,
        wanted_60s_ppm: 1_000_000,
        unit_ns: 20_000,
        regime: Regime::Overlap,
        is_not_draining: false,
    }
}

pub fn time_of(host: &Host, job: JobId) -> Option<TimeView> {
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    view.devices[0].time.clone()
}

/// The sentence about time.
pub fn slow(host: &Host, uid: u32, job: JobId) -> String {
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(uid), &target, host.now_ns, &host.board) else {
        panic!("it answers")
    };
    let found = why.sentences.iter().find(|text| text.contains("last second"));
    found.unwrap_or_else(|| panic!("{:#?}", why.sentences)).clone()
}

/// Two jobs on one device: alice's `train` and bob's.
pub fn two_jobs() -> (Host, JobId, JobId) {
    let mut host = Host::new(&[8]);
    let mut named = mem("");
    named.name = Some("train".into());
    let (first, _) = host.admitted(1, named);
    let (second, _) = host.admitted(2, mem(""));
    (host, first, second)
}

/// Ten seconds, of which the job waited `waited_ns` in all.
pub fn ten_seconds(host: &mut Host, time: JobTime, waited_ns: u64) {
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
        waits_for: Cause::Neighbour(second),
        used_ns: 9,
        waited_ns: 7,
        regime: Regime::Turns,
        ..measured(first)
    };
    host.step(Event::Time(vec![held, measured(second)]));
    let view = time_of(&host, first).expect("measured");
    assert_eq!(
        (view.share, view.got_1s, view.got_60s, view.used_ns, view.waited_ns),
        (0.5, 0.4984, 0.5001, 9, 7)
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
        ..mem("")
    };
    let (job, _) = host.admitted(1, request);
    let time = JobTime {
        asked_ppm: 250_000,
        got_1s_ppm: 249_000,
        got_60s_ppm: 250_000,
        state: TimeState::Capped,
        waits_for: Cause::Cap,
        ..measured(job)
    };
    ten_seconds(&mut host, time, 7 * SECOND_NS);
    assert_eq!(
        slow(&host, 1, job),
        "GPU 0: its cap of 25 % (--compute-max 25%) holds it back: it got 24.9 % of GPU 0 in the last second and 25.0 \
         % in the last minute; it waited 7s in the last 10s; raise it with: partage set j1 compute-max=PCT, or none"
    );
}

#[test]
fn a_neighbour_is_named_as_far_as_the_caller_may_know_it() {
    let (mut host, first, second) = two_jobs();
    let time = JobTime {
        state: TimeState::Waiting,
        waits_for: Cause::Neighbour(first),
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
        waits_for: Cause::Priority(first),
        state: TimeState::Waiting,
        ..measured(second)
    };
    ten_seconds(&mut host, time, SECOND_NS);
    assert!(
        slow(&host, 2, second).starts_with("GPU 0: j1 (alice) has priority high, this job normal, so that one's work")
    );
    assert!(time_of(&host, second).expect("measured").is_held_by_priority);
}

/// The cause that `why` names on the job's first device, and who it is.
pub fn cause(host: &Host, job: JobId) -> Option<(String, Vec<String>)> {
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    let Ok(Reply::Why(why)) = host.policy.why(&caller(0), &target, host.now_ns, &host.board) else {
        panic!("it answers")
    };
    why.causes.into_iter().next().map(|found| (found.cause, found.by))
}

pub fn named(cause: &str, by: &[&str]) -> Option<(String, Vec<String>)> {
    Some((cause.to_owned(), by.iter().map(|who| (*who).to_owned()).collect()))
}

#[test]
fn a_job_that_is_alone_is_told_what_nvml_shows_of_it() {
    let mut host = Host::new(&[8]);
    let (job, process) = host.admitted(1, mem(""));
    let client = host.attach(job, process);
    host.measure();
    assert_eq!(cause(&host, job), None, "it has nothing there");
    assert!(host.allocate(client, 0, GIB));
    host.measure();
    assert_eq!(cause(&host, job), None, "NVML does not say");
    host.busy.insert(process.pid, 120_000);
    host.measure();
    assert_eq!(cause(&host, job), named("program", &[]));
    assert_eq!(
        slow(&host, 1, job),
        "GPU 0: nothing of Partage holds it back: no other job has a program there, and NVML shows it at work for \
         this job for 12 % of the last second. The GPU waits for the program: look at its CPU side (input, Python, \
         synchronisation)"
    );
    host.strangers.insert(77, (uuid(1), GIB, None));
    host.busy.insert(77, 200_000);
    host.measure();
    assert_eq!(cause(&host, job), named("unmanaged", &["pid 77"]));
    host.busy.insert(process.pid, 990_000);
    host.measure();
    assert_eq!(cause(&host, job), named("none", &[]));
}

#[test]
fn a_job_that_asks_for_little_is_told_of_its_own_cpu_side() {
    let (mut host, first, _) = two_jobs();
    let idle = JobTime {
        asked_ppm: 1_000_000,
        got_1s_ppm: 120_000,
        got_60s_ppm: 120_000,
        wanted_60s_ppm: 145_000,
        state: TimeState::Idle,
        ..measured(first)
    };
    ten_seconds(&mut host, idle, SECOND_NS / 100);
    assert_eq!(
        slow(&host, 1, first),
        "GPU 0: it may have 100.0 %, it got 12.0 % of GPU 0 in the last second and 12.0 % in the last minute, and it \
         wanted the GPU for 14.5 % of that minute; it waited 10ms in the last 10s; nothing of Partage holds it back. \
         The GPU waits for the program: look at its CPU side (input, Python, synchronisation)"
    );
    assert_eq!(cause(&host, first), named("program", &[]));
    // One that wants the GPU always has other reasons.
    let (mut host, first, _) = two_jobs();
    let wants = JobTime {
        wanted_60s_ppm: 1_000_000,
        ..idle
    };
    ten_seconds(&mut host, wants, SECOND_NS);
    assert!(slow(&host, 1, first).ends_with("it waited 1s in the last 10s, and not at the moment"));
    let (mut host, first, _) = two_jobs();
    ten_seconds(&mut host, measured(first), 0);
    assert!(
        slow(&host, 1, first).ends_with("of 50.0 % that it may have, and hardly waited"),
        "nothing is wrong"
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
        host.commands.iter().filter(|command| is_it(command)).count()
    };
    assert_eq!(announced(&host), 1);
    host.step(Event::Time(vec![measured(first)]));
    host.step(Event::Time(vec![stuck]));
    assert_eq!(announced(&host), 2, "again when it happened again");
}

#[test]
fn a_device_that_the_broker_has_not_seen_is_named_by_its_uuid() {
    let mut host = Host::new(&[8]);
    let mut asked = mem("4GiB");
    asked.compute = Some("40%".into());
    let (job, process) = host.admitted(1, asked);
    let client = host.attach(job, process);
    let adoption = Adoption {
        jobs: host.records(),
        clients: vec![LedgerClient { client, job, process }],
        next_job: 50,
        ..Adoption::default()
    };
    let before = host.commands.len();
    // The next broker has not looked at its devices yet.
    host.policy = Policy::new(Config::default());
    host.step(Event::Adopt(adoption));
    host.step(Event::Reattach {
        client,
        process,
        are_pages_lost: false,
    });
    assert!(!host.allocate(client, 0, 5 * GIB));
    let held = |is_not_draining| JobTime {
        is_not_draining,
        state: TimeState::Waiting,
        waits_for: Cause::Cap,
        ..measured(job)
    };
    ten_seconds(&mut host, held(false), 7 * SECOND_NS);
    assert!(
        slow(&host, 1, job).contains(&format!("{}: ", uuid(1))),
        "{}",
        slow(&host, 1, job)
    );
    let refused = host.set_terms(caller(0), "j1", &[("compute", "70%")]);
    host.step(Event::Time(vec![held(true)]));
    let told: Vec<String> = host.commands[before..]
        .iter()
        .filter(|command| matches!(command, Action::Publish { .. } | Action::Tell { .. }))
        .map(|command| format!("{command:?}"))
        .collect();
    let of_work = format!("has work on {} that does not end", uuid(1));
    assert!(told.iter().any(|text| text.contains(&of_work)), "{told:#?}");
    let query = TargetQuery {
        text: "j1".into(),
        descends_from: None,
    };
    let why = host
        .policy
        .why(&caller(1), &query, host.now_ns, &host.board)
        .expect("answers");
    let documents = serde_json::to_string(&(refused, why)).expect("serialises");
    for text in told.iter().chain([&documents]) {
        assert!(!text.contains(&u32::MAX.to_string()), "{text}");
    }
}
