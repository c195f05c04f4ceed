// SPDX-License-Identifier: Apache-2.0
//! `partage queue` as the broker answers it.

use partage_broker::host::fake::FakeGpu;
use partage_protocol::admin::Reply;
use partage_protocol::units::{GIB, SECOND_NS};

use crate::bench::{Bench, Sleeper};

#[test]
fn who_waits_is_shown_with_place_reason_and_a_guess() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let (holder, waiter) = (Sleeper::start(), Sleeper::start());
    let hour_ns = 3_600 * SECOND_NS;
    let request = format!(r#"{{"verb":"run","mem":"12GiB","time_limit_ns":{hour_ns}}}"#);
    assert!(matches!(bench.ask(holder.0.id(), &request), Some(Reply::Admitted(_))));
    let request = r#"{"verb":"run","mem":"8GiB","wait":true,"priority":"low"}"#;
    let Some(Reply::Waiting(waiting)) = bench.ask(waiter.0.id(), request) else {
        panic!("it waits")
    };
    bench.pass(60 * SECOND_NS);
    let Some(Reply::Queue(queue)) = bench.ask(holder.0.id(), r#"{"verb":"queue"}"#) else {
        panic!("it answers")
    };
    assert_eq!((queue.order.as_str(), queue.jobs.len()), ("arrival", 1));
    let place = &queue.jobs[0];
    assert_eq!(
        (place.place, place.priority.as_str(), place.comes_back),
        (1, "low", false)
    );
    assert_eq!((place.mem.as_deref(), &place.reason), (Some("8GiB"), &waiting.reason));
    let expected = place.expected_wait_ns.expect("the time limit says");
    assert!(expected < hour_ns && place.waited_ns >= 60 * SECOND_NS, "{place:?}");
}
