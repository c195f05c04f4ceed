// SPDX-License-Identifier: Apache-2.0
//! A broker begins while jobs run: what finds no room is answered once the clients of the broker before are back.

use crate::host::{Host, USED, mem, verdict_of};
use crate::overhead::{CONTEXT, child, view};
use partage_policy::{ADOPTION_NS, Action, Event, PATIENCE_NS, Process};
use partage_protocol::admin::RunRequest;
use partage_protocol::message::{MEASURE_BEFORE, VERDICT_CARD_FULL, VERDICT_GRANTED, VERDICT_LIMIT};
use partage_protocol::units::{ClientId, GIB, JobId};

/// The number of the host's asks.
const ASK: u32 = 5;
/// The number of the host's announcements.
const ANNOUNCEMENT: u32 = 6;

/// A job of 8 GiB whose two clients use 1 GiB each. The second was granted 6 GiB more, and is awaited.
struct Restarted {
    host: Host,
    job: JobId,
    first: ClientId,
    awaited: ClientId,
}

fn restarted() -> Restarted {
    let mut host = Host::new(&[16]);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let first = host.attach(job, process);
    let awaited = host.attach(job, child(11));
    assert!(host.allocate(first, 0, GIB) && host.allocate(awaited, 0, 7 * GIB));
    host.free(awaited, 0, 6 * GIB);
    let records = host.records();
    host.restart(records);
    host.measure();
    come_back(&mut host, first, process);
    Restarted {
        host,
        job,
        first,
        awaited,
    }
}

fn come_back(host: &mut Host, client: ClientId, process: Process) -> Vec<Action> {
    host.board.lost.retain(|lost| *lost != client);
    host.step(Event::Reattach {
        client,
        process,
        are_pages_lost: false,
    })
}

#[test]
fn an_ask_waits_for_clients_whose_whole_grants_count() {
    let Restarted {
        mut host,
        job,
        first,
        awaited,
    } = restarted();
    assert_eq!(host.say_ask(first, 0, 2 * GIB, GIB), None, "nobody knows yet");
    let said = come_back(&mut host, awaited, child(11));
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_GRANTED));
    assert_eq!(view(&host, job).denied.limit, 0);
    let said = host.step(Event::ClientAway(awaited));
    assert_eq!(verdict_of(&said, ASK), None, "one answer to one question");
}

#[test]
fn an_ask_is_answered_before_a_library_takes_the_broker_for_silent() {
    let Restarted {
        mut host, job, first, ..
    } = restarted();
    assert_eq!(host.say_ask(first, 0, 2 * GIB, GIB), None);
    assert!(
        host.policy
            .next_deadline()
            .is_some_and(|due| due <= host.now_ns + PATIENCE_NS)
    );
    host.now_ns += PATIENCE_NS - 1;
    assert_eq!(verdict_of(&host.step(Event::Tick), ASK), None);
    host.now_ns += 1;
    let said = host.step(Event::Tick);
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_LIMIT));
    assert_eq!(view(&host, job).denied.limit, 1, "a denial counts when it is given");
    assert_eq!(
        host.say_ask(first, 0, 2 * GIB, GIB),
        None,
        "each question has its own time"
    );
    host.now_ns += ADOPTION_NS;
    assert_eq!(verdict_of(&host.step(Event::Tick), ASK), Some(VERDICT_LIMIT));
    assert_eq!(
        host.say_ask(first, 0, 2 * GIB, GIB),
        Some(VERDICT_LIMIT),
        "nobody is awaited any more"
    );
}

#[test]
fn what_no_return_can_make_fit_is_denied_at_once() {
    let Restarted { mut host, first, .. } = restarted();
    // 1 GiB is in use here; the awaited client may use nothing.
    assert_eq!(host.say_ask(first, 0, 8 * GIB + 1, 7 * GIB + 1), Some(VERDICT_LIMIT));
    assert_eq!(host.say_ask(first, 0, 8 * GIB, 7 * GIB), None);
}

#[test]
fn nobody_is_answered_whose_connection_is_gone() {
    let Restarted {
        mut host,
        job,
        first,
        awaited,
    } = restarted();
    assert_eq!(host.say_ask(first, 0, 2 * GIB, GIB), None);
    host.step(Event::ClientAway(first));
    let said = come_back(&mut host, awaited, child(11));
    assert_eq!(verdict_of(&said, ASK), None);
    let used = host.used(first, 0);
    assert_eq!((used, view(&host, job).denied.limit), (GIB, 0));
}

