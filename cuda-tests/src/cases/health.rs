// SPDX-License-Identifier: Apache-2.0
//! The state of GPUs, as the simulated NVML tells it while the broker runs: what is shown of it, what slows jobs down,
//! and what makes a GPU sick.

use serde_json::{Value, json};

use super::Case;
use super::ruled_host::{Host, SOON};
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "the simulated NVML is told what to say";
    vec![
        Case::new("health::what_nvml_says_of_a_gpu_is_shown", shown).simulated(why),
        Case::new("health::what_nvml_does_not_say_is_absent", absent).simulated(why),
        Case::new("health::a_sick_gpu_admits_nothing_until_it_is_well", sick).simulated(why),
        Case::new("health::the_jobs_of_a_sick_gpu_move_where_that_is_asked", moves).simulated(why),
        Case::new("health::a_sick_gpu_outlives_the_broker", outlives).simulated(why),
    ]
}

/// Each GPU is polled often while a job lives.
const CONFIG: &str = "schema = 1\n[broker]\npoll = \"50ms\"\n";

/// NVML says this from now on. It is read within 20 ms.
fn set_faults(rig: &Rig, lines: &str) {
    std::fs::write(rig.sim_dir().join("faults"), lines).expect("writable");
}

fn device(rig: &Rig, index: usize) -> Value {
    rig.json(&["status"])["devices"][index].clone()
}

