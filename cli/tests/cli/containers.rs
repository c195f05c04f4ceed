// SPDX-License-Identifier: Apache-2.0
//! `partage verify` and `register`: what is said of a wrapper, and the documents against their schemas.

use partage_protocol::admin::{ContainerView, EngineView, Reply, Request};
use partage_protocol::units::GIB;

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, job, play};
use crate::schema;

#[test]
fn verify_says_what_is_known_against_a_wrapper() {
    let bench = Bench::new();
    let verify = |wrapper: &[&str]| {
        let (code, out, err) = result(bench.partage(&[&["--json", "verify", "--"], wrapper].concat()));
        assert_eq!(code, 1, "{err}");
        let document = schema::judge("verify", &out);
        assert_eq!(document["is_bound"], false, "{document}");
        document["message"].as_str().expect("a sentence").to_owned()
    };
    let outside = "the library is not in the program, so no limit holds for it";
    let own = env!("CARGO_BIN_EXE_partage");
    let silent = format!("the probe did not run there: WRAPPER has to start this very program, {own}");
    // Its place is said before; the tests may run in a container themselves.
    assert!(verify(&[]).ends_with(outside));
    let sudo = bench.script("sudo", "exec \"$@\"");
    let sudo = sudo.to_str().expect("utf-8");
    let known = " (sudo: it changes the user and drops the preloaded library; put it first: sudo partage run ...)";
    assert!(verify(&[sudo]).ends_with(&format!("{outside}{known}")));
    assert!(verify(&["env", "-i"]).contains("without LD_PRELOAD"));
    // 64 bytes of ELF header without program headers.
    let mut elf = vec![0_u8; 64];
    elf[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    let program = bench.file("static", &elf, 0o755);
    let program = program.to_str().expect("utf-8");
    assert_eq!(verify(&["true"]), silent);
    // As from an image without the file: the device may have been given.
    let podman = bench.script("podman", "echo no such file >&2; exit 127");
    assert_eq!(verify(&[podman.to_str().expect("utf-8"), "run", "IMAGE"]), silent);
    let said = verify(&["nice", program]);
    let why = "the program is statically linked and loads no library; use a dynamically linked build";
    assert_eq!(said, format!("{silent} ({program}: {why})"));
}

#[test]
fn verify_says_where_a_limit_bit() {
    let bench = Bench::new();
    let met = serde_json::json!({
        "place": "a container of podman (3f2a91c0d4e5)",
        "preload": "file",
        "job": "j3",
        "limit_bytes": GIB,
        "limit_from": "class small",
        "total_bytes": GIB,
        "denied_at_bytes": GIB,
        "code": 2,
    });
    let wrapper = bench.script("wrapper", &format!("echo a banner; echo 'partage-verify: {met}'"));
    let (code, out, err) = result(bench.partage(&["--json", "verify", "--", wrapper.to_str().expect("utf-8")]));
    assert_eq!((code, err.as_str()), (0, "a banner\n"));
    let document = schema::judge("verify", &out);
    assert_eq!(
        document["message"].as_str().map(|text| text.contains("j3 is bound")),
        Some(true)
    );
    assert_eq!(
        (&document["limit_bytes"], &document["job"]),
        (&GIB.into(), &"j3".into())
    );
}

#[test]
fn a_registration_is_a_document() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let (code, out, err) = result(bench.partage(&["register", "--pid", "77", "-m", "1GiB", "--json"]));
    assert_eq!((code, err.as_str()), (0, ""));
    let document = schema::judge("registered", &out);
    assert_eq!(
        (&document["job"], &document["is_new"]),
        (&"j42".into(), &true.into()),
        "{document}"
    );
}

#[test]
fn who_registers_a_process_of_its_own_hears_what_its_children_need() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 4]);
    let variables = |pid: u32| {
        let (code, out, err) = result(bench.partage(&["register", "--pid", &pid.to_string(), "--json"]));
        assert_eq!((code, err.as_str()), (0, ""));
        schema::judge("registered", &out)["environment"].clone()
    };
    let own = variables(std::process::id());
    assert_eq!(own["PARTAGE_TOKEN"], admitted().token, "{own}");
    assert_eq!(own["PARTAGE_DEVICES"], admitted().devices[0].uuid, "{own}");
    let library = own["LD_PRELOAD"].as_str().expect("the library");
    assert!(std::path::Path::new(library).is_file(), "{own}");
    // No process has this number.
    assert_eq!(variables(u32::MAX), serde_json::json!({}));
}

