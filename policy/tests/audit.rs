// SPDX-License-Identifier: Apache-2.0
//! The auditor: what counts as a contradiction, what is said, and what each rule does about it.

use crate::host::{FINISHED, Host, MANAGED, STARTED, USED, caller, mem, uuid};
use partage_policy::{Action, Audit, CONFIRM_NS, Config, Event, Policy, Process, Response};
use partage_protocol::admin::Reply;
use partage_protocol::message::{MEASURE_AFTER, VERDICT_LIMIT};
use partage_protocol::units::{ClientId, GIB, JobId, MIB, SECOND_NS};

fn host_with(drift: Response, unmanaged: Response) -> Host {
    let mut host = Host::new(&[16, 16]);
    let audit = Audit {
        drift,
        unmanaged,
        uid: 2,
        ..Audit::default()
    };
    let config = Config {
        audit,
        ..Config::default()
    };
    host.policy = Policy::new(config);
    host.enumerate();
    host.measure();
    host
}

/// A job of 8 GiB on device 0 whose client holds 2 GiB.
fn with_client(drift: Response) -> (Host, JobId, ClientId) {
    let mut host = host_with(drift, Response::Report);
    let request = partage_protocol::admin::RunRequest {
        gpu: Some("0".into()),
        ..mem("8GiB")
    };
    let (job, process) = host.admitted(1, request);
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 2 * GIB));
    host.measure();
    (host, job, client)
}

fn events(commands: &[Action], wanted: &str) -> Vec<String> {
    let text = |command: &Action| match command {
        Action::Publish { kind, text, .. } if *kind == wanted => Some(text.clone()),
        _ => None,
    };
    commands.iter().filter_map(text).collect()
}

fn notes(host: &Host, job: JobId) -> String {
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    view.notes.join("\n")
}

/// What NVML shows is `beyond` what it charged, or less where it lies.
fn claim(host: &mut Host, client: ClientId, used: u64) {
    let truth = host.used(client, 0).wrapping_add(host.programs[&client].beyond[0]);
    host.board.set(client, 0, USED, used);
    host.programs.get_mut(&client).expect("there").beyond[0] = truth.wrapping_sub(used);
}

#[test]
fn a_client_that_claims_what_it_does_not_hold_is_named_once_and_at_doublings() {
    let (mut host, job, client) = with_client(Response::Report);
    claim(&mut host, client, 2 * GIB + 64 * MIB);
    host.measure();
    assert!(events(&host.commands, "drift").is_empty(), "within the tolerance");
    for (claimed, told) in [(3, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
        claim(&mut host, client, claimed * GIB);
        host.pass(SECOND_NS / 2);
        host.measure();
        assert_eq!(events(&host.commands, "drift").len(), told, "{claimed}");
    }
    let said = events(&host.commands, "drift");
    assert!(said[0].contains("3 GiB") && said[0].contains("2 GiB"), "{said:?}");
    assert!(
        notes(&host, job).contains("drifts on device 0: it claims to hold 6 GiB"),
        "{}",
        notes(&host, job)
    );
    assert!(host.allocate(client, 0, GIB), "reported only");
    host.free(client, 0, GIB);
    claim(&mut host, client, 2 * GIB);
    host.measure();
    assert_eq!(events(&host.commands, "drift-over").len(), 1);
    assert!(notes(&host, job).is_empty());
}

#[test]
fn deny_new_bars_the_jobs_grants_there_until_a_reading_agrees() {
    let (mut host, job, client) = with_client(Response::DenyNew);
    let sibling = host.attach(job, Process { pid: 11, start: 1 });
    claim(&mut host, client, 4 * GIB);
    host.measure();
    assert!(host.allocate(sibling, 0, MIB), "one look alone may lag behind a free");
    host.pass(CONFIRM_NS);
    host.measure();
    assert!(!host.allocate(sibling, 0, 1) && !host.allocate(client, 0, 1));
    assert!(notes(&host, job).contains("nothing more is granted"));
    host.pass(SECOND_NS);
    host.free(sibling, 0, MIB);
    assert!(
        !host.allocate(sibling, 0, MIB),
        "what is freed is not taken back either"
    );
    claim(&mut host, client, 2 * GIB);
    host.measure();
    assert!(host.allocate(sibling, 0, 5 * GIB));
    // The one that drifted is gone: nobody pays for it any longer.
    claim(&mut host, client, 4 * GIB);
    host.measure();
    host.pass(CONFIRM_NS);
    host.measure();
    assert!(!host.allocate(sibling, 0, MIB));
    host.kill(client);
    assert!(host.allocate(sibling, 0, MIB));
}

#[test]
fn kill_ends_the_process_once_it_is_sure() {
    let (mut host, job, client) = with_client(Response::Kill);
    let process = host.programs[&client].process;
    let kills = |host: &Host| {
        let is_kill = |command: &&Action| **command == Action::KillProcess(process);
        host.commands.iter().filter(is_kill).count()
    };
    claim(&mut host, client, 4 * GIB);
    host.measure();
    assert_eq!(kills(&host), 0);
    for _ in 0..3 {
        host.pass(CONFIRM_NS);
        host.measure();
    }
    assert_eq!(kills(&host), 1);
    assert!(
        notes(&host, job).contains("is killed: audit.drift = kill"),
        "{}",
        notes(&host, job)
    );
    assert_eq!(events(&host.commands, "drift-killed").len(), 1);
}

#[test]
fn a_client_that_allocates_past_us_is_found() {
    let (mut host, job, client) = with_client(Response::Report);
    host.is_excused = true;
    host.change_beyond(client, 0, |_| 7 * GIB);
    host.measure();
    host.measure();
    let said = events(&host.commands, "drift");
    assert!(
        said[0].contains("9 GiB") && said[0].contains("allocates past Partage"),
        "{said:?}"
    );
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    assert_eq!(
        (view.devices[0].used_bytes, view.state.as_str()),
        (9 * GIB, "over limit")
    );
    assert!(!host.allocate(client, 0, 1));
}

#[test]
fn a_lowered_limit_or_a_context_under_measurement_is_no_drift() {
    let (mut host, job, client) = with_client(Response::Kill);
    host.is_excused = true;
    host.set(1, &job.to_string(), "1GiB");
    for _ in 0..3 {
        host.measure();
        host.pass(SECOND_NS);
    }
    assert!(events(&host.commands, "drift").is_empty());
    host.set(1, &job.to_string(), "8GiB");
    host.measure();
    // A context far beyond the limit: it is told to go, and has the time for it.
    host.change_beyond(client, 0, |_| 7 * GIB);
    assert_eq!(host.measure_now(client, 0), VERDICT_LIMIT);
    host.pass(SECOND_NS);
    host.measure();
    assert!(events(&host.commands, "drift").is_empty());
    host.change_beyond(client, 0, |_| 0);
    assert_eq!(host.say_measure(client, 0, MEASURE_AFTER), None);
    host.measure();
    assert!(host.allocate(client, 0, GIB));
}

#[test]
fn words_that_contradict_each_other_are_named() {
    for (word, value, what) in [
        (MANAGED, 3 * GIB, "managed part is more than all it uses"),
        (FINISHED, 9, "more operations ended than began"),
    ] {
        let (mut host, job, client) = with_client(Response::Report);
        host.change_beyond(client, 0, |_| 4 * GIB);
        host.measure();
        host.step(Event::Asking(uuid(1)));
        host.board.set(client, 0, word, value);
        host.measure();
        assert!(notes(&host, job).contains(what), "{}", notes(&host, job));
    }
    let (mut host, job, client) = with_client(Response::Report);
    for (word, value) in [(STARTED, 7), (FINISHED, 7)] {
        host.board.set(client, 0, word, value);
    }
    host.measure();
    for (word, value) in [(STARTED, 5), (FINISHED, 5)] {
        host.board.set(client, 0, word, value);
    }
    host.measure();
    assert!(notes(&host, job).contains("went backwards"), "{}", notes(&host, job));
}

#[test]
fn a_process_that_nvml_does_not_know_by_this_number_proves_nothing() {
    // In another pid namespace NVML lists other numbers, or none.
    let mut host = host_with(Response::Kill, Response::Report);
    let (job, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 2 * GIB));
    for _ in 0..3 {
        for device in [uuid(1), uuid(2)] {
            host.step(Event::Asking(device));
            host.step(Event::Measured(partage_policy::Measurement {
                device,
                used_bytes: 2 * GIB,
                free_bytes: 14 * GIB,
                processes: Vec::new(),
                telemetry: partage_policy::Telemetry::default(),
            }));
        }
        host.pass(SECOND_NS);
    }
    assert!(events(&host.commands, "drift").is_empty());
    assert!(
        notes(&host, job).contains("overhead is not measured"),
        "{}",
        notes(&host, job)
    );
}

