// SPDX-License-Identifier: Apache-2.0
//! Devices that hang, are slow or say nothing.

use partage_broker::host::fake::FakeGpu;
use partage_protocol::admin::Reply;
use partage_protocol::message::{MEASURE_AFTER, ToClient, VERDICT_GRANTED};
use partage_protocol::units::{GIB, SECOND_NS};

use crate::bench::{Bench, Sleeper};

#[test]
fn a_hung_device_is_lost_delays_no_one_else_and_comes_back() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let mut sleeper = Sleeper::start();
    bench.job(&sleeper);
    bench.gpu.set_hung(0, true);
    bench.pass(SECOND_NS);
    let states: Vec<String> = bench.status().devices.into_iter().map(|device| device.state).collect();
    assert!(states[0].starts_with("lost") && states[1] == "ok", "{states:?}");
    let other = Sleeper::start();
    let reply = bench.ask(other.0.id(), r#"{"verb":"run","mem":"8GiB"}"#);
    let Some(Reply::Admitted(admitted)) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(admitted.devices[0].index, 1);
    // A client of the lost device that ends is not waited for.
    sleeper.kill();
    bench.pass(SECOND_NS);
    assert_eq!(bench.status().broker.clients, 0);

    bench.gpu.set_use(0, sleeper.0.id(), 0);
    bench.gpu.set_hung(0, false);
    bench.pass(SECOND_NS);
    assert!(bench.status().devices.iter().all(|device| device.state == "ok"));
}

#[test]
fn a_slow_device_keeps_nobody_waiting_on_another() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let holder = Sleeper::start();
    bench.job(&holder);
    bench.gpu.set_slow(0, 1000);
    bench.pass(SECOND_NS);
    // A run goes to the other device at once, and one for the slow device waits instead of being judged by old numbers.
    let other = Sleeper::start();
    match bench.ask(other.0.id(), r#"{"verb":"run","mem":"4GiB"}"#) {
        Some(Reply::Admitted(admitted)) => assert_eq!(admitted.devices[0].index, 1),
        reply => panic!("{reply:?}"),
    }
    let peer = bench.peer(std::process::id());
    let connection = peer.connection;
    let request = r#"{"verb":"run","mem":"1GiB","gpu":"0"}"#;
    bench.driver.request(peer, request.as_bytes(), bench.now);
    // It is given a moment to answer after all.
    for _ in 0..30 {
        bench.pass(SECOND_NS / 10);
    }
    match bench.take_reply(connection) {
        Some(Reply::Error(error)) => assert!(error.message.contains("takes long to answer"), "{}", error.message),
        reply => panic!("{reply:?}"),
    }
    assert_eq!(bench.status().devices[0].state, "ok", "slow is not lost");
    bench.gpu.set_slow(0, 0);
    for _ in 0..300 {
        bench.pass(SECOND_NS / 10);
    }
    let third = Sleeper::start();
    let reply = bench.ask(third.0.id(), r#"{"verb":"run","mem":"1GiB","gpu":"0"}"#);
    assert!(matches!(reply, Some(Reply::Admitted(_))), "{reply:?}");
}

#[test]
fn a_measurement_of_a_device_that_says_nothing_is_answered_all_the_same() {
    for is_lost in [false, true] {
        let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
        let sleeper = Sleeper::start();
        bench.job(&sleeper);
        let connection = bench.client.expect("attached");
        if is_lost {
            bench.gpu.set_hung(0, true);
        } else {
            bench.gpu.set_slow(0, 1_000_000);
        }
        bench.effects.clear();
        bench.measure(connection, MEASURE_AFTER);
        bench.pass(SECOND_NS);
        if !is_lost {
            assert!(bench.packet(connection).is_none(), "a look may still come");
            bench.pass(SECOND_NS);
        }
        let Some(ToClient::Answer(answer)) = bench.packet(connection) else {
            panic!("within two seconds")
        };
        assert_eq!(answer.verdict, VERDICT_GRANTED);
    }
}

#[test]
fn overhead_on_one_device_is_measured_while_another_is_slow() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let sleeper = Sleeper::start();
    let job = bench.job(&sleeper);
    let connection = bench.client.expect("attached");
    bench.gpu.set_slow(1, 1_000_000);
    bench.pass(SECOND_NS);
    bench.gpu.set_use(0, sleeper.0.id(), 7 * GIB);
    bench.effects.clear();
    bench.measure(connection, MEASURE_AFTER);
    bench.pass(SECOND_NS / 50);
    let Some(ToClient::Answer(answer)) = bench.packet(connection) else {
        panic!("by the next look")
    };
    assert_eq!((answer.verdict, answer.job_used), (VERDICT_GRANTED, 7 * GIB));
    assert_eq!(bench.view(&job).devices[0].overhead_bytes, 7 * GIB);
}
