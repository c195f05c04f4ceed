// SPDX-License-Identifier: Apache-2.0
//! Clients and jobs: what comes early, what ends, what is hidden, what waits.

use std::cell::Cell;
use std::rc::Rc;

use partage_broker::host::fake::FakeGpu;
use partage_broker::host::gpu::{Driver, GpuEvent};
use partage_broker::site::effect::Effect;
use partage_protocol::admin::Reply;
use partage_protocol::message::ToClient;
use partage_protocol::units::{GIB, SECOND_NS};

use crate::bench::{Bench, ProcessTable, Sleeper};

#[test]
fn a_dead_client_stays_charged_until_the_device_shows_its_memory_freed() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let mut sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let job = bench.job(&sleeper);
    sleeper.kill();
    bench.turn();
    // The driver has not let go yet: charged, and shown as dying.
    for _ in 0..40 {
        bench.pass(SECOND_NS / 4);
    }
    let view = bench.view(&job);
    assert_eq!(
        (view.state.as_str(), view.clients[0].state.as_str()),
        ("dying", "dying")
    );
    assert_eq!(view.devices[0].granted_bytes, 8 * GIB);
    let refused = bench.ask(std::process::id(), r#"{"verb":"run","mem":"12GiB"}"#);
    assert!(matches!(refused, Some(Reply::Error(_))), "{refused:?}");

    bench.gpu.set_use(0, pid, 0);
    bench.pass(SECOND_NS / 20);
    assert!(
        bench.view(&job).clients.is_empty(),
        "free within one look of a dying client"
    );
    bench.pass(6 * SECOND_NS);
    assert_eq!(bench.view(&job).state, "ended");
    assert_eq!(bench.status().devices[0].committed_bytes, 0);
}

#[test]
fn a_client_whose_program_is_hidden_is_judged_by_what_the_device_shows_of_it() {
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), ProcessTable::hidden());
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    let job = bench.job(&sleeper);
    bench.pass(SECOND_NS);
    // It closed the descriptors that it does not know. Its memory is there, and so is its charge.
    let connection = bench.client.expect("attached");
    bench.driver.closed(connection, bench.now);
    for _ in 0..10 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (1, 8 * GIB));
    // It became another program by exec: the driver freed what it held.
    bench.gpu.set_use(0, pid, 0);
    for _ in 0..3 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (0, 0));
    assert_eq!(view.state, "running", "its process lives");
}

#[test]
fn a_hidden_client_that_is_away_stays_charged_where_nothing_shows_that_it_is_gone() {
    // A driver that names no processes, as in a container of its own: nothing ever showed this one.
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), ProcessTable::hidden());
    let sleeper = Sleeper::start();
    let job = bench.job(&sleeper);
    bench.gpu.set_use(0, sleeper.0.id(), 0);
    bench.pass(SECOND_NS);
    let connection = bench.client.expect("attached");
    bench.driver.closed(connection, bench.now);
    for _ in 0..10 {
        bench.pass(SECOND_NS);
    }
    let view = bench.view(&job);
    assert_eq!((view.clients.len(), view.devices[0].granted_bytes), (1, 8 * GIB));

    // A client that was shown has its second for coming back, also where the driver has just failed.
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), ProcessTable::hidden());
    let job = bench.job(&sleeper);
    bench.pass(SECOND_NS);
    let connection = bench.client.expect("attached");
    let failed = GpuEvent::Driver(Driver::Failed("gone".into()));
    bench.driver.closed(connection, bench.now);
    bench.driver.gpu(failed, bench.now);
    assert_eq!(bench.view(&job).clients.len(), 1);
}

