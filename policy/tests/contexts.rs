// SPDX-License-Identifier: Apache-2.0
//! Contexts: announced, measured, denied, and judged by an estimate.

use crate::host::{Host, STARTED, mem, uuid, verdict_of};
use crate::overhead::{CONTEXT, child, device, pair, view, why};
use partage_policy::{Action, Event, MEASURE_NS};
use partage_protocol::message::{
    MEASURE_AFTER, MEASURE_BEFORE, MEASURE_KEPT_NS, NOTICE_OVERHEAD, VERDICT_CARD_FULL, VERDICT_GRANTED,
    VERDICT_INVALID, VERDICT_LIMIT,
};
use partage_protocol::units::{ClientId, GIB};

#[test]
fn the_second_context_at_the_limit_is_refused_before_it_is_made() {
    let (mut host, job, first, second) = pair();
    assert!(
        host.make_context(first, 0, CONTEXT),
        "unknown cost: let in and measured"
    );
    // 7.5 GiB are left: with 7.25 in use neither fits; two announcements cannot both have the last half.
    assert!(host.allocate(first, 0, 7 * GIB));
    let third = host.attach(job, child(12));
    assert_eq!(host.say_measure(second, 0, MEASURE_BEFORE), Some(VERDICT_GRANTED));
    assert_eq!(host.overhead(second, 0), CONTEXT, "kept for it");
    assert_eq!(host.say_measure(third, 0, MEASURE_BEFORE), Some(VERDICT_LIMIT));
    assert!(!host.allocate(third, 0, 1));
    let denied = view(&host, job).denied;
    assert_eq!((denied.overhead, denied.limit), (1, 1));
    let text = |command: &Action| match command {
        Action::Publish {
            kind: "denied", text, ..
        } => Some(text.clone()),
        _ => None,
    };
    let said: Vec<String> = host.commands.iter().filter_map(text).collect();
    assert!(said[0].contains("512 MiB") && said[0].contains("overhead"), "{said:?}");
    // The driver refused it after all, or it was destroyed: nothing is kept.
    assert_eq!(host.measure_now(second, 0), VERDICT_GRANTED);
    assert!(host.make_context(third, 0, CONTEXT));
    assert_eq!(device(&host, job).used_bytes, 8 * GIB);
}

#[test]
fn an_announcement_takes_unused_grants_back() {
    let (mut host, job, first, second) = pair();
    assert!(host.make_context(first, 0, CONTEXT));
    assert!(host.allocate(first, 0, 7 * GIB));
    // All that is left lies with the two as slack.
    assert_eq!(device(&host, job).granted_bytes, 8 * GIB);
    assert!(host.make_context(second, 0, CONTEXT));
    assert_eq!(device(&host, job).used_bytes, 8 * GIB);
}

#[test]
fn a_context_that_does_not_fit_is_denied_after_it_was_made_and_gone_again() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, 7 * GIB + CONTEXT + 1));
    host.is_excused = true;
    assert!(!host.make_context(first, 0, CONTEXT), "one byte too much");
    assert_eq!(device(&host, job).used_bytes, 7 * GIB + CONTEXT + 1);
    assert!(
        why(&host, job).contains("did not fit the limit of 8 GiB"),
        "{}",
        why(&host, job)
    );
    host.free(first, 0, 1);
    assert!(host.make_context(first, 0, CONTEXT));
}

#[test]
fn a_card_that_was_promised_to_others_is_full_for_a_burst() {
    let mut host = Host::new(&[16]);
    host.admitted(2, mem("12GiB"));
    let burst = partage_protocol::admin::RunRequest {
        mem_request: Some("1GiB".into()),
        ..mem("16GiB")
    };
    let (job, process) = host.admitted(1, burst);
    let client = host.attach(job, process);
    assert!(host.make_context(client, 0, CONTEXT));
    assert!(host.allocate(client, 0, 3 * GIB));
    let sibling = host.attach(job, child(11));
    assert!(host.make_context(sibling, 0, CONTEXT));
    let third = host.attach(job, child(12));
    assert_eq!(host.say_measure(third, 0, MEASURE_BEFORE), Some(VERDICT_CARD_FULL));
    let text = why(&host, job);
    assert!(
        text.contains("the card had no room for it; held by j1 (bob) 12 GiB"),
        "{text}"
    );
    assert!(
        text.contains("3 GiB allocated, 1 GiB contexts, modules and other overhead"),
        "{text}"
    );
    assert_eq!(view(&host, job).denied.overhead, 1);
}

