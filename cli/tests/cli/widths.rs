// SPDX-License-Identifier: Apache-2.0
//! Every table on terminals of 60, 80 and 120 columns, in ASCII and in UTF-8: `golden/` has what they write.
//!
//! The names have 31 letters, and no line is wider than its terminal. After a change that is meant:
//! `PARTAGE_WRITE_GOLDEN=1 cargo test -p partage-cli --test cli widths`, and read the difference.

use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use partage_protocol::admin::{
    ConfigView, DeniedView, EventNumbers, EventView, JobView, PlaceView, QueueView, QueuedView, ReadingView, Reply,
    TermsView, TimeView, TotalUnit, TotalView,
};

use crate::bench::Bench;
use crate::played_broker::{job, job_device, play, status, unmanaged};

const NAME: &str = "fine-tuning-of-a-large-model-42";
const USER: &str = "margarethe-von-hohenstein-meyer";
const WIDTHS: [u16; 3] = [60, 80, 120];
const LOCALES: [(&str, &str); 2] = [("ASCII", "C"), ("UTF-8", "C.UTF-8")];

fn ago(seconds: u64) -> u64 {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    u64::try_from(time.duration_since(UNIX_EPOCH).expect("after 1970").as_nanos()).expect("before 2554")
}

/// A job at work with long names.
fn long(id: &str) -> JobView {
    let mut view = job(NAME);
    view.job = id.to_owned();
    view.user = USER.to_owned();
    view.command = ["python", "train.py", "--data", "/datasets/été/images"]
        .map(str::to_owned)
        .into();
    view.notes =
        vec!["pid 4130 uses a GPU without the limit, since it came by a command that hands work off".to_owned()];
    view.started_ns = ago(2 * 3600 + 600);
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
    view
}

/// A job with a promise that has not used its GPU yet, and names of the usual length.
fn short(id: &str) -> JobView {
    let mut view = job("eval");
    view.job = id.to_owned();
    view.started_ns = ago(3 * 3600 + 600);
    view.devices = vec![job_device(3, None)];
    view.devices[0].used_bytes = 300 << 20;
    view.terms = TermsView {
        promise: 0.3,
        ..TermsView::default()
    };
    view.notes.clear();
    view
}

fn ended(id: &str) -> JobView {
    let mut view = long(id);
    view.state = "ended".to_owned();
    view.started_ns = ago(5 * 3600 + 600);
    view.ended_ns = Some(view.started_ns + 5_400_000_000_000);
    view.exit_code = Some(137);
    view.devices.truncate(1);
    view.notes.clear();
    view
}

fn jobs(jobs: Vec<JobView>) -> Vec<Reply> {
    vec![Reply::Ps {
        jobs,
        unmanaged: vec![unmanaged()],
        more: false,
    }]
}

fn waiting(place: u32, expected_wait_ns: Option<u64>) -> PlaceView {
    PlaceView {
        place,
        job: format!("j{}", 43 + place),
        user: USER.to_owned(),
        priority: "normal".to_owned(),
        mem: Some("25%".to_owned()),
        compute: Some("30%".to_owned()),
        comes_back: place == 2,
        waited_ns: 61_000_000_000,
        reason: format!("needs 35 GiB there: GPU 3 has 2 GiB of 140 GiB left; held by {USER}/{NAME} 138 GiB on GPU 3"),
        expected_wait_ns,
        user_gpu_ns: None,
    }
}

fn queue(expected_wait_ns: Option<u64>) -> Vec<Reply> {
    vec![Reply::Queue(QueueView {
        order: "fair".to_owned(),
        jobs: vec![waiting(1, expected_wait_ns), waiting(2, None)],
    })]
}

