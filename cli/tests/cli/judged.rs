// SPDX-License-Identifier: Apache-2.0
//! Commands that the limit cannot follow: named in one line and run; refused with `--strict`.

use partage_protocol::admin::Reply;

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, play};
use crate::schema;

#[test]
fn a_hand_off_is_named_and_runs_and_strict_refuses_it() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let docker = bench.script("docker", "echo \"$@\"; exit 5");
    let docker = docker.to_str().expect("utf-8");
    let line = "partage: the limit will not follow docker: the work runs in a container of another process tree; \
                give it --device partage.dev/share=CLASS (partage cdi generate), or start partage run inside it\n";
    let ran = result(bench.partage(&["run", docker, "run", "--gpus", "all"]));
    assert_eq!(ran, (5, "run --gpus all\n".to_owned(), line.to_owned()));
    // Quiet is about admission; what is not enforced is never silent.
    assert_eq!(result(bench.partage(&["run", "-q", "nice", docker, "x"])).2, line);
    let (code, out, err) = result(bench.partage(&["run", "--strict", docker, "x"]));
    assert_eq!((code, out.as_str()), (125, ""));
    assert!(
        err.starts_with("partage: --strict refuses") && err.contains("container"),
        "{err}"
    );
    let (_, _, err) = result(bench.partage(&["run", "--strict", "--json", docker, "x"]));
    schema::judge("error", &err);
}

#[test]
fn a_static_program_and_one_without_preload_are_refused_with_strict() {
    let bench = Bench::new();
    // 64 bytes of ELF header without program headers: judged, never run.
    let mut elf = vec![0_u8; 64];
    elf[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    let program = bench.file("static", &elf, 0o755);
    let script = bench.file("script", format!("#!{}\n", program.display()).as_bytes(), 0o755);
    for name in [&program, &script] {
        let (code, _, err) = result(bench.partage(&["run", "--strict", name.to_str().expect("utf-8")]));
        assert_eq!(code, 125);
        assert!(err.contains("statically linked"), "{err}");
    }
    let (code, _, err) = result(bench.partage(&["run", "--strict", "env", "-i", "true"]));
    assert_eq!(code, 125);
    assert!(err.contains("LD_PRELOAD"), "{err}");
    assert!(!bench.socket_dir().exists(), "nobody was asked");
}

#[test]
fn json_says_it_too() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]]);
    let tmux = bench.script("tmux", "true");
    let (_, _, err) = result(bench.partage(&["run", "--json", tmux.to_str().expect("utf-8")]));
    schema::judge("unmanaged", err.lines().next().expect("a line"));
}
