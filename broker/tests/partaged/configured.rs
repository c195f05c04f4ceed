// SPDX-License-Identifier: Apache-2.0
//! A managed broker with a configuration: overcommitted devices, and variables that are switched off.

use partage_protocol::admin::{Reply, Request, WhyView};
use partage_protocol::units::GIB;

use crate::client::ClientProcess;
use crate::rig::Rig;

fn why(rig: &Rig, target: &str) -> WhyView {
    let target = target.to_owned();
    match rig.ask(&Request::Why { target }) {
        Reply::Why(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_overcommitted_device_says_so_and_gives_what_is_there() {
    let rig = Rig::configured(1, 16 * GIB, "schema = 1\n[admission]\novercommit = 1.5\n");
    let mut first = ClientProcess::start(&rig);
    let one = first.run_and_attach(r#"{"verb":"run","mem":"75%"}"#);
    assert_eq!(rig.status().broker.overcommit_percent, 150);
    assert!(rig.status().devices[0].notes.is_empty(), "not yet");
    let mut second = ClientProcess::start(&rig);
    let two = second.run_and_attach(r#"{"verb":"run","mem":"75%"}"#);
    let note = "promises on GPU 0 add up to 150 % of its memory: allocations within a job's limit may be denied as \
                card full";
    assert_eq!(rig.status().devices[0].notes, [note]);
    let mut third = ClientProcess::start(&rig);
    let reply = third.run(r#"{"verb":"run","mem":"1MiB"}"#);
    assert!(matches!(reply, Reply::Error(_)), "the ratio is a bound: {reply:?}");
    // 12 GiB each are promised and 16 are there, contexts included.
    assert_eq!(first.call(&format!("reserve 0 {}", 7 * GIB)), "ok");
    assert_eq!(first.call(&format!("reserve 0 {}", 2 * GIB)), "CardFull");
    assert_eq!(second.call(&format!("reserve 0 {}", 7 * GIB)), "ok");
    for job in [&one, &two] {
        assert!(why(&rig, job).sentences.iter().any(|text| text == note), "{job}");
    }
    let view = why(&rig, &one);
    assert_eq!(
        (view.job.denied.card_full, view.denials[0].reason.as_str()),
        (1, "card full")
    );
}

#[test]
fn variables_that_are_switched_off_count_for_nothing() {
    let text = "schema = 1\n[aliases]\ncuda_device_memory_limit = false\n";
    let rig = Rig::configured(1, 4 * GIB, text);
    assert_eq!(rig.status().broker.aliases_off, ["cuda_device_memory_limit"]);
    let mut client = ClientProcess::start(&rig);
    let variables = r#"[["CUDA_DEVICE_MEMORY_LIMIT","1g"],["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT","0=2G"]]"#;
    let job = client.run_and_attach(&format!(r#"{{"verb":"run","aliases":{variables}}}"#));
    let device = rig.job(&job).devices[0].clone();
    assert_eq!(device.limit_bytes, Some(2 * GIB));
    assert_eq!(device.limit_from, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G");
}
