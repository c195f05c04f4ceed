// SPDX-License-Identifier: Apache-2.0
//! What `ps`, `get`, `set`, `status` and `why` write of time.

use partage_protocol::admin::{
    CauseView, DenialView, Holder, JobView, QueuedView, Reply, Request, TermsChange, TermsView, TimeView, WhyView,
};

use crate::bench::{Bench, result};
use crate::played_broker::{job, play, status};
use crate::schema;
use crate::tables::fits;

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
fn the_second_table_of_ps_has_the_jobs_at_work_alone() {
    let bench = Bench::new();
    let mut ended = timed();
    ended.ended_ns = Some(1);
    let mut idle = timed();
    if let Some(time) = &mut idle.devices[0].time {
        time.state = "idle".to_owned();
        time.got_1s = 0.0;
    }
    let mut measured = timed();
    measured.job = "j43".to_owned();
    measured.terms = TermsView::default();
    if let Some(time) = &mut measured.devices[0].time {
        time.state = "not draining".to_owned();
        time.held_by = None;
    }
    let reply = Reply::Ps {
        jobs: vec![timed(), measured, job("plain"), idle, ended],
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
            force: false,
            target: "train".to_owned(),
            mem: said("8GiB"),
            mem_request: None,
            process_mem: None,
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
            "3.2 GiB was denied on GPU 0 12s ago (pid 4121): with the 6.1 GiB in use it is more than the limit of 8 \
             GiB; raise it with: partage set j42 mem=9728MiB"
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
            unfreed: None,
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
