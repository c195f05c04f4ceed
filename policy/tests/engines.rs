// SPDX-License-Identifier: Apache-2.0
//! Jobs that an engine such as Slurm registered: they live by a control group, are held down by `--at-most`, and are
//! called as the engine calls them.

mod at_most;

use std::collections::BTreeMap;

use partage_policy::{
    Access, Action, Caller, Cgroup, EngineJob, Event, Lowered, Process, Registration, Run, TargetQuery, Ticket,
};
use partage_protocol::admin::{Admitted, ErrorCode, Reply, RunRequest};
use partage_protocol::units::{GIB, JobId};
use proptest::prelude::*;

use crate::host::{Host, caller, mem};
use crate::limits::job;

/// What root registers of Slurm's job with this number.
fn slurm(number: u64) -> Registration {
    Registration {
        cgroup: Some(Cgroup {
            hierarchy: "freezer".into(),
            path: format!("/slurm_n1/uid_7/job_{number}"),
        }),
        is_by_root: true,
        engine: EngineJob {
            id: format!("slurm:{number}"),
            words: "shard:5 of 10".into(),
        },
        ..Registration::default()
    }
}

/// A process that nobody had before.
fn a_process(host: &mut Host) -> Process {
    let number = host.fresh();
    Process {
        pid: number as u32,
        start: number,
    }
}

