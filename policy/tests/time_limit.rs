// SPDX-License-Identifier: Apache-2.0
//! `--time-limit`: a job that runs too long is ended, with a grace.

use crate::host::{Host, caller};
use crate::overhead::view;
use crate::terms::{request, terms_of, why};
use partage_policy::{Action, Event, Signal, TIME_LIMIT_GRACE_NS};
use partage_protocol::admin::RunRequest;
use partage_protocol::units::SECOND_NS;

fn limited(seconds: u64) -> RunRequest {
    RunRequest {
        time_limit_ns: Some(seconds * SECOND_NS),
        ..request(&[])
    }
}

fn signals(host: &Host) -> Vec<Signal> {
    let signals = host.commands.iter().filter_map(|command| match command {
        Action::SignalJob { signal, .. } => Some(*signal),
        _ => None,
    });
    signals.collect()
}

#[test]
fn a_time_limit_ends_the_job_with_a_grace_and_says_why() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, limited(60));
    let client = host.attach(job, first);
    assert_eq!(terms_of(&host, job).time_limit_ns, Some(60 * SECOND_NS));
    host.pass(59 * SECOND_NS);
    assert!(signals(&host).is_empty());
    assert_eq!(
        host.policy.next_deadline().map(|due| due <= host.now_ns + SECOND_NS),
        Some(true)
    );
    host.pass(SECOND_NS);
    assert_eq!(signals(&host), [Signal::Terminate]);
    let text = "j1 has run for 60s, its time limit: SIGTERM now, SIGKILL in 10s";
    let said = |action: &dyn Fn(&Action) -> bool| host.commands.iter().any(action);
    assert!(said(
        &|action| matches!(action, Action::Tell { text: told, .. } if told == text)
    ));
    assert!(said(&|action| matches!(
        action,
        Action::Publish { kind: "time-limit", .. }
    )));
    assert!(why(&host, 1, job)[0].starts_with("its time limit of 60s is over: SIGTERM was sent"));
    host.pass(TIME_LIMIT_GRACE_NS - 1);
    assert_eq!(signals(&host).len(), 1);
    host.pass(1);
    assert_eq!(signals(&host), [Signal::Terminate, Signal::Kill]);
    host.pass(100 * SECOND_NS);
    assert_eq!(signals(&host).len(), 2, "each once");
    host.kill(client);
    host.step(Event::ProcessGone(first));
    assert_eq!(host.state_of(job), "ended");
    let reason = "ended 0ms ago: its time limit of 60s was over (--time-limit 60s)";
    assert!(why(&host, 1, job).iter().any(|sentence| sentence.contains(reason)));
}

#[test]
fn a_minute_before_its_end_the_user_is_told_once_and_of_a_short_limit_never() {
    let mut host = Host::new(&[8]);
    host.admitted(1, limited(600));
    host.admitted(2, limited(120));
    let told = |host: &Host| -> Vec<String> {
        let texts = host.commands.iter().filter_map(|command| match command {
            Action::Publish {
                kind: "time-limit-near",
                text,
                ..
            } => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    };
    host.pass(539 * SECOND_NS);
    assert_eq!(told(&host), Vec::<String>::new());
    host.pass(SECOND_NS);
    let text = "j1 ends in 60s: its time limit of 10m is nearly over";
    assert_eq!(told(&host), [text]);
    let is_told = |action: &Action| matches!(action, Action::Tell { text: told, .. } if told == text);
    assert!(host.commands.iter().any(is_told));
    host.pass(30 * SECOND_NS);
    assert_eq!(told(&host).len(), 1);
}

#[test]
fn an_ended_job_says_that_its_time_limit_ended_it_and_has_no_note_of_that() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, limited(60));
    host.pass(60 * SECOND_NS);
    let seen = view(&host, job);
    assert!(
        seen.is_over_time && seen.notes[0].starts_with("its time limit of 60s is over"),
        "{seen:?}"
    );
    host.step(Event::ProcessGone(first));
    let seen = view(&host, job);
    assert_eq!(
        (seen.state.as_str(), seen.is_over_time, seen.notes),
        ("ended", true, Vec::new())
    );
    let reason = why(&host, 1, job)
        .into_iter()
        .find(|sentence| sentence.contains(" ended "));
    assert!(reason.is_some_and(|sentence| sentence.contains("after 60s by its time limit")));
}

#[test]
fn time_in_the_queue_does_not_count() {
    let mut host = Host::new(&[8]);
    let (holder, first) = host.admitted(1, request(&[("compute", "60%")]));
    let (ticket, _) = host.run(
        1,
        RunRequest {
            compute: Some("50%".into()),
            ..limited(60)
        },
    );
    host.pass(3_600 * SECOND_NS);
    assert!(host.is_waiting(ticket));
    host.finish(holder, first);
    let job = host.job_of(ticket).expect("admitted");
    let started = host
        .policy
        .job_view(job, &caller(1), &host.board)
        .expect("known")
        .started_ns;
    assert_eq!(terms_of(&host, job).ends_ns, Some(started + 60 * SECOND_NS));
    host.pass(50 * SECOND_NS);
    assert!(signals(&host).is_empty());
    host.pass(10 * SECOND_NS);
    assert_eq!(signals(&host), [Signal::Terminate]);
}

#[test]
fn a_stop_under_way_is_not_lengthened_by_a_time_limit_nor_the_other_way_round() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, limited(60));
    host.attach(job, first);
    let stop = |host: &mut Host, grace_ns| {
        let ticket = partage_policy::Ticket(host.fresh());
        let target = partage_policy::TargetQuery {
            text: job.to_string(),
            descends_from: None,
        };
        host.step(Event::Stop {
            ticket,
            caller: caller(1),
            target,
            grace_ns,
        });
    };
    stop(&mut host, 3_600 * SECOND_NS);
    host.pass(60 * SECOND_NS);
    assert_eq!(signals(&host), [Signal::Terminate, Signal::Terminate]);
    host.pass(TIME_LIMIT_GRACE_NS);
    assert_eq!(signals(&host).last(), Some(&Signal::Kill));
}

#[test]
fn a_time_limit_goes_on_under_the_next_broker() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, limited(60));
    host.attach(job, first);
    host.pass(40 * SECOND_NS);
    let records = host.records();
    host.restart(records.clone());
    host.pass(19 * SECOND_NS);
    assert!(signals(&host).is_empty());
    host.pass(SECOND_NS);
    assert_eq!(signals(&host), [Signal::Terminate], "counted from the admission");
    // Nobody was there when it was over: the grace begins when somebody is.
    host.commands.clear();
    host.now_ns += 1_000 * SECOND_NS;
    host.restart(records);
    host.pass(1);
    assert_eq!(signals(&host), [Signal::Terminate]);
    host.pass(TIME_LIMIT_GRACE_NS);
    assert_eq!(signals(&host), [Signal::Terminate, Signal::Kill]);
}
