// SPDX-License-Identifier: Apache-2.0
//! `migrate --dry-run`: what a move would do.

use partage_protocol::admin::MoveView;
use partage_protocol::units::{DeviceUuid, JobId};

use crate::books::Books;
use crate::books::Exchange;
use crate::machine::Machine;
use crate::residence::{Plan, stages};

impl Books {
    /// What a move would do.
    #[must_use]
    pub fn move_view<M: Machine>(&self, id: JobId, exchange: Exchange, machine: &M) -> MoveView {
        let index = |device: DeviceUuid| self.devices.get(&device).map(|known| known.seen.index);
        let mut steps: Vec<String> = Vec::new();
        for stage in stages(&Plan::Move(exchange.target)) {
            let text = stage.text().to_owned();
            if steps.last() != Some(&text) {
                steps.push(text);
            }
        }
        let bytes = self.returning_bytes(id, machine);
        let (pause_ns, is_measured) = self.expected_pause(id, bytes);
        MoveView {
            job: id.to_string(),
            from: exchange.from.to_string(),
            from_index: index(exchange.from),
            to: exchange.target.device.to_string(),
            to_index: index(exchange.target.device),
            bytes,
            pause_ns,
            is_measured,
            steps,
        }
    }
}
