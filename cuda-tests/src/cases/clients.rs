// SPDX-License-Identifier: Apache-2.0
//! Unmodified Python clients under a tight limit: out of memory is their own exception, they recover, their numbers are
//! right before, while full and after.

use super::Case;
use super::matrix::python;
use crate::artefacts::package_dir;
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("clients::tinygrad_recovers_from_its_out_of_memory", tinygrad),
        Case::new("clients::numba_recovers_from_its_out_of_memory", numba),
        Case::new("clients::cuda_core_recovers_from_its_out_of_memory", cuda_core),
    ]
}

/// Beside its context: a fill of six tenths of that is short for the interpreter, and small buffers fit into the rest.
/// Of pools it is whole chunks (32 MiB), whether the module's code (2 MiB) is measured by then or not.
const ROOM: u64 = 128 * MIB;

fn tinygrad(rig: &Rig) {
    run(rig, "tinygrad", "tinygrad_limit.py", "out of memory MemoryError");
}

fn numba(rig: &Rig) {
    let code = "out of memory <CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2> True";
    run(rig, "numba.cuda", "numba_limit.py", code);
}

fn cuda_core(rig: &Rig) {
    run(rig, "cuda.core", "core_limit.py", "out of memory CUDAError True");
}

fn run(rig: &Rig, module: &str, program: &str, exception: &str) {
    let mut look = rig.command(python());
    look.args(["-c", &format!("import {module}")]);
    if !rig.output(look).status.success() {
        println!("SKIPPED: {module} is not installed");
        return;
    }
    let limit = (rig.context_cost() + ROOM).next_multiple_of(MIB);
    let script = package_dir().join("programs").join(program).display().to_string();
    let mut command = rig.run(&["-m", &format!("{}MiB", limit / MIB)], &python(), &[&script]);
    command.envs([("DEV", "CUDA"), ("CUDA", "1"), ("PTX", "1")]);
    // Compiled kernels are cached under the home folder: a second run must not depend on what a first one left.
    command.env("HOME", &rig.dir);
    let output = rig.output(command);
    let expected = format!("right before True\ntotal {limit}\n{exception}\nright while full True\nright after True\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success());
    rig.eventually(std::time::Duration::from_secs(1), "nothing is left", || {
        rig.ledger_used() == 0
    });
}
