// SPDX-License-Identifier: Apache-2.0
//! What one user may see and do of another's jobs on a managed host. Needs root to become somebody else.

use partage_protocol::admin::{ErrorCode, Reply, Request};
use partage_protocol::units::GIB;

use crate::client::ClientProcess;
use crate::rig::{Rig, ask};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can become another user");
    }
    is_root
}

#[test]
fn others_jobs_are_seen_without_name_and_command_and_cannot_be_touched() {
    if !is_root() {
        return;
    }
    let rig = Rig::managed(1, 16 * GIB);
    let mut mine = ClientProcess::start(&rig);
    let job = mine.run_and_attach(r#"{"verb":"run","mem":"8GiB","name":"secret","command":["secret"]}"#);
    let mut other = ClientProcess::start_as(&rig, Some(NOBODY));
    let seen = other.run(r#"{"verb":"ps","all":true}"#);
    let Reply::Ps { jobs, .. } = &seen else {
        panic!("{seen:?}")
    };
    assert_eq!(jobs[0].job, job);
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    for request in [
        format!(r#"{{"verb":"stop","target":"{job}","grace_ns":0}}"#),
        format!(r#"{{"verb":"set","target":"{job}","mem":"1GiB"}}"#),
        r#"{"verb":"stop-broker"}"#.to_owned(),
    ] {
        match other.run(&request) {
            Reply::Error(error) => assert_eq!(error.code, ErrorCode::NotAllowed, "{request}"),
            reply => panic!("{request}: {reply:?}"),
        }
    }
    // Root over `admin.sock` may.
    let admin = rig.socket_dir().join("admin.sock");
    let target = job;
    assert!(matches!(
        ask(&admin, &Request::Stop { target, grace_ns: 0 }),
        Reply::Done { .. }
    ));
}

#[test]
fn another_users_process_joins_by_no_token_and_reaches_no_admin_socket() {
    if !is_root() {
        return;
    }
    let rig = Rig::managed(1, 16 * GIB);
    let mut mine = ClientProcess::start(&rig);
    let job = mine.run_and_attach(r#"{"verb":"run","mem":"8GiB"}"#);
    let token = mine.call("token");
    let mut other = ClientProcess::start_as(&rig, Some(NOBODY));
    assert_eq!(other.call(&format!("join {token}")), "ok");
    let attached = other.call("attach");
    assert!(
        attached.starts_with("attached j") && attached != format!("attached {job}"),
        "{attached}"
    );
    assert_eq!(other.call("can-connect admin.sock"), "EACCES");
    assert_eq!(other.call("can-write-grants"), "no");
}
