// SPDX-License-Identifier: Apache-2.0
//! `partage top`, `ps -w` and `status -w` as a user has them: in a pseudo-terminal, with a broker that the test plays.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::Signal;
use partage_protocol::admin::{ErrorCode, Reply, Request, WhyView};
use serde_json::Value;

use crate::bench::{Bench, result};
use crate::played_broker::{hear, job, listen_in, next, refusal, say, status, unmanaged};
use crate::schema;
use crate::window::{Window, plain};

/// Plays a broker with one job; gives the requests that change something, and `why`.
fn serve(bench: &Bench) -> Receiver<Request> {
    let dir = bench.socket_dir();
    let listener = listen_in(&dir);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        loop {
            let connection = next(&listener);
            let Some(request) = hear(&connection) else { continue };
            let reply = match &request {
                Request::Status => Reply::Status(status(&dir)),
                Request::Ps { .. } => Reply::Ps {
                    jobs: vec![job("training")],
                    unmanaged: vec![unmanaged()],
                    more: false,
                },
                Request::Why { .. } => Reply::Why(WhyView {
                    job: job("training"),
                    sentences: vec!["j41 has the GPU most of the time".to_owned()],
                    denials: vec![],
                    causes: vec![],
                }),
                Request::Stop { .. } => refusal(ErrorCode::NotAllowed),
                Request::Set { .. } => Reply::Job(job("training")),
                _ => Reply::Done {
                    message: "j42 is suspended".to_owned(),
                },
            };
            if !matches!(request, Request::Status | Request::Ps { .. }) && sender.send(request).is_err() {
                return;
            }
            say(&connection, &reply);
        }
    });
    receiver
}

fn heard(requests: &Receiver<Request>) -> Request {
    requests.recv_timeout(Duration::from_secs(30)).expect("a request")
}

#[test]
fn keys_ask_the_broker_once_they_are_confirmed() {
    let bench = Bench::new();
    let requests = serve(&bench);
    let mut window = Window::open(bench.partage(&["top"]), 80, 24);
    window.until(0, "j42 training alice running");
    window.press("x");
    window.until_shown("partage stop j42? y");
    window.press("y");
    let stop = heard(&requests);
    assert!(
        matches!(&stop, Request::Stop { target, .. } if target == "j42"),
        "{stop:?}"
    );
    // What the broker refuses stands in the last line.
    window.until_shown("stop j42: it cannot be");
    window.press("znemem=9GiB\r");
    window.until_shown("partage set j42 mem=9GiB? y");
    window.press("y");
    let set = heard(&requests);
    assert!(
        matches!(&set, Request::Set { mem: Some(mem), .. } if mem == "9GiB"),
        "{set:?}"
    );
    window.press("zy");
    let suspend = heard(&requests);
    assert!(
        matches!(&suspend, Request::Suspend { target, .. } if target == "j42"),
        "{suspend:?}"
    );
    window.until_shown("j42 is suspended");
    window.press("w");
    assert!(matches!(heard(&requests), Request::Why { .. }));
    window.until_shown("j41 has the GPU most of the time");
    window.press(" q");
    assert_eq!(window.code(), 0);
    assert!(window.is_given_back());
    assert!(requests.try_recv().is_err(), "nothing else was asked");
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    type End = fn(&mut Window);
    let ends: [(&str, End, i32); 4] = [
        ("q", |window| window.press("q"), 0),
        ("Ctrl-C", |window| window.press("\x03"), 0),
        ("SIGTERM", |window| window.signal(Signal::SIGTERM), 143),
        ("SIGHUP", |window| window.signal(Signal::SIGHUP), 129),
    ];
    for (name, end, code) in ends {
        let bench = Bench::new();
        let _requests = serve(&bench);
        let mut window = Window::open(bench.partage(&["top"]), 80, 24);
        window.until(0, "training");
        assert!(!window.is_given_back(), "{name}");
        end(&mut window);
        assert_eq!(window.code(), code, "{name}");
        assert!(window.is_given_back(), "{name}");
    }
}

#[test]
fn it_stops_goes_on_and_takes_the_size_that_it_gets() {
    let bench = Bench::new();
    let _requests = serve(&bench);
    let mut window = Window::open(bench.partage(&["top"]), 80, 24);
    window.until(0, "training");
    for by_key in [true, false] {
        match by_key {
            true => window.press("\x1a"),
            false => window.signal(Signal::SIGTSTP),
        }
        window.wait_for("it stops", |window| window.is_stopped());
        assert!(window.is_given_back());
        let from = window.bytes.len();
        window.signal(Signal::SIGCONT);
        window.until(from, "training");
        assert!(!window.is_given_back());
    }
    let from = window.bytes.len();
    window.resize(60, 20);
    window.until(from, "training");
    let from = window.bytes.len();
    window.resize(40, 20);
    window.until(from, "40x20: top needs 60x10");
    window.press("q");
    assert_eq!(window.code(), 0);
}

