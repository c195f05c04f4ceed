// SPDX-License-Identifier: Apache-2.0
//! What a monitoring system scrapes: the broker's listener, and `partage metrics`, beside what `ps` and the driver say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::Case;
use super::ruled_host::{Host, SOON};
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("metrics::a_scrape_says_what_ps_says", scraped).simulated("compares with the simulator's books"),
        Case::new("metrics::who_is_no_scraper_is_refused", refused).simulated("asks nothing of a GPU"),
        Case::new("metrics::names_want_a_word_and_a_token", named).simulated("asks nothing of a GPU"),
        Case::new("metrics::a_monitor_reads_one_line", checked).simulated("unmanaged processes are staged"),
    ]
}

/// A port that nobody listens at.
fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("an address").port()
}

fn config(port: u16, more: &str) -> String {
    let rule = "[[rule]]\nname = \"all\"\neach_user = { mem = \"8GiB\", jobs = 9 }\n";
    format!("schema = 1\n[metrics]\nlisten = \"127.0.0.1:{port}\"\n{more}\n{rule}")
}

/// Sends this, and answers all that comes.
fn say(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("set");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    // One that is turned away may be reset.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn scrape(port: u16, headers: &str) -> String {
    let answer = say(
        port,
        &format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n{headers}\r\n"),
    );
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())), "{head}");
    text.to_owned()
}

/// The status of an answer: 200 of `HTTP/1.1 200 OK`.
fn status(answer: &str) -> Option<u32> {
    answer.split(' ').nth(1)?.parse().ok()
}

/// The value of the first series of this name that has all these labels.
#[track_caller]
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        let series = line.split(['{', ' ']).next();
        series == Some(name) && labels.iter().all(|label| line.contains(label))
    };
    let line = text
        .lines()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"));
    line.rsplit_once(' ').expect("a value").1.parse().expect("a number")
}

/// A job that uses memory and is denied more; its numbers are those of the documents.
fn scraped(rig: &Rig) {
    let port = free_port();
    let host = Host::start(rig, &config(port, ""));
    let mut client = rig.client(&["-m", "1GiB", "-c", "30%", "--name", "train"]);
    client.ready();
    client.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
    client.expect(&format!("alloc {GIB} b"), "alloc 2");
    rig.wait_for_overhead();
    let denied = || value(&scrape(port, ""), "partage_job_denied_total", &["reason=\"limit\""]);
    rig.eventually(SOON, "the denial is scraped", || denied() == 1.0);
    let text = scrape(port, "");
    let job = rig.json(&["get", "train"])["job"].clone();
    let id = job["job"].as_str().expect("an id");
    let on = &job["devices"][0];
    let labels = [format!("job=\"{id}\""), "gpu=\"0\"".to_owned()];
    let labels = labels.each_ref().map(String::as_str);
    let number = |key: &str| on[key].as_f64().expect("a number");
    for (name, expected) in [
        ("partage_job_memory_limit_bytes", GIB as f64),
        ("partage_job_memory_used_bytes", number("used_bytes")),
        ("partage_job_memory_request_bytes", number("request_bytes")),
        ("partage_job_memory_overhead_bytes", number("overhead_bytes")),
    ] {
        assert_eq!(value(&text, name, &labels), expected, "{name}");
    }
    assert_eq!(value(&text, "partage_job_compute_promise_ratio", &labels[..1]), 0.3);
    assert_eq!(
        value(&text, "partage_gpu_memory_total_bytes", &["gpu=\"1\""]),
        rig.json(&["status"])["devices"][1]["total_bytes"]
            .as_f64()
            .expect("bytes")
    );
    assert_eq!(
        value(&text, "partage_rule_limit", &["key=\"each_user.mem\"", "gpu=\"0\""]),
        8.0 * GIB as f64
    );
    assert_eq!(value(&text, "partage_rule_used", &["key=\"each_user.jobs\""]), 1.0);
    assert_eq!(value(&text, "partage_unmanaged_processes", &["gpu=\"0\""]), 0.0);
    // Nobody is named, and no process.
    let pid = client.pid().to_string();
    for secret in ["train", "user=", &format!("\"{pid}\"")] {
        assert!(!text.contains(secret), "{secret} in\n{text}");
    }
    // Without the listener the same: what moves by itself aside.
    let printed = rig.output(rig.partage(&["metrics"]));
    assert!(printed.status.success());
    let names = |text: &str| -> Vec<String> {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series
            .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
            .collect()
    };
    assert_eq!(
        names(&String::from_utf8_lossy(&printed.stdout)),
        names(&scrape(port, ""))
    );
    // The next broker serves at the same port; the job's peak is not forgotten.
    let host = host.again();
    let peak = || value(&scrape(port, ""), "partage_job_memory_peak_bytes", &labels);
    rig.eventually(SOON, "the next broker serves", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok() && peak() >= 256.0 * MIB as f64
    });
    drop(host);
}

