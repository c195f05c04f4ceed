// SPDX-License-Identifier: Apache-2.0
//! Containers that were registered: admission, what only lowers, whose it is, and its end.

use partage_policy::{
    Access, Action, At, Caller, Cgroup, Event, Lowered, Match, Max, Membership, Pattern, Preset, Process, Registration,
    Rule, Run, TargetQuery, Ticket, Written,
};
use partage_protocol::admin::{ErrorCode, Reply, RunRequest};
use partage_protocol::size::parse_amount;
use partage_protocol::units::{GIB, JobId};

use crate::host::{Host, caller, mem};
use crate::limits::job;
use crate::rules_in_use::new_rules;

fn written<T>(value: T, text: &str) -> Written<T> {
    Written {
        value,
        text: text.into(),
        at: At {
            file: "p.toml".into(),
            line: 3,
        },
    }
}

pub fn registration(id: &str) -> Registration {
    Registration {
        container: id.into(),
        name: "web".into(),
        cgroup: Some(Cgroup {
            hierarchy: "pids".into(),
            path: format!("/c/{id}"),
        }),
        is_by_root: true,
        ..Registration::default()
    }
}

/// `register` by root for a process of `uid`.
pub fn register(host: &mut Host, uid: u32, request: RunRequest, what: (Registration, Lowered)) -> (Ticket, Process) {
    let number = host.fresh();
    let process = Process {
        pid: number as u32,
        start: number,
    };
    let ticket = register_process(host, uid, process, request, what);
    (ticket, process)
}

fn register_process(
    host: &mut Host,
    uid: u32,
    process: Process,
    request: RunRequest,
    what: (Registration, Lowered),
) -> Ticket {
    let ticket = Ticket(host.fresh());
    let run = Run {
        ticket,
        caller: Caller {
            process,
            is_admin: true,
            ..caller(uid)
        },
        request: RunRequest { wait: false, ..request },
        token: [ticket.0 as u8; 32],
        cgroup: None,
        other_cgroups: Vec::new(),
        groups: Vec::new(),
        unix_ns: 7,
        registered: Some(what),
    };
    host.step(Event::Run(Box::new(run)));
    ticket
}

fn inside(uid: u32, job: JobId) -> Caller {
    Caller {
        inside: Some(job),
        ..caller(uid)
    }
}

fn query(text: &str) -> TargetQuery {
    TargetQuery {
        text: text.into(),
        descends_from: None,
    }
}

/// Rules with a class small of 1 GiB and 20 %, a class large of 8 GiB, and this rule.
pub fn with_rule(host: &mut Host, rule: Rule) {
    let mut rules = partage_policy::Rules::default();
    for (name, mem, part) in [("small", "1GiB", 200_000), ("large", "8GiB", 900_000)] {
        let preset = Preset {
            name: name.into(),
            mem: Some(written(parse_amount(mem).expect("a size"), mem)),
            compute_max: Some(written(part, "a part")),
            ..Preset::default()
        };
        rules.presets.insert(name.into(), preset);
    }
    rules.rules.push(Rule {
        name: "r".into(),
        ..rule
    });
    host.step(Event::Rules(Box::new(new_rules(rules))));
}

#[test]
fn a_registered_process_is_the_first_of_a_job_which_ends_with_it_at_once() {
    let mut host = Host::new(&[16]);
    let (ticket, process) = register(&mut host, 0, mem("4GiB"), (registration("abc"), Lowered::default()));
    let id = host.job_of(ticket).expect("admitted");
    let view = job(&host, id);
    assert_eq!((view.pid, view.devices[0].limit_bytes), (process.pid, Some(4 * GIB)));
    let container = view.container.expect("shown to its user");
    assert_eq!((container.id.as_str(), container.name.as_deref()), ("abc", Some("web")));
    assert_eq!(container.cgroup.as_deref(), Some("/c/abc"));
    // The broker that it asked died before it answered: the same again is the same job.
    let again = register_process(
        &mut host,
        0,
        process,
        mem("4GiB"),
        (registration("abc"), Lowered::default()),
    );
    assert_eq!(host.job_of(again), Some(id));
    assert_eq!(host.policy.live_jobs(), 1);
    // A client of it outlives the first process; then nothing is waited for.
    let member = host.fresh() as u32;
    let other = Process { pid: member, start: 5 };
    let client = host.attach(id, other);
    host.step(Event::ProcessGone(process));
    assert_eq!(host.policy.live_jobs(), 1, "a process of it is there");
    host.step(Event::ClientGone(client));
    assert_eq!(host.policy.live_jobs(), 0, "no late child is waited for");
    let (full, _) = register(&mut host, 0, mem("16GiB"), (registration("next"), Lowered::default()));
    assert!(host.job_of(full).is_some(), "all of it is free again");
}

#[test]
fn a_registration_does_not_wait() {
    let mut host = Host::new(&[16]);
    host.admitted(1, mem("12GiB"));
    let (ticket, _) = register(&mut host, 0, mem("8GiB"), (registration("abc"), Lowered::default()));
    let why = host.error_of(ticket);
    assert_eq!(why.code, ErrorCode::NoRoom);
    assert!(
        !why.hint.is_some_and(|hint| hint.contains("on-full")),
        "there is nothing to wait with"
    );
    assert_eq!(host.policy.live_jobs(), 1);
}

