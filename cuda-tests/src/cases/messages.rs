// SPDX-License-Identifier: Apache-2.0
//! What `partage` and the library say: about a stopped broker, an idle machine, a denial, a job that has ended.

use std::path::Path;
use std::process::Output;

use super::Case;
use crate::client::Client;
use crate::rig::{GIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("messages::a_stopped_broker_is_named_with_what_to_do", stopped_broker),
        Case::new("messages::processes_without_partage_are_counted", without_partage),
        Case::new("messages::an_idle_machine_shows_its_gpus", idle),
        Case::new("messages::the_first_denial_is_printed_off_a_terminal_too", first_denial),
        Case::new("messages::how_a_job_ended_is_known_at_once", ended),
        Case::new("messages::a_job_without_run_has_its_command", command_without_run),
        Case::new("messages::events_have_their_numbers_and_their_own_time", events_in_json),
        Case::new("messages::doctor_is_strict_where_it_is_asked", strict_doctor)
            .simulated("a real machine may have warnings of its own"),
        Case::new("messages::a_program_of_the_cuda_runtime_is_named", runtime)
            .simulated("NVIDIA's driver runs such a program"),
    ]
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn stopped_broker(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    let pid = rig.broker_pid().expect("a broker");
    let signal = |signal| {
        // SAFETY: a signal to the broker of this machine, which this case started.
        assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
    };
    partage_machine::process::stop(pid);
    let outputs = [
        (5, rig.output(rig.partage(&["ps"]))),
        (125, rig.output(rig.run(&[], Path::new("/bin/true"), &[]))),
    ];
    signal(libc::SIGCONT);
    let named = format!("(pid {pid}) is stopped and did not answer within 10 s; continue it: kill -CONT {pid}");
    for (code, output) in outputs {
        let (_, errors) = text(&output);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(&named), "{errors}");
        // Long before it gives up, once.
        let early =
            format!("partage: waiting for the broker (pid {pid}), which is stopped; continue it: kill -CONT {pid}\n");
        assert!(
            errors.starts_with(&early) && errors.matches(&early).count() == 1,
            "{errors}"
        );
    }
    assert!(rig.output(rig.partage(&["ps"])).status.success(), "it goes on");
}

fn without_partage(rig: &Rig) {
    let program = crate::artefacts::client().display().to_string();
    let one = format!("(printf 'init 0\\nctx 0\\n'; sleep 1.5) | env -u LD_PRELOAD {program} dlopen >/dev/null");
    let line = format!("{one}; {one}; echo ready; exec cat");
    let loose = Client::start(rig.run(&["-m", "1GiB", "--name", "loose"], Path::new("/bin/sh"), &["-c", &line]));
    assert_eq!(loose.next_answer(), "ready");
    let job = rig.json(&["get", "loose"])["job"].clone();
    assert_eq!(job["unlimited"], 2, "{job}");
    let said = "2 processes of it used a GPU without Partage";
    for verb in ["get", "why", "ps"] {
        let mut arguments = vec![verb];
        arguments.extend((verb != "ps").then_some("loose"));
        let (out, _) = text(&rig.output(rig.partage(&arguments)));
        let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(out.contains(said), "{verb}: {out}");
    }
    assert!(loose.finish().success());
    let (events, _) = text(&rig.output(rig.partage(&["events"])));
    assert!(events.contains("2 processes ran without Partage"), "{events}");
}

fn idle(rig: &Rig) {
    let status = rig.json(&["status"]);
    let devices = status["devices"].as_array().expect("devices");
    assert!(
        !devices.is_empty() && devices.iter().all(|device| device["state"] == "ok"),
        "{status}"
    );
    assert!(status["broker"].is_null());
    let (out, _) = text(&rig.output(rig.partage(&["status"])));
    assert!(out.contains("no broker runs"), "{out}");
    let mut unmanaged = rig.bare_client("dlopen");
    unmanaged.ready();
    unmanaged.expect(&format!("alloc {GIB} a"), "alloc 0");
    let (out, _) = text(&rig.output(rig.partage(&["ps"])));
    assert!(
        out.starts_with("no jobs\n") && out.contains(&format!("unmanaged: pid {} (", unmanaged.pid())),
        "{out}"
    );
    let events = rig.output(rig.partage(&["events"]));
    assert_eq!((events.status.code(), text(&events).0.as_str()), (Some(0), ""));
    assert!(rig.broker_pid_quick().is_none(), "looking starts none");
}

