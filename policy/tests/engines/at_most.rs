// SPDX-License-Identifier: Apache-2.0
//! `register --at-most`: it lowers and never raises.

use partage_policy::{Caller, Ceiling, Change, Event, Lowered, Registration, Rule};
use partage_protocol::admin::{ErrorCode, JobView, Reply, RunRequest};
use partage_protocol::units::{GIB, JobId};

use super::{a_process, admin, query, register, slurm};
use crate::host::{Host, caller, mem};
use crate::limits::job;
use crate::registration::with_rule;
use crate::rules_in_use::{at_most, new_rules};

/// A key of `--at-most`, less, that, and more; as `set` has them.
const MOSTS: [(&str, &str, &str, &str); 8] = [
    ("mem", "1GiB", "2GiB", "3GiB"),
    ("mem-request", "512MiB", "1GiB", "1536MiB"),
    ("process-mem", "256MiB", "1GiB", "2GiB"),
    ("compute", "10%", "20%", "30%"),
    ("compute-max", "40%", "50%", "60%"),
    ("weight", "20", "40", "41"),
    ("priority", "low", "normal", "high"),
    ("time-limit", "1h", "2h", "3h"),
];

/// The most of each key.
fn mosts() -> Lowered {
    let [
        mem,
        mem_request,
        process_mem,
        promise,
        cap,
        weight,
        priority,
        time_limit,
    ] = MOSTS.map(|(_, _, most, _)| Some(most.to_owned()));
    Lowered {
        at_most: Ceiling {
            mem,
            mem_request,
            process_mem,
            promise,
            cap,
            weight,
            priority,
            time_limit,
        },
        ..Lowered::default()
    }
}

fn set(host: &mut Host, who: Caller, id: JobId, (key, value): (&str, &str), is_forced: bool) -> Reply {
    let mut change = Change {
        is_forced,
        ..Change::default()
    };
    let place = match key {
        "mem" => &mut change.mem,
        "mem-request" => &mut change.mem_request,
        "process-mem" => &mut change.process_mem,
        "compute" => &mut change.terms.compute,
        "compute-max" => &mut change.terms.compute_max,
        "weight" => &mut change.terms.weight,
        "priority" => &mut change.terms.priority,
        _ => &mut change.terms.time_limit,
    };
    *place = Some(value.to_owned());
    host.ask_change(who, &id.to_string(), change)
}

#[test]
fn at_most_lowers_what_is_asked_and_raises_nothing() {
    let mut host = Host::new(&[16]);
    let high = RunRequest {
        process_mem: Some("8GiB".into()),
        compute: Some("40%".into()),
        compute_max: Some("80%".into()),
        weight: Some("500".into()),
        priority: Some("high".into()),
        time_limit_ns: Some(8 * 3_600_000_000_000),
        ..mem("8GiB")
    };
    let numbers = |view: &JobView| {
        let device = &view.devices[0];
        let terms = &view.terms;
        (
            (device.limit_bytes, device.request_bytes, device.process_limit_bytes),
            (terms.promise, terms.cap, terms.weight, terms.priority.clone()),
            terms.time_limit_ns,
        )
    };
    let most = (
        (Some(2 * GIB), GIB, Some(GIB)),
        (0.2, Some(0.5), 40, "normal".to_owned()),
        Some(7_200_000_000_000),
    );
    let low = RunRequest {
        process_mem: Some("256MiB".into()),
        compute: Some("10%".into()),
        compute_max: Some("40%".into()),
        weight: Some("20".into()),
        priority: Some("low".into()),
        time_limit_ns: Some(3_600_000_000_000),
        mem_request: Some("512MiB".into()),
        ..mem("1GiB")
    };
    let less = (
        (Some(GIB), GIB / 2, Some(GIB / 4)),
        (0.1, Some(0.4), 20, "low".to_owned()),
        Some(3_600_000_000_000),
    );
    for (number, (asked, expected)) in [(high, &most), (low, &less)].into_iter().enumerate() {
        for by_root in [true, false] {
            let what = Registration {
                is_by_root: by_root,
                ..slurm(number as u64)
            };
            let process = a_process(&mut host);
            let ticket = register(&mut host, 7, process, asked.clone(), (what, mosts()));
            let id = host.job_of(ticket).expect("what is asked is lowered, not refused");
            assert_eq!(&numbers(&job(&host, id)), expected, "by root: {by_root}");
            host.step(Event::ProcessGone(process));
        }
    }
    // Nothing asked: the whole card, which has a most.
    let process = a_process(&mut host);
    let ticket = register(&mut host, 7, process, RunRequest::default(), (slurm(3), mosts()));
    let view = job(&host, host.job_of(ticket).expect("admitted"));
    assert_eq!(
        (view.devices[0].limit_bytes, view.devices[0].request_bytes),
        (Some(2 * GIB), 0)
    );
    let words = "--at-most of the registration for slurm:3 (shard:5 of 10), mem = 2GiB";
    assert_eq!(view.devices[0].limit_from, words);
}

