// SPDX-License-Identifier: Apache-2.0
//! `partage run` inside a job: no second job, and no limit but the job's.

use partage_protocol::admin::{ErrorCode, JobView, Reply, Request};

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, job, play, refusal, status};
use crate::run::variable;

/// Exit code, standard output and standard error of `arguments` inside a job, and what its broker was asked.
fn inside(bench: &Bench, arguments: &[&str], script: Vec<Vec<Reply>>) -> ((i32, String, String), Vec<Request>) {
    let _ = std::fs::remove_file(bench.socket_dir().join("client/client.sock"));
    let requests = play(&bench.socket_dir(), script);
    let mut command = bench.partage(arguments);
    command
        .env("PARTAGE_TOKEN", "ab".repeat(32))
        .env("PARTAGE_MEM_BYTES", (8_u64 << 30).to_string());
    let given = result(command);
    (given, requests.try_iter().collect::<Vec<_>>())
}

/// The job around it, on one GPU.
fn outer() -> JobView {
    let mut outer = job("train");
    outer.devices.truncate(1);
    outer
}

fn got_job() -> Vec<Reply> {
    vec![Reply::Job(outer())]
}

#[test]
fn run_inside_a_job_stays_in_it() {
    let bench = Bench::new();
    let (given, asked) = inside(&bench, &["run", "-m", "4GiB", "env"], vec![got_job()]);
    assert_eq!(given.0, 0, "{}", given.2);
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((4_u64 << 30).to_string().as_str())
    );
    assert_eq!(
        variable(&given.1, "PARTAGE_TOKEN"),
        Some("ab".repeat(32).as_str()),
        "it stays in the job"
    );
    assert!(
        matches!(asked.as_slice(), [Request::Get { .. }]),
        "no second job is asked for: {asked:?}"
    );
    let line = "partage: inside j42 on GPU 0 (H200), limit 8 GiB for all its processes; \
                the lower limit 4 GiB is not enforced inside a job\n";
    assert_eq!(given.2, line, "what is not enforced is never silent");
    let (given, _) = inside(&bench, &["run", "-m", "4GiB", "--strict", "env"], vec![got_job()]);
    assert_eq!((given.0, given.1.as_str()), (125, ""));
    assert!(given.2.contains("not enforced"), "{}", given.2);

    let (given, _) = inside(&bench, &["run", "-q", "-m", "4GiB", "true"], vec![got_job()]);
    assert_eq!(given.2, line, "-q silences no limit that is not enforced");
    let (given, _) = inside(&bench, &["run", "-q", "-m", "8GiB", "true"], vec![got_job()]);
    assert_eq!(given.2, "", "-q: a wrapper's python that starts another says nothing");

    let (given, _) = inside(&bench, &["run", "-m", "64GiB", "env"], vec![got_job()]);
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((8_u64 << 30).to_string().as_str())
    );
    assert!(
        given.2.contains("limit 8 GiB") && given.2.contains("64GiB asked"),
        "{}",
        given.2
    );
    assert_eq!(
        inside(&bench, &["run", "true"], vec![got_job()]).0,
        (0, String::new(), String::new())
    );
}

#[test]
fn inside_a_job_a_part_is_of_its_gpu_and_no_other_gpu_is_had() {
    let bench = Bench::new();
    let outer = outer();
    let mut of = status(&bench.socket_dir());
    of.devices[0].uuid.clone_from(&outer.devices[0].uuid);
    of.devices[0].usable_bytes = 10 << 30;
    let (given, _) = inside(
        &bench,
        &["run", "-m", "10%", "env"],
        vec![got_job(), vec![Reply::Status(of)]],
    );
    assert_eq!(
        variable(&given.1, "PARTAGE_MEM_BYTES"),
        Some((1_u64 << 30).to_string().as_str()),
        "{}",
        given.2
    );

    let (given, _) = inside(&bench, &["run", "-g", "1", "env"], vec![got_job()]);
    assert_eq!(given.0, 125);
    assert!(given.2.contains("CUDA_VISIBLE_DEVICES"), "{}", given.2);
}

#[test]
fn a_token_that_outlived_its_job_is_nobodys() {
    let bench = Bench::new();
    // A terminal multiplexer that outlived its job: the token is nobody's, so this is a job of its own.
    let stale = vec![vec![refusal(ErrorCode::NoTarget)], vec![Reply::Admitted(admitted())]];
    let (given, asked) = inside(&bench, &["run", "true"], stale);
    assert_eq!(given.0, 0, "{}", given.2);
    assert!(
        matches!(asked.as_slice(), [Request::Get { .. }, Request::Run(_)]),
        "{asked:?}"
    );
}