/// `register` of a process by root, for a user.
fn register(host: &mut Host, uid: u32, process: Process, request: RunRequest, what: (Registration, Lowered)) -> Ticket {
    let ticket = Ticket(host.fresh());
    let run = Run {
        ticket,
        caller: Caller {
            process,
            is_admin: what.0.is_by_root,
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

fn plainly(host: &mut Host, process: Process, what: Registration) -> Ticket {
    register(host, 7, process, mem("1GiB"), (what, Lowered::default()))
}

fn admitted(host: &Host, ticket: Ticket) -> Admitted {
    match host.replies[&ticket].last() {
        Some(Reply::Admitted(admitted)) => admitted.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_lives_by_its_group_and_is_found_by_whoever_registers_the_group() {
    let mut host = Host::new(&[16]);
    let (first, second) = (a_process(&mut host), a_process(&mut host));
    let ticket = plainly(&mut host, first, slurm(1));
    let id = host.job_of(ticket).expect("admitted");
    // The next step, which says other numbers: they change nothing.
    let again = register(&mut host, 7, second, mem("9GiB"), (slurm(1), Lowered::default()));
    assert_eq!((host.job_of(again), admitted(&host, again).pid), (Some(id), first.pid));
    assert_eq!(job(&host, id).devices[0].limit_bytes, Some(GIB));
    host.step(Event::Exited {
        process: first,
        code: 3,
    });
    let actions = host.step(Event::Follows {
        job: id,
        process: second,
    });
    host.step(Event::ProcessGone(first));
    assert_eq!((host.policy.live_jobs(), job(&host, id).pid), (1, second.pid));
    let is_watched = |action: &Action| matches!(action, Action::Watch { process, .. } if *process == second);
    let is_kept = |action: &Action| matches!(action, Action::SaveJob(record) if record.first == Some(second));
    assert!(
        actions.iter().any(is_watched) && actions.iter().any(is_kept),
        "{actions:?}"
    );
    // So it is for the next broker.
    let records = host.records();
    host.restart(records);
    host.measure();
    let third = a_process(&mut host);
    let again = plainly(&mut host, third, slurm(1));
    assert_eq!((host.job_of(again), admitted(&host, again).pid), (Some(id), second.pid));
    host.step(Event::Follows {
        job: id,
        process: third,
    });
    host.step(Event::ProcessGone(second));
    host.step(Event::Exited {
        process: third,
        code: 137,
    });
    host.step(Event::ProcessGone(third));
    assert_eq!(
        host.policy.live_jobs(),
        0,
        "the group is empty, and nothing is waited for"
    );
    let view = job(&host, id);
    assert_eq!(view.end_reason.as_deref(), Some("its last process is gone"));
    let next = plainly(&mut host, third, slurm(1));
    assert!(
        host.job_of(next).is_some_and(|next| next != id),
        "an empty group is no job"
    );
}

#[test]
fn the_first_ones_exit_code_stands() {
    let mut host = Host::new(&[16]);
    let (first, second) = (a_process(&mut host), a_process(&mut host));
    let ticket = plainly(&mut host, first, slurm(1));
    let id = host.job_of(ticket).expect("admitted");
    host.step(Event::Exited {
        process: first,
        code: 3,
    });
    host.step(Event::Follows {
        job: id,
        process: second,
    });
    host.step(Event::ProcessGone(first));
    host.step(Event::Exited {
        process: second,
        code: 137,
    });
    host.step(Event::ProcessGone(second));
    assert_eq!(job(&host, id).exit_code, Some(3));
}

#[test]
fn a_registration_during_the_end_of_the_last_client_takes_the_job_over() {
    let mut host = Host::new(&[16]);
    let (first, next) = (a_process(&mut host), a_process(&mut host));
    let ticket = plainly(&mut host, first, slurm(1));
    let id = host.job_of(ticket).expect("admitted");
    let member = a_process(&mut host);
    let client = host.attach(id, member);
    host.step(Event::ProcessGone(first));
    host.step(Event::ClientDying(client));
    let again = plainly(&mut host, next, slurm(1));
    assert_eq!(host.job_of(again), Some(id));
    host.step(Event::ClientGone(client));
    assert_eq!((host.policy.live_jobs(), job(&host, id).pid), (1, next.pid));
    host.step(Event::ProcessGone(next));
    assert_eq!(host.policy.live_jobs(), 0);
}

#[test]
fn a_containers_group_and_another_ones_registration_are_jobs_of_their_own() {
    let mut host = Host::new(&[16]);
    let container = Registration {
        container: "0123".into(),
        ..slurm(1)
    };
    let own = Registration {
        is_by_root: false,
        ..slurm(1)
    };
    let mut found = Vec::new();
    for (uid, what) in [
        (7, container.clone()),
        (7, container),
        (7, own.clone()),
        (8, own.clone()),
        (7, slurm(1)),
        // These two are there.
        (7, own),
        (9, slurm(1)),
    ] {
        let process = a_process(&mut host);
        let ticket = register(&mut host, uid, process, mem("1GiB"), (what, Lowered::default()));
        found.push(host.job_of(ticket).expect("admitted"));
    }
    assert_eq!((found[5], found[6]), (found[2], found[4]), "{found:?}");
    assert_eq!(host.policy.live_jobs(), 5);
}

/// Root of the host.
fn admin() -> Caller {
    Caller {
        is_admin: true,
        ..caller(0)
    }
}

fn query(text: &str) -> TargetQuery {
    TargetQuery {
        text: text.into(),
        descends_from: None,
    }
}

#[test]
fn an_engines_job_is_meant_by_what_the_engine_calls_it() {
    let mut host = Host::new(&[16]);
    let mut ids = Vec::new();
    for (uid, number, is_by_root) in [(7, 4711, true), (8, 4712, false), (8, 4711, false)] {
        let process = a_process(&mut host);
        let what = Registration {
            is_by_root,
            ..slurm(number)
        };
        let ticket = register(&mut host, uid, process, mem("1GiB"), (what, Lowered::default()));
        ids.push(host.job_of(ticket).expect("admitted"));
    }
    let find = |text: &str| host.policy.resolve(&query(text), &admin(), Access::Change);
    assert_eq!(find("slurm:4711"), Ok(ids[0]), "what a user calls so hides nothing");
    assert_eq!(find("slurm:4712"), Ok(ids[1]));
    for text in ["slurm:471", "ray:4711", "slurm:47110"] {
        let why = find(text).expect_err("no such job").view();
        assert_eq!(why.code, ErrorCode::NoTarget, "{text}");
    }
    let engine = |uid| {
        host.policy
            .job_view(ids[0], &caller(uid), &host.board)
            .expect("a job")
            .engine
    };
    let shown = engine(7).expect("its owner's");
    assert_eq!(
        (shown.id.as_str(), shown.words.as_deref()),
        ("slurm:4711", Some("shard:5 of 10"))
    );
    assert_eq!(engine(9), None, "a stranger's");
}

/// What happens to the processes of two groups.
#[derive(Clone, Debug)]
enum Act {
    /// A process comes into the group and is registered, or not.
    Enter(u64, bool),
    /// One of the processes ends.
    Leave(usize),
    /// Another broker begins.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..2u64, any::<bool>()).prop_map(|(group, is_registered)| Act::Enter(group, is_registered)),
        4 => any::<prop::sample::Index>().prop_map(|index| Act::Leave(index.index(1 << 16))),
        1 => Just(Act::Restart),
    ]
}

/// What the broker tells when a process has ended: which of its group is left and comes first.
fn leave(
    host: &mut Host,
    left: &BTreeMap<Process, u64>,
    (process, group): (Process, u64),
    known: &mut [Option<JobId>],
) {
    let Some(id) = known[group as usize] else { return };
    if job(host, id).pid != process.pid {
        return;
    }
    match left.iter().find(|(_, other)| **other == group) {
        Some((next, _)) => drop(host.step(Event::Follows {
            job: id,
            process: *next,
        })),
        None => known[group as usize] = None,
    }
    host.step(Event::ProcessGone(process));
}

proptest! {
    #[test]
    fn a_group_with_processes_is_one_job_from_its_registration_to_its_last_process(
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let mut host = Host::new(&[16]);
        let mut left: BTreeMap<Process, u64> = BTreeMap::new();
        let mut known = [None, None];
        for act in acts {
            match act {
                Act::Enter(group, is_registered) => {
                    let process = a_process(&mut host);
                    left.insert(process, group);
                    if is_registered {
                        let ticket = plainly(&mut host, process, slurm(group));
                        let id = host.job_of(ticket).expect("there is room for two");
                        let place = &mut known[group as usize];
                        prop_assert!(place.is_none_or(|before| before == id), "{place:?}, then {id}");
                        *place = Some(id);
                    }
                }
                Act::Leave(_) if left.is_empty() => {}
                Act::Leave(index) => {
                    let ended = left.keys().nth(index % left.len()).copied().expect("one");
                    let group = left.remove(&ended).expect("it was there");
                    leave(&mut host, &left, (ended, group), &mut known);
                }
                Act::Restart => {
                    let records = host.records();
                    host.restart(records);
                    host.measure();
                }
            }
            prop_assert_eq!(host.policy.live_jobs(), known.iter().flatten().count());
        }
    }
}