#[test]
fn a_job_whose_clients_are_all_back_is_answered_at_once() {
    let Restarted { mut host, .. } = restarted();
    let (other, process) = {
        // Another job of the same device, all of whose clients are back.
        let awaited: Vec<ClientId> = host.programs.keys().copied().collect();
        for client in awaited {
            let process = host.programs[&client].process;
            come_back(&mut host, client, process);
        }
        host.admitted(2, mem("2GiB"))
    };
    let client = host.attach(other, process);
    assert!(host.allocate(client, 0, GIB));
    let records = host.records();
    host.restart(records);
    host.measure();
    come_back(&mut host, client, process);
    assert_eq!(host.say_ask(client, 0, 3 * GIB, 2 * GIB), Some(VERDICT_LIMIT));
    assert_eq!(host.say_ask(client, 0, 2 * GIB, GIB), Some(VERDICT_GRANTED));
}

#[test]
fn a_burst_waits_for_the_clients_of_every_job_of_its_device() {
    let mut host = Host::new(&[16]);
    let burst = |limit: &str| RunRequest {
        mem_request: Some("1GiB".into()),
        ..mem(limit)
    };
    let (job, process) = host.admitted(1, burst("16GiB"));
    let client = host.attach(job, process);
    let (other, elsewhere) = host.admitted(2, burst("16GiB"));
    let awaited = host.attach(other, elsewhere);
    assert!(host.allocate(client, 0, GIB) && host.allocate(awaited, 0, 14 * GIB));
    host.free(awaited, 0, 13 * GIB);
    let records = host.records();
    host.restart(records);
    host.measure();
    come_back(&mut host, client, process);
    assert_eq!(host.say_ask(client, 0, 4 * GIB, 3 * GIB), None);
    let said = come_back(&mut host, awaited, elsewhere);
    assert_eq!(verdict_of(&said, ASK), Some(VERDICT_GRANTED));
    assert!(host.allocate(awaited, 0, 10 * GIB));
    assert_eq!(host.say_ask(client, 0, 15 * GIB, 11 * GIB), Some(VERDICT_CARD_FULL));
}

#[test]
fn a_context_waits_for_clients_whose_whole_grants_count() {
    let Restarted {
        mut host,
        job,
        first,
        awaited,
    } = restarted();
    // A new broker has forgotten what a context costs, so the first is let in; and nothing is judged yet.
    let taught = host.attach(job, child(12));
    assert!(host.make_context(taught, 0, CONTEXT));
    assert_eq!(view(&host, job).denied.overhead, 0);
    let next = host.attach(job, child(13));
    assert_eq!(host.say_measure(next, 0, MEASURE_BEFORE), None, "nobody knows yet");
    let said = come_back(&mut host, awaited, child(11));
    assert_eq!(verdict_of(&said, ANNOUNCEMENT), Some(VERDICT_GRANTED));
    assert_eq!(host.overhead(next, 0), CONTEXT, "kept for it");
    // From now on what a context took is judged.
    assert!(host.allocate(first, 0, 8 * GIB - 2 * GIB - 2 * CONTEXT));
    assert_eq!(host.board.value(first, 0, USED), 6 * GIB);
    host.change_beyond(first, 0, |_| CONTEXT);
    assert_eq!(host.measure_now(first, 0), VERDICT_LIMIT);
}

#[test]
fn a_context_is_answered_before_a_library_takes_the_broker_for_silent() {
    let Restarted { mut host, job, .. } = restarted();
    let taught = host.attach(job, child(12));
    assert!(host.make_context(taught, 0, CONTEXT));
    let next = host.attach(job, child(13));
    assert_eq!(host.say_measure(next, 0, MEASURE_BEFORE), None);
    host.now_ns += PATIENCE_NS;
    let said = host.step(Event::Tick);
    assert_eq!(verdict_of(&said, ANNOUNCEMENT), Some(VERDICT_LIMIT));
    assert_eq!(view(&host, job).denied.overhead, 1);
}

#[test]
fn a_client_that_is_gone_is_not_answered() {
    let Restarted {
        mut host,
        first,
        awaited,
        ..
    } = restarted();
    assert_eq!(host.say_ask(first, 0, 2 * GIB, GIB), None);
    host.step(Event::ClientGone(first));
    let said = come_back(&mut host, awaited, child(11));
    assert_eq!(verdict_of(&said, ASK), None);
}

#[test]
fn a_client_has_one_question_at_a_time() {
    let Restarted {
        mut host,
        first,
        awaited,
        ..
    } = restarted();
    assert_eq!(host.say_ask(first, 0, 3 * GIB, 2 * GIB), None);
    assert_eq!(host.say_ask(first, 0, 2 * GIB, GIB), None, "it has given the first up");
    let said = come_back(&mut host, awaited, child(11));
    let answers = said.iter().filter(|command| matches!(command, Action::Answer { .. }));
    assert_eq!(answers.count(), 1);
}
