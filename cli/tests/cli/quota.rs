// SPDX-License-Identifier: Apache-2.0
//! `partage quota`, `get @USER` and `events --audit`: what is shown, against the documents' schemas.

use crate::bench::{Bench, result};
use crate::played_broker::{job, play};
use crate::schema;
use partage_protocol::admin::{ConfigView, ReadingView, Reply, Request, TotalUnit, TotalView};
use partage_protocol::units::GIB;

fn total(index: u32, used: u64) -> TotalView {
    TotalView {
        user: None,
        rule: "quota-user-alice".to_owned(),
        file: "90-quota.toml".to_owned(),
        line: 7,
        key: "each_user.mem".to_owned(),
        text: "8GiB".to_owned(),
        device: Some(format!("GPU-{index}")),
        index: Some(index),
        unit: TotalUnit::Bytes,
        limit: 8 * GIB,
        used,
        held: 2 * used,
    }
}

fn configuration(file: String) -> Reply {
    Reply::Config(ConfigView {
        reading: Some(ReadingView {
            file,
            generation: 1,
            read_ns: 0,
            error: None,
        }),
        lines: vec!["rule quota-user-alice (90-quota.toml:5): user alice; at most mem = 24GiB".to_owned()],
        totals: vec![total(0, GIB), total(1, 0)],
        classes: Vec::new(),
    })
}

#[test]
fn quotas_are_listed_from_the_file_beside_the_configuration() {
    let bench = Bench::new();
    let folder = bench.socket_dir().with_file_name("etc");
    std::fs::create_dir_all(folder.join("conf.d")).expect("writable");
    let file = folder.join("partage.toml").display().to_string();
    let _requests = play(&bench.socket_dir(), vec![vec![configuration(file)]; 3]);
    let list = |options: &[&str]| result(bench.partage(&[&["quota", "list"], options].concat()));
    assert_eq!(list(&[]), (0, "no quotas\n".to_owned(), String::new()));
    let text =
        "schema = 1\n[[rule]]\nname = \"a\"\nmatch = { user = \"alice\" }\nmax = { mem = \"24GiB\", gpus = 2 }\n";
    std::fs::write(folder.join("conf.d/90-quota.toml"), text).expect("writable");
    assert_eq!(list(&[]).1, "user:alice           each-job.mem=24GiB each-job.gpus=2\n");
    let document = schema::judge("quotas", &list(&["--json"]).1);
    assert_eq!(document["quotas"][0]["values"][1][1], "2");
}

#[test]
fn wrong_words_are_refused_before_anybody_is_asked() {
    let bench = Bench::new();
    for words in [
        &["set", "alice", "mem=1GiB"][..],
        &["set", "*", "mem"],
        &["set", "user:alice", "compute-max=50%"],
        &["unset", "*", "meme"],
        &["unset", "user:", "mem"],
    ] {
        let (code, _, err) = result(bench.partage(&[&["quota"], words].concat()));
        assert!(code == 2 && err.starts_with("partage: "), "{words:?}: {err}");
    }
}

#[test]
fn a_user_is_shown_with_rules_and_with_what_is_used_of_them() {
    let bench = Bench::new();
    let jobs = Reply::Ps {
        jobs: vec![job("train"), job("eval")],
        unmanaged: Vec::new(),
        more: false,
    };
    let user = format!("@{}", job("train").user);
    let view = configuration("/etc/partage/partage.toml".to_owned());
    let script = vec![vec![jobs.clone()], vec![view.clone()], vec![jobs], vec![view]];
    let requests = play(&bench.socket_dir(), script);
    let (code, out, _) = result(bench.partage(&["get", &user]));
    assert_eq!(code, 0);
    assert!(
        out.contains("rule       rule quota-user-alice") && out.contains("2 jobs"),
        "{out}"
    );
    // The GPU of which nothing is used is not shown beside one that is.
    let said = "total memory together, GPU 0: 1 GiB used, 2 GiB held, of 8 GiB, by rule quota-user-alice, \
                each_user.mem = 8GiB (90-quota.toml:7)";
    let in_a_row = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(in_a_row.contains(said) && out.matches("\ntotal ").count() == 1, "{out}");
    let document = schema::judge("user", &result(bench.partage(&["get", &user, "--json"])).1);
    let each = job("train").devices[0].used_bytes;
    assert_eq!(document["devices"][0]["used_bytes"], 2 * each);
    let asked: Vec<Request> = requests.try_iter().collect();
    assert_eq!(asked[1], Request::ShowConfig { target: Some(user) });
}

#[test]
fn the_audit_log_is_read_from_its_files_oldest_first_without_a_broker() {
    let bench = Bench::new();
    let state = bench.socket_dir().join("state");
    std::fs::create_dir_all(&state).expect("writable");
    let (code, out, _) = result(bench.partage(&["events", "--audit"]));
    assert_eq!((code, out.as_str()), (0, ""));
    let line = |time: u64, old: &str, new: &str| {
        format!(
            "{{\"time_ns\":{time},\"what\":\"set\",\"by\":{{\"uid\":0,\"pid\":42}},\"job\":\"j3\",\"user\":\"alice\",\
             \"device\":\"GPU-1\",\"number\":\"mem\",\"old\":\"{old}\",\"new\":\"{new}\",\"from\":\"\"}}\n"
        )
    };
    std::fs::write(state.join("audit.jsonl.1"), line(5, "8 GiB", "4 GiB")).expect("writable");
    std::fs::write(state.join("audit.jsonl"), line(7, "4 GiB", "2 GiB") + "{\"half").expect("writable");
    // What users did themselves is in files of its own, and comes in between.
    let users = line(4, "9 GiB", "8 GiB") + &line(6, "4 GiB", "5 GiB") + &line(8, "2 GiB", "1 GiB");
    std::fs::write(state.join("audit-users.jsonl"), users).expect("writable");
    let (_, out, _) = result(bench.partage(&["events", "--audit"]));
    let new = ["-> 8 GiB", "-> 4 GiB", "-> 5 GiB", "-> 2 GiB", "-> 1 GiB"];
    let places = new.map(|part| out.find(part).expect("shown"));
    assert!(places.is_sorted() && out.lines().count() == 5, "{out}");
    let (_, out, _) = result(bench.partage(&["events", "--audit", "--json"]));
    out.lines().for_each(|line| drop(schema::judge("audit", line)));
    let (_, out, _) = result(bench.partage(&["events", "--audit", "--since", "1h"]));
    assert_eq!(out, "", "older than that");
}
