// SPDX-License-Identifier: Apache-2.0
//! Request and limit, overcommitted devices, other tools' variables, denials and their explanation, ended jobs.

use crate::host::{Host, broker_view, caller, mem};
use partage_policy::{Action, Config, Event, Membership, Policy, Process, TargetQuery};
use partage_protocol::admin::{DenialView, ErrorCode, JobView, Reply, RunRequest, WhyView};
use partage_protocol::message::{NOTICE_NO_BROKER, NOTICE_RECOVERED};
use partage_protocol::units::{GIB, MIB, SECOND_NS};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn with_request(limit: &str, request: &str) -> RunRequest {
    RunRequest {
        mem_request: Some(request.into()),
        ..mem(limit)
    }
}

pub fn with_aliases(variables: &[(&str, &str)]) -> RunRequest {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    RunRequest {
        aliases: variables.iter().map(text).collect(),
        ..mem("")
    }
}

pub fn by_environment(variables: &[(&str, &str)]) -> Membership {
    Membership {
        scope: "session-1".into(),
        environment: with_aliases(variables).aliases,
        ..Membership::default()
    }
}

/// A host whose broker is configured otherwise.
pub fn configured(gib: &[u64], config: Config) -> Host {
    let mut host = Host::new(gib);
    host.policy = Policy::new(config);
    host.enumerate();
    host.measure();
    host
}

fn overcommitting(gib: u64, millionths: u64) -> Host {
    let config = Config {
        overcommit_millionths: millionths,
        ..Config::default()
    };
    let mut host = configured(&[gib], config);
    // Grants stay within the device, but a promise beyond it is not kept; `check` is about promises that are.
    host.is_overcommitted = true;
    host
}

pub fn job(host: &Host, id: partage_protocol::units::JobId) -> JobView {
    host.policy.job_view(id, &caller(0), &host.board).expect("known")
}