fn first_denial(rig: &Rig) {
    // The program's own pipe, so that all it wrote has arrived when it has ended.
    let bytes = 3 * GIB;
    let script =
        format!("printf 'init 0\\nctx 0\\nalloc {bytes} a\\nalloc {bytes} b\\nalloc {bytes} c\\n' | \"$0\" dlopen");
    let client = crate::artefacts::client();
    let words = ["-c", script.as_str(), client.to_str().expect("utf-8")];
    for (options, count) in [(&["-m", "2GiB"][..], 1), (&["-m", "2GiB", "-q"], 0)] {
        let output = rig.output(rig.run(options, Path::new("/bin/sh"), &words));
        let (out, errors) = text(&output);
        assert_eq!(out.matches("alloc 2").count(), 3, "{out}");
        let told = errors.matches("partage: 3 GiB asked, limit 2 GiB").count();
        assert_eq!(told, count, "{options:?}: {errors}");
    }
}

fn ended(rig: &Rig) {
    let script = "echo done; exit 7";
    let output = rig.output(rig.run(
        &["-m", "2GiB", "--name", "short", "--summary"],
        Path::new("/bin/sh"),
        &["-c", script],
    ));
    let (out, errors) = text(&output);
    assert_eq!((output.status.code(), out.as_str()), (Some(7), "done\n"), "{errors}");
    assert!(errors.starts_with("partage: j1 ended 7 after "), "{errors}");
    let killed = rig.output(rig.run(&["--name", "killed"], Path::new("/bin/sh"), &["-c", "kill -9 $$"]));
    assert!(!killed.status.success());
    let job = |name: &str| rig.json(&["get", name])["job"].clone();
    // The broker hears of an end when the kernel tells it, which may be after the shell.
    rig.eventually(std::time::Duration::from_secs(2), "both are over", || {
        job("short")["exit_code"] == 7 && job("killed")["exit_code"] == 137
    });
    assert_eq!(job("short")["state"], "ended");
    assert!(rig.json(&["ps"])["jobs"].as_array().is_some_and(Vec::is_empty));
    let (out, _) = text(&rig.output(rig.partage(&["ps", "-a", "-o", "name,exit,state"])));
    assert_eq!(out, "NAME    EXIT  STATE\nshort      7  ended\nkilled   137  ended\n");
    let (events, _) = text(&rig.output(rig.partage(&["events"])));
    assert!(
        events.contains("j1 ended 7 after ") && events.contains("j2 ended 137 after "),
        "{events}"
    );
}

fn command_without_run(rig: &Rig) {
    // Its broker: a program without `run` starts none.
    let mut other = rig.client(&["-m", "1GiB"]);
    other.ready();
    let mut command = rig.command(crate::artefacts::client());
    command
        .arg("dlopen")
        .env("LD_PRELOAD", crate::artefacts::built("libpartage.so"));
    let mut loose = Client::start(command);
    loose.ready();
    let jobs = rig.jobs();
    let found = jobs.iter().find(|job| job["clients"][0]["pid"] == loose.pid());
    let job = found.unwrap_or_else(|| panic!("no job of pid {}: {jobs:#?}", loose.pid()));
    let words: Vec<&str> = job["command"]
        .as_array()
        .expect("words")
        .iter()
        .filter_map(|word| word.as_str())
        .collect();
    assert!(words.len() == 2 && words[1] == "dlopen", "{words:?}");
    let (out, _) = text(&rig.output(rig.partage(&["ps", "-o", "job,command"])));
    let id = job["job"].as_str().expect("an id");
    let line = out.lines().find(|line| line.starts_with(id)).unwrap_or_default();
    assert!(line.ends_with("dlopen"), "{out}");
    let (out, _) = text(&rig.output(rig.partage(&["get", id])));
    assert!(
        out.lines()
            .any(|line| line.starts_with("command ") && line.ends_with("dlopen")),
        "{out}"
    );
}

