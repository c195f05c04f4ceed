// SPDX-License-Identifier: Apache-2.0
//! What stands beside the stand-ins: libraries under the vendor's names, and another user's machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::program::{make_runtime, parts, search_path, seen, walker};
use crate::artefacts::{built, program};
use crate::cases::user::{OTHER, OWNER, User, is_root};
use crate::rig::{GIB, Rig};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Each is named once, whenever it was loaded; of one whose stand-in is loaded too, both are.
pub fn half_installed(rig: &Rig) {
    let folder = make_runtime(rig);
    let runtime = folder.join("libcudart.so.12");
    let linked = [runtime.to_str().expect("text"), "-Wl,--allow-shlib-undefined", "-ldl"];
    let program_beside = program("beside", "beside.c", &linked);
    let empty = program("libempty.so", "empty.c", &["-shared", "-fPIC"]);
    let vendors = rig.dir.join("nvidia");
    std::fs::create_dir(&vendors).expect("writable");
    let [before, after, same] = ["libcufile.so.0", "libcublas.so.12", "libcudart.so.12"].map(|name| vendors.join(name));
    for library in [&before, &after, &same] {
        std::fs::copy(&empty, library).expect("writable");
    }
    let mut command = rig.command(program_beside);
    command.env("LD_LIBRARY_PATH", search_path(rig, &folder));
    command.args([&before, &after, &same]);
    let output = rig.output(command);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{}{said}", text(&output.stdout));
    for library in [&before, &after] {
        let line = format!(
            "partage sim: {} was loaded in the place of its stand-in:",
            library.display()
        );
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
    let line = format!(
        "partage sim: {} was loaded beside its stand-in {}:",
        same.display(),
        runtime.display()
    );
    assert_eq!(said.matches(&line).count(), 1, "{said}");
    assert_eq!(said.lines().count(), 3, "{said}");
}

/// `partage`, and what `partage sim --cuda-runtime` needs beside it, where every user may use it.
fn installed(rig: &Rig) -> PathBuf {
    let partage = rig.installed();
    for name in [
        "libpartage_sim_cuda.so",
        "libpartage_sim_nvml.so",
        "libpartage_sim_runtime.so",
        "libpartage_sim_blas.so",
    ] {
        std::fs::copy(built(name), partage.with_file_name(name)).expect("writable");
    }
    partage
}

/// `partage sim` as a user's, of a name that each of them may have.
fn machine_of(rig: &Rig, user: &User, partage: &Path, name: &str, more: &[&str]) -> Command {
    let mut command = user.command(rig, partage);
    command.args(["sim", "--overcommit", "--cuda-runtime", "--machine", name]);
    for variable in ["PARTAGE_SIM_DIR", "LD_LIBRARY_PATH", "PARTAGE_SOCKET_DIR"] {
        command.env_remove(variable);
    }
    command.args(more);
    command
}

fn checked(output: Output, who: &str, memory: u64) {
    let said = text(&output.stderr);
    assert!(output.status.success(), "{who}: {}{said}", text(&output.stdout));
    let (found, others) = parts(&output);
    assert_eq!(others, seen("12"), "{who}");
    assert_eq!(found, [memory; 3], "{who}");
}

/// Two users' machines of one name at once: each program sees its own devices, and nothing is left of either.
pub fn two_users(rig: &Rig) {
    if !is_root() {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    let partage = installed(rig);
    let walker = walker(&make_runtime(rig), "12");
    let program = rig.dir.join("walker");
    std::fs::copy(walker, &program).expect("writable");
    let name = format!("beside-{}", std::process::id());
    let sizes = [(&OWNER, 4), (&OTHER, 2)];
    let running = sizes.map(|(user, gib)| {
        let memory = format!("{gib}GiB");
        let mut command = machine_of(rig, user, &partage, &name, &["--memory", &memory, "--"]);
        command.arg(&program).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    });
    for (child, (user, gib)) in running.into_iter().zip(sizes) {
        let output = child.wait_with_output().expect("our own child");
        checked(output, user.uid, gib * GIB);
        let left = PathBuf::from(format!("/tmp/partage-sim-{}", user.uid)).join(&name);
        assert!(!left.exists(), "{}", left.display());
    }
}

/// A shared machine's stand-ins and events serve another user, whatever the umask of its maker.
pub fn shared_under_a_umask(rig: &Rig) {
    if !is_root() {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    let partage = installed(rig);
    let walker = walker(&make_runtime(rig), "12");
    let program = rig.dir.join("walker");
    std::fs::copy(walker, &program).expect("writable");
    let name = format!("shared-{}", std::process::id());
    // The maker's shell names the machine's folder, and keeps the machine until its input ends.
    let maker = "umask 077; exec \"$0\" \"$@\"";
    let mut command = OWNER.command(rig, "/bin/sh");
    command.args(["-c", maker]).arg(&partage);
    command.args(["sim", "--overcommit", "--cuda-runtime", "--shared", "--memory", "4GiB"]);
    command.args(["--machine", &name, "--", "sh", "-c", "echo $PARTAGE_SIM_DIR; exec cat"]);
    for variable in ["PARTAGE_SIM_DIR", "LD_LIBRARY_PATH", "PARTAGE_SOCKET_DIR"] {
        command.env_remove(variable);
    }
    let mut owner = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    let out = owner.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    let machine = PathBuf::from(line.trim());
    assert!(machine.join("cuda").exists(), "{line}");
    let mut other = OTHER.command(rig, "/bin/sh");
    other.args(["-c", maker]).arg(&program);
    other
        .env("PARTAGE_SIM_DIR", &machine)
        .env("LD_LIBRARY_PATH", format!("{0}/cuda:{0}/lib", machine.display()));
    checked(rig.output(other), "another user", 4 * GIB);
    drop(owner.stdin.take());
    assert!(owner.wait().expect("our own child").success());
    assert!(!machine.exists(), "{}", machine.display());
}
