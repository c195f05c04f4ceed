// SPDX-License-Identifier: Apache-2.0
//! A job sees its devices and no others, whatever `CUDA_VISIBLE_DEVICES` says and whichever process sets it.

use super::Case;
use crate::client::Client;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    let two = "needs two devices";
    let fault = "a driver that ignores CUDA_VISIBLE_DEVICES is the simulator's fault";
    vec![
        Case::new("devices::job_on_the_second_device", second_device).simulated(two),
        Case::new("devices::visible_devices_around_run", around_run).simulated(two),
        Case::new("devices::two_devices_reordered", reordered).simulated(two),
        Case::new("devices::nvml_lists_the_jobs_devices", nvml_view),
        Case::new("devices::auto_takes_the_least_committed", auto).simulated(two),
        Case::new("devices::a_driver_that_shows_others_only_is_no_driver", others_only).simulated(fault),
        Case::new("devices::no_context_beside_the_jobs_device", others_beside).simulated(fault),
    ]
}

fn uuids(rig: &Rig) -> Vec<String> {
    let mut bare = rig.bare_client("dlopen");
    bare.expect("init 0", "init 0");
    (0..2)
        .map(|i| bare.say(&format!("uuid {i}")).trim_start_matches("uuid 0 ").to_owned())
        .collect()
}

/// A job on GPU 1 with a driver that ignores what it is told and shows `devices`.
fn unmasked(rig: &Rig, devices: &str, options: &[&str]) -> Client {
    let mut all = vec!["-g", "1", "-m", "1GiB"];
    all.extend(options);
    let mut command = rig.run(&all, &crate::artefacts::client(), &["dlopen"]);
    command.env("PARTAGE_SIM_FAULTS", format!("shows:{devices}"));
    Client::start(command)
}

fn others_only(rig: &Rig) {
    let uuids = uuids(rig);
    for options in [&[][..], &["--strict"]] {
        let mut client = unmasked(rig, "0", options);
        client.expect("init 0", "init 100");
        let line = format!("the driver shows {}, and this job was given {}", uuids[0], uuids[1]);
        client.wait_for_stderr(&line);
        // Nor for whoever does not look at that answer.
        client.expect("init 0", "init 100");
        client.expect("ctx 0", "ctx 101");
        client.expect("primary 0", "primary 101");
        // A refusal is final: whatever the program does, the broker hears of it once.
        for _ in 0..20 {
            client.say("info");
        }
        let events = rig.output(rig.partage(&["events"]));
        let events = String::from_utf8_lossy(&events.stdout).into_owned();
        let process = format!("process {} sees device", client.pid());
        let about = |line: &&str| line.contains("wrong-device") && line.contains(&process);
        assert_eq!(events.lines().filter(about).count(), 1, "{events}");
        assert!(client.stderr().is_empty(), "one line");
    }
}

fn others_beside(rig: &Rig) {
    let uuids = uuids(rig);
    for options in [&[][..], &["--strict"]] {
        let mut client = unmasked(rig, "*", options);
        client.expect("init 0", "init 0");
        client.wait_for_stderr(&format!(
            "the driver shows {}, and this job was given {}",
            uuids[0], uuids[1]
        ));
        client.expect("count", "count 0 2");
        client.expect("ctx 0 0", "ctx 101");
        client.expect("primary 0", "primary 101");
        // Its own device serves it, within its limit.
        client.expect("ctx 0 1", "ctx 0");
        let room = client.room();
        assert!(room <= crate::rig::GIB, "{room}");
        client.expect(&format!("alloc {room} a"), "alloc 0");
        client.expect("alloc 1 b", "alloc 2");
        let jobs = rig.jobs();
        assert!(jobs.iter().any(|job| job["pid"] == client.pid()), "attached: {jobs:?}");
    }
}

/// A job on GPU 1 whose program's own environment says `visible`.
fn inside(rig: &Rig, visible: Option<&str>) -> Client {
    let client = crate::artefacts::client();
    match visible {
        None => Client::start(rig.run(&["-g", "1"], &client, &["dlopen"])),
        Some(value) => {
            let assignment = format!("CUDA_VISIBLE_DEVICES={value}");
            let path = client.display().to_string();
            Client::start(rig.run(
                &["-g", "1"],
                std::path::Path::new("/usr/bin/env"),
                &[&assignment, &path, "dlopen"],
            ))
        }
    }
}

fn second_device(rig: &Rig) {
    let uuids = uuids(rig);
    let prefix = &uuids[1][..12];
    for visible in [None, Some("0"), Some(uuids[1].as_str()), Some(prefix)] {
        let mut client = inside(rig, visible);
        client.expect("init 0", "init 0");
        client.expect("count", "count 0 1");
        client.expect("uuid 0", &format!("uuid 0 {}", uuids[1]));
        assert!(
            client.say("uuid 1").starts_with("uuid 101"),
            "no second ordinal with {visible:?}"
        );
        let expected = visible.unwrap_or("(unset)");
        client.expect("getenv CUDA_VISIBLE_DEVICES", &format!("getenv {expected}"));
    }
    // The job has one device, number 0: number 1, another's UUID and -1 name none.
    for visible in ["1", uuids[0].as_str(), "-1", ""] {
        let mut client = inside(rig, Some(visible));
        client.expect("init 0", "init 100");
    }
    // Set by the program itself before cuInit, as Ray does.
    let mut client = inside(rig, None);
    client.expect("setenv CUDA_VISIBLE_DEVICES 0", "setenv");
    client.expect("init 0", "init 0");
    client.expect("uuid 0", &format!("uuid 0 {}", uuids[1]));
    let mut client = inside(rig, None);
    client.expect("setenv CUDA_VISIBLE_DEVICES -1", "setenv");
    client.expect("init 0", "init 100");
    client.expect("getenv CUDA_VISIBLE_DEVICES", "getenv -1");
}