#[test]
fn what_is_written_beside_a_container_only_lowers() {
    let mut host = Host::new(&[16]);
    with_rule(&mut host, Rule::default());
    let lowered = |mem: &str, compute: &str, class: &str| {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Lowered {
            most_mem: some(mem),
            most_compute: some(compute),
            most_class: some(class),
            ..Lowered::default()
        }
    };
    let asked = RunRequest {
        mem: Some("4GiB".into()),
        compute_max: Some("50%".into()),
        ..RunRequest::default()
    };
    for (what, limit, cap) in [
        (lowered("1GiB", "", ""), GIB, 0.5),
        (lowered("25%", "30%", ""), 4 * GIB, 0.3),
        (lowered("8GiB", "90%", "large"), 4 * GIB, 0.5),
        (lowered("2GiB", "", "small"), GIB, 0.2),
        (lowered("", "100%", ""), 4 * GIB, 0.5),
    ] {
        let (ticket, process) = register(&mut host, 0, asked.clone(), (registration("abc"), what.clone()));
        let id = host
            .job_of(ticket)
            .unwrap_or_else(|| panic!("{what:?}: {:?}", host.error_of(ticket)));
        let view = job(&host, id);
        assert_eq!(view.devices[0].limit_bytes, Some(limit), "{what:?}");
        assert_eq!(view.devices[0].request_bytes, limit, "the promise follows: {what:?}");
        assert_eq!(view.terms.cap, Some(cap), "{what:?}");
        if limit == GIB {
            assert!(
                view.devices[0].limit_from.starts_with("annotation partage.dev/"),
                "{view:?}"
            );
        }
        host.step(Event::ProcessGone(process));
    }
    for (what, words) in [
        (lowered("8", "", ""), "annotation partage.dev/mem: "),
        (lowered("", "30", ""), "annotation partage.dev/compute: "),
        (
            lowered("", "", "huge"),
            "annotation partage.dev/class: no class is called \"huge\"",
        ),
    ] {
        let (ticket, _) = register(&mut host, 0, asked.clone(), (registration("abc"), what));
        let why = host.error_of(ticket);
        assert!(
            why.code == ErrorCode::Invalid && why.message.starts_with(words),
            "{}",
            why.message
        );
    }
}

#[test]
fn what_lowers_holds_under_later_rules_and_against_set() {
    let mut host = Host::new(&[16]);
    let lowered = Lowered {
        most_mem: Some("1GiB".into()),
        ..Lowered::default()
    };
    let (ticket, _) = register(&mut host, 0, mem("4GiB"), (registration("abc"), lowered));
    let id = host.job_of(ticket).expect("admitted");
    with_rule(&mut host, Rule::default());
    assert_eq!(job(&host, id).devices[0].limit_bytes, Some(GIB));
    let set = |host: &mut Host, caller: Caller, is_forced: bool| {
        let ticket = Ticket(host.fresh());
        host.step(Event::Set {
            ticket,
            caller,
            target: query(&id.to_string()),
            change: Box::new(partage_policy::Change {
                mem: Some("2GiB".into()),
                is_forced,
                ..partage_policy::Change::default()
            }),
        });
        host.replies[&ticket].last().cloned()
    };
    let refused = set(&mut host, caller(0), false);
    assert!(matches!(refused, Some(Reply::Error(why)) if why.message.contains("annotation partage.dev/mem = 1GiB")));
    assert!(
        matches!(set(&mut host, inside(0, id), true), Some(Reply::Error(why)) if why.code == ErrorCode::NotAllowed)
    );
    assert_eq!(job(&host, id).devices[0].limit_bytes, Some(GIB));
    assert!(matches!(set(&mut host, caller(0), true), Some(Reply::Job(_))));
    assert_eq!(job(&host, id).devices[0].limit_bytes, Some(2 * GIB));
}

#[test]
fn rules_match_containers_and_labels_that_root_registered_alone() {
    let list = |text: &str| Some(vec![Pattern(text.into())]).filter(|_| !text.is_empty());
    for (container, label, is_met) in [
        ("web", "", true),
        ("0123456789ab", "", true),
        ("", "team=vision", true),
        ("", "team=other", false),
        ("*", "owner", false),
    ] {
        let matching = Match {
            container: list(container),
            label: list(label),
            ..Match::default()
        };
        let mut host = Host::new(&[16]);
        let max = Max {
            mem: Some(written(parse_amount("1GiB").expect("a size"), "1GiB")),
            ..Max::default()
        };
        let words = format!("{matching:?}");
        with_rule(
            &mut host,
            Rule {
                matching,
                max,
                ..Rule::default()
            },
        );
        let request = RunRequest {
            labels: vec![("team".into(), "vision".into())],
            ..RunRequest::default()
        };
        let by_root = registration("0123456789abcdef");
        let by_user = Registration {
            is_by_root: false,
            ..by_root.clone()
        };
        for (registration, is_met) in [(by_root, is_met), (by_user, false)] {
            let (ticket, process) = register(&mut host, 1, request.clone(), (registration, Lowered::default()));
            let id = host.job_of(ticket).expect("admitted");
            let limit = job(&host, id).devices[0].limit_bytes;
            assert_eq!(limit, is_met.then_some(GIB), "{words}");
            host.step(Event::ProcessGone(process));
        }
        let (id, _) = host.admitted(1, request);
        assert_eq!(
            job(&host, id).devices[0].limit_bytes,
            None,
            "a label of `run` matches nothing: {words}"
        );
    }
}

