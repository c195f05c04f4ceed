// SPDX-License-Identifier: Apache-2.0
//! Limits as numbers with a history: request and limit, changes while a job runs, other tools' variables, denials that
//! explain themselves, jobs that ended.

use std::time::Duration;

use serde_json::Value;

use super::Case;
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("limits::over_limit_is_a_word_and_a_sentence", over_limit),
        Case::new("limits::request_is_promised_and_limit_may_be_used", request_and_limit)
            .simulated("its numbers are those of a GPU of 16 GiB"),
        Case::new("limits::a_denial_says_what_to_do", denial_line)
            .simulated("its numbers are those of a GPU of 16 GiB"),
        Case::new("limits::aliases_limit_a_run", aliases_of_run),
        Case::new("limits::aliases_limit_a_program_without_run", aliases_without_run).simulated("needs two devices"),
        Case::new("limits::a_bad_alias_is_never_no_limit", bad_aliases),
        Case::new("limits::an_alias_holds_while_no_broker_answers", alias_alone),
        Case::new("limits::denials_print_a_line_on_a_terminal", on_a_terminal),
        Case::new("limits::an_ended_job_answers_why", ended),
        Case::new("limits::refusals_without_a_broker_are_counted_by_the_next", no_broker),
    ]
}

const SECOND: Duration = Duration::from_secs(1);

/// `partage ARGUMENTS`, which must succeed; its text.
#[track_caller]
fn said(rig: &Rig, arguments: &[&str]) -> String {
    let output = rig.output(rig.partage(arguments));
    assert!(
        output.status.success(),
        "partage {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The sentences of `why` as one text: lines are wrapped at the terminal's width.
fn why(rig: &Rig, target: &str) -> String {
    let document = rig.json(&["why", target]);
    let sentences = document["sentences"].as_array().cloned().unwrap_or_default();
    sentences
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} in: {text}");
    }
}

fn job(rig: &Rig, target: &str) -> Value {
    rig.json(&["get", target])["job"].clone()
}

fn over_limit(rig: &Rig) {
    let mut client = rig.client(&["-m", "2GiB", "--name", "live"]);
    client.ready();
    client.expect(&format!("alloc {GIB} a"), "alloc 0");
    said(rig, &["set", "live", "mem=768MiB"]);
    client.expect("alloc 1 b", "alloc 2");
    contains(&said(rig, &["ps"]), &["over limit", "768 MiB"]);
    assert_eq!(job(rig, "live")["state"], "over limit");
    let text = why(rig, "live");
    assert!(text.starts_with("it is over its limit on GPU"), "worst first: {text}");
    contains(
        &text,
        &["limit 768 MiB", "nothing is killed", "by partage set mem=768MiB by"],
    );
    contains(
        &said(rig, &["why", "live"]),
        &["(live): over limit\n- it is over its limit"],
    );
    client.expect("free a", "free 0");
    rig.eventually(SECOND, "the state follows use", || {
        job(rig, "live")["state"] == "running"
    });
    let room = client.room();
    assert!(room <= 768 * MIB);
    client.expect(&format!("alloc {room} b"), "alloc 0");
    // Raised again: the room is there within the second, without a new process.
    said(rig, &["set", "live", "mem=2GiB", "mem-request=1GiB"]);
    rig.eventually(SECOND, "the raised limit", || client.room() >= GIB);
    client.expect(&format!("alloc {GIB} c"), "alloc 0");
    let device = job(rig, "live")["devices"][0].clone();
    assert_eq!(device["limit_bytes"], 2 * GIB);
    assert_eq!(device["request_bytes"], GIB);
}

fn request_and_limit(rig: &Rig) {
    let options = ["-g", "0", "-m", "12GiB", "--mem-request", "4GiB", "--name", "burst"];
    let mut burst = rig.client(&options);
    burst.ready();
    let mut firm = rig.client(&["-g", "0", "-m", "8GiB", "--name", "firm"]);
    firm.ready();
    // 16 GiB: 4 and 8 are promised, and 4 more are nobody's (the reserve and overhead take a little of them).
    burst.expect(&format!("alloc {} a", 6 * GIB), "alloc 0");
    burst.expect(&format!("alloc {} b", 4 * GIB), "alloc 2");
    let numbers = job(rig, "burst");
    assert_eq!(numbers["denied"]["limit"], 0);
    assert!(numbers["denied"]["card_full"].as_u64() >= Some(1), "{numbers}");
    let text = why(rig, "burst");
    contains(
        &text,
        &[
            "within the limit",
            "the card had no room",
            "/firm) 8 GiB",
            "by --mem-request 4GiB",
        ],
    );
    let denials = rig.json(&["why", "burst"])["denials"].clone();
    assert_eq!(denials[0]["reason"], "card full");
    assert_eq!(denials[0]["asked_bytes"], 4 * GIB);
    let room = firm.room();
    assert!(room > 7 * GIB, "{room}");
    firm.expect(&format!("alloc {room} a"), "alloc 0");
    let status = rig.json(&["status"]);
    assert!(status["devices"][0]["denied"]["card_full"].as_u64() >= Some(1));
    assert_eq!(status["devices"][0]["promised_bytes"], 12 * GIB);
}