fn machine(bench: &Bench) -> Vec<Reply> {
    let mut view = status(&bench.socket_dir());
    view.broker.socket_dir = "/run/partage".to_owned();
    let mut second = view.devices[0].clone();
    second.index = 4;
    second.model = "NVIDIA RTX PRO 6000 Blackwell Server Edition".to_owned();
    second.state = "draining".to_owned();
    second.jobs = (40..52).map(|number| format!("j{number}")).collect();
    second.denied = DeniedView {
        limit: 12,
        card_full: 3,
        ..DeniedView::default()
    };
    view.devices.push(second);
    let place = waiting(1, None);
    view.queue.push(QueuedView {
        job: place.job,
        user: place.user,
        mem: place.mem,
        compute: place.compute,
        waited_ns: place.waited_ns,
        reason: place.reason,
    });
    vec![Reply::Status(view)]
}

fn events() -> Vec<Reply> {
    let event = |kind: &str, text: &str| EventView {
        number: 1,
        uid: Some(1000),
        user: Some("alice".to_owned()),
        time_ns: 1_795_213_560_123_000_000,
        kind: kind.to_owned(),
        job: Some("j42".to_owned()),
        pid: Some(4121),
        text: text.to_owned(),
        numbers: EventNumbers::default(),
    };
    let denied = "9 GiB asked, limit 8 GiB, 3 GiB in use by j42 (GPU 0), raise with: partage set j42 mem=12GiB";
    vec![Reply::Events {
        events: vec![event("started", "j42 started"), event("denied", denied)],
        more: None,
    }]
}

fn configuration(file: &str) -> Vec<Reply> {
    let total = TotalView {
        user: None,
        rule: "quota-user-margarethe".to_owned(),
        file: "90-quota.toml".to_owned(),
        line: 7,
        key: "each_user.mem".to_owned(),
        text: "8GiB".to_owned(),
        device: Some("GPU-0".to_owned()),
        index: Some(0),
        unit: TotalUnit::Bytes,
        limit: 8 << 30,
        used: 1 << 30,
        held: 2 << 30,
    };
    let rule = format!("rule quota-user-margarethe (90-quota.toml:5): user {USER}; at most mem = 24GiB, gpus = 2");
    vec![Reply::Config(ConfigView {
        reading: Some(ReadingView {
            file: file.to_owned(),
            generation: 1,
            read_ns: 0,
            error: None,
        }),
        lines: vec![rule],
        totals: vec![total],
        classes: Vec::new(),
    })]
}

/// What a command writes on a terminal of so many columns.
fn on_a_terminal(bench: &Bench, arguments: &[&str], columns: u16, locale: &str) -> String {
    let size = nix::pty::Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = nix::pty::openpty(Some(&size), None).expect("a terminal");
    let mut command = bench.partage(arguments);
    command.env("NO_COLOR", "1").env("LC_ALL", locale);
    command.stdout(terminal.slave.try_clone().expect("dup"));
    let mut child = command.spawn().expect("starts");
    drop(command);
    drop(terminal.slave);
    let mut said = Vec::new();
    let _ = std::fs::File::from(terminal.master).read_to_end(&mut said);
    assert!(child.wait().expect("ends").success(), "{arguments:?}");
    String::from_utf8(said).expect("text").replace("\r\n", "\n")
}

/// Compares what a command writes with its file. `script` is what the broker answers, each time.
#[track_caller]
fn judge(bench: &Bench, name: &str, arguments: &[&str], script: &[Vec<Reply>]) {
    let count = WIDTHS.len() * LOCALES.len();
    let _requests = play(&bench.socket_dir(), vec![script; count].concat());
    let mut made = format!("partage {}\n", arguments.join(" "));
    for (locale_name, locale) in LOCALES {
        for columns in WIDTHS {
            let text = on_a_terminal(bench, arguments, columns, locale);
            for line in text.lines() {
                // A word that is wider than the terminal stays whole.
                if !line.trim_start().contains(' ') {
                    continue;
                }
                let width = line.chars().count();
                assert!(
                    width <= usize::from(columns),
                    "{width} of {columns} columns: {line}\n{text}"
                );
            }
            assert!(locale != "C" || text.is_ascii(), "{text}");
            made.push_str(&format!("\n--- {columns} columns, {locale_name}\n{text}"));
        }
    }
    let path = format!("{}/tests/cli/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("PARTAGE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &made).expect("writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{path} has\n{kept}\nbut now it is\n{made}");
}

