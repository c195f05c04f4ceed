// SPDX-License-Identifier: Apache-2.0
//! What `ps`, `status`, `get`, `set`, `stop`, `events`, `broker`, `doctor`, `version` and `completions` write.

use partage_protocol::admin::{
    CauseView, DenialView, ErrorCode, EventView, Holder, JobView, QueuedView, Reply, Request, TermsChange, TermsView,
    TimeView, WhyView,
};

use crate::bench::{Bench, result};
use crate::played_broker::{job, play, refusal, status, unmanaged};
use crate::schema;

fn ps_reply() -> Reply {
    let mut second = job("evil\x1b[2J\u{e9}");
    second.job = "j43".to_owned();
    second.state = "over limit".to_owned();
    second.notes.clear();
    let mut evil = unmanaged();
    evil.command = Some("sh\x1b[2J\u{9b}1m\u{202e}".to_owned());
    Reply::Ps {
        jobs: vec![job("train"), second],
        unmanaged: vec![evil],
        more: false,
    }
}

#[track_caller]
fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn ps_is_a_table_and_a_pipe_gets_it_whole() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![ps_reply()]; 4]);
    let (code, out, err) = result(bench.partage(&["ps"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "\
JOB  NAME       USER   STATE       GPU   USED  LIMIT  CLIENTS  COMMAND
j42  train      alice  running       0  3 GiB  8 GiB        1  python train.py --data 'a very long path/that does not end/soon enough'
                                     1  3 GiB   none
j43  evil?[2J\u{e9}  alice  over limit    0  3 GiB  8 GiB        1  python train.py --data 'a very long path/that does not end/soon enough'
                                     1  3 GiB   none
unmanaged: pid 77 (sh?[2J?1m?) of carol uses 5 GiB on GPU 1 and 48 % of its time
j42: pid 4130 uses a GPU without the limit
"
    );
    let mut ascii = bench.partage(&["ps", "--all", "--color", "always"]);
    ascii.env("LC_ALL", "C");
    let (_, out, _) = result(ascii);
    assert!(out.is_ascii() && out.contains("\x1b[32mrunning\x1b[0m"), "{out}");
    let mut plain = bench.partage(&["ps"]);
    plain.env("NO_COLOR", "1");
    assert!(!result(plain).1.contains('\x1b'));
    let document = schema::judge("ps", &result(bench.partage(&["ps", "--json"])).1);
    assert_eq!(
        document["jobs"][1]["name"], "evil\x1b[2J\u{e9}",
        "JSON keeps what was given"
    );
    let asked: Vec<Request> = requests.try_iter().collect();
    assert_eq!(
        asked[..2],
        [
            Request::Ps {
                all: false,
                after: None
            },
            Request::Ps { all: true, after: None }
        ]
    );
}

#[test]
fn status_shows_devices_queue_and_broker() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    view.queue.push(QueuedView {
        job: "j44".to_owned(),
        user: "bob".to_owned(),
        mem: Some("25%".to_owned()),
        compute: None,
        waited_ns: 61_000_000_000,
        reason: "35 GiB asked, 2 GiB free of 140 GiB on GPU 3, held by others".to_owned(),
    });
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Status(view)]; 2]);
    let (code, out, _) = result(bench.partage(&["status"]));
    assert_eq!(code, 0);
    let expected = format!(
        "\
GPU  MODEL  STATE   USABLE  COMMITTED   USED  UNMANAGED  JOBS
  3  H200   ok     140 GiB      8 GiB  3 GiB        0 B  j42

QUEUED  USER  ASKS  WAITED  FOR
j44     bob    25%     61s  35 GiB asked, 2 GiB free of 140 GiB on GPU 3, held by others

broker 4100 (private), 1 job, 2 clients, up 90s
at {}, version 0.1.0 (0123456789ab)
driver ok
a private broker: promises hold among your own jobs only
",
        bench.socket_dir().display()
    );
    assert_eq!(out, expected);
    schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
}

