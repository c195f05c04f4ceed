// SPDX-License-Identifier: Apache-2.0
//! A machine whose driver is missing, or found by the library path alone.

use std::path::Path;
use std::process::{Command, Output};

use std::time::Duration;

use super::output::text;
use crate::artefacts::built;
use crate::rig::Rig;

pub fn no_driver(rig: &Rig) {
    let mut command = rig.run(&["-m", "1GiB"], Path::new("/bin/true"), &[]);
    command.env_remove("PARTAGE_SIM_DIR").env_remove("LD_LIBRARY_PATH");
    let output = rig.output(command);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("no NVIDIA driver here; try: partage sim -- partage run"),
        "{}",
        text(&output.stderr)
    );
}

/// A folder of driver libraries that no loader knows of, for a machine that no variable names: each library says so
/// itself when it is loaded, and has the simulated one's functions.
fn hidden_driver(rig: &Rig) -> std::path::PathBuf {
    let folder = rig.dir.join("driver");
    std::fs::create_dir(&folder).expect("writable");
    let source = folder.join("wrapper.c");
    let text = format!(
        "#include <stdlib.h>\n\
         __attribute__((constructor)) static void say(void) {{ setenv(\"PARTAGE_SIM_DIR\", \"{}\", 1); }}\n",
        rig.sim_dir().display()
    );
    std::fs::write(&source, text).expect("writable");
    for (name, wrapped) in [
        ("libnvidia-ml.so.1", "libpartage_sim_nvml.so"),
        ("libcuda.so.1", "libpartage_sim_cuda.so"),
    ] {
        // The simulated library under another name, or the wrapper would be taken for what it needs.
        let other = name.replace(".so.1", ".so.9");
        let inner = folder.join(&other);
        let renamed = replaced(
            &std::fs::read(built(wrapped)).expect("readable"),
            name.as_bytes(),
            other.as_bytes(),
        );
        std::fs::write(&inner, renamed).expect("writable");
        let mut command = rig.command(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        command.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]);
        command.arg(folder.join(name)).arg(&source).arg(&inner);
        command.arg(format!("-Wl,-rpath,{}", folder.display()));
        let output = rig.output(command);
        assert!(output.status.success(), "{}", text_of(&output));
    }
    folder
}

/// Bytes with each place of `from` overwritten by `to`, which is as long.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }
    bytes
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

pub fn library_path(rig: &Rig) {
    let folder = hidden_driver(rig);
    let with = |mut command: Command| {
        command.env_remove("PARTAGE_SIM_DIR").env("LD_LIBRARY_PATH", &folder);
        command
    };
    let run = || with(rig.run(&["-m", "25%"], Path::new("/bin/true"), &[]));
    let ran = rig.output(run());
    assert!(ran.status.success(), "{}", text_of(&ran));
    // Whoever starts the next broker needs no such variable: it was written down.
    let old = rig.broker_pid_quick().expect("it admitted the job");
    // SAFETY: this rig's own broker.
    unsafe { libc::kill(old as libc::pid_t, libc::SIGKILL) };
    rig.eventually(Duration::from_secs(20), "it is gone", || {
        rig.broker_pid_quick().is_none()
    });
    let mut bare = rig.run(&["-m", "25%"], Path::new("/bin/true"), &[]);
    bare.env_remove("PARTAGE_SIM_DIR").env_remove("LD_LIBRARY_PATH");
    let ran = rig.output(bare);
    assert!(ran.status.success(), "{}", text_of(&ran));
    // `doctor` and `run` judge alike.
    let doctor = text_of(&rig.output(with(rig.partage(&["doctor"]))));
    let nvml = doctor.lines().find(|line| line.contains("NVML")).unwrap_or_default();
    assert!(nvml.contains("ok"), "{doctor}");
}
