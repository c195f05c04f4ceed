// SPDX-License-Identifier: Apache-2.0
//! Whom a rule's class is for, of processes without `run`: those in one login scope or container, one user's, or each.

use crate::host::{Host, caller};
use crate::rules_in_use::{at_most, gib, host as ruled_host, reload, set, to_mem, view, written};
use crate::totals::held;
use partage_policy::{Change, Config, Event, Membership, Per, Preset, Process, Rule, Rules, TargetQuery, Total};
use partage_protocol::admin::{ErrorCode, Reply, TermsChange};
use partage_protocol::units::{ClientId, GIB, JobId};

/// A class of 4 GiB, half of the time promised and half of it at most, for processes without `run`.
fn small(per: Per) -> Rules {
    let small = Preset {
        name: "small".into(),
        mem: Some(gib(4)),
        compute_promise: Some(written(300_000, "30%", 13)),
        compute_max: Some(written(500_000, "50%", 14)),
        ..Preset::default()
    };
    Rules {
        presets: [("small".to_owned(), small)].into(),
        rules: vec![Rule {
            name: "students".into(),
            preset: Some("small".into()),
            per,
            ..Rule::default()
        }],
    }
}

/// Where a process comes from.
#[derive(Clone, Default)]
struct From {
    scope: &'static str,
    variables: &'static [(&'static str, &'static str)],
    by_kernel: Option<JobId>,
}

fn scope(scope: &'static str) -> From {
    From {
        scope,
        ..From::default()
    }
}

fn try_bare(host: &mut Host, uid: u32, from: From) -> Option<(ClientId, JobId)> {
    let number = host.fresh();
    let process = Process {
        pid: number as u32,
        start: number,
    };
    let environment = from.variables.iter();
    let membership = Membership {
        scope: from.scope.into(),
        cgroup: from.scope.into(),
        by_kernel: from.by_kernel,
        environment: environment
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        ..Membership::default()
    };
    let client = host.attach_as(process, uid, membership)?;
    Some((client, host.programs[&client].job))
}

fn bare(host: &mut Host, uid: u32, from: From) -> (ClientId, JobId) {
    try_bare(host, uid, from).expect("welcomed")
}

/// Takes GiB after GiB until nobody gets any more; answers what all have together.
fn fill(host: &mut Host, clients: &[ClientId]) -> u64 {
    while clients
        .iter()
        .fold(false, |any, client| any | host.allocate(*client, 0, GIB))
    {}
    clients.iter().map(|client| host.used(*client, 0)).sum::<u64>() / GIB
}

fn why(host: &Host, job: JobId) -> String {
    let target = TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    match host.policy.why(&caller(0), &target, host.now_ns, &host.board) {
        Ok(Reply::Why(why)) => format!("{}\n{:?}", why.sentences.join("\n"), why.denials),
        other => panic!("{other:?}"),
    }
}

const LARGER: &[(&str, &str)] = &[
    ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "90"),
];
const LESS: &[(&str, &str)] = &[
    ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "20"),
];

#[test]
fn environments_and_uids_of_a_scope_share_its_class() {
    let mut host = ruled_host(small(Per::Scope));
    let (plain, one) = bare(&mut host, 1, scope("/s1"));
    let (larger, two) = bare(
        &mut host,
        1,
        From {
            variables: LARGER,
            ..scope("/s1")
        },
    );
    let (other, three) = bare(&mut host, 2, scope("/s1"));
    assert!(one != two && two != three, "an environment and a uid have a job each");
    assert_eq!(view(&host, two).devices[0].limit_bytes, Some(4 * GIB));
    assert_eq!(
        view(&host, two).devices[0].limit_from,
        "rule students, class small.mem = 4GiB (/etc/partage/partage.toml:12), below CUDA_DEVICE_MEMORY_LIMIT=8g"
    );
    assert_eq!(view(&host, two).terms.cap, Some(0.5), "a variable only lowers");
    assert_eq!(fill(&mut host, &[plain, larger, other]), 4);
    assert!(held(&host, &[plain, larger, other]) <= 4 * GIB);
    let text = why(&host, one);
    let total = "rule students, class small.mem = 4GiB per scope (/etc/partage/partage.toml:12)";
    assert!(
        text.contains(total) && text.contains("reason: \"rule students\""),
        "{text}"
    );
    let (second, four) = bare(&mut host, 1, scope("/s2"));
    assert!(
        four != one && fill(&mut host, &[second]) == 4,
        "another scope has its own"
    );
    let (less, five) = bare(
        &mut host,
        1,
        From {
            variables: LESS,
            ..scope("/s3")
        },
    );
    assert_eq!((fill(&mut host, &[less]), view(&host, five).terms.cap), (1, Some(0.2)));
}