fn around_run(rig: &Rig) {
    let uuids = uuids(rig);
    for visible in ["1", &uuids[1], &uuids[1][..12]] {
        let mut command = rig.run(&[], &crate::artefacts::client(), &["dlopen"]);
        command.env("CUDA_VISIBLE_DEVICES", visible);
        let mut client = Client::start(command);
        client.expect("init 0", "init 0");
        client.expect("count", "count 0 1");
        client.expect("uuid 0", &format!("uuid 0 {}", uuids[1]));
        client.expect("getenv CUDA_VISIBLE_DEVICES", "getenv (unset)");
    }
    let mut command = rig.run(&["-g", "0"], &crate::artefacts::client(), &["dlopen"]);
    command.env("CUDA_VISIBLE_DEVICES", "1");
    let output = rig.output(command);
    assert_eq!(
        output.status.code(),
        Some(125),
        "GPU 0 asked, GPU 1 allowed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn reordered(rig: &Rig) {
    let uuids = uuids(rig);
    let client = crate::artefacts::client().display().to_string();
    let env = std::path::Path::new("/usr/bin/env");
    let mut both = Client::start(rig.run(&["-g", "0,1"], env, &["CUDA_VISIBLE_DEVICES=1,0", &client, "dlopen"]));
    both.expect("init 0", "init 0");
    both.expect("count", "count 0 2");
    both.expect("uuid 0", &format!("uuid 0 {}", uuids[1]));
    both.expect("uuid 1", &format!("uuid 0 {}", uuids[0]));
    // Limits hold per device, by UUID, not by ordinal.
    drop(both);
    let mut both = Client::start(rig.run(
        &["-g", "0,1", "-m", "1GiB"],
        env,
        &["CUDA_VISIBLE_DEVICES=1,0", &client, "dlopen"],
    ));
    both.ready();
    let room = both.room();
    both.expect(&format!("alloc {room} a"), "alloc 0");
    both.expect("alloc 1 b", "alloc 2");
    both.expect("ctx 1", "ctx 0");
    let room = both.room();
    both.expect(&format!("alloc {room} b"), "alloc 0");
    both.expect("alloc 1 c", "alloc 2");
}

fn nvml_view(rig: &Rig) {
    let script = "import pynvml as n\n\
        n.nvmlInit()\n\
        c=n.nvmlDeviceGetCount()\n\
        for i in range(c):\n\
        \x20h=n.nvmlDeviceGetHandleByIndex(i)\n\
        \x20m=n.nvmlDeviceGetMemoryInfo(h)\n\
        \x20m2=n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)\n\
        \x20print(n.nvmlDeviceGetUUID(h), m.total, m2.total, n.nvmlDeviceGetIndex(h), m.free<=m.total)\n\
        try: n.nvmlDeviceGetHandleByIndex(c); print('beyond')\n\
        except n.NVMLError_InvalidArgument: print('end')\n";
    let python = super::matrix::python();
    let probe = rig.output({
        let mut command = rig.command(&python);
        command.args(["-c", "import pynvml"]);
        command
    });
    assert!(
        probe.status.success(),
        "nvidia-ml-py is missing: scripts/test installs it and names it in PARTAGE_TEST_PYTHON"
    );
    let last = if rig.driver == crate::rig::Driver::Real { 0 } else { 1 };
    let output = rig.output(rig.run(&["-g", &last.to_string(), "-m", "2GiB"], &python, &["-c", script]));
    let mut bare = rig.bare_client("dlopen");
    bare.expect("init 0", "init 0");
    let uuid = bare
        .say(&format!("uuid {last}"))
        .trim_start_matches("uuid 0 ")
        .to_owned();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{uuid} {0} {0} 0 True\nend\n", 2u64 << 30),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn auto(rig: &Rig) {
    let uuids = uuids(rig);
    let mut first = rig.client(&["-m", "50%"]);
    let mut second = rig.client(&["-m", "50%"]);
    for client in [&mut first, &mut second] {
        client.expect("init 0", "init 0");
    }
    let mut seen = [first.say("uuid 0"), second.say("uuid 0")].map(|a| a.trim_start_matches("uuid 0 ").to_owned());
    seen.sort();
    let mut all = [uuids[0].clone(), uuids[1].clone()];
    all.sort();
    assert_eq!(seen, all, "the second job went to the other device");
    // A quarter fits on either, beside the halves; 75 % fits on neither.
    let output = rig.output(rig.run(
        &["-m", "75%", "--on-full", "fail"],
        std::path::Path::new("/bin/true"),
        &[],
    ));
    assert_eq!(output.status.code(), Some(124));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.starts_with("partage:") && text.contains("j1") && text.contains("j2"),
        "the holders are named: {text}"
    );
}
