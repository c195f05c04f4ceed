// SPDX-License-Identifier: Apache-2.0
//! What `stop`, `events`, `broker`, `doctor`, `version` and `completions` write, and each command without a broker.

use std::sync::mpsc::Receiver;

use partage_protocol::admin::{ErrorCode, EventDevice, EventNumbers, EventView, EventsRequest, Reply, Request};

use crate::bench::{Bench, result};
use crate::played_broker::{play, refusal, status};
use crate::schema;

#[test]
fn stop_waits_for_its_answer() {
    let bench = Bench::new();
    let done = Reply::Done {
        message: "j42 ended".to_owned(),
    };
    let requests = play(&bench.socket_dir(), vec![vec![done]; 2]);
    assert_eq!(
        result(bench.partage(&["stop", "j42"])),
        (0, "j42 ended\n".to_owned(), String::new())
    );
    schema::judge(
        "done",
        &result(bench.partage(&["stop", "j42", "--grace", "1m", "--json"])).1,
    );
    let graces: Vec<Request> = requests.try_iter().collect();
    assert_eq!(
        graces[0],
        Request::Stop {
            target: "j42".to_owned(),
            grace_ns: 10_000_000_000
        }
    );
    assert_eq!(
        graces[1],
        Request::Stop {
            target: "j42".to_owned(),
            grace_ns: 60_000_000_000
        }
    );
}

/// An event with numbers, and its line.
fn event() -> (EventView, &'static str) {
    let event = EventView {
        number: 7,
        uid: Some(1000),
        user: Some("alice".to_owned()),
        time_ns: 1_795_213_560_123_000_000,
        kind: "denied".to_owned(),
        job: Some("j42".to_owned()),
        pid: Some(4121),
        text: "9 GiB asked, limit 8 GiB, 3 GiB in use".to_owned(),
        numbers: EventNumbers {
            gpu: Some(3),
            asked_bytes: Some(9 << 30),
            limit_bytes: Some(8 << 30),
            used_bytes: Some(3 << 30),
            devices: vec![EventDevice {
                gpu: None,
                uuid: "GPU-1".to_owned(),
                limit_bytes: None,
                request_bytes: 0,
                peak_bytes: Some(1),
            }],
            ..EventNumbers::default()
        },
    };
    let line = "2026-11-20T22:26:00.123Z denied           j42 pid 4121 9 GiB asked, limit 8 GiB, 3 GiB in use\n";
    (event, line)
}

/// A page of it.
fn page(event: &EventView, count: usize, more: Option<u64>) -> Vec<Reply> {
    let events = vec![event.clone(); count];
    vec![Reply::Events { events, more }]
}

#[test]
fn events_are_lines() {
    let bench = Bench::new();
    let (event, line) = event();
    let script = vec![page(&event, 1, Some(7)), page(&event, 1, None), page(&event, 1, None)];
    let requests = play(&bench.socket_dir(), script);
    assert_eq!(result(bench.partage(&["events"])), (0, line.repeat(2), String::new()));
    let document = schema::judge("event", &result(bench.partage(&["events", "--json"])).1);
    assert_eq!(
        document["time"], "2026-11-20T22:26:00.123Z",
        "when it happened, not when it was asked"
    );
    let event = &document["event"];
    let numbers = ["gpu", "asked_bytes", "limit_bytes", "used_bytes"].map(|name| event[name].as_u64());
    assert_eq!(numbers, [Some(3), Some(9 << 30), Some(8 << 30), Some(3 << 30)]);
    assert!(
        event["devices"][0]["limit_bytes"].is_null() && event.get("exit_code").is_none(),
        "{event}"
    );
    let after: Vec<Option<u64>> = events_requests(&requests).iter().map(|asked| asked.after).collect();
    assert_eq!(after, [None, Some(7), None]);
}

/// What was asked of the broker.
fn events_requests(requests: &Receiver<Request>) -> Vec<EventsRequest> {
    let asked = requests.try_iter().map(|request| match request {
        Request::Events(asked) => asked,
        other => panic!("{other:?}"),
    });
    asked.collect()
}

#[test]
fn events_are_asked_for_by_number_kind_user_and_job_and_followed() {
    let bench = Bench::new();
    let (event, line) = event();
    // A page that leads nowhere is the last one.
    let follower = vec![Reply::Event(event.clone()), Reply::Event(event.clone())];
    let script = vec![page(&event, 0, Some(3)), page(&event, 1, None), follower];
    let requests = play(&bench.socket_dir(), script);
    let options = [
        "--after",
        "3",
        "--kind",
        "denied,drift",
        "--user",
        "1000",
        "--job",
        "j42",
    ];
    assert_eq!(
        result(bench.partage(&[&["events"], &options[..]].concat())),
        (0, String::new(), String::new())
    );
    // A follower is told what it asked for alone. The broker leaves: the story ends, and that is no error.
    assert_eq!(
        result(bench.partage(&["events", "-f", "--since", "10m"])),
        (0, line.to_owned(), String::new())
    );
    let asked = events_requests(&requests);
    let after: Vec<Option<u64>> = asked.iter().map(|asked| asked.after).collect();
    assert_eq!(after, [Some(3), None, Some(7)]);
    assert!(asked[1].since_ns.is_some() && asked[2].follow, "{asked:?}");
    let expected = EventsRequest {
        after: Some(3),
        uid: Some(1000),
        job: Some("j42".to_owned()),
        kinds: vec!["denied".to_owned(), "drift".to_owned()],
        ..EventsRequest::default()
    };
    assert_eq!(asked[0], expected);
    let said = result(bench.partage(&["events", "--kind", "job-end"]));
    assert!(
        said.0 == 2 && said.2.contains("--kind: there are no events of kind \"job-end\""),
        "{said:?}"
    );
}

