// SPDX-License-Identifier: Apache-2.0
//! Terms of time, what was measured, and time limits.

use partage_broker::dispatcher::message::Message;
use partage_broker::dispatcher::report::Report;
use partage_broker::host::fake::FakeGpu;
use partage_broker::site::effect::Effect;
use partage_policy::{Cause, JobTime, Regime, TimeState, UnmanagedLoad};
use partage_protocol::admin::Reply;
use partage_protocol::units::{GIB, SECOND_NS};
use partage_scheduling::{Class, Terms};

use crate::bench::{Bench, Sleeper};

#[test]
fn the_dispatcher_hears_terms_and_what_it_measured_is_shown() {
    let mut bench = Bench::new(FakeGpu::with_devices(2, 16 * GIB));
    let sleeper = Sleeper::start();
    let request = r#"{"verb":"run","gpu":"0,1","compute":"30%","compute_max":"50%","weight":"7","priority":"high"}"#;
    let job = match bench.ask(sleeper.0.id(), request) {
        Some(Reply::Admitted(admitted)) => admitted.job,
        other => panic!("{other:?}"),
    };
    let told = |bench: &Bench| {
        let terms = bench.effects.iter().rev().find_map(|effect| match effect {
            Effect::Time(Message::Terms { job, devices, terms }) => Some((*job, devices.clone(), *terms)),
            _ => None,
        });
        terms.expect("told")
    };
    let (id, devices, terms) = told(&bench);
    let expected = Terms {
        promise_ppm: 300_000,
        weight: 7,
        class: Class::High,
        cap_ppm: Some(500_000),
        user: None,
        is_gang: true,
    };
    assert_eq!((id.to_string(), devices.len(), terms), (job.clone(), 2, expected));
    let set = format!(r#"{{"verb":"set","target":"{job}","terms":{{"compute":"none","weight":"9"}}}}"#);
    assert!(matches!(bench.ask(sleeper.0.id(), &set), Some(Reply::Job(_))));
    assert_eq!((told(&bench).2.promise_ppm, told(&bench).2.weight), (0, 9));

    let time = JobTime {
        job: id,
        device: devices[0],
        asked_ppm: 500_000,
        got_1s_ppm: 250_000,
        got_60s_ppm: 400_000,
        used_ns: 5,
        corrected_ns: 0,
        waited_ns: 3,
        state: TimeState::Capped,
        waits_for: Cause::Cap,
        wanted_60s_ppm: 1_000_000,
        unit_ns: 4,
        regime: Regime::Turns,
        is_not_draining: false,
        stretch: 0,
    };
    bench.driver.report(Report::Views(vec![time]), bench.now);
    let view = bench.view(&job);
    let time = view.devices[0].time.clone().expect("measured");
    assert_eq!(
        (time.share, time.got_1s, time.got_60s, time.used_ns, time.unit_ns),
        (0.5, 0.25, 0.4, 5, 4)
    );
    assert_eq!(
        (time.state.as_str(), time.held_by.as_deref(), time.regime.as_str()),
        ("capped", Some("cap"), "turns")
    );
    assert!(view.devices[1].time.is_none());
    bench.pass(SECOND_NS);
    bench.driver.report(Report::Views(Vec::new()), bench.now);
    assert!(bench.view(&job).devices[0].time.is_none(), "measured no more");
}

#[test]
fn the_dispatcher_hears_of_strangers_that_use_time_and_of_their_rest() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let (sleeper, stranger) = (Sleeper::start(), Sleeper::start());
    let reply = bench.ask(sleeper.0.id(), r#"{"verb":"run","mem":"1GiB"}"#);
    assert!(matches!(reply, Some(Reply::Admitted(_))), "{reply:?}");
    let told = |bench: &Bench| {
        let told = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Time(Message::Unmanaged(_, strangers)) => Some(*strangers),
            _ => None,
        });
        told.collect::<Vec<UnmanagedLoad>>()
    };
    let pid = stranger.0.id();
    bench.gpu.set_use(0, pid, GIB);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [], "memory alone is no time");
    bench.gpu.set_busy(0, pid, 60);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [UnmanagedLoad::Felt], "there is idle time for the job");
    bench.gpu.set_busy(0, pid, 95);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench), [UnmanagedLoad::Felt, UnmanagedLoad::Crowding]);
    let Some(Reply::Ps { unmanaged, .. }) = bench.ask(sleeper.0.id(), r#"{"verb":"ps","all":false}"#) else {
        panic!("ps answers")
    };
    assert_eq!((unmanaged[0].pid, unmanaged[0].busy), (pid, Some(0.95)));
    bench.gpu.set_busy(0, pid, 0);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench).len(), 2, "a pause");
    bench.pass(SECOND_NS);
    bench.pass(SECOND_NS);
    assert_eq!(told(&bench)[2..], [UnmanagedLoad::Quiet]);
}

#[test]
fn a_time_limit_ends_real_processes_with_a_grace_for_those_that_are_deaf() {
    let mut bench = Bench::new(FakeGpu::with_devices(1, 16 * GIB));
    let (mut polite, mut deaf) = (Sleeper::start(), Sleeper::deaf());
    let mut job = |sleeper: &Sleeper, seconds: u64| {
        let limit_ns = seconds * SECOND_NS;
        let request = format!(r#"{{"verb":"run","time_limit_ns":{limit_ns},"compute":"30%"}}"#);
        match bench.ask(sleeper.0.id(), &request) {
            Some(Reply::Admitted(admitted)) => admitted.job,
            other => panic!("{other:?}"),
        }
    };
    let (polite_job, deaf_job) = (job(&polite, 60), job(&deaf, 90));
    assert_eq!(bench.view(&polite_job).terms.time_limit_ns, Some(60 * SECOND_NS));
    assert_eq!(bench.view(&polite_job).terms.promise, 0.3);
    bench.pass(59 * SECOND_NS);
    assert!(polite.is_alive());
    bench.pass(SECOND_NS);
    assert_eq!(polite.signal(), Some(libc::SIGTERM));
    bench.turn();
    let view = bench.view(&polite_job);
    assert_eq!(
        view.end_reason.as_deref(),
        Some("its time limit of 60s was over (--time-limit 60s)")
    );
    bench.pass(30 * SECOND_NS);
    bench.pass(9 * SECOND_NS);
    assert!(deaf.is_alive() && bench.view(&deaf_job).state == "running");
    bench.pass(SECOND_NS);
    assert_eq!(deaf.signal(), Some(libc::SIGKILL));
    bench.turn();
    assert_eq!(bench.view(&deaf_job).state, "ended");
}
