// SPDX-License-Identifier: Apache-2.0
//! What a job sees of its devices: driver and NVML agree, and refusals are as without Partage.

use std::time::Duration;

use serde_json::Value;

use super::Case;
use crate::client::Client;
use crate::rig::{Driver, GIB, MIB, Rig};
use crate::truth::Truth;

const SECOND: Duration = Duration::from_secs(1);

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("views::driver_and_nvml_show_one_card", one_card),
        Case::new("views::python_and_forked_children_see_the_jobs_card", from_python),
        Case::new("views::free_is_never_more_than_the_device_has", physical_free)
            .simulated("fills a device to the last mebibyte"),
        Case::new("views::refusals_are_the_librarys_own", refusals),
        Case::new("views::process_lists_hold_the_job_alone", process_lists),
        Case::new("views::how_busy_counts_the_job_alone", busy).simulated("needs a device that nobody else keeps busy"),
        Case::new("views::devices_are_the_jobs_by_every_name", device_names).simulated("needs two devices"),
        Case::new("views::devices_near_by_are_the_jobs", near_by).simulated("needs two devices"),
    ]
}

/// Total and free of `cuMemGetInfo`, total and free of both forms of NVML's.
#[track_caller]
pub(super) fn figures(client: &mut Client) -> [[u64; 2]; 3] {
    let info = client.numbers("info");
    let nvml = client.numbers("nvmlmem 0");
    assert_eq!((info[0], nvml[0], nvml[4]), (0, 0, 0), "{info:?} {nvml:?}");
    assert_eq!(nvml[3], nvml[7], "used, in both versions");
    assert!(
        nvml[2] + nvml[3] <= nvml[1],
        "free and used are no more than all: {nvml:?}"
    );
    [[info[2], info[1]], [nvml[1], nvml[2]], [nvml[5], nvml[6]]]
}

fn one_card(rig: &Rig) {
    let mut other = rig.bare_client("dlopen");
    other.ready();
    other.expect(&format!("alloc {GIB} others"), "alloc 0");
    let mut client = rig.client(&["-m", "2GiB", "-g", "0"]);
    client.ready();
    client.expect("nvml", "nvml 0");
    let mut last = u64::MAX;
    for step in 0..5 {
        let room = client.room();
        let shown = figures(&mut client);
        assert_eq!(shown[0], [2 * GIB, room]);
        assert!(shown.iter().all(|other| *other == shown[0]), "step {step}: {shown:?}");
        assert_eq!(client.numbers("total 0"), [0, 2 * GIB]);
        assert!(room < last, "it grows");
        last = room;
        client.expect(&format!("alloc {} a{step}", 256 * MIB), "alloc 0");
    }
    let room = client.room();
    client.expect(&format!("alloc {room} rest"), "alloc 0");
    assert_eq!(figures(&mut client), [[2 * GIB, 0]; 3], "full");
    // The first ABI has 32 bits: a card of less than 4 GiB fits.
    assert_eq!(client.numbers("oldinfo"), [0, 0, 2 * GIB]);
    assert_eq!(client.numbers("oldtotal 0"), [0, 2 * GIB]);
    // Lowered below use: nothing is free, and nothing is less than that.
    let mut lowered = rig.client(&["-m", "4GiB", "--name", "lowered", "-g", "0"]);
    lowered.ready();
    lowered.expect("nvml", "nvml 0");
    lowered.expect(&format!("alloc {} most", 3 * GIB), "alloc 0");
    assert!(
        rig.output(rig.partage(&["set", "lowered", "mem=2GiB"]))
            .status
            .success()
    );
    rig.eventually(SECOND, "the lowered limit is shown", || {
        lowered.numbers("info")[2] == 2 * GIB
    });
    assert_eq!(figures(&mut lowered), [[2 * GIB, 0]; 3]);
}