#[test]
fn a_registration_tells_the_engines_words_and_what_it_has_at_most() {
    let bench = Bench::new();
    let requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let words = [
        "--engine",
        "slurm:4711",
        "--engine-words",
        "shard:5 of 10",
        "--name",
        "train",
    ];
    let most = ["--at-most", "mem=10GiB,compute-max=30%", "--at-most", "time-limit=2h"];
    let (code, out, err) = result(bench.partage(&[&["register", "--pid", "78"], &words[..], &most[..]].concat()));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.starts_with("process 78 is of j42, whose control group it is in, on GPU 3"),
        "{out}"
    );
    let asked = requests.try_iter().find_map(|request| match request {
        Request::Register(asked) => Some(asked),
        _ => None,
    });
    let asked = asked.expect("a registration");
    assert_eq!(asked.engine.as_deref(), Some("slurm:4711"));
    assert_eq!(asked.engine_words.as_deref(), Some("shard:5 of 10"));
    assert_eq!(asked.run.name.as_deref(), Some("train"));
    assert_eq!(asked.at_most.mem.as_deref(), Some("10GiB"));
    assert_eq!(asked.at_most.terms.compute_max.as_deref(), Some("30%"));
    assert_eq!(asked.at_most.terms.time_limit.as_deref(), Some("2h"));
}

#[test]
fn an_engines_job_is_shown_in_the_engines_words_and_not_as_a_container() {
    let bench = Bench::new();
    let mut view = job("train");
    view.engine = Some(EngineView {
        id: "slurm:4711".to_owned(),
        words: Some("shard:5 of 10".to_owned()),
    });
    view.container = Some(ContainerView {
        cgroup: Some("/slurm_n1/uid_7/job_4711".to_owned()),
        ..ContainerView::default()
    });
    let ps = Reply::Ps {
        jobs: vec![view.clone()],
        unmanaged: Vec::new(),
        more: false,
    };
    let _requests = play(
        &bench.socket_dir(),
        vec![
            vec![ps.clone()],
            vec![ps],
            vec![Reply::Job(view.clone())],
            vec![Reply::Job(view)],
        ],
    );
    let (code, out, err) = result(bench.partage(&["ps", "-o", "job,engine,container"]));
    assert_eq!(code, 0, "{err}");
    let row = out.lines().nth(1).expect("a job");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["j42", "slurm:4711", "shard:5", "of", "10", "-"], "{out}");
    let (_, out, _) = result(bench.partage(&["ps", "--json"]));
    let document = schema::judge("ps", &out);
    assert_eq!(document["jobs"][0]["engine"]["id"], "slurm:4711", "{document}");
    let (code, out, err) = result(bench.partage(&["get", "slurm:4711"]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("engine     slurm:4711 shard:5 of 10"), "{out}");
    assert!(
        out.contains("registered control group /slurm_n1/uid_7/job_4711"),
        "{out}"
    );
    assert!(!out.contains("container"), "{out}");
}

#[test]
fn what_a_registration_cannot_have_at_most_is_refused_before_anybody_is_asked() {
    let bench = Bench::new();
    for (most, words) in [
        ("mem=8", "--at-most mem: "),
        ("mem=none", "--at-most mem: \"none\" is no limit"),
        ("compute=30", "--at-most compute: "),
        ("gpu=1", "--at-most \"gpu\" is unknown"),
        ("name=x", "--at-most \"name\" is unknown"),
        ("mem", "--at-most \"mem\" needs a value"),
        ("", "--at-most \"\" needs a value"),
    ] {
        let (code, _, err) = result(bench.partage(&["register", "--pid", "77", "--at-most", most]));
        assert!(code == 2 && err.contains(words), "{most}: {code}: {err}");
    }
    let (code, _, err) = result(bench.partage(&["register", "--pid", "77", "--engine-words", "shard:5"]));
    assert!(code == 2 && err.contains("--engine"), "{code}: {err}");
    let (code, _, err) = result(bench.partage(&["register", "--pid", "77", "--timeout", "8"]));
    assert!(code == 2 && err.contains("--timeout: "), "{code}: {err}");
    let (code, _, err) = result(bench.partage(&["register", "--pid", "77", "--name", "7up"]));
    assert!(code == 2 && err.contains("--name"), "{code}: {err}");
}
