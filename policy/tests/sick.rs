// SPDX-License-Identifier: Apache-2.0
//! A sick device: what makes it sick, that nothing is admitted there, and what makes it well.

use partage_policy::{Action, Adoption, DrainMark, Event, FATAL_XIDS, SickMark, Sickness, Telemetry};
use partage_protocol::admin::{DeviceView, Reply, RunRequest, WhyView};
use partage_protocol::units::{DeviceUuid, GIB, JobId, SECOND_NS};
use proptest::prelude::*;

use crate::host::{Host, broker_view, caller, mem, uuid};

/// An error of a program.
const PROGRAMS_OWN: u32 = 13;
/// The device has fallen off the bus.
const OFF_THE_BUS: u32 = 79;

fn on(gpu: &str, amount: &str) -> RunRequest {
    RunRequest {
        gpu: Some(gpu.into()),
        ..mem(amount)
    }
}

fn xid(host: &mut Host, device: u8, xid: u32) -> Vec<Action> {
    host.step(Event::Xids {
        device: uuid(device),
        xids: vec![xid],
    })
}

fn heal(host: &mut Host, device: u8) -> Vec<Action> {
    host.step(Event::Heal {
        device: uuid(device),
        uid: 7,
    })
}

/// NVML says so of the device's rows from now on, and is polled.
fn rows(host: &mut Host, device: u8, has_failed: Option<bool>) -> Vec<Action> {
    let telemetry = Telemetry {
        has_remap_failed: has_failed,
        ..Telemetry::default()
    };
    host.telemetry.insert(uuid(device), telemetry);
    let before = host.commands.len();
    host.answer_look(uuid(device));
    host.commands[before..].to_vec()
}

fn device(host: &Host, at: usize) -> DeviceView {
    let mut status = host.policy.status(broker_view(), host.now_ns, &host.board);
    status.devices.swap_remove(at)
}