#[test]
fn get_and_set_show_the_job() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Job(job("train"))]; 4]);
    let (code, out, _) = result(bench.partage(&["get", "train"]));
    assert_eq!(code, 0);
    for part in [
        "job        j42\n",
        "user       alice (1000)\n",
        "  limit    8 GiB, by --mem 8GiB\n",
        "denied     2 by the limit",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    schema::judge("job", &result(bench.partage(&["get", "j42", "--json"])).1);
    let (_, out, _) = result(bench.partage(&["set", "j42", "mem=2GiB"]));
    assert_eq!(
        out,
        "j42: limit 8 GiB on GPU 0, in use 3 GiB\nj42: limit none on GPU 1, in use 3 GiB\n"
    );
    schema::judge("job", &result(bench.partage(&["set", "j42", "mem=2GiB", "--json"])).1);
    let asked: Vec<Request> = requests.try_iter().collect();
    assert_eq!(
        asked[0],
        Request::Get {
            target: "train".to_owned()
        }
    );
    assert_eq!(
        asked[2],
        Request::Set {
            name: None,
            target: "j42".to_owned(),
            mem: Some("2GiB".to_owned()),
            mem_request: None,
            terms: TermsChange::default(),
        }
    );
}

#[test]
fn set_takes_limit_and_promise() {
    let bench = Bench::new();
    let mut view = job("train");
    view.devices.truncate(1);
    view.devices[0].request_bytes = 2 << 30;
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Job(view)]]);
    let (code, out, _) = result(bench.partage(&["set", "train", "mem=8GiB", "mem-request=25%"]));
    assert_eq!(
        (code, out.as_str()),
        (0, "j42: limit 8 GiB on GPU 0, promised 2 GiB, in use 3 GiB\n")
    );
    let asked: Vec<Request> = requests.try_iter().collect();
    assert_eq!(
        asked[0],
        Request::Set {
            name: None,
            target: "train".to_owned(),
            mem: Some("8GiB".to_owned()),
            mem_request: Some("25%".to_owned()),
            terms: TermsChange::default(),
        }
    );
    for (bad, part) in [
        ("mem-request=8", "mem-request: "),
        ("memory=8GiB", "mem-request=SIZE|PCT|none, compute=PCT|none"),
        ("compute=30", "compute: \"30\" has no unit: did you mean 30%?"),
        ("compute-max=0.5", "compute-max: \"0.5\" has no unit: did you mean 50%?"),
        ("weight=0", "weight: bad weight \"0\""),
        (
            "priority=urgent",
            "priority: unknown priority \"urgent\" (use low, normal, high or realtime)",
        ),
        ("mem", "mem needs a value, e.g. mem=8GiB"),
    ] {
        let (code, _, err) = result(bench.partage(&["set", "train", bad]));
        assert_eq!(code, 2, "{bad}");
        assert!(err.contains(part), "{err}");
    }
}

/// A job with terms, measured on its first GPU.
fn timed() -> JobView {
    let mut view = job("train");
    view.terms = TermsView {
        promise: 0.3,
        cap: Some(0.5),
        weight: 300,
        priority: "high".to_owned(),
        time_limit_ns: Some(7_200_000_000_000),
        ends_ns: Some(1_795_220_760_000_000_000),
        promise_from: "--compute 30%".to_owned(),
        ..TermsView::default()
    };
    view.devices[0].time = Some(TimeView {
        asked: 0.3,
        share: 0.5,
        got_1s: 0.4984,
        got_60s: 0.5001,
        used_ns: 62_000_000_000,
        waited_ns: 95_000_000_000,
        waited_60s_ns: 12_300_000_000,
        state: "waiting".to_owned(),
        held_by: Some("j41".to_owned()),
        is_held_by_priority: false,
        unit_ns: 5_200_000,
        regime: "overlap".to_owned(),
    });
    view.notes.clear();
    view
}

