// SPDX-License-Identifier: Apache-2.0
//! What root registered: a ceiling for the job's owner.

use partage_policy::{Caller, Change, Event, Lowered, Registration, Rule};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::units::JobId;

use crate::host::{Host, caller, mem};
use crate::registration::{register, registration, with_rule};
use crate::rules_in_use::new_rules;

/// What `partage set KEY=VALUE` of this caller came to.
fn set(host: &mut Host, caller: Caller, job: JobId, (key, value): (&str, &str)) -> Reply {
    let mut change = Change::default();
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
    host.ask_change(caller, &job.to_string(), change)
}

fn admin() -> Caller {
    Caller {
        is_admin: true,
        ..caller(0)
    }
}

/// What root registers: a key, less than that, that, and more.
const NUMBERS: [(&str, &str, &str, &[&str]); 8] = [
    ("mem", "1GiB", "2GiB", &["3GiB", "none"]),
    ("mem-request", "512MiB", "1GiB", &["1536MiB"]),
    ("process-mem", "256MiB", "1GiB", &["2GiB", "none"]),
    ("compute", "10%", "20%", &["30%"]),
    ("compute-max", "40%", "50%", &["60%", "none"]),
    ("weight", "20", "40", &["41", "100"]),
    ("priority", "low", "normal", &["high"]),
    ("time-limit", "1h", "2h", &["3h", "none"]),
];

fn numbers_of_root() -> RunRequest {
    RunRequest {
        mem_request: Some("1GiB".into()),
        process_mem: Some("1GiB".into()),
        compute: Some("20%".into()),
        compute_max: Some("50%".into()),
        weight: Some("40".into()),
        priority: Some("normal".into()),
        time_limit_ns: Some(7_200_000_000_000),
        ..mem("2GiB")
    }
}

#[test]
fn what_root_registered_is_a_ceiling_for_its_owner_and_not_for_administrators() {
    let mut host = Host::new(&[16]);
    let (ticket, _) = register(
        &mut host,
        7,
        numbers_of_root(),
        (registration("abc"), Lowered::default()),
    );
    let mut id = host.job_of(ticket).expect("admitted");
    let rules = || new_rules(partage_policy::Rules::default());
    for round in ["at once", "after a reload", "at the next broker"] {
        match round {
            "at once" => {}
            "after a reload" => drop(host.step(Event::Rules(Box::new(rules())))),
            _ => {
                let records = host.records();
                host.restart(records);
                host.measure();
            }
        }
        for (key, less, most, more) in NUMBERS {
            for value in more {
                match set(&mut host, caller(7), id, (key, value)) {
                    Reply::Error(why) => assert!(
                        why.code == ErrorCode::NotAllowed
                            && why.message.contains(&format!("registration by root, {key} = {most} ")),
                        "{round}: {key}={value}: {why:?}"
                    ),
                    other => panic!("{round}: {key}={value}: {other:?}"),
                }
            }
            for value in [less, most] {
                let reply = set(&mut host, caller(7), id, (key, value));
                assert!(matches!(reply, Reply::Job(_)), "{round}: {key}={value}: {reply:?}");
            }
        }
    }
    // What an administrator sets is the ceiling from then on, above and below.
    for (most, more) in [("4GiB", "5GiB"), ("1GiB", "2GiB")] {
        let reply = set(&mut host, admin(), id, ("mem", most));
        assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
        let reply = set(&mut host, caller(7), id, ("mem", more));
        assert!(
            matches!(&reply, Reply::Error(why) if why.message.contains(&format!("registration by root, mem = {most}"))),
            "{reply:?}"
        );
    }
    let reply = set(&mut host, admin(), id, ("mem", "none"));
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    let reply = set(&mut host, caller(7), id, ("mem", "8GiB"));
    assert!(matches!(reply, Reply::Job(_)), "the administrator lifted it: {reply:?}");
    // What a user registered is that user's own.
    let own = Registration {
        is_by_root: false,
        ..registration("own")
    };
    let (ticket, _) = register(&mut host, 7, mem("1GiB"), (own, Lowered::default()));
    id = host.job_of(ticket).expect("admitted");
    let reply = set(&mut host, caller(7), id, ("mem", "2GiB"));
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
}

#[test]
fn a_class_that_root_named_is_a_ceiling_but_for_what_root_said_beside_it() {
    let mut host = Host::new(&[16]);
    with_rule(&mut host, Rule::default());
    let request = RunRequest {
        class: Some("small".into()),
        compute_max: Some("60%".into()),
        ..mem("")
    };
    let (ticket, _) = register(&mut host, 7, request, (registration("abc"), Lowered::default()));
    let id = host.job_of(ticket).expect("admitted");
    let words = "registration by root, class small, mem = 1GiB (p.toml:3)";
    for value in ["none", "2GiB"] {
        let reply = set(&mut host, caller(7), id, ("mem", value));
        assert!(
            matches!(&reply, Reply::Error(why) if why.message.contains(words)),
            "{value}: {reply:?}"
        );
    }
    for (value, may) in [("50%", true), ("60%", true), ("70%", false)] {
        let reply = set(&mut host, caller(7), id, ("compute-max", value));
        assert_eq!(matches!(reply, Reply::Job(_)), may, "{value}: {reply:?}");
    }
}
