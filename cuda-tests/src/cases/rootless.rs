// SPDX-License-Identifier: Apache-2.0
//! Containers of a user without root: podman in a user namespace of that user, whose private broker serves it.
//!
//! The user exists in a mount namespace alone, where `/etc` has another layer above it; podman's store is in the rig's
//! folder, and all processes go with a pid namespace.

use std::path::Path;
use std::process::Command;

use super::Case;
use super::containers::podman::{CONF, add, stderr};
use crate::artefacts::{built, client};
use crate::client::Client;
use crate::rig::{CONTEXT_BYTES, MIB, Rig};

const WHY: &str = "runs containers on the simulated machine";

pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "rootless::one_of_two_gpus_with_a_limit_whatever_the_uid_inside",
            one_of_two,
        )
        .simulated(WHY),
    ]
}

/// `$1` is the folder of the rig, `$2` that of the user, the rest is for [`AS_USER`].
const AS_ROOT: &str = r#"set -e
    dir=$1; mkdir -p "$2/home" "$2/run" "$2/cdi" "$2/files" "$2/sock"
    chown -R 60001:60001 "$2"; chmod 700 "$2/run" "$2/sock"
    mkdir -p "$dir/etc"; mount -t tmpfs none "$dir/etc"; mkdir "$dir/etc/upper" "$dir/etc/work"
    mount -t overlay none -o "lowerdir=/etc,upperdir=$dir/etc/upper,workdir=$dir/etc/work" /etc
    echo "tenant:x:60001:60001::$2/home:/bin/sh" >> /etc/passwd; echo "tenant:x:60001:" >> /etc/group
    echo "tenant:100000:65536" > /etc/subuid; cp /etc/subuid /etc/subgid
    mkdir -p /etc/cdi; mount --bind "$2/cdi" /etc/cdi
    user=$2; shift 2
    export HOME="$user/home" XDG_RUNTIME_DIR="$user/run" PARTAGE_SOCKET_DIR="$user/sock" CDI="$user/cdi/partage.json"
    exec setpriv --reuid=60001 --regid=60001 --clear-groups sh -c "$AS_USER" sh "$user" "$dir/bin/partage" "$@""#;

/// `$1` is the folder of the user, `$2` is `partage`, the rest are podman's words after `run`. The hook is patient: a
/// machine that runs all cases is late by seconds at times.
const AS_USER: &str = r#"set -e
    cd "$1"; "$2" broker start >/dev/null; "$2" cdi generate --output "$CDI" --files "$1/files" >/dev/null
    sed -i 's/"create-runtime",/"create-runtime", "--timeout", "60s",/; s/"timeout": 10/"timeout": 120/' "$CDI"
    store=$1/home/store; run=$1/run/podman; shift 2
    podman --root "$store" --runroot "$run" --storage-driver vfs run "$@""#;

/// What a user's `podman run` is started with.
struct Tenant<'a>(&'a Rig);

impl Tenant<'_> {
    /// `podman run` with these words, by the user, in namespaces that end with it.
    fn run(&self, words: &[&str]) -> Command {
        let dir = &self.0.dir;
        let mut command = self.0.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
            .args(["sh", "-c", AS_ROOT, "sh"])
            .arg(dir)
            .arg(dir.join("user"))
            .args(words);
        command.env("AS_USER", AS_USER);
        command.env("CONTAINERS_CONF", dir.join("containers.conf"));
        command
    }
}

fn one_of_two(rig: &Rig) {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can make a user");
        return;
    }
    rig.installed();
    std::fs::write(rig.dir.join("containers.conf"), CONF).expect("writable");
    let root = rig.dir.join("root");
    make_root(rig, &root);
    let rootfs = format!("{}:O", root.display());
    let tenant = Tenant(rig);
    let probe = rig.output(tenant.run(&["--rm", "--rootfs", &rootfs, "/bin/true"]));
    if !probe.status.success() {
        let said = stderr(&probe);
        let why = said.lines().last().unwrap_or("podman is missing").to_owned();
        rig.note(format!("skipped: this machine runs no containers without root ({why})"));
        return;
    }
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    machine.open_to_all().expect("opened up");
    let (sim, own) = (rig.sim_dir().display().to_string(), machine.devices()[1].uuid_text());
    for options in [&[][..], &["--user=1000", "-e=CUDA_VISIBLE_DEVICES=0"]] {
        let mut words = vec![
            "-i",
            "--rm",
            "--device=partage.dev/share=default",
            "-e=NVIDIA_VISIBLE_DEVICES=1",
        ];
        let given = [
            format!("-v={sim}:{sim}"),
            format!("--tmpfs={sim}/dev"),
            format!("-v={sim}/dev/nvidia1:{sim}/dev/nvidia1"),
            format!("-e=PARTAGE_SIM_DIR={sim}"),
            format!("-e=LD_LIBRARY_PATH={sim}/lib"),
        ];
        words.extend(given.iter().map(String::as_str));
        words.extend(options);
        words.extend([
            "--annotation=partage.dev/mem=512MiB",
            "--rootfs",
            &rootfs,
            "/bin/client",
            "dlopen",
        ]);
        let mut client = Client::start(tenant.run(&words));
        client.ready();
        client.expect("count", "count 0 1");
        assert_eq!(client.say("uuid 0").trim_start_matches("uuid 0 "), own, "{options:?}");
        assert_eq!(client.numbers("info").get(2), Some(&(512 * MIB)), "{options:?}");
        let room = 512 * MIB - CONTEXT_BYTES;
        client.expect(&format!("alloc {room} all"), "alloc 0");
        client.expect("alloc 512 more", "alloc 2");
        assert_eq!(
            (machine.used(0), machine.used(1)),
            (0, 512 * MIB),
            "the driver's own count"
        );
        assert!(client.finish().success());
        rig.eventually(crate::client::PATIENCE, "nothing is left", || machine.used(1) == 0);
    }
}

/// A root folder of two programs and what they load, which is the user's.
fn make_root(rig: &Rig, root: &Path) {
    add(rig, root, Path::new("/bin/true"));
    add(rig, root, &client());
    for library in ["libpartage.so", "libpartage_sim_cuda.so", "libpartage_sim_nvml.so"] {
        add(rig, root, &built(library));
    }
    let given = rig.output({
        let mut command = rig.command("chown");
        command.args(["-R", "60001:60001"]).arg(root);
        command
    });
    assert!(given.status.success(), "{}", stderr(&given));
}
