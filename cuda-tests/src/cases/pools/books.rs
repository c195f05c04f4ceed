// SPDX-License-Identifier: Apache-2.0
//! The ledger beside the driver's books.

use std::time::Duration;

use crate::rig::Rig;

/// The ledger says what the driver's books say; a measurement may be under way, so it gets a moment.
#[track_caller]
pub fn even(rig: &Rig, what: &str) {
    let (mut ledger, mut truth) = (0, 0);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        (ledger, truth) = (rig.ledger_used(), rig.truth_allocated());
        if ledger == truth {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: the ledger says {ledger}, the driver {truth}");
}
