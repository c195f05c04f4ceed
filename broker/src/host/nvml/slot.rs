// SPDX-License-Identifier: Apache-2.0
//! An NVML helper with its device list. Its *slot* holds the helper, or the pause before the next one starts.

use std::collections::BTreeSet;

use partage_protocol::units::SECOND_NS;

use super::messages::{Answer, Ask};
use crate::helper::process::{BackOff, Helper, HelperCommand};
use crate::host::gpu::GpuEvent;

/// A driver that starts a cold eight-device node without persistence mode needs some 2 s a device.
const OPEN_DEADLINE_NS: u64 = 30 * SECOND_NS;
/// A look takes a few milliseconds; while a device resets, a second.
pub(super) const SAMPLE_DEADLINE_NS: u64 = 3 * SECOND_NS;
/// A device that takes longer is waited for by a helper of its own.
pub(super) const SLOW_NS: u64 = SECOND_NS / 5;
/// First and longest pause before a failed helper is started again.
pub(super) const RESTART_PAUSE_NS: (u64, u64) = (SECOND_NS / 2, 30 * SECOND_NS);

/// One helper or the pause before the next.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) helper: Option<NvmlHelper>,
    pub(super) start: BackOff,
    /// The device that the slot is for has been told lost; else it is slow.
    pub(super) is_lost: bool,
}

/// A helper and the devices that it listed.
#[derive(Debug)]
pub(super) struct NvmlHelper {
    pub(super) process: Helper<Ask>,
    pub(super) places: Vec<String>,
    /// The place that was looked at last: the next one's turn comes first.
    pub(super) last: usize,
    /// The look that begins with the next `begin`.
    announced: Option<usize>,
    /// Places whose errors another helper told meanwhile.
    told_elsewhere: BTreeSet<usize>,
}

impl Slot {
    /// A slot whose helper is started at `start_at_ns`.
    pub(super) fn at(start_at_ns: u64) -> Self {
        Self {
            helper: None,
            start: BackOff::new(start_at_ns, RESTART_PAUSE_NS),
            is_lost: true,
        }
    }

    /// When the look that is under way is a slow one.
    pub(super) fn slow_ns(&self) -> Option<u64> {
        let request = self.helper.as_ref()?.process.channel.request()?;
        matches!(request.what, Ask::Sample(_)).then_some(request.asked_ns + SLOW_NS)
    }

    /// When the slot has something to do without an answer.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match &self.helper {
            Some(helper) => helper.process.channel.request().map(|request| request.deadline_ns),
            None => Some(self.start.at_ns()),
        }
    }
}

impl NvmlHelper {
    /// Starts a helper and asks it for the devices.
    pub(super) fn start(command: &HelperCommand, now_ns: u64) -> std::io::Result<Self> {
        let mut process = Helper::start(command)?;
        process.channel.ask(Ask::Open, now_ns, OPEN_DEADLINE_NS);
        Ok(Self {
            process,
            places: Vec::new(),
            last: 0,
            announced: None,
            told_elsewhere: BTreeSet::new(),
        })
    }

    /// The same helper after another one polled its devices: each helper hears of every error, and it counts once.
    pub(super) fn taken_again(mut self) -> Self {
        self.told_elsewhere = (0..self.places.len()).collect();
        self
    }

    /// Tells of the errors that came with an answer about a place; answers the rest of it.
    pub(super) fn take_xids(&mut self, place: usize, answer: Answer, out: &mut Vec<GpuEvent>) -> Answer {
        let was_told = self.told_elsewhere.remove(&place);
        match answer {
            Answer::Xids(xids, rest) => {
                if let Some(uuid) = self.places.get(place).cloned().filter(|_| !was_told) {
                    out.push(GpuEvent::Xids { uuid, xids });
                }
                *rest
            }
            other => other,
        }
    }

    /// Free for another request.
    pub(super) fn is_idle(&self) -> bool {
        self.process.channel.request().is_none() && self.announced.is_none()
    }

    /// Says that the look at a place begins with the next `begin`.
    pub(super) fn announce(&mut self, place: usize, out: &mut Vec<GpuEvent>) {
        if let Some(uuid) = self.places.get(place).cloned() {
            self.announced = Some(place);
            out.push(GpuEvent::Asking { uuid });
        }
    }

    /// Begins the look that was announced.
    pub(super) fn begin(&mut self, now_ns: u64) {
        if let Some(place) = self.announced.take() {
            self.last = place;
            self.process.channel.ask(Ask::Sample(place), now_ns, SAMPLE_DEADLINE_NS);
        }
    }
}
