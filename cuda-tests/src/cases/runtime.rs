// SPDX-License-Identifier: Apache-2.0
//! A program as a CUDA compiler makes it, linked against the stand-ins for the CUDA runtime: it sees the same bare and
//! under a limit, but for its memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Case;
use crate::artefacts::{built, package_dir, program};
use crate::rig::{GIB, Rig};

mod refusals;

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated("the stand-ins are for the simulated driver");
    vec![
        simulated("runtime::a_program_of_12_sees_the_same_under_a_limit", |rig| {
            same_under_a_limit(rig, "12");
        }),
        simulated("runtime::a_program_of_13_sees_the_same_under_a_limit", |rig| {
            same_under_a_limit(rig, "13");
        }),
        simulated(
            "runtime::what_is_not_built_says_itself_once",
            refusals::each_says_itself_once,
        ),
    ]
}

/// What the program prints, but for its memory and the number of its CUDA.
const SEEN: &str = include_str!("../../programs/runtime.expected");

/// The libraries that have the functions.
fn providers() -> [PathBuf; 2] {
    [built("libpartage_sim_runtime.so"), built("libpartage_sim_blas.so")]
}

/// The stand-ins, in the machine's folder.
fn make_runtime(rig: &Rig) -> PathBuf {
    let folder = rig.sim_dir().join("cuda");
    partage_stand_ins::make(&folder, &providers().each_ref().map(PathBuf::as_path)).expect("stand-ins");
    folder
}

/// The program, linked against the runtime of a CUDA.
fn walker(folder: &Path, cuda: &str) -> PathBuf {
    // 12's compiler packs code in the one way, 13's in the other.
    let packed = if cuda == "12" { "lz4" } else { "zstd" };
    let code = package_dir().join(format!("kernels/images/{packed}.fatbin"));
    let arguments = [
        format!("-DCUDA={cuda}"),
        format!("-DFATBIN=\"{}\"", code.display()),
        folder.join(format!("libcudart.so.{cuda}")).display().to_string(),
        "-Wl,--allow-shlib-undefined".to_owned(),
        "-lpthread".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    program(&format!("runtime-{cuda}"), "runtime.c", &arguments)
}

/// What it printed: the lines about its memory, and the others as one text.
fn parts(output: &Output) -> (Vec<u64>, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let (memory, others): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("memory"));
    let bytes = memory.iter().filter_map(|line| line.rsplit(' ').next()?.parse().ok());
    (bytes.collect(), others.iter().map(|line| format!("{line}\n")).collect())
}

fn same_under_a_limit(rig: &Rig, cuda: &str) {
    let folder = make_runtime(rig);
    let program = walker(&folder, cuda);
    let path = format!("{}:{}", folder.display(), rig.sim_dir().join("lib").display());
    let output = |mut command: Command| {
        command.env("LD_LIBRARY_PATH", &path);
        let output = rig.output(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{}\n{said}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(
            said.matches("cudaCreateTextureObject").count(),
            1,
            "called twice, named once: {said}"
        );
        assert!(!said.contains("no version information"), "{said}");
        parts(&output)
    };
    let seen = SEEN.lines().filter(|line| !line.starts_with('#'));
    let seen: String = seen.map(|line| format!("{}\n", line.replace("CUDA", cuda))).collect();
    // Each device's, and what is in use and free of the first.
    let (memory, others) = output(rig.command(&program));
    assert_eq!(others, seen, "bare");
    assert_eq!(memory, [16 * GIB; 3], "bare");
    let (memory, others) = output(rig.run(&["-g", "0,1", "-m", "1GiB"], &program, &[]));
    assert_eq!(others, seen, "under a limit");
    assert_eq!(memory, [GIB; 3], "under a limit");
    // Nothing stays charged of what was held when a process ended or broke.
    rig.eventually(crate::client::PATIENCE, "nothing is held", || {
        rig.truth_allocated() == 0
    });
    assert_eq!(rig.ledger_used(), 0);
}