#[test]
fn ps_fits() {
    let replies = [jobs(vec![long("j42"), short("j1043")])];
    judge(&Bench::new(), "ps", &["ps"], &replies);
    judge(
        &Bench::new(),
        "ps-columns",
        &["ps", "-o", "job,name,user,labels,command"],
        &replies,
    );
}

#[test]
fn ps_with_ended_jobs_fits() {
    judge(
        &Bench::new(),
        "ps-all",
        &["ps", "-a"],
        &[jobs(vec![long("j1042"), short("j43"), ended("j7")])],
    );
    let mut nameless = ended("j8");
    nameless.name = None;
    nameless.user = "alice".to_owned();
    judge(&Bench::new(), "ps-all-short", &["ps", "-a"], &[jobs(vec![nameless])]);
}

#[test]
fn status_fits() {
    let bench = Bench::new();
    judge(&bench, "status", &["status"], &[machine(&bench)]);
}

#[test]
fn queue_fits_and_says_its_reasons_whole() {
    judge(&Bench::new(), "queue", &["queue"], &[queue(Some(1_500_000_000_000))]);
    judge(&Bench::new(), "queue-unknown", &["queue"], &[queue(None)]);
}

#[test]
fn get_and_events_are_broken_between_words() {
    let mut view = long("j42");
    view.started_ns = 1_795_213_560_000_000_000;
    judge(&Bench::new(), "get", &["get", "j42"], &[vec![Reply::Job(view.clone())]]);
    judge(&Bench::new(), "events", &["events"], &[events()]);
    let gpu = status(&Bench::new().socket_dir());
    judge(&Bench::new(), "get-gpu", &["get", "gpu:3"], &[vec![Reply::Status(gpu)]]);
    let user = format!("@{USER}");
    judge(
        &Bench::new(),
        "get-user",
        &["get", &user],
        &[jobs(vec![view]), configuration("x")],
    );
}

#[test]
fn quotas_and_the_audit_log_fit() {
    let bench = Bench::new();
    let folder = bench.dir.join("etc");
    std::fs::create_dir_all(folder.join("conf.d")).expect("writable");
    let text = format!(
        "schema = 1\n[[rule]]\nname = \"a\"\nmatch = {{ user = \"alice\" }}\nmax = {{ mem = \"24GiB\", gpus = 2 }}\n\
         [[rule]]\nname = \"b\"\nmatch = {{ user = \"{USER}\" }}\n\
         max = {{ mem = \"24GiB\", gpus = 2, compute = \"30%\", compute_max = \"60%\", weight = 200, \
         priority = \"high\" }}\n"
    );
    std::fs::write(folder.join("conf.d/90-quota.toml"), text).expect("writable");
    let file = folder.join("partage.toml").display().to_string();
    judge(&bench, "quota-list", &["quota", "list"], &[configuration(&file)]);
    let bench = Bench::new();
    std::fs::create_dir_all(bench.socket_dir().join("state")).expect("writable");
    let change = format!(
        "{{\"time_ns\":1795213560123000000,\"what\":\"set\",\"by\":{{\"uid\":0,\"pid\":42}},\"job\":\"j3\",\
         \"user\":\"{USER}\",\"device\":\"GPU-00000003-0000-0000-0000-000000000000\",\"number\":\"mem\",\
         \"old\":\"8.0 GiB\",\"new\":\"2.0 GiB\",\"from\":\"partage set mem=2GiB by root\"}}\n"
    );
    std::fs::write(bench.socket_dir().join("state/audit.jsonl"), change).expect("writable");
    judge(&bench, "audit", &["events", "--audit"], &[]);
}
