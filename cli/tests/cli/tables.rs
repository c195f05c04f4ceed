// SPDX-License-Identifier: Apache-2.0
//! What `ps`, `status`, `queue`, `get`, `set`, `stop`, `events`, `broker`, `doctor`, `version` and `completions` write.

use partage_protocol::admin::{PlaceView, QueueView, QueuedView, Reply, Request, SickView, TermsChange};

use crate::bench::{Bench, result};
use crate::played_broker::{job, play, status, unmanaged};
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
pub fn fits(text: &str) {
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
j42  train      alice  running       0  3 GiB  8 GiB        1  python train.py --data 'a very long \
path/that does not end/soon enough'
                                     1  3 GiB   none
j43  evil?[2J\u{e9}  alice  over limit    0  3 GiB  8 GiB        1  python train.py --data 'a very long \
path/that does not end/soon enough'
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
GPU  MODEL  STATE   USABLE  COMMITTED   USED  UTIL  UNMANAGED  JOBS
  3  H200   ok     140 GiB      8 GiB  3 GiB  87 %        0 B  j42

QUEUED  USER  ASKS  WAITED  FOR
j44     bob    25%     61s  35 GiB asked, 2 GiB free of 140 GiB on GPU 3, held by others
1 job waits; partage queue has a guess of how long still

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
fn get_shows_a_gpu_with_all_that_the_driver_says_of_it() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    let healthy = view.clone();
    view.devices[0].state = "sick".to_owned();
    view.devices[0].sick = Some(SickView {
        since_unix_ns: 1_795_213_560_000_000_000,
        cause: "xid 79".to_owned(),
        text: "has fallen off the bus (Xid 79)".to_owned(),
    });
    let script = [&healthy, &healthy, &healthy, &view, &view, &view].map(|view| vec![Reply::Status(view.clone())]);
    let _requests = play(&bench.socket_dir(), script.to_vec());
    let (code, out, _) = result(bench.partage(&["get", "gpu:3"]));
    assert_eq!(code, 0);
    for part in [
        "utilisation  87 %, its memory 40 %\n",
        "temperature  64 C\n",
        "power        412 W of 700 W\n",
        "clocks       1755 MHz, memory 3201 MHz\n",
        "throttled by power-cap\n",
        "pcie         12 MiB/s sent, 3 GiB/s received\n",
        "nvlink       5 TiB sent, 4 TiB received\n",
        "ecc errors   3 corrected, 0 not\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("sick"), "{out}");
    schema::judge("gpu", &result(bench.partage(&["get", "gpu:3", "--json"])).1);
    let (code, _, err) = result(bench.partage(&["get", "gpu:7"]));
    assert!(code == 4 && err.contains("there are: 3"), "{code} {err}");
    let (_, out, _) = result(bench.partage(&["get", "gpu:3"]));
    assert!(
        out.contains("state        sick\n") && out.contains("has fallen off the bus (Xid 79)"),
        "{out}"
    );
    schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
    let (code, out, _) = result(bench.partage(&["status", "--check"]));
    assert!(
        code == 2 && out.contains("GPU 3 is sick: it has fallen off the bus"),
        "{code} {out}"
    );
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
            force: false,
            target: "j42".to_owned(),
            mem: Some("2GiB".to_owned()),
            mem_request: None,
            process_mem: None,
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
            force: false,
            target: "train".to_owned(),
            mem: Some("8GiB".to_owned()),
            mem_request: Some("25%".to_owned()),
            process_mem: None,
            terms: TermsChange::default(),
        }
    );
    for (bad, part) in [
        ("mem-request=8", "mem-request: "),
        ("memory=8GiB", "mem-request=SIZE|PCT|none, process-mem=SIZE|PCT|none"),
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

#[test]
fn an_overcommitted_device_and_denials_are_said() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    let note = "promises on GPU 3 add up to 130 % of its memory: allocations within a job's limit may be denied as \
                card full";
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
fn queue_shows_places_and_says_that_its_guesses_are_some() {
    let bench = Bench::new();
    let first = PlaceView {
        place: 1,
        job: "j44".to_owned(),
        user: "bob".to_owned(),
        priority: "normal".to_owned(),
        mem: Some("25%".to_owned()),
        compute: Some("30%".to_owned()),
        comes_back: false,
        waited_ns: 61_000_000_000,
        reason: "needs 35 GiB there: GPU 3 has 2 GiB of 140 GiB left".to_owned(),
        expected_wait_ns: Some(1_500_000_000_000),
        user_gpu_ns: Some(7),
    };
    let second = PlaceView {
        place: 2,
        job: "j40".to_owned(),
        mem: None,
        compute: None,
        comes_back: true,
        expected_wait_ns: None,
        user_gpu_ns: None,
        ..first.clone()
    };
    let view = |jobs: Vec<PlaceView>| {
        let order = "fair".to_owned();
        vec![Reply::Queue(QueueView { order, jobs })]
    };
    let both = vec![first, second];
    let requests = play(&bench.socket_dir(), vec![view(both.clone()), view(both), view(vec![])]);
    let (code, out, _) = result(bench.partage(&["queue"]));
    assert_eq!(code, 0);
    let expected = "\
PLACE  JOB  USER  PRIORITY          ASKS  WAITED  EXPECTED   FOR
    1  j44  bob   normal    25% 30% time     61s  about 25m  needs 35 GiB there: GPU 3 has 2 GiB of 140 GiB left
    2  j40  bob   normal               -     61s  unknown    to come back: needs 35 GiB there: GPU 3 has 2 GiB of 140 \
                    GiB left

order: fair (priority, then the user's GPU time of late, then age)
";
    assert!(out.starts_with(expected), "{out}");
    assert!(out.contains("EXPECTED is a guess"), "{out}");
    schema::judge("queue", &result(bench.partage(&["queue", "--json"])).1);
    assert_eq!(result(bench.partage(&["queue"])).1, "nothing waits\n");
    let asked: Vec<Request> = requests.iter().take(3).collect();
    assert_eq!(asked, [Request::Queue, Request::Queue, Request::Queue]);
}