fn metric(rig: &Rig, series: &str) -> Option<f64> {
    let output = rig.output(rig.partage(&["metrics"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// The output of a command, with one blank between words.
fn said(rig: &Rig, arguments: &[&str]) -> (Option<i32>, String) {
    let output = rig.output(rig.partage(arguments));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    (output.status.code(), words.join(" "))
}

fn events(rig: &Rig, kind: &str) -> usize {
    let events = said(rig, &["events"]).1;
    events.matches(kind).count()
}

fn shown(rig: &Rig) {
    // A device is asked once whether it has NVLink.
    set_faults(rig, "gpu:0:nvlink-sent:1; gpu:0:nvlink-received:1");
    let host = Host::start(rig, CONFIG);
    let mut client = rig.client(&["-m", "1GiB", "--name", "train", "-g", "0"]);
    client.ready();
    rig.eventually(SOON, "it is well", || {
        let told = device(rig, 0);
        told["temperature_celsius"].is_u64() && told["throttle"].is_null() && told["sick"].is_null()
    });
    assert_eq!(device(rig, 0)["telemetry"]["xids"], json!([]));
    set_faults(
        rig,
        "gpu:0:busy:87; gpu:0:memory-busy:40; gpu:0:temperature:91; gpu:0:power:612; gpu:0:throttle:36; \
         gpu:0:ecc-corrected:3; xid:0:13; gpu:0:pcie-sent:2048; gpu:0:nvlink-sent:3; gpu:0:nvlink-received:5",
    );
    rig.eventually(SOON, "it is told", || device(rig, 0)["temperature_celsius"] == 91);
    let told = device(rig, 0);
    assert_eq!(told["utilization"], json!(0.87), "{told:#}");
    assert_eq!(told["power_watts"], json!(612.0), "{told:#}");
    assert_eq!(told["throttle"], json!(["power-cap", "sw-thermal"]), "{told:#}");
    assert_eq!(told["telemetry"]["memory_utilization"], json!(0.4), "{told:#}");
    rig.eventually(SOON, "a job's own error is counted and makes nobody sick", || {
        let told = device(rig, 0);
        told["telemetry"]["xids"][0]["xid"] == 13 && told["state"] == "ok"
    });
    // What hardly changes is read every ten seconds.
    rig.eventually(SOON, "errors of memory are told", || {
        device(rig, 0)["telemetry"]["ecc_corrected"] == 3
    });
    let told = device(rig, 0)["telemetry"].clone();
    assert_eq!(told["pcie_sent_bytes_per_second"], 2048 * 1024, "{told:#}");
    assert_eq!(
        (told["nvlink_sent_bytes"].clone(), told["nvlink_received_bytes"].clone()),
        (json!(3072), json!(5120))
    );
    for (series, value) in [
        ("partage_gpu_busy_ratio{gpu=\"0\"", 0.87),
        ("partage_gpu_temperature_celsius{gpu=\"0\"", 91.0),
        ("partage_gpu_power_watts{gpu=\"0\"", 612.0),
        ("partage_gpu_sick{gpu=\"0\"", 0.0),
        ("partage_gpu_xid_total{gpu=\"0\"", 1.0),
    ] {
        assert_eq!(metric(rig, series), Some(value), "{series}");
    }
    let uuid = device(rig, 0)["uuid"].as_str().expect("a UUID").to_owned();
    let throttled = format!("partage_gpu_throttled{{gpu=\"0\",UUID=\"{uuid}\",reason=\"sw-thermal\"}}");
    assert_eq!(metric(rig, &throttled), Some(1.0));
    in_words(rig, &uuid);
    set_faults(rig, "");
    rig.eventually(SOON, "it is cool again", || device(rig, 0)["throttle"].is_null());
    assert_eq!(metric(rig, &throttled), None);
    drop(host);
}

/// The same in `status`, `get gpu:0` and `why`.
fn in_words(rig: &Rig, uuid: &str) {
    let (_, status) = said(rig, &["status"]);
    assert!(status.contains("UTIL") && status.contains("87 %"), "{status}");
    let (_, all) = said(rig, &["get", "gpu:0"]);
    for part in [
        "utilisation 87 %, its memory 40 %",
        "temperature 91 C",
        "power 612 W of 700 W",
        "throttled by power-cap, sw-thermal",
        "ecc errors 3 corrected, 0 not",
        "xids 13 (1 times",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(
        rig.json(&["get", &format!("gpu:{uuid}")])["gpu"]["temperature_celsius"],
        91
    );
    assert_eq!(said(rig, &["get", "gpu:9"]).0, Some(4));
    let why = rig.json(&["why", "train"]);
    let causes: Vec<&str> = why["causes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["cause"].as_str())
        .collect();
    assert!(causes.contains(&"thermal") && causes.contains(&"power"), "{why:#}");
    let (_, why) = said(rig, &["why", "train"]);
    assert!(
        why.contains("GPU 0 runs with lower clocks because it is too warm (91 C, sw-thermal)"),
        "{why}"
    );
}

fn absent(rig: &Rig) {
    set_faults(
        rig,
        "code:nvmlDeviceGetUtilizationRates:*:3; code:nvmlDeviceGetPowerUsage:*:3; code:nvmlDeviceGetTemperature:*:3; \
         code:nvmlDeviceGetCurrentClocksThrottleReasons:*:3; code:nvmlDeviceGetFieldValues:*:3; \
         code:nvmlDeviceGetSupportedEventTypes:*:3; code:nvmlDeviceGetPcieThroughput:*:3",
    );
    let host = Host::start(rig, CONFIG);
    rig.eventually(SOON, "it is polled", || device(rig, 0)["telemetry"].is_object());
    let told = device(rig, 0);
    for key in ["utilization", "temperature_celsius", "power_watts", "throttle", "sick"] {
        assert!(told.get(key).is_none(), "{key}: {told:#}");
    }
    for key in [
        "throttle_bits",
        "has_remap_failed",
        "xids",
        "pcie_sent_bytes_per_second",
        "nvlink_sent_bytes",
    ] {
        assert!(told["telemetry"].get(key).is_none(), "{key}: {told:#}");
    }
    assert!(
        told["telemetry"]["ecc_corrected"].is_u64(),
        "the others are told: {told:#}"
    );
    for series in [
        "partage_gpu_busy_ratio",
        "partage_gpu_temperature_celsius",
        "partage_gpu_xid_total",
    ] {
        assert_eq!(metric(rig, series), None, "{series}");
    }
    drop(host);
}

fn sick(rig: &Rig) {
    let host = Host::start(rig, CONFIG);
    let mut stays = rig.client(&["-m", "1GiB", "--name", "stays", "-g", "0"]);
    stays.ready();
    set_faults(rig, "xid:0:13; xid:0:43");
    rig.eventually(SOON, "errors of programs are heard of", || {
        device(rig, 0)["telemetry"]["xids"]
            .as_array()
            .is_some_and(|xids| xids.len() == 2)
    });
    assert_eq!(
        (device(rig, 0)["state"].clone(), events(rig, "gpu-sick")),
        (json!("ok"), 0)
    );
    set_faults(rig, "xid:0:13; xid:0:43; xid:0:79");
    rig.eventually(SOON, "it is sick", || device(rig, 0)["state"] == "sick");
    assert_eq!(device(rig, 0)["sick"]["cause"], "xid 79");
    assert_eq!(events(rig, "gpu-sick"), 1);
    let reason = "it has fallen off the bus (Xid 79)";
    let (code, text) = said(rig, &["run", "-m", "1GiB", "-g", "0", "--on-full", "fail", "true"]);
    assert!(code == Some(124) && text.contains(reason), "{code:?} {text}");
    let mut waits = rig.partage(&["run", "-m", "1GiB", "-g", "0", "--name", "waits", "true"]);
    let mut waits = waits.spawn().expect("it starts");
    rig.eventually(SOON, "a job waits for it", || said(rig, &["queue"]).1.contains(reason));
    for command in [&["status"][..], &["why", "stays"], &["why", "waits"], &["get", "gpu:0"]] {
        let (_, text) = said(rig, command);
        assert!(text.contains(reason), "{command:?}: {text}");
    }
    let (code, text) = said(rig, &["status", "--check"]);
    assert!(
        code == Some(2) && text.contains("PARTAGE CRITICAL: GPU 0 is sick: it has fallen off the bus"),
        "{code:?} {text}"
    );
    assert_eq!(metric(rig, "partage_gpu_sick{gpu=\"0\""), Some(1.0));
    // It goes on, and others start elsewhere.
    stays.expect(&format!("alloc {MIB} a"), "alloc 0");
    let mut auto = rig.client(&["-m", "1GiB", "--name", "auto"]);
    auto.ready();
    assert_eq!(rig.json(&["get", "auto"])["job"]["devices"][0]["index"], 1);
    assert!(waits.try_wait().expect("ours").is_none());
    let (code, text) = said(rig, &["undrain", "0"]);
    assert!(code == Some(0) && text == "GPU 0 takes jobs again", "{code:?} {text}");
    assert!(waits.wait().expect("ours").success());
    assert_eq!(
        (device(rig, 0)["state"].clone(), events(rig, "gpu-well")),
        (json!("ok"), 1)
    );
    // A row that could not be replaced is found within ten seconds.
    set_faults(rig, "gpu:1:remap-failed:1");
    rig.eventually(SOON, "the other is sick", || {
        device(rig, 1)["sick"]["cause"] == "remap-failed"
    });
    set_faults(rig, "");
    rig.eventually(SOON, "it is well", || device(rig, 1)["state"] == "ok");
    drop(host);
}

fn moves(rig: &Rig) {
    let host = Host::start(rig, &format!("{CONFIG}[gpu]\non_sick = \"drain\"\n"));
    let mut client = rig.client(&["-m", "2GiB", "--name", "one", "-g", "0"]);
    client.ready();
    client.expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
    client.expect("fill a 165", "fill 0 165 165");
    set_faults(rig, "xid:0:79");
    let place = || rig.json(&["get", "one"])["job"]["devices"][0]["index"].clone();
    rig.eventually(SOON, "the job moved", || place() == 1);
    client.expect("check a 165", "check 0 0");
    assert_eq!(device(rig, 0)["state"], "sick");
    assert_eq!(device(rig, 0)["is_drained"], false, "no mark of an administrator");
    assert!(!host.reload(&format!("{CONFIG}[gpu]\non_sick = \"cure\"\n")));
    assert!(host.reload(CONFIG));
    drop(host);
}

fn outlives(rig: &Rig) {
    let host = Host::start(rig, CONFIG);
    rig.eventually(SOON, "it is there", || device(rig, 0)["state"] == "ok");
    let mut client = rig.client(&["-m", "1GiB", "--name", "one", "-g", "1"]);
    client.ready();
    set_faults(rig, "xid:0:119");
    rig.eventually(SOON, "it is sick", || device(rig, 0)["state"] == "sick");
    let host = host.again();
    rig.eventually(SOON, "the next broker knows it", || {
        device(rig, 0)["sick"]["cause"] == "xid 119"
    });
    assert_eq!(said(rig, &["undrain", "0"]).0, Some(0));
    let host = host.again();
    rig.eventually(SOON, "it stays well", || device(rig, 0)["state"] == "ok");
    drop(host);
}