#[test]
fn ps_has_a_second_table_where_there_is_something_to_say_about_time() {
    let bench = Bench::new();
    let mut ended = timed();
    ended.ended_ns = Some(1);
    let mut measured = timed();
    measured.job = "j43".to_owned();
    measured.terms = TermsView::default();
    if let Some(time) = &mut measured.devices[0].time {
        time.state = "not draining".to_owned();
        time.held_by = None;
    }
    let reply = Reply::Ps {
        jobs: vec![timed(), measured, job("plain"), ended],
        unmanaged: Vec::new(),
        more: false,
    };
    let _requests = play(&bench.socket_dir(), vec![vec![reply]; 2]);
    let (code, out, _) = result(bench.partage(&["ps"]));
    assert_eq!(code, 0);
    let (_, table) = out.split_once("\n\n").expect("a second table");
    assert_eq!(
        table,
        "\
JOB  NAME   GPU  PRIORITY  PROMISE   CAP   SHARE  GOT 1s     60s  WAITED  STATE
j42  train    0  high         30 %  50 %  50.0 %  49.8 %  50.0 %     12s  waiting j41
              1  high         30 %  50 %       -       -       -       -  -
j43  train    0  normal          -     -  50.0 %  49.8 %  50.0 %     12s  not draining
j42: pid 4130 uses a GPU without the limit
"
    );
    let document = schema::judge("ps", &result(bench.partage(&["ps", "--json"])).1);
    assert_eq!(document["jobs"][0]["devices"][0]["time"]["got_1s"], 0.4984);
    assert_eq!(document["jobs"][0]["terms"]["cap"], 0.5);
}

#[test]
fn get_shows_terms_and_what_was_got() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Job(timed())]; 2]);
    let (_, out, _) = result(bench.partage(&["get", "train"]));
    for part in [
        "promise    30 %, by --compute 30%\n",
        "cap        50 %\n",
        "weight     300\n",
        "priority   high\n",
        "time limit 2h, until 2026-11-21T00:26:00.000Z\n",
        "  time     49.8 % in the last second, 50.0 % in the last minute, of 50.0 % that it may have\n",
        "  used     62s of this GPU's time, while it was measured\n",
        "  waited   12s in the last minute, 95s in all\n",
        "  turn     waiting j41, overlap, longest piece of work 5.2ms\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    schema::judge("job", &result(bench.partage(&["get", "train", "--json"])).1);
}

#[test]
fn set_takes_terms_of_time() {
    let bench = Bench::new();
    let mut view = timed();
    view.devices.truncate(1);
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Job(view)]; 2]);
    let settings = [
        "compute=30%",
        "compute-max=none",
        "weight=300",
        "priority=high",
        "mem=8GiB",
    ];
    let (code, out, err) = result(bench.partage(&[&["set", "train"], &settings[..]].concat()));
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (
            0,
            "j42: limit 8 GiB on GPU 0, in use 3 GiB, promise 30 %, cap 50 %, weight 300, priority high, at most 2h\n",
            ""
        )
    );
    let asked: Vec<Request> = requests.try_iter().collect();
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(
        asked[0],
        Request::Set {
            name: None,
            target: "train".to_owned(),
            mem: said("8GiB"),
            mem_request: None,
            terms: TermsChange {
                compute: said("30%"),
                compute_max: said("none"),
                weight: said("300"),
                priority: said("high"),
                time_limit: None,
            },
        }
    );
}

#[test]
fn status_shows_promises_of_time_and_the_regime() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    view.devices[0].promised_time = 0.8;
    view.devices[0].regime = Some("turns".to_owned());
    view.devices[0].unmanaged_time = Some(0.12);
    view.queue.push(QueuedView {
        job: "j44".to_owned(),
        user: "bob".to_owned(),
        mem: None,
        compute: Some("30%".to_owned()),
        waited_ns: 61_000_000_000,
        reason: "needs 30 % of the time".to_owned(),
    });
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Status(view)]; 2]);
    let (_, out, _) = result(bench.partage(&["status"]));
    assert!(
        out.contains("\ntime on GPU 3: 80 % promised, turns, 12 % used without Partage\n"),
        "{out}"
    );
    assert!(out.contains("j44     bob   30% time     61s"), "{out}");
    fits(&out);
    let document = schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
    assert_eq!(document["devices"][0]["promised_time"], 0.8);
}