/// Requests that are none of a scraper's; connections that say nothing; a port that somebody holds.
fn refused(rig: &Rig) {
    let port = free_port();
    let host = Host::start(rig, &config(port, ""));
    scrape(port, "");
    for (request, code) in [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (
            "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
            405,
        ),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("\u{1}\u{2}nonsense\r\n\r\n", 400),
    ] {
        let answer = say(port, request);
        assert_eq!(status(&answer), Some(code), "{request}: {answer}");
        assert!(!answer.contains("partage_"), "{answer}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}", "y".repeat(9000));
    assert_eq!(status(&say(port, &long)), Some(431));
    // A thousand that say nothing: sixteen are heard, the others turned away, and the broker answers as always.
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..1000 {
        silent.extend(TcpStream::connect(("127.0.0.1", port)));
        if silent.len() > 200 {
            silent.remove(0);
        }
    }
    assert_eq!(rig.json(&["status"])["broker"]["driver"], serde_json::json!("ok"));
    drop(silent);
    rig.eventually(SOON, "they are given up", || {
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        status(&say(port, request)) == Some(200)
    });
    // One that reads nothing of its answer is given up, too.
    let mut slow = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("sent");
    scrape(port, "");
    drop(host);
    // The port is somebody else's: the broker serves all the same, and says so.
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("it is free");
    let host = Host::start(rig, &config(port, ""));
    let notes = rig.json(&["status"])["broker"]["errors"].to_string();
    assert!(notes.contains("another program listens there"), "{notes}");
    let doctor = rig.output(rig.partage(&["doctor"]));
    let said = String::from_utf8_lossy(&doctor.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        said.contains("metrics are not served") && !doctor.status.success(),
        "{said}"
    );
    drop((taken, host));
}

/// Labels that name somebody, a token, and a socket instead of a port.
fn named(rig: &Rig) {
    let token = rig.dir.join("token");
    std::fs::write(&token, "s3cret\n").expect("writable");
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("its owner's");
    let port = free_port();
    let more = format!("labels = [\"user\", \"name\"]\ntoken_file = \"{}\"", token.display());
    let host = Host::start(rig, &config(port, &more));
    let mut client = rig.client(&["-m", "1GiB", "--name", "train"]);
    client.ready();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n");
    for headers in ["", "Authorization: Bearer other\r\n"] {
        let answer = say(port, &format!("{request}{headers}\r\n"));
        assert_eq!(status(&answer), Some(401), "{answer}");
        assert!(answer.contains("WWW-Authenticate: Bearer"), "{answer}");
    }
    let text = scrape(port, "Authorization: Bearer s3cret\r\n");
    let user = rig.json(&["get", "train"])["job"]["user"]
        .as_str()
        .expect("a name")
        .to_owned();
    assert_eq!(
        value(
            &text,
            "partage_job_clients",
            &["name=\"train\"", &format!("user=\"{user}\"")]
        ),
        1.0
    );
    drop(host);
    // A token that others may read is none.
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).expect("its owner's");
    let host = Host::start(rig, &config(port, &more));
    let notes = rig.json(&["status"])["broker"]["errors"].to_string();
    assert!(notes.contains("others may read the token"), "{notes}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens");
    drop(host);
    let path = rig.dir.join("metrics.sock");
    let text = format!("schema = 1\n[metrics]\nlisten = \"unix:{}\"\n", path.display());
    let host = Host::start(rig, &text);
    let ask = || {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    assert!(ask().contains("partage_build_info"));
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    // A broker that died left its socket: the next one takes the place.
    let host = host.again();
    assert!(ask().contains("partage_build_info"));
    drop(host);
}

/// `status --check`: a line and a status for what Nagios asks.
fn checked(rig: &Rig) {
    let check = || {
        let output = rig.output(rig.partage(&["status", "--check"]));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        (output.status.code(), text)
    };
    let (code, text) = check();
    assert!(
        code == Some(2) && text.starts_with("PARTAGE CRITICAL: no broker"),
        "{code:?} {text}"
    );
    let host = Host::start(rig, "schema = 1\n");
    let (code, text) = check();
    assert!(code == Some(0) && text.starts_with("PARTAGE OK: "), "{code:?} {text}");
    let mut stranger = rig.bare_client("dlopen");
    stranger.ready();
    stranger.expect(&format!("alloc {GIB} a"), "alloc 0");
    rig.eventually(SOON, "the unmanaged process is a warning", || {
        let (code, text) = check();
        code == Some(1) && text.contains("unmanaged")
    });
    stranger.kill();
    rig.eventually(SOON, "it is gone", || check().0 == Some(0));
    assert!(!host.reload("schema = 1\n[metrics]\nlisten = \"nowhere\"\n"));
    let (code, text) = check();
    assert!(
        code == Some(1) && text.contains("configuration was not taken"),
        "{code:?} {text}"
    );
    let began = Instant::now();
    drop(host);
    rig.eventually(SOON, "without a broker it is critical", || check().0 == Some(2));
    assert!(began.elapsed() < Duration::from_secs(60));
}
