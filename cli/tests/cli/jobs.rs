// SPDX-License-Identifier: Apache-2.0
//! An idle machine, jobs that ended, jobs of choice, and several stopped together.

use std::time::{SystemTime, UNIX_EPOCH};

use partage_protocol::admin::{
    DrainView, ErrorCode, JobView, MoveView, MovedView, Reply, Request, StayingView, UnmanagedView,
};

use crate::bench::{Bench, result};
use crate::played_broker::{job, play, refusal, unmanaged};
use crate::schema;

#[test]
fn an_idle_machine_shows_its_gpus_and_who_is_on_them() {
    let bench = Bench::new();
    let own = std::process::id();
    bench.script(
        "lib/partaged",
        &format!(
            "[ \"$1\" = --nvml-helper ] || exit 1\n\
             while read -r ask <&0; do case $ask in\n\
             *open*) echo '{{\"devices\":[{{\"uuid\":\"GPU-1\",\"index\":0,\"model\":\"NVIDIA H200\",\
             \"total\":1073741824,\"reserved\":0}}]}}' >&0;;\n\
             *) echo '{{\"sample\":{{\"used\":536870912,\"free\":536870912,\
             \"processes\":[{{\"pid\":{own},\"used\":536870912,\
             \"is_graphics_only\":false,\"busy_percent\":null}}]}}}}' >&0;;\n\
             esac; done"
        ),
    );
    let (code, out, err) = result(bench.partage(&["status"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "\
GPU  MODEL  STATE  USABLE  COMMITTED     USED  UTIL  UNMANAGED  JOBS
  0  H200   ok      1 GiB    512 MiB  512 MiB     -    512 MiB

no broker runs; the next `partage run` starts one
"
    );
    let (code, out, _) = result(bench.partage(&["ps"]));
    assert!(
        code == 0 && out.starts_with(&format!("no jobs\nunmanaged: pid {own} (")) && out.contains("512 MiB on GPU 0"),
        "{out}"
    );
    schema::judge("ps", &result(bench.partage(&["ps", "--json"])).1);
    let document = schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
    assert_eq!(document["devices"][0]["used_bytes"], 536_870_912);
    let (code, out, _) = result(bench.partage(&["queue"]));
    assert_eq!(
        (code, out.as_str()),
        (0, "no broker runs; the next `partage run` starts one\n")
    );
    schema::judge("queue", &result(bench.partage(&["queue", "--json"])).1);
    assert!(!bench.socket_dir().exists(), "looking makes nothing");
}

/// A job that ran for 13 seconds and ended with code 7.
fn ended() -> JobView {
    let mut view = job("short");
    view.job = "j44".to_owned();
    view.state = "ended".to_owned();
    view.ended_ns = Some(view.started_ns + 13_000_000_000);
    view.exit_code = Some(7);
    view.end_reason = Some("its last process is gone".to_owned());
    view.notes.clear();
    view.devices.truncate(1);
    view
}

#[test]
fn ps_shows_how_jobs_ended_and_only_what_was_asked_for() {
    let bench = Bench::new();
    let mut short = ended();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    short.started_ns = u64::try_from(now.as_nanos()).expect("before 2554") - 9_000_000_000_000;
    short.ended_ns = Some(short.started_ns + 13_000_000_000);
    let reply = Reply::Ps {
        jobs: vec![job("train"), short],
        unmanaged: Vec::new(),
        more: false,
    };
    let requests = play(&bench.socket_dir(), vec![vec![reply]; 6]);
    let (code, out, _) = result(bench.partage(&["ps", "-a", "--filter", "state=ended"]));
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "\
JOB  NAME   USER   STATE  EXIT  STARTED  DURATION  GPU   PEAK  LIMIT  COMMAND
j44  short  alice  ended     7   2h ago       13s    0  4 GiB  8 GiB  python train.py --data 'a very long \
path/that does not end/soon enough'
"
    );
    let (_, out, _) = result(bench.partage(&["ps", "-a", "-o", "job,exit,labels", "--filter", "label=team=a"]));
    assert_eq!(out, "JOB  EXIT  LABELS\nj42     -  team=a\nj44     7  team=a\n");
    let (_, out, _) = result(bench.partage(&["ps", "-o", "job", "--filter", "user=1000", "--filter", "label=none"]));
    assert_eq!(out, "JOB\n");
    let (code, _, err) = result(bench.partage(&["ps", "--filter", "gpu=0"]));
    assert!(
        code == 2 && err.contains("--filter: unknown key \"gpu\"; use label=KEY"),
        "{err}"
    );
    let (code, _, err) = result(bench.partage(&["ps", "-o", "colour"]));
    assert!(code == 2 && err.contains("colour"), "{err}");
    let (_, out, _) = result(bench.partage(&["ps", "--json", "--filter", "state=ended"]));
    let document = schema::judge("ps", &out);
    assert_eq!(
        (document["jobs"][0]["exit_code"].as_u64(), document["jobs"][1].is_null()),
        (Some(7), true)
    );
    drop(requests);
}

#[test]
fn ps_asks_for_page_after_page() {
    let bench = Bench::new();
    let page = |name: &str, unmanaged: Vec<UnmanagedView>, more: bool| {
        let mut view = job(name);
        view.job = name.to_owned();
        let jobs = vec![view];
        vec![Reply::Ps { jobs, unmanaged, more }]
    };
    let script = vec![
        page("j1", vec![unmanaged()], true),
        page("j2", Vec::new(), true),
        page("j9", Vec::new(), false),
    ];
    let requests = play(&bench.socket_dir(), script);
    let (code, out, err) = result(bench.partage(&["ps", "--json"]));
    assert_eq!(code, 0, "{err}");
    let document = schema::judge("ps", &out);
    let shown: Vec<_> = document["jobs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|job| &job["job"])
        .collect();
    assert_eq!(shown, ["j1", "j2", "j9"]);
    assert_eq!(document["unmanaged"].as_array().map(Vec::len), Some(1));
    let asked: Vec<Request> = requests.try_iter().collect();
    let page = |after: Option<&str>| Request::Ps {
        all: false,
        after: after.map(str::to_owned),
    };
    assert_eq!(asked, [page(None), page(Some("j1")), page(Some("j2"))]);
}

#[test]
fn several_jobs_are_stopped_together_and_every_refusal_is_told() {
    let bench = Bench::new();
    let done = |job: &str| {
        vec![Reply::Done {
            message: format!("{job} has ended"),
        }]
    };
    let mut second = job("second");
    second.job = "j43".to_owned();
    // SAFETY: geteuid has no preconditions.
    let me = unsafe { libc::geteuid() };
    second.uid = me;
    let jobs = Reply::Ps {
        jobs: vec![job("of somebody else"), second],
        unmanaged: Vec::new(),
        more: false,
    };
    let script = vec![
        done("j1"),
        vec![refusal(ErrorCode::NoTarget)],
        done("j3"),
        vec![jobs],
        done("j43"),
    ];
    let requests = play(&bench.socket_dir(), script);
    let (code, out, err) = result(bench.partage(&["kill", "j1", "j2", "j3"]));
    assert_eq!((code, out.as_str()), (4, "j1 has ended\nj3 has ended\n"), "{err}");
    assert_eq!(err, "partage: it cannot be; try less\n");
    if me != 1000 {
        let (code, out, err) = result(bench.partage(&["stop", "--all"]));
        assert_eq!((code, out.as_str()), (0, "j43 has ended\n"), "{err}");
    }
    let targets: Vec<String> = requests
        .try_iter()
        .filter_map(|request| match request {
            Request::Stop { target, .. } => Some(target),
            _ => None,
        })
        .collect();
    assert_eq!(targets[..3], ["j1", "j2", "j3"]);
    assert_eq!(result(bench.partage(&["stop"])).0, 2);
}

#[test]
fn a_dry_move_says_its_steps() {
    let bench = Bench::new();
    let view = MoveView {
        job: "j3".to_owned(),
        from: "GPU-00".to_owned(),
        from_index: Some(0),
        to: "GPU-01".to_owned(),
        to_index: Some(1),
        bytes: 4 << 30,
        pause_ns: 7_000_000_000,
        is_measured: false,
        steps: vec!["hold the threads".to_owned(), "lock the process".to_owned()],
    };
    let reply = Reply::Move(view);
    let requests = play(&bench.socket_dir(), vec![vec![reply.clone()], vec![reply]]);
    let (code, out, _) = result(bench.partage(&["migrate", "train", "--to", "1", "--dry-run"]));
    let text = "j3 would move from GPU 0 to GPU 1: 4 GiB by way of host memory, a pause of about 7s (by published \
                figures; this job was not measured)\n  1. hold the threads\n  2. lock the process\n";
    assert_eq!((code, out.as_str()), (0, text));
    let more = ["--from", "0", "--drain-timeout", "1m30s", "--dry-run", "--json"];
    let json = result(bench.partage(&[&["migrate", "train", "--to", "1"], &more[..]].concat())).1;
    schema::judge("move", &json);
    let asked: Vec<Request> = requests.try_iter().collect();
    let request = |from: Option<&str>| Request::Migrate {
        target: "train".to_owned(),
        to: "1".to_owned(),
        from: from.map(str::to_owned),
        dry_run: true,
        drain_timeout_ns: from.map(|_| 90_000_000_000),
    };
    assert_eq!(asked, [request(None), request(Some("0"))]);
}

#[test]
fn a_drain_names_who_moved_and_who_stays() {
    let bench = Bench::new();
    let view = |is_drained: bool, staying: Vec<StayingView>| DrainView {
        gpu: "GPU-00".to_owned(),
        gpu_index: Some(0),
        is_drained,
        moved: vec![MovedView {
            job: "j3".to_owned(),
            to: "GPU-01".to_owned(),
            to_index: Some(1),
        }],
        staying,
    };
    let staying = StayingView {
        job: "j4".to_owned(),
        why: "pid 7 has managed memory".to_owned(),
        hint: Some("end that process first".to_owned()),
    };
    let one = Reply::Drained(view(true, vec![staying.clone()]));
    let done = Reply::Done {
        message: "GPU 0 takes jobs again".to_owned(),
    };
    let replies = vec![
        vec![one.clone()],
        vec![one],
        vec![Reply::Drained(view(true, Vec::new()))],
        vec![Reply::Drained(view(false, Vec::new()))],
        vec![Reply::Drained(view(false, vec![staying]))],
        vec![done],
    ];
    let requests = play(&bench.socket_dir(), replies);
    let (code, out, _) = result(bench.partage(&["drain", "0"]));
    let text = "GPU 0 is drained, and one job stays on it\n  j3 moved to GPU 1\n  j4 stays: pid 7 has managed memory; \
                end that process first\n";
    assert_eq!((code, out.as_str()), (1, text));
    let (code, out, _) = result(bench.partage(&["drain", "0", "--json"]));
    assert_eq!(code, 1);
    schema::judge("drain", &out);
    let (code, out, _) = result(bench.partage(&["drain", "GPU-00", "--drain-timeout", "1m"]));
    assert_eq!(code, 0);
    assert!(out.starts_with("GPU 0 is drained, and no job is on it\n"), "{out}");
    for staying in ["", "  j4 stays: pid 7 has managed memory; end that process first\n"] {
        let (code, out, _) = result(bench.partage(&["drain", "0"]));
        let text = "GPU 0 takes jobs again: partage undrain came before it was empty\n  j3 moved to GPU 1\n";
        assert_eq!((code, out), (1, format!("{text}{staying}")));
    }
    assert_eq!(result(bench.partage(&["undrain", "0"])).1, "GPU 0 takes jobs again\n");
    let asked: Vec<Request> = requests.try_iter().collect();
    let drain = |gpu: &str, drain_timeout_ns| Request::Drain {
        gpu: gpu.to_owned(),
        drain_timeout_ns,
    };
    let minute = Some(60_000_000_000);
    assert_eq!(
        asked[..3],
        [drain("0", None), drain("0", None), drain("GPU-00", minute)]
    );
    assert_eq!(asked[3..5], [drain("0", None), drain("0", None)]);
    assert_eq!(asked[5], Request::Undrain { gpu: "0".to_owned() });
}
