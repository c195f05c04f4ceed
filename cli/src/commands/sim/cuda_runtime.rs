// SPDX-License-Identifier: Apache-2.0
//! `partage sim --cuda-runtime`: stand-ins for the CUDA runtime and its companions, in a folder of the machine that
//! only programs started with this option search.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};
use crate::launch::execute::Environment;
use crate::launch::installed;

/// The line that says so.
pub const SAID: &str = "CUDA runtime and cuBLAS are Partage's stand-ins here; cuDNN, NCCL and others refuse by name. \
                        No GPU is used, and none of NVIDIA's libraries";

/// Triton assembles its PTX with the programs that these name: the second from sm_90 on, by its newer versions.
const PTXAS: [&str; 2] = ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"];

/// What stands in for `ptxas`: the driver takes PTX wherever it takes machine code.
const HANDS_ON: &str = r#"#!/bin/sh
# Made by `partage sim --cuda-runtime`. In the place of ptxas: hands PTX on, which the simulated driver takes itself.
from= to=
while [ $# -gt 0 ]; do
  case $1 in
    --version | -V) echo "Partage's stand-in for ptxas; Cuda compilation tools, release 12.8, V12.8.0"; exit 0 ;;
    -o | --output-file) to=$2; shift ;;
    -o=* | --output-file=*) to=${1#*=} ;;
    -arch | --gpu-name | -m | --machine | -O | --opt-level | -e | --entry | -maxrregcount | --maxrregcount) shift ;;
    -*) ;;
    # Another option's value is no file; what is said to be the file and is not there is told by cp.
    *) if [ -f "$1" ] || [ -z "$from" ]; then from=$1; fi ;;
  esac
  [ $# -eq 0 ] || shift
done
if [ -z "$from" ] || [ -z "$to" ]; then
  echo "ptxas of partage sim: give the PTX, and -o with the file to make" >&2
  exit 2
fi
exec cp -- "$from" "$to"
"#;

/// The libraries that have the functions of the stand-ins.
pub struct Providers([PathBuf; 2]);

impl Providers {
    /// Finds them, and looks whether stand-ins can be made of them.
    ///
    /// # Errors
    /// One is missing, or is no library.
    pub fn find() -> Outcome<Self> {
        let found = [
            installed::find(installed::SIM_RUNTIME)?,
            installed::find(installed::SIM_BLAS)?,
        ];
        partage_stand_ins::check(&found.each_ref().map(PathBuf::as_path)).map_err(|error| failed(&error))?;
        Ok(Self(found))
    }
}

fn failed(error: &partage_stand_ins::Error) -> Failure {
    let failure = Failure::failed(format!("cannot make the stand-ins for the CUDA runtime: {error}"));
    match error {
        partage_stand_ins::Error::File { .. } => failure,
        _ => failure.hint("install Partage again: a file of it is broken"),
    }
}

/// Makes the stand-ins, unless the machine has them. The caller keeps others from doing so at the same time.
///
/// # Errors
/// A file could not be written.
pub fn make(machine: &Path, providers: &Providers) -> Outcome<()> {
    let folder = folder(machine);
    if folder.exists() {
        return Ok(());
    }
    // Under another name until it is whole: a failure leaves nothing that looks made.
    let unfinished = machine.join("cuda.new");
    let _ = fs::remove_dir_all(&unfinished);
    partage_stand_ins::make(&unfinished, &providers.0.each_ref().map(PathBuf::as_path))
        .map_err(|error| failed(&error))?;
    let ptxas = unfinished.join("ptxas");
    fs::write(&ptxas, HANDS_ON).map_err(|error| Failure::cannot("write", &ptxas, error))?;
    open_up(&unfinished, &ptxas).map_err(|error| Failure::cannot("open up", &unfinished, error))?;
    fs::rename(&unfinished, &folder).map_err(|error| Failure::cannot("make", &folder, error))
}

/// Whoever reaches the machine reads them, whatever this process's umask: the folders above say who that is.
fn open_up(folder: &Path, program: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Of a link the file counts, which is the installation's.
        if !path.is_symlink() {
            let mode = if path == program { 0o755 } else { 0o644 };
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
        }
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

/// Puts them before all other libraries of a program, but for a `ptxas` that the user has named.
pub fn offer(environment: &mut Environment, root: &Path, machine: &Path) {
    let folder = folder(machine);
    environment.put_first("LD_LIBRARY_PATH", &folder, b":;", |_| false);
    for name in PTXAS {
        if environment
            .get(name)
            .is_none_or(|path| Path::new(path).starts_with(root))
        {
            environment.set(name, folder.join("ptxas"));
        }
    }
}

/// Takes away what `offer` gave to a program of another machine.
pub fn forget(environment: &mut Environment, root: &Path) {
    for name in PTXAS {
        if environment
            .get(name)
            .is_some_and(|path| Path::new(path).starts_with(root))
        {
            environment.remove(name);
        }
    }
}

fn folder(machine: &Path) -> PathBuf {
    machine.join("cuda")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ptx_is_handed_on_as_triton_asks() {
        let folder = std::env::temp_dir().join(format!("partage-ptxas-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("writable");
        let (ptx, made) = (folder.join("a kernel.ptx"), folder.join("made"));
        fs::write(&ptx, "// PTX").expect("writable");
        let run = |words: &[&str]| {
            let script = Command::new("sh")
                .args(["-c", HANDS_ON, "ptxas"])
                .args(words)
                .output()
                .expect("sh");
            (
                script.status.code(),
                String::from_utf8_lossy(&script.stdout).into_owned(),
            )
        };
        let (text, to) = (ptx.to_str().expect("text"), made.to_str().expect("text"));
        let asked = [
            "-lineinfo",
            "-v",
            "--fmad=false",
            "--opt-level",
            "0",
            "--gpu-name=sm_90a",
            text,
            "-o",
            to,
        ];
        assert_eq!(run(&asked).0, Some(0));
        assert_eq!(fs::read_to_string(&made).expect("made"), "// PTX");
        assert!(run(&["--version"]).1.contains("release 12.8"));
        assert_eq!(run(&["-v", text]).0, Some(2), "no file to make");
        assert_eq!(run(&["/nowhere", "-o", to]).0, Some(1));
        let joined = format!("--output-file={to}");
        for asked in [
            &["-e", "kernel", text, "-o", to][..],
            &[text, "--split-compile", "4", "-o", to],
            &["--split-compile", "4", text, &joined],
        ] {
            fs::remove_file(&made).expect("made");
            assert_eq!(run(asked).0, Some(0), "{asked:?}");
            assert_eq!(fs::read_to_string(&made).expect("made"), "// PTX", "{asked:?}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_users_own_assembler_stays() {
        let mut environment = Environment::default();
        environment.set("LD_LIBRARY_PATH", "/tmp/partage-sim-1/m/lib:/opt/lib");
        environment.set(PTXAS[0], "/opt/ptxas");
        let root = Path::new("/tmp/partage-sim-1");
        offer(&mut environment, root, &root.join("m"));
        let get = |name: &str| environment.get(name).map(|value| value.to_string_lossy().into_owned());
        assert_eq!(
            get("LD_LIBRARY_PATH").as_deref(),
            Some("/tmp/partage-sim-1/m/cuda:/tmp/partage-sim-1/m/lib:/opt/lib")
        );
        assert_eq!(get(PTXAS[0]).as_deref(), Some("/opt/ptxas"));
        assert_eq!(get(PTXAS[1]).as_deref(), Some("/tmp/partage-sim-1/m/cuda/ptxas"));
        forget(&mut environment, root);
        let kept = PTXAS.map(|name| environment.get(name).is_some());
        assert_eq!(kept, [true, false], "a machine's own goes with it");
    }
}