#[test]
fn a_machine_on_which_nothing_changes_writes_nothing() {
    let bench = Bench::new();
    let dir = bench.socket_dir();
    let listener = listen_in(&dir);
    let (sender, rounds) = channel();
    std::thread::spawn(move || {
        loop {
            let connection = next(&listener);
            let Some(request) = hear(&connection) else { continue };
            let reply = match &request {
                Request::Status => Reply::Status(status(&dir)),
                _ => Reply::Ps {
                    jobs: vec![job("training")],
                    unmanaged: vec![],
                    more: false,
                },
            };
            say(&connection, &reply);
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    let mut window = Window::open(bench.partage(&["top"]), 80, 24);
    window.until(0, "training");
    let round = || rounds.recv_timeout(Duration::from_secs(30)).expect("it asks");
    // Two whole rounds more, of two questions each; the frame of the first is drawn before the second is asked.
    (0..4).for_each(|_| round());
    window.read();
    let from = window.bytes.len();
    (0..4).for_each(|_| round());
    window.read();
    assert_eq!(plain(&window.bytes[from..]), "");
    assert_eq!(window.bytes.len(), from);
}

#[test]
fn without_a_locale_it_writes_ascii_alone() {
    let bench = Bench::new();
    let _requests = serve(&bench);
    let mut command = bench.partage(&["top"]);
    command.env("LC_ALL", "C").env("NO_COLOR", "1");
    let mut window = Window::open(command, 60, 20);
    window.until(0, "training");
    window.press("q");
    window.code();
    window.read();
    assert!(window.bytes.is_ascii());
    let text = String::from_utf8_lossy(&window.bytes).into_owned();
    for colour in ["\x1b[3", "\x1b[4", "\x1b[38;", "\x1b[48;"] {
        let is_colour = |at: usize| text[at + colour.len()..].starts_with(|c: char| ('1'..='8').contains(&c));
        let found = text.match_indices(colour).any(|(at, _)| is_colour(at));
        assert!(!found, "{colour:?} in {text:?}");
    }
}

#[test]
fn a_pipe_gets_one_frame_and_documents_what_their_schema_says() {
    let bench = Bench::new();
    let _requests = serve(&bench);
    for arguments in [
        vec!["top"],
        vec!["top", "--once"],
        vec!["top", "--once", "--sort", "got", "--tree"],
    ] {
        let (code, out, err) = result(bench.partage(&arguments));
        assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
        assert!(out.contains("training") && out.contains("GPU 3 H200"), "{out}");
        assert!(!out.contains('\x1b'), "{out}");
    }
    let (code, out, _) = result(bench.partage(&["top", "--once", "--json"]));
    assert_eq!(code, 0);
    let document = schema::judge("top", &out);
    assert_eq!(document["jobs"][0]["used_bytes"], 6_u64 << 30);
    assert_eq!(document["jobs"][0]["limit_bytes"], Value::Null);
    let (code, out, _) = result(bench.partage(&["top", "--once", "--json", "--filter", "no such text"]));
    assert_eq!(
        (code, schema::judge("top", &out)["jobs"].as_array().map(Vec::len)),
        (0, Some(0))
    );
}

#[test]
fn a_document_a_second_goes_on_without_a_broker() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let bench = Bench::new();
    let mut child = bench
        .partage(&["top", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut document = || schema::judge("top", &lines.next().expect("a line").expect("text"));
    let without = document();
    assert!(
        without["broker"].is_null() && without["trouble"].is_string(),
        "{without}"
    );
    let _requests = serve(&bench);
    while document()["broker"].is_null() {}
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn what_cannot_be_read_or_asked_is_refused() {
    let bench = Bench::new();
    let (code, _, err) = result(bench.partage(&["top", "--once", "--sort", "colour"]));
    assert_eq!(code, 2);
    assert!(
        err.contains("no column is called \"colour\"; columns are job, name,"),
        "{err}"
    );
    let (code, _, err) = result(bench.partage(&["top", "--once", "--filter", "gpu=0"]));
    assert!(code == 2 && err.contains("unknown key"), "{err}");
    let (code, _, err) = result(bench.partage(&["top", "--once"]));
    assert!(code == 5 && err.contains("no broker at"), "{err}");
    for wrong in ["0", "x", "4000"] {
        assert_eq!(result(bench.partage(&["ps", "-w", wrong])).0, 2, "{wrong}");
    }
}

#[test]
fn ps_and_status_show_themselves_again_in_place() {
    for command in ["ps", "status"] {
        let bench = Bench::new();
        let _requests = serve(&bench);
        let mut window = Window::open(bench.partage(&[command, "-w"]), 80, 24);
        window.until(0, "j42");
        let from = window.bytes.len();
        window.until(from, "j42");
        let text = String::from_utf8_lossy(&window.bytes[from..]).into_owned();
        assert!(text.contains("\x1b[H") && !text.contains("\x1b[2J"), "{text:?}");
        window.signal(Signal::SIGINT);
        assert_eq!(window.code(), 130);
    }
}

#[test]
fn ps_waits_for_a_broker() {
    let bench = Bench::new();
    let mut command = bench.partage(&["ps", "-w", "1"]);
    command.env("PARTAGE_SOCKET_DIR", bench.dir.join("none/such"));
    let mut window = Window::open(command, 80, 24);
    window.until(0, "no jobs");
    window.signal(Signal::SIGINT);
    assert_eq!(window.code(), 130);
}