fn denial_line(rig: &Rig) {
    let mut command = rig.run(&["-m", "2GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_LOG", "stderr");
    let mut client = Client::start(command);
    client.ready();
    client.expect(&format!("alloc {GIB} a"), "alloc 0");
    let asked = 2 * GIB + 180 * MIB;
    client.expect(&format!("alloc {asked} b"), "alloc 2");
    let mut line = String::new();
    rig.eventually(SECOND, "the line", || {
        line += &client.stderr();
        line.contains("raise with")
    });
    contains(
        &line,
        &[
            "2.2 GiB asked, limit 2 GiB, 1",
            "in use by j1 (GPU ",
            "raise with: partage set j1 mem=3",
        ],
    );
    // The event and `partage why` round as the line does.
    let events = rig.output(rig.partage(&["events"]));
    contains(&String::from_utf8_lossy(&events.stdout), &["2.2 GiB"]);
    contains(&why(rig, "j1"), &["2.2 GiB was denied on GPU"]);
    // The advice works as it stands, within what the driver's overhead leaves.
    let advice = line
        .split("partage set ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("advice");
    let words: Vec<&str> = std::iter::once("set").chain(advice.split(' ')).collect();
    said(rig, &words);
    client.expect(&format!("alloc {asked} b"), "alloc 0");
    client.expect(&format!("alloc {} c", 64 * GIB), "alloc 2");
    contains(
        &why(rig, "j1"),
        &["64 GiB was denied on GPU", "in all", "2 by the limit"],
    );
    rig.eventually(SECOND, "the second line", || {
        line += &client.stderr();
        line.contains("64 GiB asked")
    });
    contains(&line, &["; the whole GPU has 1"]);
}

/// Every family with what it gives a one-device job.
const ALIASES: [(&str, &str, u64); 6] = [
    ("CUDA_DEVICE_MEMORY_LIMIT", "1g", GIB),
    ("CUDA_DEVICE_MEMORY_LIMIT_0", "1536m", 1536 * MIB),
    ("CUDA_DEVICE_MEMORY_LIMIT", "1073741824", GIB),
    ("NVIDIA_GPU_MEMORY_LIMIT", "2048", 2 * GIB),
    ("NVIDIA_GPU_MEMORY_REQUEST", "1024", GIB),
    ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G", GIB),
];

/// The program may use the limit and not a byte more, and sees it as the whole card.
#[track_caller]
fn is_held_to(client: &mut Client, limit: u64, what: &str) {
    client.ready();
    assert_eq!(client.numbers("info")[2], limit, "{what}");
    let room = client.room();
    assert!(room <= limit && room > limit / 2, "{what}: {room}");
    client.expect(&format!("alloc {} over", room + 512), "alloc 2");
    client.expect(&format!("alloc {room} fits"), "alloc 0");
    client.expect("free fits", "free 0");
}

fn aliases_of_run(rig: &Rig) {
    for (name, value, limit) in ALIASES {
        let mut command = rig.run(&[], &crate::artefacts::client(), &["dlopen"]);
        command.env(name, value);
        let mut client = Client::start(command);
        is_held_to(&mut client, limit, name);
        let text = why(rig, &client.pid().to_string());
        contains(&text, &[&format!("{name}={value}")]);
        let device = job(rig, &client.pid().to_string())["devices"][0].clone();
        assert_eq!(
            device["request_bytes"], limit,
            "{name}: a limit is promised, as with -m"
        );
    }
    // Precedence: an option, a twin, then the families in their order.
    let mut command = rig.run(&[], &crate::artefacts::client(), &["dlopen"]);
    for (name, value, _) in ALIASES {
        command.env(name, value);
    }
    command
        .env("NVIDIA_GPU_MEMORY_LIMIT", "3072")
        .env("NVIDIA_GPU_MEMORY_REQUEST", "512");
    let dry = |options: &[&str], twin: Option<&str>| {
        let mut all = vec!["run"];
        all.extend(options);
        all.extend(["--dry-run", "--", "true"]);
        let mut dry = rig.partage(&all);
        dry.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        dry.envs(twin.map(|value| ("PARTAGE_MEM", value)));
        String::from_utf8_lossy(&rig.output(dry).stdout).into_owned()
    };
    contains(
        &dry(&[], None),
        &["limit 3 GiB", "NVIDIA_GPU_MEMORY_LIMIT=3072", "promised 512 MiB"],
    );
    contains(&dry(&[], Some("4GiB")), &["limit 4 GiB"]);
    let text = dry(&["-m", "5GiB"], Some("4GiB"));
    assert!(text.contains("limit 5 GiB") && !text.contains("MEMORY"), "{text}");
    let bad = {
        let mut bad = rig.run(&[], std::path::Path::new("/bin/true"), &[]);
        bad.env("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "9=1G");
        rig.output(bad)
    };
    assert_eq!(bad.status.code(), Some(125), "an unknown GPU is an error");
    contains(
        &String::from_utf8_lossy(&bad.stderr),
        &["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=9=1G", "GPU 9"],
    );
}

/// A client that meets the library without `run`.
fn preloaded(rig: &Rig, variables: &[(&str, &str)]) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").env("LD_PRELOAD", built("libpartage.so"));
    command.envs(variables.iter().copied());
    Client::start(command)
}

fn aliases_without_run(rig: &Rig) {
    said(rig, &["broker", "start"]);
    let mut free = preloaded(rig, &[]);
    free.ready();
    let whole = free.numbers("info")[2];
    assert!(whole > 8 * GIB);
    let mut alive = Vec::new();
    for (name, value, limit) in ALIASES {
        let mut client = preloaded(rig, &[(name, value)]);
        is_held_to(&mut client, limit, name);
        let text = why(rig, &client.pid().to_string());
        contains(&text, &[&format!("by {name}={value}"), "nothing promised"]);
        alive.push(client);
    }
    // Theirs lowered nothing else: the one without a variable has the whole card still.
    assert_eq!(free.numbers("info")[2], whole);
    free.expect(&format!("alloc {} big", 4 * GIB), "alloc 0");
    // By the number that the program sees: of GPU 1 alone the first is it.
    let listed = [
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
    ];
    let mut second = preloaded(rig, &listed);
    is_held_to(&mut second, 2 * GIB, "the program's own numbering");
}

fn bad_aliases(rig: &Rig) {
    said(rig, &["broker", "start"]);
    let mut unknown = preloaded(rig, &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,7=1G")]);
    is_held_to(&mut unknown, GIB, "the lowest of a list with an unknown GPU");
    contains(
        &why(rig, &unknown.pid().to_string()),
        &["names GPU 7", "its lowest limit, 1 GiB"],
    );
    let mut garbage = preloaded(rig, &[("CUDA_DEVICE_MEMORY_LIMIT", "much")]);
    garbage.expect("init 0", "init 0");
    let context = garbage.say("ctx 0");
    if context == "ctx 0" {
        garbage.expect("alloc 512 a", "alloc 2");
    } else {
        assert_eq!(context, "ctx 2", "not even a context");
    }
    let text = why(rig, &garbage.pid().to_string());
    contains(
        &text,
        &["CUDA_DEVICE_MEMORY_LIMIT=much is no whole number", "mend or unset it"],
    );
}

fn alias_alone(rig: &Rig) {
    let mut client = preloaded(rig, &[("CUDA_DEVICE_MEMORY_LIMIT", "1g")]);
    is_held_to(&mut client, GIB, "no broker");
    assert!(rig.broker_pid().is_none(), "and none was started");
    let mut free = preloaded(rig, &[("CUDA_DISABLE_CONTROL", "true")]);
    free.ready();
    free.expect(&format!("alloc {} big", 4 * GIB), "alloc 0");
}

fn on_a_terminal(rig: &Rig) {
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: plain system calls on a descriptor that we own from here on; ptsname's text is copied at once.
    let (mut master, slave) = unsafe {
        let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(
            fd >= 0 && libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0,
            "a terminal"
        );
        let name = std::ffi::CStr::from_ptr(libc::ptsname(fd))
            .to_string_lossy()
            .into_owned();
        (std::fs::File::from_raw_fd(fd), name)
    };
    // SAFETY: sets a flag of our own descriptor.
    unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let client = crate::artefacts::client();
    let redirect = [
        "-c",
        "exec \"$0\" dlopen 2>\"$TERMINAL\"",
        &client.display().to_string(),
    ]
    .map(str::to_owned);
    let start = |options: &[&str], terminal: &str| {
        let words: Vec<&str> = redirect.iter().map(String::as_str).collect();
        let mut command = rig.run(options, std::path::Path::new("/bin/sh"), &words);
        command.env("TERMINAL", terminal);
        Client::start(command)
    };
    let mut talks = start(&["-m", "2GiB"], &slave);
    talks.ready();
    for _ in 0..3 {
        talks.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
    }
    let mut said = String::new();
    rig.eventually(SECOND, "one line", || {
        let mut bytes = [0; 4096];
        if let Ok(count) = master.read(&mut bytes) {
            said += &String::from_utf8_lossy(&bytes[..count]);
        }
        said.contains('\n')
    });
    assert!(said.starts_with("partage: 3 GiB asked, limit 2 GiB, "), "{said}");
    contains(&said, &[" in use by j1 (GPU ", "), raise with: partage set j1 mem=3"]);
    assert_eq!(
        said.matches("partage:").count(),
        1,
        "a retrying allocator is told once: {said}"
    );
    let mut quiet = start(&["-m", "2GiB", "-q"], &slave);
    quiet.ready();
    quiet.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
    let mut bytes = [0; 4096];
    let count = master.read(&mut bytes).unwrap_or(0);
    assert_eq!(String::from_utf8_lossy(&bytes[..count]), "", "-q is for terminals too");
    let file = rig.dir.join("stderr");
    let mut elsewhere = start(&["-m", "2GiB"], &file.display().to_string());
    elsewhere.ready();
    elsewhere.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
    assert_eq!(std::fs::read_to_string(&file).expect("the shell made it"), "");
}

fn ended(rig: &Rig) {
    let mut client = rig.client(&["-m", "2GiB", "--name", "short", "--label", "team=a"]);
    client.ready();
    client.expect(&format!("alloc {GIB} a"), "alloc 0");
    client.expect(&format!("alloc {} b", 2 * GIB), "alloc 2");
    assert!(client.finish().success());
    // It would linger for a late child.
    said(rig, &["stop", "short"]);
    let check = |what: &str| {
        let document = rig.json(&["why", "short"]);
        assert_eq!(document["job"]["state"], "ended", "{what}");
        assert!(document["job"]["ended_ns"].as_u64().is_some());
        assert_eq!(document["job"]["denied"]["limit"], 1);
        contains(
            &why(rig, "short"),
            &[
                "j1 ended ",
                "2 GiB was denied on GPU",
                "limit 2 GiB by --mem 2GiB",
                "at most 1",
                "was in use",
            ],
        );
        contains(&said(rig, &["ps", "-a"]), &["short", "ended"]);
        assert!(!said(rig, &["ps"]).contains("short"));
    };
    check("by the broker that saw it");
    said(rig, &["broker", "stop"]);
    rig.eventually(Duration::from_secs(10), "the broker left", || {
        rig.broker_pid().is_none()
    });
    check("by a broker that was started for the question");
    let mut next = rig.client(&["-m", "1GiB"]);
    next.ready();
    assert_eq!(
        job(rig, &next.pid().to_string())["job"],
        "j2",
        "numbers are not used again"
    );
}

fn no_broker(rig: &Rig) {
    // Two processes share the limit, so that growing needs an answer; no broker is started again while it is stopped.
    let mut first = rig.client(&["-m", "2GiB", "--name", "pair"]);
    first.ready();
    first.expect(&format!("alloc {GIB} a"), "alloc 0");
    let broker = rig.broker_pid().expect("it admitted the job") as libc::pid_t;
    said(rig, &["set", "pair", "mem=512MiB"]);
    partage_machine::process::stop(broker as u32);
    first.expect("alloc 1048576 b", "alloc 2");
    // SAFETY: the pid of this rig's broker, which is stopped and so still the same process.
    unsafe { libc::kill(broker, libc::SIGCONT) };
    rig.eventually(Duration::from_secs(10), "the refusal is counted", || {
        job(rig, "pair")["denied"]["no_broker"].as_u64() >= Some(1)
    });
    contains(&why(rig, "pair"), &["no broker answered"]);
}