#[test]
fn an_unmanaged_process_keeps_its_device_from_new_jobs() {
    let mut host = host_with(Response::Report, Response::DenyNew);
    host.strangers.insert(77, (uuid(1), GIB, None));
    host.measure();
    let request = |gpu: &str| partage_protocol::admin::RunRequest {
        gpu: Some(gpu.into()),
        ..mem("1GiB")
    };
    let (waits, _) = host.run(1, request("0"));
    assert!(host.is_waiting(waits));
    let Some(Reply::Waiting(waiting)) = host.replies[&waits].last() else {
        panic!("waits")
    };
    assert!(
        waiting.reason.contains("pid 77") && waiting.reason.contains("deny-new"),
        "{}",
        waiting.reason
    );
    let (elsewhere, _) = host.run(1, request("auto"));
    assert_eq!(host.devices_of(elsewhere), [1]);
    host.strangers.clear();
    host.measure();
    assert!(host.job_of(waits).is_some());
}

#[test]
fn unmanaged_processes_are_killed_as_far_as_a_private_broker_may() {
    let mut host = host_with(Response::Report, Response::Kill);
    // The host's strangers belong to uid 2, whom this broker serves.
    host.strangers.insert(77, (uuid(1), GIB, None));
    host.measure();
    let killed = |host: &Host, pid: u32| {
        let process = Process {
            pid,
            start: u64::from(pid),
        };
        host.commands.contains(&Action::KillProcess(process))
    };
    assert!(!killed(&host, 77), "seen once");
    host.pass(CONFIRM_NS);
    host.measure();
    assert!(killed(&host, 77));

    let mut other = host_with(Response::Report, Response::Kill);
    let config = Config {
        audit: Audit {
            unmanaged: Response::Kill,
            uid: 1,
            ..Audit::default()
        },
        ..Config::default()
    };
    other.policy = Policy::new(config.clone());
    let look_twice = |host: &mut Host| {
        host.enumerate();
        host.strangers.insert(78, (uuid(1), GIB, None));
        for _ in 0..3 {
            host.measure();
            host.pass(CONFIRM_NS);
        }
    };
    look_twice(&mut other);
    assert!(!killed(&other, 78));
    assert_eq!(events(&other.commands, "unmanaged-spared").len(), 1, "said once");
    // A managed broker ends anybody's.
    other.policy = Policy::new(Config {
        is_private: false,
        ..config
    });
    look_twice(&mut other);
    assert!(killed(&other, 78));
}