#[test]
fn from_inside_a_container_its_own_job_is_seen_and_nothing_changed() {
    let mut host = Host::new(&[16]);
    let (first, _) = register(&mut host, 0, mem("1GiB"), (registration("abc"), Lowered::default()));
    let (other, _) = register(&mut host, 0, mem("1GiB"), (registration("abd"), Lowered::default()));
    let (first, other) = (host.job_of(first).expect("one"), host.job_of(other).expect("another"));
    let tenant = inside(0, first);
    for id in [first, other] {
        let why = host
            .policy
            .resolve(&query(&id.to_string()), &tenant, Access::Change)
            .expect_err("refused")
            .view();
        assert_eq!(why.code, ErrorCode::NotAllowed);
        assert!(why.message.contains(&format!("inside {first}")), "{}", why.message);
    }
    let sees = |id| {
        host.policy
            .job_view(id, &tenant, &host.board)
            .expect("a job")
            .container
            .is_some()
    };
    assert!(sees(first) && !sees(other));
    // A `run` inside is of the job.
    let ticket = Ticket(host.fresh());
    let run = Run {
        ticket,
        caller: tenant,
        request: mem("8GiB"),
        token: [1; 32],
        cgroup: None,
        other_cgroups: Vec::new(),
        groups: Vec::new(),
        unix_ns: 7,
        registered: None,
    };
    host.step(Event::Run(Box::new(run)));
    let said = host.replies[&ticket].last();
    assert!(
        matches!(said, Some(Reply::Inside(view)) if view.job == first.to_string()),
        "{said:?}"
    );
    assert_eq!(host.policy.live_jobs(), 2);
}

#[test]
fn a_container_is_meant_by_the_beginning_of_its_id_or_its_name() {
    let mut host = Host::new(&[16]);
    let (first, _) = register(&mut host, 0, mem("1GiB"), (registration("abc1"), Lowered::default()));
    let unnamed = Registration {
        name: String::new(),
        ..registration("abc12")
    };
    let (other, _) = register(&mut host, 0, mem("1GiB"), (unnamed, Lowered::default()));
    let (first, other) = (host.job_of(first).expect("one"), host.job_of(other).expect("another"));
    let find = |text: &str| host.policy.resolve(&query(text), &caller(0), Access::Look);
    for (text, id) in [
        ("container:abc12", other),
        ("container:abc1", first),
        ("container:web", first),
    ] {
        assert_eq!(find(text), Ok(id), "{text}");
    }
    assert_eq!(
        find("container:abc").map_err(|why| why.view().code),
        Err(ErrorCode::Ambiguous)
    );
    for text in ["container:x", "container:"] {
        assert_eq!(
            find(text).map_err(|why| why.view().code),
            Err(ErrorCode::NoTarget),
            "{text}"
        );
    }
}

#[test]
fn a_process_of_another_uid_and_environment_is_of_the_job_that_owns_its_group() {
    let mut host = Host::new(&[16]);
    let (ticket, _) = register(&mut host, 0, mem("1GiB"), (registration("abc"), Lowered::default()));
    let id = host.job_of(ticket).expect("admitted");
    let membership = Membership {
        by_kernel: Some(id),
        token: Some([7; 32]),
        environment_limit: 8 * GIB,
        ..Membership::default()
    };
    let number = host.fresh();
    let process = Process {
        pid: number as u32,
        start: number,
    };
    let client = host.attach_as(process, 2, membership).expect("welcomed");
    assert_eq!(host.programs[&client].job, id);
    assert!(
        host.commands
            .iter()
            .any(|command| matches!(command, Action::Welcome { job, .. } if *job == id))
    );
}

#[test]
fn root_that_owns_nothing_looks_and_changes_nothing() {
    let mut host = Host::new(&[16]);
    let (id, _) = host.admitted(0, mem("1GiB"));
    let somewhere = Caller {
        is_admin: false,
        may_change_own: false,
        ..caller(0)
    };
    let target = query(&id.to_string());
    let refused = host.policy.resolve(&target, &somewhere, Access::Change);
    let refused = refused.expect_err("it may be root in any container").view();
    assert_eq!(refused.code, ErrorCode::NotAllowed);
    assert!(refused.message.contains("belongs to"), "{}", refused.message);
    assert_eq!(host.policy.resolve(&target, &somewhere, Access::Look), Ok(id));
    assert_eq!(host.policy.resolve(&target, &caller(0), Access::Change), Ok(id));
}