#[test]
fn scopes_of_a_user_share_a_class_for_each_user() {
    let mut host = ruled_host(small(Per::User));
    let (first, one) = bare(&mut host, 1, scope("/s1"));
    let (second, two) = bare(&mut host, 1, scope("/s2"));
    let (larger, three) = bare(
        &mut host,
        1,
        From {
            variables: LARGER,
            ..scope("/s3")
        },
    );
    assert!(one == two && three != one);
    assert_eq!(fill(&mut host, &[first, second, larger]), 4);
    let (other, _) = bare(&mut host, 2, scope("/s1"));
    assert_eq!(fill(&mut host, &[other]), 4, "another user has it, too");
    let total = "class small.mem = 4GiB per user (/etc/partage/partage.toml:12)";
    assert!(why(&host, three).contains(total), "{}", why(&host, three));
    let lines = small(Per::User).lines(None);
    assert!(lines[1].contains("everybody; class small per user"), "{lines:?}");
}

#[test]
fn each_process_with_its_descendants_has_a_class_for_each_process() {
    let mut rules = small(Per::Process);
    rules.rules[0].each_user = Total {
        mem: Some(gib(10)),
        jobs: Some(written(3, "3", 8)),
        ..Total::default()
    };
    let mut host = ruled_host(rules);
    let ((first, one), (second, two)) = (bare(&mut host, 1, scope("/s")), bare(&mut host, 1, scope("/s")));
    assert_ne!(one, two, "each is a job of its own, and so are its terms of time");
    let (child, of_one) = bare(
        &mut host,
        1,
        From {
            by_kernel: Some(one),
            ..scope("/s")
        },
    );
    assert_eq!(of_one, one);
    assert_eq!((fill(&mut host, &[first, child]), fill(&mut host, &[second])), (4, 4));
    let (larger, three) = bare(
        &mut host,
        1,
        From {
            variables: LARGER,
            ..scope("/s")
        },
    );
    assert_eq!(
        view(&host, three).devices[0].limit_bytes,
        Some(4 * GIB),
        "its environment only lowers"
    );
    assert_eq!(fill(&mut host, &[larger]), 2, "each_user bounds them all");
    assert!(try_bare(&mut host, 1, scope("/s")).is_none(), "and counts them");
    host.kill(first);
    let (grandchild, of_one) = bare(
        &mut host,
        1,
        From {
            by_kernel: Some(one),
            ..scope("/s")
        },
    );
    assert!(
        of_one == one && !host.allocate(grandchild, 0, 4 * GIB),
        "while any of it lives it is one job"
    );
}

#[test]
fn jobs_of_run_are_beside_the_class_of_processes_without_it() {
    let mut host = ruled_host(small(Per::User));
    let (job, first) = host.admitted(1, crate::host::mem("6GiB"));
    let client = host.attach(job, first);
    let (other, _) = bare(&mut host, 1, scope("/s"));
    assert!(
        host.allocate(client, 0, 6 * GIB),
        "numbers to start from: an option says more"
    );
    assert_eq!(fill(&mut host, &[other]), 4);
}

#[test]
fn set_takes_no_job_beyond_what_its_scope_has_together() {
    let mut host = ruled_host(small(Per::Scope));
    let (_, one) = bare(&mut host, 1, scope("/s"));
    let (_, two) = bare(
        &mut host,
        1,
        From {
            variables: LESS,
            ..scope("/s")
        },
    );
    let error = set(&mut host, 1, one, to_mem("6GiB", false)).expect_err("above the class");
    assert_eq!(error.code, ErrorCode::NotAllowed);
    assert!(
        error.message.contains("the rule students, class small.mem = 4GiB ("),
        "{error:?}"
    );
    let promise = |part: &str| Change {
        terms: TermsChange {
            compute: Some(part.into()),
            ..TermsChange::default()
        },
        ..Change::default()
    };
    set(&mut host, 1, one, promise("20%")).expect("within");
    let error = set(&mut host, 1, two, promise("15%")).expect_err("20 % of 30 % are promised");
    assert_eq!(error.code, ErrorCode::NoRoom);
    let left = "class small.compute = 30% per scope (/etc/partage/partage.toml:13) leaves 10 % of the time";
    assert!(error.message.contains(left), "{error:?}");
    set(&mut host, 1, two, promise("10%")).expect("what is left");
    let error = set(&mut host, 1, two, promise("40%")).expect_err("above all of it");
    assert_eq!(error.code, ErrorCode::NotAllowed);
}

