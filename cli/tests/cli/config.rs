// SPDX-License-Identifier: Apache-2.0
//! `partage config` and what else is said of a host's rules.

use crate::bench::{Bench, result};
use crate::played_broker::{job, play, status};
use crate::schema;
use partage_protocol::admin::{ConfigView, ErrorCode, ErrorView, ReadingView, Reply, Request};

fn reading(error: Option<&str>) -> ReadingView {
    ReadingView {
        file: "/etc/partage/partage.toml".to_owned(),
        generation: 3,
        read_ns: 1_700_000_000_000_000_000,
        error: error.map(str::to_owned),
    }
}

#[test]
fn what_holds_is_shown_in_words_and_for_whom() {
    let bench = Bench::new();
    let view = ConfigView {
        reading: Some(reading(None)),
        lines: vec!["rule students (p.toml:3): group students; at most mem = 16GiB".to_owned()],
        totals: Vec::new(),
    };
    let requests = play(
        &bench.socket_dir(),
        vec![vec![Reply::Config(view.clone())], vec![Reply::Config(view)]],
    );
    let (code, out, _) = result(bench.partage(&["config", "show", "--for", "alice"]));
    assert_eq!(code, 0);
    assert!(
        out.starts_with("configuration 3 of ") && out.contains("/etc/partage/partage.toml\n"),
        "{out}"
    );
    assert!(out.contains("rule students (p.toml:3)"), "{out}");
    schema::judge("config", &result(bench.partage(&["config", "show", "--json"])).1);
    let asked: Vec<Request> = requests.try_iter().collect();
    let target = |name: Option<&str>| Request::ShowConfig {
        target: name.map(str::to_owned),
    };
    assert_eq!(asked, [target(Some("alice")), target(None)]);
}

#[test]
fn a_reload_says_what_was_taken_or_where_the_file_is_wrong() {
    let bench = Bench::new();
    let message = "configuration 4 holds: 1 class and 2 rules".to_owned();
    let error = ErrorView {
        code: ErrorCode::Invalid,
        message: "p.toml, line 4, column 1: unknown key `maxx`; did you mean `max`?".to_owned(),
        hint: Some("nothing was changed".to_owned()),
        holders: Vec::new(),
    };
    let done = Reply::Done { message };
    let requests = play(
        &bench.socket_dir(),
        vec![vec![done.clone()], vec![done], vec![Reply::Error(error)]],
    );
    let (code, out, _) = result(bench.partage(&["config", "reload"]));
    assert_eq!(
        (code, out.as_str()),
        (0, "configuration 4 holds: 1 class and 2 rules\n")
    );
    schema::judge("done", &result(bench.partage(&["config", "reload", "--json"])).1);
    let (code, _, err) = result(bench.partage(&["config", "reload"]));
    assert_eq!(code, 2);
    assert!(
        err.contains("line 4, column 1") && err.contains("nothing was changed"),
        "{err}"
    );
    assert!(requests.try_iter().all(|request| request == Request::ReloadConfig));
}

#[test]
fn status_says_which_configuration_holds_and_why_the_last_one_does_not() {
    let bench = Bench::new();
    let mut view = status(&bench.socket_dir());
    view.broker.config = Some(reading(Some("p.toml, line 2, column 1: unknown key `rul`")));
    let _requests = play(
        &bench.socket_dir(),
        vec![vec![Reply::Status(view.clone())], vec![Reply::Status(view)]],
    );
    let (_, out, _) = result(bench.partage(&["status"]));
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        out.contains("the last reload changed nothing: p.toml, line 2, column 1"),
        "{out}"
    );
    schema::judge("status", &result(bench.partage(&["status", "--json"])).1);
}

#[test]
fn force_goes_with_the_request() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Job(job("train"))]]);
    assert_eq!(result(bench.partage(&["set", "train", "mem=8GiB", "--force"])).0, 0);
    let asked: Vec<Request> = requests.try_iter().collect();
    assert!(
        matches!(asked.as_slice(), [Request::Set { force: true, .. }]),
        "{asked:?}"
    );
}
