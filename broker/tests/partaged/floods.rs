// SPDX-License-Identifier: Apache-2.0
//! What one user can fill: answers that nobody reads, notices, labels. Each is bounded, and others have theirs.

use partage_broker::state::ended::EndedJobs;
use partage_policy::{EndedJob, JobRecord, Terms};
use partage_protocol::admin::{ErrorCode, EventsRequest, Reply, Request, RunRequest};
use partage_protocol::frame;
use partage_protocol::labels::{MAX_LABEL_BYTES, MAX_LABELS};
use partage_protocol::message::{NOTICE_SHARING_OFF, Notice, ToClient, Usage};
use partage_protocol::units::GIB;
use zerocopy::IntoBytes;

use crate::client::ClientProcess;
use crate::hostile::hello;
use crate::rig::{Rig, Wire, ask};

/// How many of 500 events a reader of this connection gets, and whether it gets all of these.
fn read_events(wire: &Wire) -> (usize, bool) {
    let mut count = 0;
    while count <= 500 {
        match wire.reply() {
            Some(Reply::Event(_)) => count += 1,
            Some(other) => panic!("{other:?}"),
            None => return (count, false),
        }
    }
    (count, true)
}

#[test]
fn unread_answers_of_one_user_are_bounded_and_the_oldest_go() {
    partage_broker::server::limits::raise_descriptor_limit();
    let rig = Rig::new(1, 16 * GIB);
    let mut holder = ClientProcess::start(&rig);
    holder.run_and_attach(r#"{"verb":"run","mem":"16GiB"}"#);
    // Jobs that wait and are given up: two events each.
    for _ in 0..300 {
        let wire = Wire::connect(&rig.client_socket()).expect("connected");
        let request = RunRequest {
            mem: Some("8GiB".to_owned()),
            wait: true,
            ..RunRequest::default()
        };
        wire.request(&Request::Run(Box::new(request)));
        assert!(matches!(wire.reply(), Some(Reply::Waiting(_))));
    }
    // They follow, and are told first what happened before.
    let deaf: Vec<Wire> = (0..800)
        .map(|_| {
            let wire = Wire::connect(&rig.client_socket()).expect("connected");
            wire.request(&Request::Events(EventsRequest {
                follow: true,
                ..EventsRequest::default()
            }));
            wire
        })
        .collect();
    // Asked after all of them: they have been answered as far as they let themselves be.
    rig.status();
    let (count, is_whole) = read_events(&deaf[deaf.len() - 1]);
    assert!(is_whole, "the newest has everything: {count}");
    let (count, is_whole) = read_events(&deaf[0]);
    assert!(!is_whole, "the oldest was answered whole: {count} events");
}

#[test]
fn a_flood_of_notices_leaves_the_events_and_the_log_to_others() {
    let rig = Rig::new(1, 16 * GIB);
    let mut other = ClientProcess::start(&rig);
    let job = other.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let wire = Wire::connect(&rig.client_socket()).expect("connected");
    wire.send(hello().as_bytes(), &[]).expect("sent");
    wire.receive().expect("welcomed");
    for value in 0..20_000 {
        let notice = Notice {
            header: Notice::header(0),
            what: NOTICE_SHARING_OFF,
            slot: 0,
            value,
        };
        wire.send(notice.as_bytes(), &[]).expect("sent");
    }
    let usage = Usage {
        header: Usage::header(7),
        slot: 0,
        reserved: 0,
    };
    wire.send(usage.as_bytes(), &[]).expect("sent");
    let (packet, _) = wire.receive().expect("answered behind all of them");
    assert!(matches!(ToClient::decode(&packet), Ok(ToClient::Answer(_))));

    let events = Wire::connect(&rig.client_socket()).expect("connected");
    events.request(&Request::Events(EventsRequest::default()));
    let (mut notices, mut has_other) = (Vec::new(), false);
    let Some(Reply::Events { events, more: None }) = events.reply() else {
        panic!("one page")
    };
    for event in events {
        match event.kind.as_str() {
            "notice" => notices.push(event.text),
            _ => has_other |= event.job.as_deref() == Some(job.as_str()),
        }
    }
    assert!(has_other, "what happened before is still told");
    assert_eq!(notices.len(), 256 + 6, "the first, then each doubling up to 16384");
    let last = notices.last().expect("some");
    assert!(last.ends_with("(number 16384 of this kind within a minute)"), "{last}");
}

#[test]
fn a_user_who_changes_numbers_without_end_leaves_the_audit_log_to_others() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let rig = Rig::managed(1, 16 * GIB);
    let mut client = ClientProcess::start_as(&rig, Some(65534));
    let job = client.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    let set = |mem: &str| format!(r#"{{"verb":"set","target":"{job}","mem":"{mem}"}}"#);
    // An administrator's first.
    let admin = rig.socket_dir().join("admin.sock");
    let by_root = serde_json::from_str(&set("3GiB")).expect("a request");
    assert!(matches!(ask(&admin, &by_root), Reply::Job(_)));
    for number in 0..1_000 {
        let reply = client.run(&set(["2GiB", "1GiB"][number % 2]));
        assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    }
    let lines = |name: &str| -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(rig.socket_dir().join("state").join(name)).expect("readable");
        assert!(text.len() <= 272 << 10, "{name}: {} bytes", text.len());
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a document"))
            .collect()
    };
    let admins = lines("audit.jsonl");
    assert!(
        admins.iter().all(|line| line["by"]["uid"] == 0) && !admins.is_empty(),
        "{admins:?}"
    );
    let users = lines("audit-users.jsonl");
    assert!(users.iter().any(|line| line["by"]["uid"] == 65534), "{users:?}");
    let left_out = users.iter().find(|line| line["what"] == "left-out");
    assert!(left_out.is_some_and(|line| line["number"] == "changes"), "{left_out:?}");
}

