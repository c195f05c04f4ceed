// SPDX-License-Identifier: Apache-2.0
//! Green contexts cost what the primary context costs, and no operation on them loses a charge.

use std::time::Duration;

use super::Case;
use crate::artefacts::program;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("green_contexts::no_conversion_forgets_a_charge", no_way_past)
            .simulated("counts in the simulator's sizes"),
    ]
}

fn no_way_past(rig: &Rig) {
    let chunk = 256 * MIB;
    let green = program("green", "green.c", &["-ldl"]);
    let mut client = Client::start(rig.run(&["-g", "0", "-m", "2GiB"], &green, &[&chunk.to_string()]));
    // One context is 64 MiB: with it seven chunks of the eight fit. A second one takes no room that a chunk would have.
    for step in ["first", "again", "second", "destroyed", "beside", "alone", "anew"] {
        let answer = client.answer();
        assert_eq!(answer, format!("{step} {}", 7 * chunk), "under a limit of {}", 2 * GIB);
    }
    assert_eq!(client.answer(), "end");
    rig.eventually(Duration::from_secs(5), "nothing is held, nothing is charged", || {
        rig.ledger_used() == 0 && rig.truth_allocated() == 0
    });
    assert!(client.finish().success());
}