#[test]
fn without_a_broker_the_code_says_so() {
    let bench = Bench::new();
    for arguments in [
        &["get", "j1"][..],
        &["why", "j1"],
        &["stop", "j1"],
        &["set", "j1", "mem=1GiB"],
    ] {
        let (code, out, err) = result(bench.partage(arguments));
        assert_eq!((code, out.as_str()), (5, ""), "{arguments:?}");
        assert!(err.starts_with("partage: no broker at "), "{arguments:?}: {err}");
    }
    // An idle machine is an answer.
    let none = "no broker runs; the next `partage run` starts one\n";
    for (arguments, said, complained) in [
        (&["ps"][..], "no jobs\n".to_owned(), String::new()),
        (&["ls"], "no jobs\n".to_owned(), String::new()),
        (&["ps", "-a"], "no jobs\n".to_owned(), String::new()),
        (
            &["status"],
            format!("no GPUs\nthe NVML helper ended\n\n{none}"),
            String::new(),
        ),
        (&["events"], String::new(), format!("partage: no events: {none}")),
        (&["stop", "--all"], "no jobs\n".to_owned(), String::new()),
    ] {
        assert_eq!(result(bench.partage(arguments)), (0, said, complained), "{arguments:?}");
    }
    schema::judge("ps", &result(bench.partage(&["ps", "--json"])).1);
    schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
    let (code, out, _) = result(bench.partage(&["broker", "status", "--json"]));
    assert_eq!(code, 5);
    schema::judge("broker", &out);
    assert_eq!(result(bench.partage(&["broker", "stop"])).0, 0);
    assert!(!bench.socket_dir().exists(), "looking makes nothing");
}

#[test]
fn the_broker_is_shown_and_stopped() {
    let bench = Bench::new();
    let script = vec![
        vec![Reply::Status(status(&bench.socket_dir()))],
        vec![Reply::Done {
            message: "bye".to_owned(),
        }],
        vec![refusal(ErrorCode::NotAllowed)],
    ];
    let requests = play(&bench.socket_dir(), script);
    let document = schema::judge("broker", &result(bench.partage(&["broker", "status", "--json"])).1);
    assert_eq!(document["broker"]["pid"], 4100);
    assert_eq!(result(bench.partage(&["broker", "stop"])).0, 0);
    assert_eq!(result(bench.partage(&["broker", "stop"])).0, 3);
    assert_eq!(requests.try_iter().filter(|r| *r == Request::StopBroker).count(), 2);
}

#[test]
fn a_socket_directory_that_others_control_is_not_trusted() {
    let bench = Bench::new();
    let _requests = play(&bench.dir.join("real"), vec![]);
    std::os::unix::fs::symlink(bench.dir.join("real"), bench.socket_dir()).expect("link");
    let (code, _, err) = result(bench.partage(&["ps"]));
    assert_eq!(code, 3);
    assert!(err.contains("symbolic link"), "{err}");
    assert_eq!(result(bench.partage(&["run", "true"])).0, 125);
}

#[test]
fn doctor_finds_what_is_wrong_here() {
    let bench = Bench::new();
    // A machine of its own that has no driver, wherever the test runs.
    let empty = bench.dir.join("machine");
    std::fs::create_dir_all(empty.join("lib")).expect("make");
    let mut command = bench.partage(&["doctor", "--json"]);
    command
        .env("PARTAGE_SIM_DIR", &empty)
        .env("LD_PRELOAD", "")
        .env("CUDA_INJECTION64_PATH", "/x.so");
    let (code, out, err) = result(command);
    assert_eq!(code, 1, "{err}");
    let document = schema::judge("doctor", &out);
    let state = |name: &str| {
        let checks = document["checks"].as_array().expect("checks");
        checks
            .iter()
            .find(|c| c["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {document}"))["state"]
            .clone()
    };
    assert_eq!(document["is_ok"], false);
    assert_eq!(state("NVML"), "fail");
    for name in [
        "library",
        "partaged",
        "preloads",
        "socket dir",
        "broker",
        "kernel",
        "libc",
    ] {
        assert_eq!(state(name), "ok", "{name}: {document}");
    }
    assert_eq!(state("hooks"), "warn");
    assert_eq!(state("PATH"), "warn");
    let mut broken = bench.partage(&["doctor"]);
    bench.file("lib/libpartage.so", b"not a library", 0o644);
    broken.env("PARTAGE_SIM_DIR", &empty);
    let (_, out, _) = result(broken);
    assert!(out.lines().any(|line| line.starts_with("fail  library")), "{out}");
}

#[test]
fn version_and_completions_are_there() {
    let bench = Bench::new();
    let document = schema::judge("version", &result(bench.partage(&["version", "--json"])).1);
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert!(result(bench.partage(&["version"])).1.starts_with("partage 0."));
    assert!(result(bench.partage(&["--version"])).1.starts_with("partage 0."));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, out, _) = result(bench.partage(&["completions", shell]));
        assert!(code == 0 && out.contains("doctor"), "{shell}");
    }
}
