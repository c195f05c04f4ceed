// SPDX-License-Identifier: Apache-2.0
//! `install --system-preload`: what it puts under the rules, and what it never runs.

use super::host::Host;
use crate::cases::commands::build_by_musl;
use crate::client::Client;
use crate::rig::Rig;

/// A program that starts without `run`, and without a variable of ours, is under the rules; what else stands in the
/// file stays, and a host on which a program would complain keeps the file that it has.
pub fn rules(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    let sh = |line: &str| shell(&host, line);
    rule(&host);
    let file = || {
        let path = rig.dir.join("host/etc/ld.so.preload");
        std::fs::read_to_string(path).ok()
    };
    no_complaint_is_added(&host, &file);
    let names = ["hello-musl", "hello-static"];
    let has_musl = greet_by_musl(&host, names);
    let theirs = "# theirs\nlibm.so.6\n";
    assert_eq!(sh(&format!("printf '{theirs}' >/etc/ld.so.preload")).0, Some(0));
    let (code, said) = host.install(&["install", "--system-preload"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("\ntried ") && said.contains("programs load with it"),
        "{said}"
    );
    let ours = "/usr/local/lib/partage/libpartage.so\n";
    assert_eq!(file(), Some(format!("{theirs}{ours}")));
    let left = sh("ls -d /run/partage-trial-* /etc/ld.so.preload.* 2>/dev/null").1;
    assert_eq!(left, "", "nothing is left beside it");
    let (code, said) = host.install(&["install", "--system-preload"]);
    assert!(code == Some(0) && said.ends_with("nothing changed\n"), "{said}");
    for name in names.iter().filter(|_| has_musl) {
        assert_eq!(host.say("60001", &[name]), (Some(3), "hello\n".to_owned()), "{name}");
    }
    let client = rig.dir.join("client").display().to_string();
    let mut loose = Client::start(host.command("60001", true, &[&client, "dlopen"]));
    loose.ready();
    loose.expect(&format!("alloc {} a", 512 << 20), "alloc 0");
    loose.expect(&format!("alloc {} b", (512 << 20) + 512), "alloc 2");
    let jobs = host.json("0", &["partage", "ps", "--json"]);
    assert_eq!(
        (&jobs["jobs"][0]["user"], jobs["unmanaged"].as_array().map(Vec::len)),
        (&"alice".into(), Some(0))
    );
    loose.kill();
    let (code, said) = host.install(&["uninstall", "--system-preload"]);
    assert!(code == Some(0) && said.contains("/etc/ld.so.preload"), "{said}");
    assert_eq!(file().as_deref(), Some(theirs));
    // With all the rest it goes first, and a file that was only ours goes whole.
    assert_eq!(sh("rm /etc/ld.so.preload").0, Some(0));
    assert_eq!(host.install(&["install", "--system-preload"]).0, Some(0));
    assert_eq!(file().as_deref(), Some(ours));
    let (code, said) = host.install(&["uninstall"]);
    assert!(
        code == Some(0) && said.starts_with("removed    /etc/ld.so.preload\n"),
        "{said}"
    );
    assert_eq!(file(), None);
}

fn shell(host: &Host<'_>, line: &str) -> (Option<i32>, String) {
    host.say("0", &["sh", "-c", line])
}

/// One entry that is missing is a complaint in every program: such a file stays as it is.
fn no_complaint_is_added(host: &Host<'_>, file: &dyn Fn() -> Option<String>) {
    assert_eq!(shell(host, "echo /nowhere/other.so >/etc/ld.so.preload").0, Some(0));
    let (code, said) = host.install(&["install", "--system-preload"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("does not run with the library in /etc/ld.so.preload")
            && said.contains("/nowhere/other.so")
            && said.contains("everything before it is undone"),
        "{said}"
    );
    assert_eq!(file().as_deref(), Some("/nowhere/other.so\n"));
}

/// Programs of another C library, and one of none, are among those that are tried; `false`: this machine makes none.
fn greet_by_musl(host: &Host<'_>, names: [&str; 2]) -> bool {
    let [musl, bare] = names.map(|name| host.rig.dir.join(name));
    let is_made = build_by_musl("hello.c", &musl, &[]) && build_by_musl("hello.c", &bare, &["-static"]);
    if is_made {
        let folder = host.rig.dir.display();
        let copy = format!("mkdir -p /usr/local/bin; install -m 755 {folder}/hello-* /usr/local/bin");
        assert_eq!(shell(host, &copy).0, Some(0));
    }
    is_made
}

/// Nobody has more than 1 GiB.
fn rule(host: &Host<'_>) {
    let rule = "schema = 1\n[[rule]]\nname = \"everybody\"\nmax = { mem = \"1GiB\" }";
    let write = format!("mkdir /etc/partage; echo '{rule}' >/etc/partage/partage.toml");
    assert_eq!(shell(host, &write).0, Some(0));
}

/// A program may name any loader, and a folder of programs may have users' files: the trial runs neither. A program
/// that is root's for whoever starts it takes no word from that user's environment, not even which broker to start.
pub fn users(rig: &Rig) {
    let Some(host) = Host::new(rig) else { return };
    rule(&host);
    let loader = "-Wl,--dynamic-linker=/tmp/evil";
    let named = crate::artefacts::program("hello-other-loader", "hello.c", &[loader]);
    std::fs::copy(&named, rig.dir.join("named")).expect("writable");
    std::fs::copy(
        crate::artefacts::program("hello", "hello.c", &[]),
        rig.dir.join("plain"),
    )
    .expect("writable");
    let prepare = format!(
        "set -e
        printf '#!/bin/sh\\necho \"$0 $*\" >>/tmp/was-run\\n' >/tmp/evil; chmod 755 /tmp/evil
        mkdir -p /usr/local/bin; cd /usr/local/bin
        install -m 755 {0}/named named-of-root; install -m 755 -o alice {0}/named named-of-alice
        install -m 755 -o alice {0}/plain plain-of-alice; install -m 4755 {0}/client client-of-root
        echo {1} >/etc/ld.so.conf.d/simulated.conf; ldconfig",
        rig.dir.display(),
        rig.sim_dir().join("lib").display()
    );
    let (code, said) = shell(&host, &prepare);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = host.install(&["install", "--system-preload"]);
    assert!(code == Some(0) && said.contains("3 that are not root's"), "{said}");
    let was_run = || shell(&host, "cat /tmp/was-run 2>/dev/null").1;
    assert_eq!(was_run(), "", "the trial ran it");
    // No broker is at the place that the user names, and a file to start one is.
    let mut command = host.command("60001", false, &["/usr/local/bin/client-of-root", "dlopen"]);
    command.env("PARTAGE_SIM_DIR", rig.sim_dir());
    command
        .env("PARTAGE_SOCKET_DIR", "/tmp/nobody-here")
        .env("PARTAGE_BROKER", "/tmp/evil");
    command
        .env("PARTAGE_TOKEN", "0".repeat(32))
        .env("PARTAGE_MEM_BYTES", (4_u64 << 30).to_string());
    let mut client = Client::start(command);
    client.ready();
    client.expect(&format!("alloc {} a", 512 << 20), "alloc 0");
    client.expect(&format!("alloc {} b", (512 << 20) + 512), "alloc 2");
    assert_eq!(was_run(), "", "the library ran it");
    client.kill();
}
