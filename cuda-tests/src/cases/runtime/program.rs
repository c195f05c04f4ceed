// SPDX-License-Identifier: Apache-2.0
//! The program that walks through the CUDA runtime, the stand-ins that it is linked against, and what it prints.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::artefacts::{built, package_dir, program};
use crate::rig::Rig;

/// What the program prints, but for its memory and the number of its CUDA.
const SEEN: &str = include_str!("../../../programs/runtime.expected");

/// The libraries that have the functions.
pub fn providers() -> [PathBuf; 2] {
    [built("libpartage_sim_runtime.so"), built("libpartage_sim_blas.so")]
}

/// The stand-ins, in the machine's folder.
pub fn make_runtime(rig: &Rig) -> PathBuf {
    let folder = rig.sim_dir().join("cuda");
    partage_stand_ins::make(&folder, &providers().each_ref().map(PathBuf::as_path)).expect("stand-ins");
    folder
}

/// The program, linked against the runtime of a CUDA.
pub fn walker(folder: &Path, cuda: &str) -> PathBuf {
    // 12's compiler packs code in the one way, 13's in the other.
    let packed = if cuda == "12" { "lz4" } else { "zstd" };
    let code = package_dir().join(format!("kernels/images/{packed}.fatbin"));
    let arguments = [
        format!("-DCUDA={cuda}"),
        format!("-DFATBIN=\"{}\"", code.display()),
        folder.join(format!("libcudart.so.{cuda}")).display().to_string(),
        "-Wl,--allow-shlib-undefined".to_owned(),
        "-lpthread".to_owned(),
        "-ldl".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    program(&format!("runtime-{cuda}"), "runtime.c", &arguments)
}

/// What it printed: the lines about its memory, and the others as one text.
pub fn parts(output: &Output) -> (Vec<u64>, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let (memory, others): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("memory"));
    let bytes = memory.iter().filter_map(|line| line.rsplit(' ').next()?.parse().ok());
    (bytes.collect(), others.iter().map(|line| format!("{line}\n")).collect())
}

/// Where a program of the rig's machine finds the stand-ins and the driver.
pub fn search_path(rig: &Rig, folder: &Path) -> String {
    format!("{}:{}", folder.display(), rig.sim_dir().join("lib").display())
}

/// What the program of a CUDA prints, but for its memory.
pub fn seen(cuda: &str) -> String {
    let lines = SEEN.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{}\n", line.replace("CUDA", cuda))).collect()
}