#[test]
fn labels_without_end_are_refused_with_the_bound() {
    let rig = Rig::new(1, 16 * GIB);
    let ask = |labels: Vec<(String, String)>, mem: String| {
        let request = RunRequest {
            mem: Some(mem),
            labels,
            ..RunRequest::default()
        };
        match rig.ask(&Request::Run(Box::new(request))) {
            Reply::Error(error) => (error.code, error.message),
            other => panic!("{other:?}"),
        }
    };
    let (code, text) = ask(vec![("k".to_owned(), "v".repeat(240_000))], "1GiB".to_owned());
    assert_eq!(code, ErrorCode::Invalid);
    assert!(text.contains("240001 bytes") && text.contains("at most 256"), "{text}");
    let (code, text) = ask(vec![("k".to_owned(), "v".to_owned()); 33], "1GiB".to_owned());
    assert_eq!(code, ErrorCode::Invalid);
    assert!(text.contains("33 labels"), "{text}");
    let (code, text) = ask(Vec::new(), format!("{}1GiB", "0".repeat(200_000)));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(text.len() < 1000 && text.contains("200004"), "{text}");
}

/// A job that ended at this time with the longest command and labels that a job may have, in characters that take six
/// bytes each in a document.
fn longest(id: u64, unix_ns: u64) -> EndedJob {
    let label = |number: usize| (format!("{number:06}"), "\u{1}".repeat(MAX_LABEL_BYTES - 6));
    EndedJob {
        job: JobRecord {
            id,
            uid: nix::unistd::geteuid().as_raw(),
            user: "alice".into(),
            name: None,
            labels: (0..MAX_LABELS).map(label).collect(),
            command: vec!["\u{1}".repeat(4096)],
            first: None,
            token: [0; 32],
            cgroup: None,
            default_scope: None,
            environment: String::new(),
            is_strict: false,
            is_quiet: false,
            devices: Vec::new(),
            terms: Terms::default(),
            asked: partage_policy::Asked::default(),
            started_unix_ns: 1,
            residence: partage_policy::ResidenceRecord::default(),
            registration: None,
        },
        ended_unix_ns: unix_ns,
        reason: "its last process is gone".into(),
        exit_code: Some(0),
        is_over_time: false,
        strangers_seen: 0,
        slots: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn more_jobs_than_a_document_holds_come_in_pages() {
    const JOBS: u64 = 300;
    let mut rig = Rig::new(1, 16 * GIB);
    rig.kill();
    let unix = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
    let unix_ns = u64::try_from(unix).expect("before 2554");
    let (mut store, _) = EndedJobs::open(&rig.socket_dir().join("state/ended.jsonl"), unix_ns).expect("opened");
    for id in 1..=JOBS {
        store.add(&longest(id, unix_ns)).expect("added");
    }
    rig.start();
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let Reply::Ps { jobs, more, .. } = rig.ask(&Request::Ps { all: true, after }) else {
            panic!("ps")
        };
        assert!(!jobs.is_empty(), "page {pages} is empty");
        assert_eq!(jobs[0].labels.len(), MAX_LABELS, "whole");
        seen.extend(jobs.into_iter().map(|job| job.job));
        pages += 1;
        after = seen.last().cloned();
        if !more {
            break;
        }
    }
    assert_eq!(seen, (1..=JOBS).map(|id| format!("j{id}")).collect::<Vec<_>>());
    let bytes = JOBS as usize * 6 * (4096 + MAX_LABELS * (MAX_LABEL_BYTES - 6));
    assert!(bytes > frame::MAX_DOCUMENT && pages > 4, "{bytes} bytes, {pages} pages");
    let nonsense = rig.ask(&Request::Ps {
        all: true,
        after: Some("train".into()),
    });
    assert!(matches!(nonsense, Reply::Error(error) if error.code == ErrorCode::Invalid));
}
