// SPDX-License-Identifier: Apache-2.0
//! A program of the CUDA runtime on the stand-in for it: one walk, bare and under a limit.

use std::path::PathBuf;
use std::process::Command;

use super::Case;
use crate::artefacts::{built, program};
use crate::rig::Rig;

/// What the program says when nothing surprised it.
const PARTS: &str = "memory\nlaunch\nvariables\nstreams\ngraphs\npools\nhandles\nattributes\nerrors\nfork\nend\n";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("runtime::a_program_of_cuda_12_walks_it", |rig| walks(rig, 12))
            .simulated("a stand-in for the runtime"),
        Case::new("runtime::a_program_of_cuda_13_walks_it", |rig| walks(rig, 13))
            .simulated("a stand-in for the runtime"),
    ]
}

/// The program, linked as one of that CUDA is, with the stand-ins beside the simulated driver.
fn client(rig: &Rig, cuda: u32) -> PathBuf {
    let folder = rig.sim_dir().join("lib");
    let providers = ["libpartage_sim_runtime.so", "libpartage_sim_blas.so"].map(built);
    let made = partage_stand_ins::make(&folder, &providers.each_ref().map(PathBuf::as_path));
    assert!(made.expect("made") > 12);
    let library = folder.join(format!("libcudart.so.{cuda}"));
    let library = library.to_str().expect("text");
    program(
        &format!("runtime-{cuda}"),
        "runtime.c",
        &[&format!("-DCUDA={cuda}"), library],
    )
}

/// Bare and under a limit: the same walk.
fn walks(rig: &Rig, cuda: u32) {
    let client = client(rig, cuda);
    judge(rig, rig.command(&client));
    judge(rig, rig.run(&["-g", "0", "-m", "1GiB"], &client, &[]));
    assert_eq!(rig.ledger_used(), 0, "nothing is held, nothing is charged");
}

fn judge(rig: &Rig, command: Command) {
    let output = rig.output(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), PARTS, "{errors}");
    let said = errors.matches("cudaMallocArray").count();
    assert_eq!(
        said, 1,
        "an unbuilt function that was called twice names itself once: {errors}"
    );
}