pub fn why(host: &Host, uid: u32, target: &str) -> WhyView {
    let query = TargetQuery {
        text: target.into(),
        descends_from: None,
    };
    match host.policy.why(&caller(uid), &query, host.now_ns, &host.board) {
        Ok(Reply::Why(view)) => view,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn says(view: &WhyView, part: &str) {
    assert!(
        view.sentences.iter().any(|text| text.contains(part)),
        "{part:?}: {:#?}",
        view.sentences
    );
}

#[test]
fn a_job_grows_beyond_its_request_into_what_is_neither_promised_nor_used() {
    let mut host = Host::new(&[16]);
    let (small, process) = host.admitted(1, with_request("12GiB", "4GiB"));
    let client = host.attach(small, process);
    let (other, other_process) = host.admitted(2, mem("8GiB"));
    let other_client = host.attach(other, other_process);
    assert!(host.allocate(client, 0, 8 * GIB), "4 promised and 4 that nobody has");
    assert!(!host.allocate(client, 0, GIB), "the rest is promised to the other");
    assert!(host.allocate(other_client, 0, 8 * GIB), "and the promise holds");
    let view = job(&host, small);
    assert_eq!((view.denied.limit, view.denied.card_full), (0, 1));
    assert_eq!(view.devices[0].denied.card_full, 1);
    let text = why(&host, 1, "j1");
    says(&text, "within the limit (8 GiB in use of 12 GiB)");
    says(&text, "held by j2 (bob) 8 GiB");
    says(
        &text,
        "limit 12 GiB by --mem 12GiB, promised 4 GiB by --mem-request 4GiB",
    );
}

#[test]
fn admission_counts_requests_and_a_request_is_at_most_the_limit() {
    let mut host = Host::new(&[16]);
    for _ in 0..4 {
        host.admitted(1, with_request("16GiB", "4GiB"));
    }
    let (ticket, _) = host.run(1, with_request("16GiB", "1GiB"));
    assert!(host.is_waiting(ticket));
    let (ticket, _) = host.run(1, with_request("2GiB", "25%"));
    assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid);
}

#[test]
fn set_changes_limit_and_request_live_and_lowering_kills_nothing() {
    let mut host = Host::new(&[16]);
    let (id, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(id, process);
    assert!(host.allocate(client, 0, 6 * GIB));
    host.is_excused = true;
    let numbers = |reply: &Reply| match reply {
        Reply::Job(view) => (
            view.devices[0].limit_bytes,
            view.devices[0].request_bytes,
            view.state.clone(),
        ),
        other => panic!("{other:?}"),
    };
    let reply = host.change(1, "j1", (None, Some("2GiB")));
    assert_eq!(numbers(&reply), (Some(8 * GIB), 2 * GIB, "running".into()));
    let reply = host.change(1, "j1", (Some("4GiB"), None));
    assert_eq!(numbers(&reply), (Some(4 * GIB), 2 * GIB, "over limit".into()));
    assert!(!host.allocate(client, 0, 1));
    let text = why(&host, 1, "j1");
    assert!(
        text.sentences[0].contains("over its limit on GPU 0: 6 GiB in use, limit 4 GiB"),
        "worst first"
    );
    says(
        &text,
        "limit 4 GiB by partage set mem=4GiB by alice, promised 2 GiB by partage set mem-request=2GiB by alice",
    );
    host.free(client, 0, 3 * GIB);
    host.measure();
    assert_eq!(host.state_of(id), "running");
    assert!(host.allocate(client, 0, GIB) && !host.allocate(client, 0, 1));
    let reply = host.change(1, "j1", (Some("10GiB"), Some("10GiB")));
    assert_eq!(numbers(&reply), (Some(10 * GIB), 10 * GIB, "running".into()));
    for (mem, request) in [
        (None, Some("11GiB")),
        (Some("9GiB"), Some("10GiB")),
        (None, None),
        (None, Some("8")),
    ] {
        let Reply::Error(error) = host.change(1, "j1", (mem, request)) else {
            panic!("{mem:?} {request:?}")
        };
        assert_eq!(error.code, ErrorCode::Invalid, "{error:?}");
    }
    assert_eq!(
        job(&host, id).devices[0].limit_bytes,
        Some(10 * GIB),
        "nothing was changed"
    );
    let Reply::Error(error) = host.change(1, "j1", (Some("16GiB"), Some("17GiB"))) else {
        panic!("too much")
    };
    assert_eq!(error.code, ErrorCode::Impossible);
}

#[test]
fn overcommit_admits_more_than_there_is_and_says_what_then_happens() {
    let mut host = overcommitting(10, 1_300_000);
    let (first, process) = host.admitted(1, mem("8GiB"));
    let one = host.attach(first, process);
    let (second, process) = host.admitted(2, mem("5GiB"));
    let two = host.attach(second, process);
    let (third, _) = host.run(1, mem("1GiB"));
    assert!(host.is_waiting(third), "130 % are promised");
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    let device = &status.devices[0];
    assert_eq!((device.promised_bytes, device.usable_bytes), (13 * GIB, 10 * GIB));
    assert_eq!(
        device.notes,
        [
            "promises on GPU 0 add up to 130 % of its memory: allocations within a job's limit may be denied as card \
             full"
        ]
    );
    let said = host.replies.values().flatten().find_map(|reply| match reply {
        Reply::Admitted(admitted) if admitted.job == second.to_string() => Some(admitted.notes.clone()),
        _ => None,
    });
    assert_eq!(said.as_ref(), Some(&device.notes));
    // The first may have what the second does not use, but not the second's part of what is there (5 / 13 of 10).
    assert!(host.allocate(one, 0, 6 * GIB));
    assert!(!host.allocate(one, 0, GIB));
    assert_eq!(job(&host, first).denied.card_full, 1, "within its limit");
    assert!(host.allocate(two, 0, 3 * GIB + 512 * MIB));
    assert!(!host.allocate(two, 0, GIB));
    let used = host.used(one, 0) + host.used(two, 0);
    assert!(used <= 10 * GIB);
    says(&why(&host, 2, "j2"), "add up to 130 %");
}

#[test]
fn what_was_used_before_the_overcommit_comes_back_when_it_is_freed() {
    let mut host = overcommitting(10, 1_500_000);
    let (first, process) = host.admitted(1, mem("10GiB"));
    let one = host.attach(first, process);
    assert!(host.allocate(one, 0, 10 * GIB));
    let (second, process) = host.admitted(2, mem("5GiB"));
    let two = host.attach(second, process);
    assert!(!host.allocate(two, 0, 1), "the card is full");
    assert_eq!(job(&host, second).denied.card_full, 1);
    assert_eq!(host.state_of(first), "running", "it is within its limit");
    host.free(one, 0, 4 * GIB);
    host.measure();
    assert!(host.allocate(two, 0, 3 * GIB));
    assert!(!host.allocate(one, 0, 2 * GIB), "the second's part stays its own");
    host.kill(two);
    host.measure();
    host.pass(6 * SECOND_NS);
    host.step(Event::ProcessGone(process));
    host.pass(6 * SECOND_NS);
    assert!(host.allocate(one, 0, 4 * GIB), "nothing is overcommitted any more");
}

/// A seed that is printed (with a failure, as all output of a test), or the one that is asked for.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    }
    println!("replay with PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

proptest! {
    #![proptest_config(config())]

    /// Whatever overcommitted jobs do, what is granted to them is on the card, and what each is promised is at most its
    /// limit.
    #[test]
    fn overcommitted_grants_stay_within_the_card(
        ratio in 1_000_001..3_000_000u64,
        sizes in prop::collection::vec(1..10_000u64, 1..6),
        acts in prop::collection::vec((0..6usize, 1..4_000u64, any::<bool>()), 1..60),
    ) {
        let mut host = overcommitting(10, ratio);
        let mut clients = Vec::new();
        for size in &sizes {
            let (ticket, process) = host.run(1, mem(&format!("{size}MiB")));
            if let Some(job) = host.job_of(ticket) {
                clients.push(host.attach(job, process));
            }
        }
        for (at, mib, is_free) in acts {
            let Some(client) = clients.get(at % clients.len().max(1)) else { break };
            if is_free {
                host.free(*client, 0, host.used(*client, 0));
                host.measure();
            } else {
                host.allocate(*client, 0, mib * MIB);
            }
            let used: u64 = clients.iter().map(|client| host.used(*client, 0)).sum();
            let granted: u64 = clients.iter().map(|client| host.board.value(*client, 0, 0)).sum();
            prop_assert!(used <= granted && granted <= 10 * GIB, "{used} used, {granted} granted");
        }
        let view = host.policy.status(broker_view(), host.now_ns, &host.board).devices.remove(0);
        prop_assert!(u128::from(view.promised_bytes) <= u128::from(view.usable_bytes) * u128::from(ratio) / 1_000_000);
        prop_assert_eq!(view.promised_bytes > view.usable_bytes, !view.notes.is_empty());
    }
}

#[test]
fn denials_are_counted_by_reason_and_the_last_is_explained() {
    let mut host = Host::new(&[16]);
    host.policy.set_clock(host.now_ns, 1_000 * SECOND_NS);
    let (id, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(id, process);
    assert!(host.allocate(client, 0, 6 * GIB));
    for _ in 0..3 {
        assert!(!host.allocate(client, 0, 3 * GIB));
    }
    host.pass(12 * SECOND_NS);
    let text = why(&host, 1, "j1");
    says(&text, "3 GiB was denied on GPU 0 12s ago");
    says(
        &text,
        "with the 6 GiB in use it is more than the limit of 8 GiB; raise it with: partage set j1 mem=9GiB",
    );
    says(&text, "denied on GPU 0 so far: 3 by the limit");
    let DenialView {
        asked_bytes,
        reason,
        time_ns,
        ..
    } = &text.denials[0];
    assert_eq!(
        (*asked_bytes, reason.as_str(), *time_ns),
        (3 * GIB, "limit", 1_000 * SECOND_NS)
    );
    host.step(Event::Notice {
        client,
        what: NOTICE_NO_BROKER,
        slot: 0,
        value: 5,
    });
    let view = job(&host, id);
    assert_eq!((view.denied.limit, view.denied.no_broker), (3, 5));
    says(&why(&host, 1, "j1"), "an allocation was denied on GPU 0 0ms ago");
    assert!(!host.allocate(client, 0, 64 * GIB));
    says(&why(&host, 1, "j1"), "GPU 0 has 16 GiB in all");
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.devices[0].denied.limit, 4);
    let others = why(&host, 2, "j1");
    assert_eq!(others.sentences.len(), 1);
    assert!(others.denials.is_empty() && others.sentences[0].contains("belongs to alice"));
}

#[test]
fn what_a_program_recovered_from_is_no_failure() {
    let mut host = Host::new(&[16]);
    let (id, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(id, process);
    let recovered = |value| Event::Notice {
        client,
        what: NOTICE_RECOVERED,
        slot: 0,
        value,
    };
    host.step(recovered(7));
    assert!(host.allocate(client, 0, 6 * GIB) && !host.allocate(client, 0, 3 * GIB));
    assert!(!host.allocate(client, 0, 4 * GIB));
    host.step(recovered(1));
    let denied = job(&host, id).denied;
    assert_eq!((denied.limit, denied.recovered, denied.failed()), (2, 1, 1));
    let text = why(&host, 1, "j1");
    says(&text, "3 GiB was denied on GPU 0 0ms ago");
    says(
        &text,
        "denied on GPU 0 so far: 2 by the limit, 1 of them recovered from",
    );
    assert_eq!((text.denials.len(), text.denials[0].asked_bytes), (1, 3 * GIB));
    host.step(recovered(1));
    let text = why(&host, 1, "j1");
    says(&text, "it was short of memory on GPU 0 2 times and got some after that");
    let all = text.sentences.join(" ");
    assert!(
        text.denials.is_empty() && !all.contains("raise") && !all.contains("denied"),
        "{all}"
    );
    let other = host.attach(id, Process { pid: 77, start: 1 });
    assert!(!host.allocate(other, 0, 5 * GIB) && !host.allocate(client, 0, 4 * GIB));
    host.step(recovered(1));
    let text = why(&host, 1, "j1");
    says(&text, "5 GiB was denied on GPU 0 0ms ago (pid 77)");
    assert_eq!(text.job.denied.failed(), 1);
    host.kill(client);
    host.kill(other);
    host.step(Event::ProcessGone(process));
    let text = why(&host, 1, "j1");
    assert!(
        text.sentences.iter().any(|line| line.ends_with("denied once")),
        "{text:#?}"
    );
}

#[test]
fn a_waiting_job_learns_for_whom_and_a_calm_one_that_all_is_well() {
    let mut host = Host::new(&[16]);
    let named = RunRequest {
        name: Some("big".into()),
        ..mem("12GiB")
    };
    host.admitted(1, named);
    host.run(1, mem("8GiB"));
    host.run(2, mem("1GiB"));
    host.pass(SECOND_NS);
    let text = why(&host, 1, "j2");
    assert!(text.sentences[0].contains("place 1 in the queue"), "{text:#?}");
    says(&text, "held by j1 (alice/big) 12 GiB on GPU 0");
    let text = why(&host, 2, "j3");
    says(&text, "goes to j2 first, which asked earlier");
    assert!(!format!("{text:?}").contains("big"), "alice's names are hers");
    says(&why(&host, 1, "j1"), "runs within its limits, and nothing was denied");
}

#[test]
fn a_job_that_ended_is_advised_for_its_next_run_and_sets_nothing() {
    let mut host = Host::new(&[16]);
    let (id, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(id, process);
    assert!(host.allocate(client, 0, 6 * GIB) && !host.allocate(client, 0, 3 * GIB));
    let once = "; denied once so far";
    let first =
        |action: &Action| matches!(action, Action::Publish { kind: "denied", text, .. } if text.ends_with(once));
    assert!(host.commands.iter().any(first), "{:#?}", host.commands);
    let denied = host.commands.iter().find_map(|command| match command {
        Action::Publish {
            kind: "denied",
            numbers,
            ..
        } => Some(numbers.view(&host.policy)),
        _ => None,
    });
    let denied = denied.expect("published");
    let bytes = (denied.asked_bytes, denied.limit_bytes, denied.used_bytes);
    assert_eq!(bytes, (Some(3 * GIB), Some(8 * GIB), Some(6 * GIB)));
    assert_eq!((denied.gpu, denied.denied), (Some(0), Some(1)));
    says(&why(&host, 1, "j1"), "raise it with: partage set j1 mem=9GiB");
    host.kill(client);
    host.step(Event::ProcessGone(process));
    // It lingers, and then it does not.
    for wait in [0, 6 * SECOND_NS] {
        host.pass(wait);
        let text = why(&host, 1, "j1");
        assert_eq!(text.job.state, "ended");
        says(&text, "limit of 8 GiB; start the next one with: partage run -m 9GiB");
        assert!(!format!("{text:?}").contains("partage set"), "{text:#?}");
    }
}

#[test]
fn a_stopped_job_is_said_to_be_stopped() {
    let mut host = Host::new(&[16]);
    let (id, process) = host.admitted(1, mem("8GiB"));
    let line = format!("by `fg` in its shell or: kill -CONT {}", process.pid);
    host.step(Event::Stopped([id].into()));
    let text = why(&host, 1, "j1");
    assert_eq!(text.job.state, "stopped");
    assert!(text.sentences[0].starts_with("it is stopped (Ctrl-Z"), "{text:#?}");
    says(&text, &line);
    host.step(Event::Stopped([].into()));
    assert!(!format!("{:?}", why(&host, 1, "j1")).contains("stopped"));
}

#[test]
fn ended_jobs_answer_for_a_day_under_later_brokers_too() {
    let mut host = Host::new(&[16]);
    host.policy.set_clock(host.now_ns, 5_000 * SECOND_NS);
    let (id, process) = host.admitted(
        1,
        RunRequest {
            name: Some("train".into()),
            ..mem("8GiB")
        },
    );
    let client = host.attach(id, process);
    assert!(host.allocate(client, 0, 6 * GIB) && !host.allocate(client, 0, 3 * GIB));
    host.finish(id, process);
    let check = |host: &Host| {
        let text = why(host, 1, "train");
        assert_eq!(text.job.state, "ended");
        assert!(text.sentences[0].contains("its last process is gone"), "{text:#?}");
        says(&text, "3 GiB was denied on GPU 0");
        says(&text, "at most 6 GiB was in use");
        says(&text, "limit 8 GiB by --mem 8GiB");
        assert_eq!((text.job.denied.limit, text.job.devices[0].peak_bytes), (1, 6 * GIB));
        assert!(text.job.ended_ns.is_some());
        let Reply::Ps { jobs, .. } = host.policy.ps(&caller(1), true, &host.board) else {
            panic!("ps")
        };
        assert_eq!(jobs.len(), 1);
        let Reply::Ps { jobs, .. } = host.policy.ps(&caller(1), false, &host.board) else {
            panic!("ps")
        };
        assert!(jobs.is_empty());
    };
    check(&host);
    assert_eq!(host.ended()[0].job.token, [0; 32], "a token is not kept");
    // The next broker's monotonic clock may have begun anew (a reboot).
    host.now_ns = 3;
    host.policy = Policy::new(Config::default());
    host.policy.set_clock(host.now_ns, 5_000 * SECOND_NS + 600 * SECOND_NS);
    let ended = host.ended();
    host.step(Event::Adopt(partage_policy::Adoption {
        ended,
        ..partage_policy::Adoption::default()
    }));
    // It has not looked at the devices yet, and may never see that one again.
    check(&host);
    let document = serde_json::to_string(&why(&host, 1, "train")).expect("serialises");
    assert!(!document.contains("4294967295"), "{document}");
    host.enumerate();
    check(&host);
    host.measure();
    let (next, _) = host.admitted(1, mem("1GiB"));
    assert!(next > id, "its number is not used again");
    host.pass(24 * 3_600 * SECOND_NS);
    let query = TargetQuery {
        text: "j1".into(),
        descends_from: None,
    };
    assert!(host.policy.why(&caller(1), &query, host.now_ns, &host.board).is_err());
}