#[test]
fn why_is_sentences() {
    let bench = Bench::new();
    let why = Reply::Why(WhyView {
        job: job("train"),
        sentences: vec![
            "3.2 GiB was denied on GPU 0 12s ago (pid 4121): with the 6.1 GiB in use it is more than the limit of 8 GiB; \
             raise it with: partage set j42 mem=9728MiB"
                .to_owned(),
            "GPU 0: limit 8 GiB by --mem 8GiB, all of it promised (8 GiB)".to_owned(),
        ],
        denials: vec![DenialView {
            time_ns: 1_795_213_560_000_000_000,
            gpu: 0,
            pid: 4121,
            asked_bytes: 3 << 30,
            limit_bytes: 8 << 30,
            used_bytes: 6 << 30,
            reason: "card full".to_owned(),
            holders: vec![Holder {
                who: "j41 (alice/eval)".to_owned(),
                gpu: 0,
                bytes: 9 << 30,
                compute: None,
            }],
        }],
        causes: vec![CauseView {
            gpu: 0,
            cause: "neighbour".to_owned(),
            by: vec!["j41".to_owned()],
        }],
    });
    let requests = play(&bench.socket_dir(), vec![vec![why]; 2]);
    let (code, out, err) = result(bench.partage(&["why", "train"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "\
j42 (train): running
- 3.2 GiB was denied on GPU 0 12s ago (pid 4121): with the 6.1 GiB in use it is
  more than the limit of 8 GiB; raise it with: partage set j42 mem=9728MiB
- GPU 0: limit 8 GiB by --mem 8GiB, all of it promised (8 GiB)
"
    );
    let document = schema::judge("why", &result(bench.partage(&["why", "j42", "--json"])).1);
    assert_eq!(document["denials"][0]["reason"], "card full");
    assert_eq!(document["causes"][0]["cause"], "neighbour");
    let asked: Vec<Request> = requests.try_iter().collect();
    let target = "train".to_owned();
    assert_eq!(asked[0], Request::Why { target });
}

#[test]
fn an_overcommitted_device_and_denials_are_said() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    let note = "promises on GPU 3 add up to 130 % of its memory: allocations within a job's limit may be denied as card \
                full";
    view.devices[0].notes.push(note.to_owned());
    view.devices[0].denied.card_full = 3;
    view.devices[0].denied.limit = 2;
    view.broker.overcommit_percent = 150;
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Status(view)]; 2]);
    let (_, out, _) = result(bench.partage(&["status"]));
    fits(&out);
    let said = out.replace('\n', " ");
    assert!(
        said.contains(note) && said.contains("denied on GPU 3: 2 by limits, 3 card full"),
        "{out}"
    );
    schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
}

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

#[test]
fn events_are_lines() {
    let bench = Bench::new();
    let event = Reply::Event(EventView {
        time_ns: 1_795_213_560_123_000_000,
        kind: "denied".to_owned(),
        job: Some("j42".to_owned()),
        pid: Some(4121),
        text: "9 GiB asked, limit 8 GiB, 3 GiB in use".to_owned(),
    });
    let end = Reply::Done { message: String::new() };
    let script = vec![
        vec![event.clone(), event.clone(), end.clone()],
        vec![event.clone(), end.clone()],
        vec![event.clone(), event.clone(), end],
        vec![Reply::Status(status(&bench.socket_dir()))],
        vec![event],
    ];
    let _requests = play(&bench.socket_dir(), script);
    let line = "2026-11-20T22:26:00.123Z denied           j42 pid 4121 9 GiB asked, limit 8 GiB, 3 GiB in use\n";
    assert_eq!(result(bench.partage(&["events"])), (0, line.repeat(2), String::new()));
    schema::judge("event", &result(bench.partage(&["events", "--json"])).1);
    // What happened before the last ten minutes, years ago, is left out.
    assert_eq!(
        result(bench.partage(&["events", "--since", "10m"])),
        (0, String::new(), String::new())
    );
    // The broker leaves: the story ends, and that is no error.
    assert_eq!(
        result(bench.partage(&["events", "-f"])),
        (0, line.to_owned(), String::new())
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