fn why(host: &Host, job: JobId) -> WhyView {
    let target = partage_policy::TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    match host.policy.why(&caller(0), &target, host.now_ns, &host.board) {
        Ok(Reply::Why(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn kinds(actions: &[Action]) -> Vec<&'static str> {
    let kind = |action: &Action| match action {
        Action::Publish { kind, .. } if kind.starts_with("gpu-") => Some(*kind),
        _ => None,
    };
    actions.iter().filter_map(kind).collect()
}

#[test]
fn a_fatal_error_makes_a_device_sick_and_a_programs_own_does_not() {
    let mut host = Host::new(&[8, 8]);
    for harmless in [PROGRAMS_OWN, 31, 43, 45, 63, 94] {
        assert!(kinds(&xid(&mut host, 1, harmless)).is_empty());
        assert_eq!(device(&host, 0).state, "ok", "Xid {harmless}");
    }
    let told = xid(&mut host, 1, OFF_THE_BUS);
    assert_eq!(kinds(&told), ["gpu-sick"]);
    assert!(told.contains(&Action::Health(uuid(1))), "written down: {told:?}");
    assert!(kinds(&xid(&mut host, 1, 48)).is_empty(), "once");
    let view = device(&host, 0);
    assert_eq!((view.state.as_str(), view.is_drained), ("sick", false));
    assert_eq!(view.sick.expect("it is").cause, "xid 79");
    let heard = view.telemetry.expect("polled").xids.expect("heard of");
    let heard: Vec<(u32, u64)> = heard.iter().map(|xid| (xid.xid, xid.count)).collect();
    assert_eq!(
        heard,
        [(13, 1), (31, 1), (43, 1), (45, 1), (48, 1), (63, 1), (79, 1), (94, 1)]
    );
    assert_eq!(device(&host, 1).state, "ok");
}

#[test]
fn each_fatal_error_does() {
    for fatal in FATAL_XIDS {
        let mut host = Host::new(&[8]);
        assert_eq!(kinds(&xid(&mut host, 1, fatal.number)), ["gpu-sick"], "{fatal:?}");
    }
}

#[test]
fn nothing_is_admitted_on_a_sick_device_until_an_administrator_says_that_it_is_well() {
    let mut host = Host::new(&[8, 8]);
    let (stays, first) = host.admitted(1, on("0", "2g"));
    let client = host.attach(stays, first);
    xid(&mut host, 1, OFF_THE_BUS);
    let (ticket, _) = host.run(1, on("0", "1g"));
    assert!(host.is_waiting(ticket));
    let queue = host.policy.status(broker_view(), host.now_ns, &host.board).queue;
    assert!(queue[0].reason.contains("GPU 0 is sick since"), "{queue:?}");
    let (auto, _) = host.admitted(1, mem("1g"));
    let record = host.records().into_iter().find(|record| record.id == auto.0);
    assert_eq!(record.expect("recorded").devices[0].device, uuid(2));
    // The job that is there goes on, and is told.
    assert!(host.allocate(client, 0, GIB));
    let why = why(&host, stays);
    assert!(why.causes.iter().any(|cause| cause.cause == "sick-gpu"), "{why:?}");
    assert!(
        why.sentences
            .iter()
            .any(|said| said.contains("has fallen off the bus (Xid 79)"))
    );
    assert_eq!(host.policy.jobs_to_move(uuid(1), &host.board), [stays]);
    let to = host
        .policy
        .place_to_move(stays, uuid(1), &host.board)
        .expect("the other");
    assert_eq!(to.target.device, uuid(2));
    assert_eq!(kinds(&heal(&mut host, 1)), ["gpu-well"]);
    assert!(!host.is_waiting(ticket));
    assert!(kinds(&heal(&mut host, 1)).is_empty(), "it is well already");
    assert_eq!(kinds(&xid(&mut host, 1, OFF_THE_BUS)), ["gpu-sick"], "once more");
}

#[test]
fn no_job_moves_to_a_sick_device() {
    let mut host = Host::new(&[8, 8]);
    let (job, _) = host.admitted(1, on("0", "2g"));
    xid(&mut host, 2, OFF_THE_BUS);
    let error = host
        .policy
        .place_to_move(job, uuid(1), &host.board)
        .expect_err("it is sick");
    assert_eq!(error.view().message, "GPU 1 is sick");
}

#[test]
fn a_failed_replacement_of_rows_makes_it_sick_once() {
    let mut host = Host::new(&[8]);
    assert!(
        kinds(&rows(&mut host, 1, None)).is_empty(),
        "a driver that does not say"
    );
    assert!(kinds(&rows(&mut host, 1, Some(false))).is_empty());
    rows(&mut host, 1, Some(true));
    assert_eq!(device(&host, 0).sick.expect("it is").cause, "remap-failed");
    heal(&mut host, 1);
    rows(&mut host, 1, Some(true));
    assert_eq!(device(&host, 0).state, "ok", "the administrator's word holds");
    rows(&mut host, 1, Some(false));
    rows(&mut host, 1, Some(true));
    assert_eq!(device(&host, 0).state, "sick");
    rows(&mut host, 1, Some(false));
    assert_eq!(device(&host, 0).state, "ok", "it was replaced");
}

#[test]
fn the_next_broker_knows_it_and_a_boot_heals() {
    let mut host = Host::new(&[8, 8]);
    xid(&mut host, 1, OFF_THE_BUS);
    host.restart(Vec::new());
    host.measure();
    assert_eq!(device(&host, 0).state, "sick", "no boot, no reset");
    let mark = |cause| SickMark {
        since_unix_ns: 1,
        cause,
        is_of_earlier_boot: true,
    };
    for (has_failed, state) in [(Some(false), "ok"), (None, "ok"), (Some(true), "sick")] {
        let mut host = Host::new(&[8]);
        host.policy = partage_policy::Policy::new(partage_policy::Config::default());
        host.enumerate();
        host.step(Event::Adopt(Adoption {
            sick: [(uuid(1), mark(Sickness::Xid(OFF_THE_BUS)))].into(),
            ..Adoption::default()
        }));
        assert!(host.policy.is_sick(uuid(1)), "not polled yet");
        rows(&mut host, 1, has_failed);
        assert_eq!(device(&host, 0).state, state, "{has_failed:?}");
    }
}

#[test]
fn heat_and_power_are_causes_of_those_who_use_the_device() {
    let mut host = Host::new(&[8]);
    let (job, first) = host.admitted(1, on("0", "2g"));
    let telemetry = Telemetry {
        throttle_bits: Some(0x24),
        temperature_celsius: Some(91),
        power_milliwatts: Some(699_500),
        power_limit_milliwatts: Some(700_000),
        ..Telemetry::default()
    };
    host.telemetry.insert(uuid(1), telemetry);
    host.measure();
    assert!(why(&host, job).causes.is_empty(), "it uses nothing");
    host.attach(job, first);
    let why = why(&host, job);
    let causes: Vec<&str> = why.causes.iter().map(|cause| cause.cause.as_str()).collect();
    assert!(causes.starts_with(&["thermal", "power"]), "{causes:?}");
    for text in [
        "GPU 0 runs with lower clocks because it is too warm (91 C, sw-thermal)",
        "GPU 0 runs with lower clocks because it may not take more power (700 W of 700 W, power-cap)",
    ] {
        assert!(
            why.sentences.iter().any(|said| said == text),
            "{text}: {:?}",
            why.sentences
        );
    }
    let view = device(&host, 0);
    assert_eq!(view.throttle, ["power-cap", "sw-thermal"]);
    assert_eq!((view.temperature_celsius, view.power_watts), (Some(91), Some(699.5)));
    assert_eq!((view.utilization, view.sick), (None, None), "absent, not 0");
}

/// What can happen to a device's health.
#[derive(Clone, Debug)]
enum Turn {
    Xid(u32),
    Rows(Option<bool>),
    Heal,
    Drain,
    Undrain,
    NextBroker,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        prop::sample::select(vec![13, 31, 43, 45, 63, 94, 109, 154, 48, 64, 79, 95, 119]).prop_map(Turn::Xid),
        prop::option::of(any::<bool>()).prop_map(Turn::Rows),
        Just(Turn::Heal),
        Just(Turn::Drain),
        Just(Turn::Undrain),
        Just(Turn::NextBroker),
    ]
}

/// The same in a few words.
#[derive(Default)]
struct Model {
    sick: Option<u32>,
    had_failed: Option<bool>,
    is_drained: bool,
}

impl Model {
    /// 0 stands for rows that could not be replaced.
    fn take(&mut self, turn: &Turn) {
        match turn {
            Turn::Xid(xid) if [48, 64, 79, 95, 119].contains(xid) => drop(self.sick.get_or_insert(*xid)),
            Turn::Xid(_) => {}
            Turn::Rows(said) => {
                match (said, self.sick) {
                    (Some(false), Some(0)) => self.sick = None,
                    (Some(true), None) if self.had_failed != Some(true) => self.sick = Some(0),
                    _ => {}
                }
                self.had_failed = said.or(self.had_failed);
            }
            Turn::Heal => self.sick = None,
            Turn::Drain => self.is_drained = true,
            Turn::Undrain => self.is_drained = false,
            // It polls at once: what the driver says of the rows is news to it.
            Turn::NextBroker => self.had_failed = None,
        }
    }
}

fn apply(host: &mut Host, device: DeviceUuid, turn: &Turn) {
    match turn {
        Turn::Xid(number) => drop(xid(host, 1, *number)),
        Turn::Rows(said) => drop(rows(host, 1, *said)),
        Turn::Heal => drop(heal(host, 1)),
        Turn::Drain => {
            let mark = Some(DrainMark::default());
            host.step(Event::Drain { device, mark });
        }
        Turn::Undrain => drop(host.step(Event::Drain { device, mark: None })),
        Turn::NextBroker => {
            let records = host.records();
            host.restart(records);
            host.telemetry.clear();
            host.measure();
        }
    }
}

proptest! {
    #[test]
    fn a_device_takes_jobs_while_it_is_well_and_not_drained(turns in prop::collection::vec(turn(), 1..20)) {
        let mut host = Host::new(&[64]);
        let mut model = Model::default();
        for turn in &turns {
            apply(&mut host, uuid(1), turn);
            model.take(turn);
            let cause = device(&host, 0).sick.map(|sick| sick.cause);
            let expected = model.sick.map(|xid| match xid {
                0 => "remap-failed".to_owned(),
                xid => format!("xid {xid}"),
            });
            prop_assert_eq!(cause, expected, "after {:?}", turn);
            host.pass(SECOND_NS);
            let (ticket, _) = host.run(1, RunRequest { wait: false, ..on("0", "64MiB") });
            let takes = model.sick.is_none() && !model.is_drained;
            prop_assert_eq!(host.job_of(ticket).is_some(), takes, "after {:?}", turn);
        }
    }
}