#[test]
fn the_end_of_one_process_is_not_subtracted_from_a_look_that_no_longer_saw_it() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let mut sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    bench.job(&sleeper);
    let stranger = Sleeper::start();
    bench.gpu.set_use(0, stranger.0.id(), 4 * GIB);
    bench.pass(SECOND_NS);
    let before = bench.status().devices[0].used_bytes;
    sleeper.kill();
    bench.gpu.set_use(0, pid, 0);
    for _ in 0..20 {
        bench.pass(SECOND_NS / 100);
        let used = bench.status().devices[0].used_bytes;
        assert!(used == before || used == before - 5 * GIB, "{used} of {before}");
    }
    assert_eq!(bench.status().devices[0].used_bytes, before - 5 * GIB);
}

#[test]
fn what_comes_before_the_devices_are_known_is_answered_when_they_are() {
    // A driver that says nothing at first.
    let mut bench = Bench::new(FakeGpu::default());
    let sleeper = Sleeper::start();
    let peer = bench.peer(sleeper.0.id());
    let run = peer.connection;
    bench.driver.request(peer, br#"{"verb":"run","mem":"8GiB"}"#, bench.now);
    let other = Sleeper::start();
    let hello = bench.hello(other.0.id());
    let gone = Sleeper::start();
    let closed = bench.hello(gone.0.id());
    bench.driver.closed(closed, bench.now);
    bench.turn();
    assert!(bench.take_reply(run).is_none() && bench.packet(hello).is_none());

    bench.gpu.install(FakeGpu::with_devices(1, 16 * GIB));
    bench.pass(SECOND_NS);
    bench.pass(SECOND_NS);
    assert!(matches!(bench.take_reply(run), Some(Reply::Admitted(_))));
    assert!(matches!(bench.packet(hello), Some(ToClient::Welcome(_))));
    assert!(bench.packet(closed).is_none());
    assert_eq!(bench.status().broker.clients, 1);
}

#[test]
fn without_a_driver_the_answer_comes_at_once_and_an_idle_broker_leaves_on_time() {
    let mut bench = Bench::new(FakeGpu::without_driver());
    let sleeper = Sleeper::start();
    let reply = bench.ask(sleeper.0.id(), r#"{"verb":"run","wait":true}"#);
    assert!(matches!(reply, Some(Reply::Error(_))), "{reply:?}");
    let connection = bench.hello(sleeper.0.id());
    assert!(matches!(bench.packet(connection), Some(ToClient::Refused(_))));
    let is_leaving = |bench: &Bench| bench.effects.iter().any(|effect| matches!(effect, Effect::Exit));
    bench.pass(58 * SECOND_NS);
    assert!(!is_leaving(&bench));
    bench.pass(3 * SECOND_NS);
    assert!(is_leaving(&bench));
}

#[test]
fn who_waits_is_looked_at_every_tenth_of_a_second_however_much_happens() {
    let (holder, waiter, other) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let looks = Rc::new(Cell::new(0));
    let counted = ProcessTable {
        counted: Some((waiter.0.id(), Rc::clone(&looks))),
        ..ProcessTable::default()
    };
    let mut bench = Bench::seeing(FakeGpu::with_devices(1, 16 * GIB), counted);
    bench.ask(holder.0.id(), r#"{"verb":"run","mem":"16GiB"}"#);
    bench.ask(waiter.0.id(), r#"{"verb":"run","mem":"8GiB","wait":true}"#);
    bench.pass(SECOND_NS);
    let mut ask_often = || {
        looks.set(0);
        for _ in 0..50 {
            bench.ask(other.0.id(), r#"{"verb":"run","mem":"17GiB"}"#);
        }
        let found = looks.get();
        bench.pass(SECOND_NS / 10);
        found
    };
    assert!(ask_often() <= 1);
    assert!(ask_often() <= 1);
}

#[test]
fn a_broker_with_a_job_does_not_leave() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let sleeper = Sleeper::start();
    bench.job(&sleeper);
    for _ in 0..10 {
        bench.pass(60 * SECOND_NS);
    }
    assert!(!bench.effects.iter().any(|effect| matches!(effect, Effect::Exit)));
    assert_eq!(bench.status().broker.jobs, 1);
}
