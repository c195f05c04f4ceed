// SPDX-License-Identifier: Apache-2.0
//! Brokers that are killed: their jobs go on, and the next broker has the right totals.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use partage_protocol::admin::{JobView, Reply, Request};
use partage_protocol::units::{GIB, MIB};

use crate::client::ClientProcess;
use crate::rig::Rig;

#[test]
fn the_next_broker_adopts_jobs_limits_and_use() {
    let mut rig = Rig::new(1, 16 * GIB);
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"8GiB","name":"train","command":["python3","x.py"]}"#);
    assert_eq!(first.call(&format!("reserve 0 {}", 5 * GIB)), "ok");
    let mut second = ClientProcess::start(&rig);
    let other = second.run_and_attach(r#"{"verb":"run","mem":"4GiB"}"#);
    assert_eq!(second.call(&format!("reserve 0 {GIB}")), "ok");

    rig.kill();
    // What is granted goes on without a broker.
    assert_eq!(first.call(&format!("reserve 0 {GIB}")), "ok");
    second.kill();
    rig.start();

    let events = rig.follow();
    assert_eq!(first.call("attach"), format!("attached {job}"));
    let view = rig.job(&job);
    assert_eq!((view.name.as_deref(), view.state.as_str()), (Some("train"), "running"));
    assert_eq!(view.command, ["python3", "x.py"]);
    assert_eq!(view.devices[0].limit_bytes, Some(8 * GIB));
    assert_eq!(view.devices[0].used_bytes, 6 * GIB);
    assert_eq!(first.call(&format!("reserve 0 {}", 2 * GIB)), "ok");
    assert_eq!(first.call("reserve 0 1"), "Limit");
    // The other job's only process died while no broker looked.
    while events.wait_for("job-ended").job.as_deref() != Some(other.as_str()) {}
    // Its devices are found when the driver has answered, which nobody waited for.
    rig.wait_for_status("one job on a device", |status| {
        status.broker.jobs == 1 && status.devices.iter().any(|device| device.committed_bytes == 8 * GIB)
    });
}

#[test]
fn a_client_that_only_lost_its_connection_keeps_its_pages() {
    let rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {}", 3 * GIB)), "ok");
    client.call("disconnect");
    let is_away = || {
        rig.job(&job)
            .clients
            .first()
            .is_some_and(|client| client.state == "away")
    };
    while !is_away() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(client.call("attach"), format!("attached {job}"));
    let view = rig.job(&job);
    assert_eq!((view.clients.len(), view.clients[0].state.as_str()), (1, "attached"));
    assert_eq!(view.devices[0].used_bytes, 3 * GIB);
}

#[test]
fn a_lost_ledger_is_made_again_from_the_clients_own_pages() {
    let mut rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {}", 3 * GIB)), "ok");
    rig.kill();
    std::fs::remove_file(rig.socket_dir().join("state/ledger")).expect("removed");
    rig.start();
    assert_eq!(client.call("attach"), format!("attached {job}"));
    assert_eq!(rig.job(&job).devices[0].used_bytes, 3 * GIB);
    assert_eq!(client.call(&format!("reserve 0 {}", 5 * GIB)), "ok");
    assert_eq!(client.call("reserve 0 1"), "Limit");
}

#[test]
fn stop_broker_leaves_the_jobs_to_the_next() {
    let mut rig = Rig::new(1, 16 * GIB);
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    rig.ask(&Request::StopBroker);
    assert!(rig.wait_for_exit().success());
    rig.start();
    assert_eq!(client.call("attach"), format!("attached {job}"));
}

#[test]
fn a_broker_killed_while_a_job_lingers_leaves_its_end_to_the_next() {
    let mut rig = Rig::new(1, 16 * GIB);
    let events = rig.follow();
    let mut client = ClientProcess::start(&rig);
    let job = client.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    assert_eq!(client.call(&format!("reserve 0 {}", 3 * GIB)), "ok");
    client.kill();
    events.wait_for("job-ended");
    let seen = rig.job(&job);
    rig.kill();
    rig.start();
    let now = rig.job(&job);
    let told = |view: &JobView| (view.state.clone(), view.ended_ns, view.exit_code);
    assert_eq!(told(&now), told(&seen));
    assert!(now.ended_ns.is_some(), "{now:#?}");
    let Reply::Ps { jobs, .. } = rig.ask(&Request::Ps { all: true, after: None }) else {
        panic!("ps")
    };
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
}

/// Three processes of one job take and give back memory while the broker is killed again and again: what the device
/// holds for them never exceeds the job's limit, nobody fails, and in the end everything is whole.
#[test]
fn a_broker_killed_at_random_instants_never_lets_a_job_exceed_its_limit() {
    const LIMIT: u64 = 256 * MIB;
    let seed = std::env::var("TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    println!("replay with TEST_SEED={seed}");
    let mut rig = Rig::new(1, 4 * GIB);
    let mut first = ClientProcess::start(&rig);
    let job = first.run_and_attach(r#"{"verb":"run","mem":"256MiB"}"#);
    let mut clients = vec![first];
    for _ in 0..2 {
        let mut sibling = clients[0].sibling(&rig);
        assert_eq!(sibling.call("attach"), format!("attached {job}"));
        clients.push(sibling);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.tell(&format!(
            "hammer 3000 {} {}",
            100 * MIB,
            seed.wrapping_add(number as u64)
        ));
    }
    let is_over = AtomicBool::new(false);
    let highest = AtomicU64::new(0);
    let folder = rig.machine_folder();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let machine = partage_machine::Machine::open(&folder).expect("opened");
            let context_bytes = machine.devices()[0].context_bytes;
            while !is_over.load(Ordering::Relaxed) {
                let of_all = machine.occupants(0).into_iter();
                let used = of_all.map(|occupant| occupant.used - u64::from(occupant.contexts) * context_bytes);
                highest.fetch_max(used.sum(), Ordering::Relaxed);
                // The machine's lock is not fair: without a pause this thread would have it most of the time.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let mut random = seed;
        for _ in 0..12 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The instant is the test's input, not something it waits for.
            std::thread::sleep(Duration::from_micros((random >> 33) % 30_000));
            rig.kill();
            rig.start();
        }
        for client in &mut clients {
            let answer = client.answer();
            assert!(answer.starts_with("hammered true"), "{answer}");
            // One that had no reason to ask since the last broker died comes back now, as the library's thread does.
            assert_eq!(client.call("attach"), format!("attached {job}"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let highest = highest.load(Ordering::Relaxed);
    assert!(
        highest > LIMIT / 4 && highest <= LIMIT,
        "highest use {highest} of {LIMIT}"
    );
    let view = rig.job(&job);
    assert_eq!(view.devices[0].used_bytes, 0);
    assert!(view.devices[0].granted_bytes <= LIMIT);
    assert_eq!(
        clients[1].call(&format!("reserve 0 {LIMIT}")),
        "ok",
        "the whole limit is there again"
    );
}