#[test]
fn an_announcement_that_nobody_measures_runs_out() {
    let (mut host, _, first, second) = pair();
    assert!(host.make_context(first, 0, CONTEXT));
    assert_eq!(host.say_measure(second, 0, MEASURE_BEFORE), Some(VERDICT_GRANTED));
    host.pass(MEASURE_KEPT_NS - 1);
    host.measure();
    assert_eq!(
        host.overhead(second, 0),
        CONTEXT,
        "a quiet look in between does not end it"
    );
    assert!(host.policy.next_deadline().is_some_and(|due| due == host.now_ns + 1));
    host.pass(1);
    assert_eq!(host.overhead(second, 0), 0);
}

#[test]
fn a_busy_client_is_looked_at_three_times_and_then_judged_by_an_estimate() {
    let (mut host, job, first, _) = pair();
    assert!(host.allocate(first, 0, 7 * GIB));
    host.is_excused = true;
    host.board.set(first, 0, STARTED, 1);
    host.change_beyond(first, 0, |_| 2 * CONTEXT);
    assert_eq!(host.say_measure(first, 0, MEASURE_AFTER), None);
    for look in 0..3 {
        // A look that was under way already says nothing.
        if look == 0 {
            host.answer_look(uuid(1));
        }
        host.step(Event::Asking(uuid(1)));
        let from = host.commands.len();
        host.answer_look(uuid(1));
        let said = &host.commands[from..];
        let is_asked_again = said.iter().any(|command| *command == Action::Look(uuid(1)));
        assert_eq!(
            (verdict_of(said, 6), is_asked_again),
            (if look < 2 {
                (None, true)
            } else {
                (Some(VERDICT_GRANTED), false)
            })
        );
    }
    assert_eq!(
        device(&host, job).used_bytes,
        8 * GIB,
        "an estimate counts until it is known better"
    );
}

#[test]
fn a_device_that_says_nothing_lets_the_client_go_on() {
    let (mut host, _, first, second) = pair();
    assert_eq!(host.say_measure(first, 0, MEASURE_AFTER), None);
    assert_eq!(host.policy.next_deadline(), Some(host.now_ns + MEASURE_NS));
    host.now_ns += MEASURE_NS;
    let said = host.step(Event::Tick);
    assert_eq!(verdict_of(&said, 6), Some(VERDICT_GRANTED));
    assert_eq!(host.say_measure(second, 0, MEASURE_AFTER), None);
    let said = host.step(Event::DeviceLost {
        device: uuid(1),
        why: "hangs".into(),
    });
    assert_eq!(verdict_of(&said, 6), Some(VERDICT_GRANTED));
    assert_eq!(host.say_measure(second, 0, MEASURE_AFTER), Some(VERDICT_GRANTED));
}

#[test]
fn nonsense_is_answered_as_such() {
    let (mut host, _, first, _) = pair();
    assert_eq!(host.say_measure(first, 0, 77), Some(VERDICT_INVALID));
    assert_eq!(host.say_measure(first, 9, MEASURE_BEFORE), Some(VERDICT_INVALID));
    assert_eq!(host.say_measure(ClientId(1), 0, MEASURE_AFTER), Some(VERDICT_INVALID));
    for _ in 0..100 {
        host.say_measure(first, 0, MEASURE_AFTER);
    }
    let said = host.step(Event::Notice {
        client: first,
        what: NOTICE_OVERHEAD,
        slot: 0,
        value: 5,
    });
    assert_eq!(said[0], Action::Look(uuid(1)));
    let said = host.step(Event::Notice {
        client: first,
        what: NOTICE_OVERHEAD,
        slot: 99,
        value: 5,
    });
    assert!(said.is_empty());
}