fn from_python(rig: &Rig) {
    let python = super::matrix::python();
    let mut look = rig.command(&python);
    look.args(["-c", "import pynvml"]);
    if rig.driver == Driver::Real && !rig.output(look).status.success() {
        println!("SKIPPED: pynvml is not installed");
        return;
    }
    let context = rig.context_cost();
    rig.note(format!("a context costs {context} bytes"));
    let script = crate::artefacts::package_dir().join("programs/views.py");
    let mut other = rig.bare_client("dlopen");
    other.ready();
    let mut sibling = rig.client(&["-m", "1GiB", "-g", "0"]);
    sibling.ready();
    let script = script.display().to_string();
    let mut program = Client::start(rig.run(&["-m", "2GiB", "-g", "0"], &python, &["-u", &script]));
    let read = |program: &mut Client| -> Value {
        let line = program.answer();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let parent = read(&mut program)["pid"].as_u64();
    for (who, held, is_whole) in [
        ("child", 64 * MIB, true),
        ("parent", 256 * MIB, true),
        ("late child", 256 * MIB, false),
    ] {
        // Told one by one, so that what the broker measures has come to rest: one process's allocation and one context,
        // neither those of the child that has just ended nor a context that is still being made.
        let expected = rig.at_rest("the job has its one context", || {
            let (used, overhead) = used_by(rig, 2 * GIB);
            let is_one = overhead.abs_diff(context) < context / 2;
            if is_one && used - overhead == held { used } else { 0 }
        });
        program.tell("look");
        let view = read(&mut program);
        assert_eq!(view["who"], who);
        let card = serde_json::json!([2 * GIB, 2 * GIB - expected, expected]);
        assert_eq!(view["nvml1"], card, "{view}");
        assert_eq!(view["nvml2"], card, "{view}");
        assert_eq!(view["count"], 1);
        assert!(
            view["uuids"]
                .as_array()
                .is_some_and(|all| all.iter().all(|uuid| *uuid == view["uuids"][0])),
            "{view}"
        );
        if is_whole {
            assert_eq!(view["info"], serde_json::json!([2 * GIB, 2 * GIB - expected]), "{view}");
            assert_eq!(view["total"], 2 * GIB);
            assert_eq!(view["uuid"], view["uuids"][0]);
            assert_eq!(view["processes"], serde_json::json!([view["pid"]]), "{view}");
        } else {
            assert_eq!(view["processes"], serde_json::json!([parent]), "{view}");
        }
        program.tell("go on");
    }
    assert!(program.finish().success());
}

/// What the ledger says the job with this limit uses, overhead included, and the overhead.
fn used_by(rig: &Rig, limit: u64) -> (u64, u64) {
    let jobs = rig.jobs();
    let devices = jobs.iter().filter_map(|job| job["devices"].as_array()).flatten();
    let found = devices.clone().find(|device| device["limit_bytes"] == limit);
    let bytes = |name: &str| found.and_then(|device| device[name].as_u64()).unwrap_or(0);
    (bytes("used_bytes"), bytes("overhead_bytes"))
}

fn physical_free(rig: &Rig) {
    let mut client = rig.client(&["-m", "50%", "-g", "0"]);
    client.ready();
    client.expect("nvml", "nvml 0");
    let mine = client.room();
    let mut other = rig.bare_client("dlopen");
    other.ready();
    let left = other.room() - 64 * MIB;
    other.expect(&format!("alloc {left} most"), "alloc 0");
    let shown = figures(&mut client);
    assert_eq!(
        shown,
        [[shown[0][0], 64 * MIB]; 3],
        "what is physically free, though the job has {mine}"
    );
    client.expect(&format!("alloc {} x", 64 * MIB), "alloc 0");
    assert_eq!(figures(&mut client)[0][1], 0);
    client.expect("alloc 4096 y", "alloc 2");
    other.expect("free most", "free 0");
    assert!(client.room() > 64 * MIB, "it came back");
}

fn refusals(rig: &Rig) {
    let mut under = rig.client(&["-m", "2GiB", "-g", "0"]);
    let mut bare = rig.bare_client("dlopen");
    for client in [&mut under, &mut bare] {
        client.ready();
        client.expect("nvml", "nvml 0");
    }
    for line in ["nvmlrefusals 0", "infonull"] {
        let answer = under.say(line);
        assert!(!answer.ends_with("over"), "wrote past a structure: {answer}");
        assert_eq!(answer, bare.say(line), "{line}");
    }
    assert!(!under.say("nvmlmem 0").contains("over"));
}

fn process_lists(rig: &Rig) {
    let mut others: Vec<Client> = (0..3).map(|_| rig.bare_client("dlopen")).collect();
    others.iter_mut().for_each(Client::ready);
    let mut stranger = rig.client(&["-m", "1GiB", "-g", "0"]);
    stranger.ready();
    let mut client = rig.client(&["-m", "2GiB", "-g", "0"]);
    client.expect("nvml", "nvml 0");
    client.expect("init 0", "init 0");
    let success = |rest: &str| format!("nvmllist 0 {rest}");
    let lists = ["compute1", "compute2", "compute3", "detail"];
    // NVML lists processes with a context, so this one is not there yet, nor is anybody else of its job.
    for list in lists {
        for room in [0, 1, 8] {
            client.expect(&format!("nvmllist {list} 0 {room}"), &success("0"));
        }
    }
    client.expect("ctx 0", "ctx 0");
    let pid = client.pid();
    for list in lists {
        // Room for the job's own processes is enough, however many others there are.
        client.expect(&format!("nvmllist {list} 0 1"), &success(&format!("1 {pid}")));
        client.expect(&format!("nvmllist {list} 0 8"), &success(&format!("1 {pid}")));
        // INSUFFICIENT_SIZE, and how many the job has.
        client.expect(&format!("nvmllist {list} 0 0"), "nvmllist 7 1");
    }
    for list in ["graphics", "mps"] {
        client.expect(&format!("nvmllist {list} 0 8"), &success("0"));
    }
    // A second process of the job, which inherits its place and is listed beside the first.
    client.tell("spawn");
    client.ready();
    client.expect("nvml", "nvml 0");
    let child = client.numbers("pid")[0];
    for list in lists {
        let answer = client.say(&format!("nvmllist {list} 0 8"));
        let mut pids: Vec<&str> = answer.split(' ').skip(3).collect();
        pids.sort_unstable();
        let mut both = [pid.to_string(), child.to_string()];
        both.sort_unstable();
        assert_eq!(pids, both, "{answer}");
        client.expect(&format!("nvmllist {list} 0 1"), "nvmllist 7 2");
    }
    client.expect("exit 0", "spawned 0");
}

/// Points by which what NVML shows may differ from the device's own account: whole ones, of another window than that.
const POINTS: u64 = 5;

fn busy(rig: &Rig) {
    let kernels = crate::artefacts::kernels().display().to_string();
    let mut other = rig.bare_client("dlopen");
    let mut client = rig.client(&["-m", "2GiB", "-g", "0"]);
    for client in [&mut other, &mut client] {
        client.ready();
        client.expect("nvml", "nvml 0");
        client.expect(&format!("gateready {kernels}"), "gateready 0");
    }
    let (pid, pids) = (client.pid(), [other.pid(), client.pid()]);
    let truth = Truth::of(rig);
    let work = "spins 400 10000000";
    other.expect(work, "spins 0");
    truth.wait_for_work_of(0, &pids[..1]);
    truth.watch(0, 300_000_000);
    let seen = other.say("nvmlbusy 0");
    assert!(
        seen.contains(&other.pid().to_string()),
        "somebody keeps the device busy: {seen}"
    );
    // NOT_FOUND: nobody of this job does.
    client.expect("nvmlbusy 0", "nvmlbusy 0 0 samples 6 size 6 0 info 6");
    client.expect(work, "spins 0");
    truth.wait_for_work_of(0, &pids);
    for is_shared in [true, false] {
        // Longer than what NVML looks back over.
        truth.watch(0, 500_000_000);
        let before = truth.sample(0);
        truth.watch(0, 250_000_000);
        let seen = client.say("nvmlbusy 0");
        let span = before.until(truth.sample(0));
        let rate: u64 = seen.split(' ').nth(2).and_then(|word| word.parse().ok()).unwrap_or(0);
        let part = span.part_ppm(pid) / 10_000;
        let all = format!("{seen}; {}", span.describe(&pids));
        rig.note(&all);
        assert_eq!(part < 60, is_shared, "the device's own slices: {all}");
        assert!(rate.abs_diff(part) <= POINTS, "{rate} % shown of {part}: {all}");
        assert_eq!(
            seen,
            format!("nvmlbusy 0 {rate} samples 0 {pid} size 7 1 info 0 {pid}"),
            "the job's process and nobody else's"
        );
        other.kill();
    }
}

/// The device's UUID, as the client writes it.
fn uuid(client: &mut Client, index: u32) -> String {
    client
        .say(&format!("uuid {index}"))
        .trim_start_matches("uuid 0 ")
        .to_owned()
}

fn device_names(rig: &Rig) {
    let mut bare = rig.bare_client("dlopen");
    bare.expect("nvml", "nvml 0");
    bare.expect("init 0", "init 0");
    let uuids = [0, 1].map(|index| uuid(&mut bare, index));
    let pci = [0, 1].map(|index| {
        bare.say(&format!("pci {index}"))
            .trim_start_matches("pci 0 ")
            .to_owned()
    });
    for (mine, other) in [(0, 1), (1, 0)] {
        let mut client = rig.client(&["-g", &mine.to_string()]);
        client.expect("nvml", "nvml 0");
        client.expect("nvmldevices", &format!("nvmldevices 0 1 good {}", uuids[mine]));
        // NOT_FOUND by name, INVALID_ARGUMENT beyond the last.
        client.expect(&format!("nvmlother {} {}", uuids[other], pci[other]), "nvmlother 6 6 2");
        client.expect("init 0", "init 0");
        client.expect("uuid 0", &format!("uuid 0 {}", uuids[mine]));
    }
    let mut both = rig.client(&["-g", "1,0"]);
    both.expect("nvml", "nvml 0");
    both.expect(
        "nvmldevices",
        &format!("nvmldevices 0 2 good {} good {}", uuids[0], uuids[1]),
    );
}

fn near_by(rig: &Rig) {
    let mut bare = rig.bare_client("dlopen");
    bare.expect("nvml", "nvml 0");
    bare.expect("init 0", "init 0");
    let uuids = [0, 1].map(|index| uuid(&mut bare, index));
    let [first, second] = &uuids;
    bare.expect(
        "nvmlnear 0 8",
        &format!("nvmlnear 0 1 {second} set 0 2 {first} {second}"),
    );
    for (number, own) in uuids.iter().enumerate() {
        let mut client = rig.client(&["-g", &number.to_string()]);
        client.expect("nvml", "nvml 0");
        client.expect("nvmlnear 0 0", "nvmlnear 0 0 set 0 1");
        // Room for the job's own is enough.
        for room in [1, 2, 8] {
            client.expect(&format!("nvmlnear 0 {room}"), &format!("nvmlnear 0 0 set 0 1 {own}"));
        }
    }
    let mut both = rig.client(&["-g", "0,1"]);
    both.expect("nvml", "nvml 0");
    for line in [
        "nvmlnear 0 0",
        "nvmlnear 0 1",
        "nvmlnear 0 2",
        "nvmlnear 0 8",
        "nvmlnear 1 8",
        "nvmlnearnull 0",
    ] {
        let answer = both.say(line);
        assert_eq!(answer, bare.say(line), "{line}");
        assert!(!answer.ends_with("over"), "{line}: {answer}");
    }
}
