// SPDX-License-Identifier: Apache-2.0
//! A snapshot is restored onto other GPUs than those that the job had: `restore --gpu-map`.

use std::process::Stdio;

use super::super::Case;
use super::moved::uuids;
use super::restored::saved;
use super::said::{next_broker, ok, state, used_by};
use super::saved::{criu, folder, not_restored, restore, slow_criu, with_criu};
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    const WHY: &str = "needs two devices";
    vec![
        Case::new("residence::a_snapshot_is_restored_on_another_gpu", other_gpu).simulated(WHY),
        Case::new(
            "residence::a_gpu_map_that_cannot_be_is_refused_before_a_job_begins",
            refused,
        )
        .simulated(WHY),
        Case::new(
            "residence::a_gpu_map_that_the_driver_refuses_ends_the_restore",
            driver_refuses,
        )
        .simulated(WHY),
        Case::new("residence::a_brokers_death_in_a_restore_keeps_the_gpu_map", broker_dies).simulated(WHY),
    ]
}

/// The job is there by every view: the program's ordinal and UUID, `ps`, and the driver's books.
fn is_on(rig: &Rig, client: &mut Client, gpu: usize) {
    let uuid = uuids(rig)[gpu].clone();
    client.expect("count", "count 0 1");
    client.expect("uuid 0", &format!("uuid 0 {uuid}"));
    client.expect("nvmldevices", &format!("nvmldevices 0 1 good {uuid}"));
    let jobs = rig.jobs();
    let job = jobs.iter().find(|job| job["name"] == "one").expect("it is listed");
    assert_eq!(job["devices"][0]["index"], gpu, "{job}");
    let machine = partage_machine::Machine::open(&rig.sim_dir()).expect("the machine is there");
    rig.eventually(PATIENCE, "it is there alone, and nothing is on the other GPU", || {
        machine.occupants(1 - gpu).is_empty() && machine.occupants(gpu).len() == 1
    });
}

fn other_gpu(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let [old, new] = uuids(rig);
    for (map, gpu) in [
        ("0=1".to_owned(), 1),
        (format!("{old}={new}"), 1),
        ("0=0".to_owned(), 0),
    ] {
        let mut again = restore(rig, &criu, &["--gpu-map", &map]);
        again.expect("check a 165", "check 0 0");
        again.expect("nvml", "nvml 0");
        is_on(rig, &mut again, gpu);
        again.expect(&format!("alloc {MIB} b"), "alloc 0");
        rig.eventually(PATIENCE, "the ledger says what the driver says", || rig.books_agree());
        let used = used_by(rig, "one");
        // It was mapped once, and is at home there.
        ok(rig, &["suspend", "one"]);
        ok(rig, &["resume", "one"]);
        again.expect("check a 165", "check 0 0");
        is_on(rig, &mut again, gpu);
        rig.eventually(PATIENCE, "its contexts are measured again", || {
            used_by(rig, "one") == used && rig.books_agree()
        });
        let to = 1 - gpu;
        ok(rig, &["migrate", "one", "--to", &to.to_string()]);
        again.expect("check a 165", "check 0 0");
        is_on(rig, &mut again, to);
        assert_eq!(again.finish().code(), Some(0), "{map}");
        rig.eventually(PATIENCE, "nothing is left", || {
            rig.ledger_used() == 0 && rig.books_agree()
        });
    }
}

fn refused(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let [old, new] = uuids(rig);
    let twice = format!("0=1,{old}={new}");
    let known = format!("5 is no GPU of the snapshot, which has 0 ({old}, NVIDIA H200)");
    let wrong = [
        ("5=1", 125, &*known),
        ("GPU-0=1", 125, "GPU-0 is no GPU of the snapshot, which has "),
        ("0=7", 125, "devices: no GPU 7 here; there are "),
        ("0=x", 125, "devices: \"x\" is no GPU"),
        (&*twice, 125, "name each GPU once"),
        ("0", 125, "\"0\" is not OLD=NEW, as in 0=1"),
    ];
    let events = ok(rig, &["events"]);
    for (map, code, text) in wrong {
        let (found, said) = not_restored(rig, &criu, &["--gpu-map", map]);
        assert!(found == Some(code) && said.contains(text), "{map}: {found:?} {said}");
    }
    let admitted = |events: &str| events.matches("job-admitted").count();
    assert_eq!(admitted(&events), admitted(&ok(rig, &["events"])));
    // No room there.
    let mut other = rig.client(&["-m", "14GiB", "-g", "1", "--name", "other"]);
    other.ready();
    other.expect(&format!("alloc {} b", 12 * GIB), "alloc 0");
    let (code, said) = not_restored(rig, &criu, &["--gpu-map", "0=1", "--on-full", "fail"]);
    assert!(code == Some(124) && said.contains("GPU 1"), "{code:?} {said}");
    other.expect("free b", "free 0");
    assert!(other.finish().success());
    rig.eventually(PATIENCE, "it ended", || state(rig, "other").is_empty());
    let mut again = restore(rig, &criu, &["--gpu-map", "0=1"]);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
}

/// Some drivers may map no process that sees some of the GPUs only. The snapshot is as good as before.
fn driver_refuses(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    let file = rig.sim_dir().join("machine.toml");
    let text = std::fs::read_to_string(&file).expect("a machine");
    let changed = text.replace("map = \"machine\"", "map = \"unmasked\"");
    assert_ne!(text, changed, "{text}");
    std::fs::write(&file, changed).expect("writable");
    saved(rig, &criu);
    let (folder, path) = (folder(rig), rig.dir.join("said"));
    let mut command = with_criu(rig, &criu, &["restore", &folder, "--gpu-map", "0=1"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&path).expect("ours"));
    let mut refused = command.spawn().expect("it starts");
    // Its standard input stays open: it does not end by itself.
    let mut code = None;
    rig.eventually(PATIENCE, "it ends", || {
        code = refused.try_wait().expect("ours").map(|status| status.code());
        code.is_some()
    });
    let said = std::fs::read_to_string(&path).expect("ours");
    assert!(
        code == Some(Some(125)) && said.contains("the driver refuses this exchange of devices (1)"),
        "{code:?} {said}"
    );
    rig.eventually(PATIENCE, "nothing is left", || {
        state(rig, "one").is_empty() && rig.ledger_used() == 0 && rig.books_agree()
    });
    let mut again = restore(rig, &criu, &[]);
    again.expect("check a 165", "check 0 0");
    assert_eq!(again.finish().code(), Some(0));
}

/// The next one takes the processes in, and knows by which map they come back.
fn broker_dies(rig: &Rig) {
    let Some(criu) = criu(rig) else { return };
    saved(rig, &criu);
    let (slow, go) = slow_criu(rig, &criu, "restore");
    let mut again = restore(rig, &slow, &["--gpu-map", "0=1"]);
    rig.eventually(PATIENCE, "it is to come back", || state(rig, "one") == "suspended");
    let old = rig.broker_pid_quick().expect("a broker");
    // SAFETY: the process is this rig's own broker.
    unsafe { libc::kill(old.cast_signed(), libc::SIGKILL) };
    next_broker(rig, old);
    std::fs::write(&go, b"").expect("ours");
    again.expect("check a 165", "check 0 0");
    again.expect("nvml", "nvml 0");
    is_on(rig, &mut again, 1);
    assert_eq!(again.finish().code(), Some(0));
    rig.eventually(PATIENCE, "nothing is left", || {
        rig.ledger_used() == 0 && rig.books_agree()
    });
}