fn events_in_json(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect(&format!("alloc {} a", 3 * GIB), "alloc 2");
    client.finish();
    let pid = rig.broker_pid().expect("a broker");
    let events = || -> Vec<serde_json::Value> {
        let (out, _) = text(&rig.output(rig.partage(&["events", "--json"])));
        out.lines()
            .map(|line| serde_json::from_str(line).expect("a document"))
            .collect()
    };
    let find = |kind: &str| events().into_iter().find(|line| line["event"]["kind"] == kind);
    let second = std::time::Duration::from_secs(1);
    rig.eventually(20 * second, "its end is said", || find("job-ended").is_some());
    let denied = find("denied").expect("denied")["event"].clone();
    let bytes = ["asked_bytes", "limit_bytes", "denied"].map(|name| denied[name].as_u64());
    assert_eq!(bytes, [Some(3 * GIB), Some(GIB), Some(1)], "{denied}");
    let admitted = find("job-admitted").expect("admitted");
    let limit = &admitted["event"]["devices"][0]["limit_bytes"];
    assert_eq!(limit.as_u64(), Some(GIB), "{admitted}");
    let ended = find("job-ended").expect("ended");
    assert_eq!(ended["event"]["exit_code"], 0, "{ended}");
    assert!(ended["event"]["ran_ns"].as_u64().is_some_and(|ns| ns > 0), "{ended}");
    // Its own time: asked again later it is the same.
    std::thread::sleep(second / 20);
    assert_eq!(find("job-ended").expect("ended")["time"], ended["time"], "broker {pid}");
}

fn strict_doctor(rig: &Rig) {
    let doctor = |options: &[&str], criu: &str| {
        let mut command = rig.partage(&[&["doctor"], options].concat());
        command.env("PARTAGE_CRIU", criu);
        let output = rig.output(command);
        (output.status.code(), text(&output).0)
    };
    // A variable that Partage does not have is a warning.
    let misspelt = |options: &[&str]| {
        let mut command = rig.partage(&[&["doctor"], options].concat());
        command.env("PARTAGE_MEMORY", "8GiB");
        let output = rig.output(command);
        (output.status.code(), text(&output).0)
    };
    let (code, out) = misspelt(&[]);
    assert!(code == Some(0) && out.contains("\nwarn  variables "), "{out}");
    let (code, out) = misspelt(&["--strict"]);
    assert_eq!(code, Some(1), "{out}");
    // What cannot be done and is not needed is neither fine nor a warning.
    let (code, out) = doctor(&[], "/nonexistent/criu");
    assert!(
        code == Some(0) && out.contains("\noff   checkpoint  jobs cannot be saved: "),
        "{out}"
    );
    let document: serde_json::Value = serde_json::from_str(&doctor(&["--json"], "/nonexistent/criu").1).expect("JSON");
    let checks = document["checks"].as_array().expect("checks");
    let saving = checks.iter().find(|check| check["name"] == "checkpoint");
    assert_eq!(saving.expect("checked")["state"], "off");
}

/// What libcudart does first of all, and again for each of its tables.
fn runtime(rig: &Rig) {
    let mut command = rig.command(super::matrix::python());
    command.args([
        "-c",
        "import ctypes\n\
         cuda, table, uuid = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), (ctypes.c_ubyte * 16)()\n\
         print(*(cuda.cuGetExportTable(ctypes.byref(table), uuid) for _ in range(3)))",
    ]);
    let (out, errors) = text(&rig.output(command));
    assert_eq!(out, "500 500 500\n", "{errors}");
    assert!(
        errors.starts_with("partage sim: this program uses the CUDA runtime (libcudart)")
            && errors.lines().count() == 1,
        "{errors}"
    );
}