#[test]
fn at_most_holds_against_owner_administrator_reload_quota_and_the_next_broker() {
    let mut host = Host::new(&[16]);
    let process = a_process(&mut host);
    let asked = RunRequest {
        compute: Some("20%".into()),
        mem_request: Some("1GiB".into()),
        ..mem("2GiB")
    };
    let ticket = register(&mut host, 7, process, asked, (slurm(4711), mosts()));
    let id = host.job_of(ticket).expect("admitted");
    // A rule that allows more, of each job and in total.
    let rules = at_most(12, None);
    for round in ["at once", "after a reload", "under a quota", "at the next broker"] {
        match round {
            "at once" => {}
            "after a reload" => drop(host.step(Event::Rules(Box::new(new_rules(rules.clone()))))),
            "under a quota" => with_rule(
                &mut host,
                Rule {
                    each_user: partage_policy::Total {
                        mem: rules.rules[0].max.mem.clone(),
                        ..partage_policy::Total::default()
                    },
                    ..Rule::default()
                },
            ),
            _ => {
                let records = host.records();
                host.restart(records);
                host.measure();
            }
        }
        assert_eq!(job(&host, id).devices[0].limit_bytes, Some(2 * GIB), "{round}");
        for (key, less, most, more) in MOSTS {
            for who in [caller(7), admin()] {
                match set(&mut host, who, id, (key, more), false) {
                    Reply::Error(why) => assert!(
                        why.code == ErrorCode::NotAllowed
                            && why
                                .message
                                .contains("--at-most of the registration for slurm:4711 (shard:5 of 10), ")
                            && why.message.contains(&format!("{key} = {most}")),
                        "{round}: {key}={more}: {why:?}"
                    ),
                    other => panic!("{round}: {key}={more}: {other:?}"),
                }
            }
            for value in [less, most] {
                let reply = set(&mut host, admin(), id, (key, value), false);
                assert!(matches!(reply, Reply::Job(_)), "{round}: {key}={value}: {reply:?}");
            }
        }
        let why = host
            .policy
            .why(&caller(7), &query(&id.to_string()), 0, &host.board)
            .expect("its owner's");
        let Reply::Why(why) = why else { panic!("{why:?}") };
        let said = why.sentences.join("\n");
        assert!(
            said.contains("registered for slurm:4711 (shard:5 of 10)") || said.contains("registered it for slurm:4711"),
            "{said}"
        );
        assert!(said.contains("with at most mem 2GiB, mem-request 1GiB, "), "{said}");
    }
    let reply = set(&mut host, admin(), id, ("mem", "3GiB"), true);
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    assert_eq!(job(&host, id).devices[0].limit_bytes, Some(3 * GIB), "forced");
}

#[test]
fn an_at_most_that_cannot_be_read_is_refused_by_its_key() {
    let mut host = Host::new(&[16]);
    for (key, value) in [
        ("mem", "8"),
        ("mem", "none"),
        ("mem-request", "x"),
        ("process-mem", ""),
        ("compute", "30"),
        ("compute-max", "none"),
        ("weight", "0"),
        ("priority", "urgent"),
        ("time-limit", "1"),
    ] {
        let mut at_most = Ceiling::default();
        let place = match key {
            "mem" => &mut at_most.mem,
            "mem-request" => &mut at_most.mem_request,
            "process-mem" => &mut at_most.process_mem,
            "compute" => &mut at_most.promise,
            "compute-max" => &mut at_most.cap,
            "weight" => &mut at_most.weight,
            "priority" => &mut at_most.priority,
            _ => &mut at_most.time_limit,
        };
        *place = Some(value.to_owned());
        let lowered = Lowered {
            at_most,
            ..Lowered::default()
        };
        let process = a_process(&mut host);
        let ticket = register(&mut host, 7, process, mem("1GiB"), (slurm(1), lowered));
        let why = host.error_of(ticket);
        assert!(
            why.code == ErrorCode::Invalid && why.message.starts_with(&format!("--at-most {key}: ")),
            "{key}={value}: {why:?}"
        );
    }
    assert_eq!(host.policy.live_jobs(), 0);
}
