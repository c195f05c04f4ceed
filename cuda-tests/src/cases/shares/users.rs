// SPDX-License-Identifier: Apache-2.0
//! Two users of a managed broker: time is theirs first, and their jobs' after that.

use std::process::Command;
use std::time::Duration;

use super::measure::{MILLISECOND, TOLERANCE, WARM_UP, WINDOW, holds};
use crate::artefacts::built;
use crate::rig::Rig;
use crate::time_client::TimeClient;
use crate::truth::Truth;

const MANY: usize = 10;
const UNIT: u64 = MILLISECOND / 2;

/// One job of a user and ten of another: half each, by the device's own account.
pub fn users(rig: &Rig) {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can act as another user");
        return;
    }
    let config = rig.dir.join("partage.toml");
    std::fs::write(&config, "schema = 1\n").expect("writable");
    let mut command = rig.command(built("partaged"));
    command.arg("--managed").arg("--config").arg(&config);
    command.arg("--socket-dir").arg(rig.socket_dir());
    let mut broker = command.spawn().expect("the broker starts");
    let socket = rig.socket_dir().join("client/client.sock");
    rig.eventually(Duration::from_secs(30), "the broker listens", || socket.exists());
    let _ = Command::new("/bin/chmod")
        .args(["-R", "a+rwX"])
        .arg(rig.sim_dir())
        .status();
    let truth = Truth::of(rig);
    let pattern = format!("kernel {UNIT}");
    let start = |uid| TimeClient::of_user(rig, uid, &["-g", "0"], &pattern);
    let mut running = vec![start(65_533)];
    running.extend((0..MANY).map(|_| start(65_534)));
    let pids: Vec<u32> = running.iter().map(TimeClient::pid).collect();
    truth.wait_for_work_of(0, &pids);
    truth.watch(0, WARM_UP);
    truth.judge(rig, 0, WINDOW, &pids, |span| {
        let (found, unit) = (span.share_ppm(pids[0]), UNIT * 1_000_000 / span.elapsed_ns);
        holds(found.abs_diff(500_000) <= TOLERANCE + unit, || {
            format!("{found} ppm, expected half")
        })
    });
    drop(running);
    assert!(rig.output(rig.partage(&["broker", "stop"])).status.success());
    assert!(broker.wait().expect("our own child").success());
}