#[test]
fn a_reload_of_per_takes_nothing_lets_nothing_grow_and_puts_who_comes_where_it_says() {
    let mut host = ruled_host(small(Per::Process));
    let ((a, one), (b, two)) = (bare(&mut host, 1, scope("/s")), bare(&mut host, 1, scope("/t")));
    assert_eq!(fill(&mut host, &[a, b]), 8);
    reload(&mut host, small(Per::User));
    assert_eq!((host.used(a, 0), host.used(b, 0)), (4 * GIB, 4 * GIB), "nothing ends");
    host.free(a, 0, 2 * GIB);
    host.measure();
    assert!(!host.allocate(a, 0, GIB) && !host.allocate(b, 0, GIB), "6 of 4 GiB");
    let (c, there) = bare(&mut host, 1, scope("/t"));
    assert_eq!(there, two, "the user's jobs, the one of its scope before others");
    host.free(b, 0, 4 * GIB);
    host.measure();
    assert_eq!(fill(&mut host, &[a, b, c]), 4);
    reload(&mut host, small(Per::Scope));
    assert_eq!(fill(&mut host, &[a, b, c]), 8, "a scope has its own again");
    let (_, there) = bare(&mut host, 1, scope("/s"));
    assert_eq!(there, one);
    reload(&mut host, small(Per::Process));
    let (d, new) = bare(&mut host, 1, scope("/s"));
    assert!(new != one && new != two && fill(&mut host, &[d]) == 4);
}

#[test]
fn the_next_broker_has_the_same_totals_and_puts_who_comes_to_the_same_jobs() {
    for (per, most, joins) in [(Per::Scope, 8, true), (Per::User, 4, true), (Per::Process, 12, false)] {
        let mut host = ruled_host(small(per));
        let clients = [
            bare(&mut host, 1, scope("/s")),
            bare(
                &mut host,
                1,
                From {
                    variables: LARGER,
                    ..scope("/s")
                },
            ),
            bare(&mut host, 1, scope("/t")),
        ];
        let (ids, jobs) = (clients.map(|(client, _)| client), clients.map(|(_, job)| job));
        assert_eq!(fill(&mut host, &ids), most, "{per:?}");
        let config = Config {
            is_private: false,
            rules: small(per),
            ..Config::default()
        };
        let records = host.records();
        host.restart_with(config, records);
        for client in ids {
            host.board.lost.retain(|lost| *lost != client);
            let process = host.programs[&client].process;
            host.step(Event::Reattach {
                client,
                process,
                are_pages_lost: false,
            });
        }
        host.measure();
        assert!(held(&host, &ids) <= most * GIB, "{per:?}");
        assert_eq!(fill(&mut host, &ids), most, "{per:?}: nothing more");
        let (_, there) = bare(&mut host, 1, scope("/s"));
        assert_eq!(there == jobs[0], joins, "{per:?}");
        let (_, child) = bare(
            &mut host,
            1,
            From {
                by_kernel: Some(jobs[1]),
                ..scope("/s")
            },
        );
        assert_eq!(child, jobs[1], "{per:?}: a descendant");
    }
}

#[test]
fn a_max_is_of_each_job_and_a_class_beyond_it_is_lowered_to_it() {
    let mut rules = small(Per::Scope);
    rules.rules.extend(at_most(2, None).rules);
    let mut host = ruled_host(rules);
    let (one, _) = bare(&mut host, 1, scope("/s"));
    let (two, _) = bare(
        &mut host,
        1,
        From {
            variables: LARGER,
            ..scope("/s")
        },
    );
    let (three, _) = bare(&mut host, 2, scope("/s"));
    assert_eq!(fill(&mut host, &[one]), 2);
    assert_eq!(
        fill(&mut host, &[one, two, three]),
        4,
        "and the scope has what its class says"
    );
}
