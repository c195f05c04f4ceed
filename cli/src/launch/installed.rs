// SPDX-License-Identifier: Apache-2.0
//! The files that belong to this program: the preloaded library, the broker, the simulated driver, the demo's client.
//!
//! They lie beside the program (a build tree), in `../lib/partage/` (a package, a wheel, `~/.local`) or in
//! `../data/lib/partage/` (an unpacked wheel to which an environment has links).
//! `PARTAGE_LIB_DIR` names another directory and is looked at first.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Outcome};

/// The preloaded library.
pub const LIBRARY: &str = "libpartage.so";
/// The broker.
pub const BROKER: &str = "partaged";
/// The simulated driver.
pub const SIM_DRIVER: &str = "libpartage_sim_cuda.so";
/// The simulated NVML.
pub const SIM_NVML: &str = "libpartage_sim_nvml.so";
/// The preload that hands out PTX where a program asks NVRTC for machine code.
pub const SIM_NVRTC: &str = "libpartage_sim_nvrtc.so";
/// The functions behind the stand-ins for the CUDA runtime.
pub const SIM_RUNTIME: &str = "libpartage_sim_runtime.so";
/// The functions behind the stand-ins for cuBLAS.
pub const SIM_BLAS: &str = "libpartage_sim_blas.so";
/// The libraries of the simulated machine.
pub const SIMULATED: [&str; 5] = [SIM_DRIVER, SIM_NVML, SIM_NVRTC, SIM_RUNTIME, SIM_BLAS];
/// The CUDA program that `partage demo` runs.
pub const DEMO_CLIENT: &str = "partage-demo-client";

/// Absolute path of one of our files.
///
/// # Errors
/// It is in none of the places; the message lists them.
pub fn find(name: &str) -> Outcome<PathBuf> {
    let places = places(
        env::var_os("PARTAGE_LIB_DIR").map(PathBuf::from),
        env::current_exe().ok().as_deref(),
    );
    find_in(name, &places)
}

/// Has the broker's own program read these files of a configuration, in the broker's own order: the lines that it says
/// of them, or what is wrong.
///
/// # Errors
/// The program is missing, or does not start.
pub fn check_configuration(files: impl IntoIterator<Item: AsRef<OsStr>>) -> Outcome<Result<String, String>> {
    let broker = find(BROKER)?;
    let output = Command::new(&broker).arg("--check").args(files).output();
    let output = output.map_err(|why| Failure::failed(format!("{}: {why}", broker.display())))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    Ok(match output.status.success() {
        true => Ok(said(&output.stdout)),
        false => Err(said(&output.stderr)),
    })
}

fn find_in(name: &str, places: &[PathBuf]) -> Outcome<PathBuf> {
    if let Some(path) = places.iter().map(|dir| dir.join(name)).find(|path| path.is_file()) {
        return Ok(std::path::absolute(&path).unwrap_or(path));
    }
    let looked: Vec<String> = places.iter().map(|dir| dir.display().to_string()).collect();
    let looked = looked.join(", ");
    let hint = "install Partage again, or set PARTAGE_LIB_DIR to the directory that has it";
    Err(Failure::failed(format!("{name} is missing (looked in {looked})")).hint(hint))
}

fn places(named: Option<PathBuf>, program: Option<&Path>) -> Vec<PathBuf> {
    let beside = program.and_then(Path::parent);
    let prefix = beside.and_then(Path::parent);
    let packages = prefix
        .into_iter()
        .flat_map(|prefix| ["lib/partage", "data/lib/partage"].map(|folder| prefix.join(folder)));
    named
        .into_iter()
        .chain(beside.map(Path::to_owned))
        .chain(packages)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_and_a_build_tree_are_both_found() {
        let places = places(Some("/x".into()), Some(Path::new("/opt/p/bin/partage")));
        assert_eq!(
            places,
            ["/x", "/opt/p/bin", "/opt/p/lib/partage", "/opt/p/data/lib/partage"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_missing_file_names_the_places() {
        let failure = find_in(LIBRARY, &["/nowhere/a".into(), "/nowhere/b".into()]).expect_err("nothing there");
        assert_eq!(
            failure.message,
            "libpartage.so is missing (looked in /nowhere/a, /nowhere/b)"
        );
    }
}
