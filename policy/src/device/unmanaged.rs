// SPDX-License-Identifier: Apache-2.0
//! Processes of no job on a device: the device time that polls showed for them.

use std::collections::{BTreeMap, BTreeSet};

use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{JobId, SECOND_NS};

use crate::event::ProcessUse;

/// A process that uses less is not worth a word: NVML's figure is a whole percentage, and drawing a desktop takes one
/// or two.
const BUSY_PPM: u32 = WHOLE_PPM / 20;
/// Who uses less is not felt.
const FELT_PPM: u32 = WHOLE_PPM / 50;
/// A device with less idle time than this has none: whole percentages are cut off, and passing it on costs something.
const FULL_PPM: u32 = WHOLE_PPM / 10 * 9;
/// Whoever was busy is until there was no sign of it for so long.
const BUSY_FOR_NS: u64 = 2 * SECOND_NS;
/// An event says it of a process again after this, if it is so again.
const TELL_NS: u64 = 60 * SECOND_NS;

fn is_recent(at_ns: Option<u64>, now_ns: u64) -> bool {
    at_ns.is_some_and(|at| now_ns < at.saturating_add(BUSY_FOR_NS))
}

/// What processes of no job mean for those who share a device's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnmanagedLoad {
    /// Nothing.
    #[default]
    Quiet,
    /// Their slices are felt: they use 2 % of the time or more, or the driver does not say what they use.
    Felt,
    /// They use as much of it as one more job would.
    Crowding,
}

/// What is remembered of one unmanaged process on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct UnmanagedProcess {
    /// The newest figure.
    busy_ppm: Option<u32>,
    /// It uses time.
    is_busy: bool,
    /// When that was last seen.
    busy_ns: Option<u64>,
    /// When its use was last told.
    told_ns: Option<u64>,
}

/// The processes of no job on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnmanagedTime {
    /// What the newest polls say of each, by pid.
    processes: BTreeMap<u32, UnmanagedProcess>,
    /// When they were last seen to use as much as one more job would.
    crowded_ns: Option<u64>,
    /// When they were last seen to use any time to speak of, or may have.
    felt_ns: Option<u64>,
    /// What whoever shares the device out was told.
    told: UnmanagedLoad,
}

impl UnmanagedTime {
    /// A poll shows these processes of no job, and so much use of all processes; `even_ppm` is what each job and one
    /// more had if all wanted the device always. Answers whose use is to be told: pid, the job it descends from, and
    /// its part.
    pub(crate) fn see(
        &mut self,
        here: &[&ProcessUse],
        (all_ppm, even_ppm): (u32, u32),
        now_ns: u64,
    ) -> Vec<(u32, Option<JobId>, u32)> {
        let pids: BTreeSet<u32> = here.iter().map(|process| process.pid).collect();
        self.processes.retain(|pid, _| pids.contains(pid));
        let mut sum: u32 = 0;
        let mut is_felt = false;
        let mut told = Vec::new();
        for process in here {
            let known = self.processes.entry(process.pid).or_default();
            known.busy_ppm = process.busy_ppm;
            let part = process.busy_ppm.unwrap_or(0);
            sum = sum.saturating_add(part);
            if part >= BUSY_PPM {
                known.busy_ns = Some(now_ns);
            }
            is_felt |= process.busy_ppm.is_none();
            known.is_busy = is_recent(known.busy_ns, now_ns);
            if part < BUSY_PPM {
                continue;
            }
            if known.told_ns.is_none_or(|at| now_ns >= at.saturating_add(TELL_NS)) {
                known.told_ns = Some(now_ns);
                told.push((process.pid, process.descends_from, part));
            }
        }
        if is_felt || sum >= FELT_PPM {
            self.felt_ns = Some(now_ns);
        }
        if sum >= (even_ppm / 2).max(BUSY_PPM) && all_ppm >= FULL_PPM {
            self.crowded_ns = Some(now_ns);
        }
        told
    }

    /// Nothing is known of the device any more.
    pub(crate) fn clear(&mut self) {
        self.processes.clear();
        (self.crowded_ns, self.felt_ns) = (None, None);
    }

    /// What they mean for those who share the device, if that is not what was told last.
    pub(crate) fn take_change(&mut self, now_ns: u64) -> Option<UnmanagedLoad> {
        let is_there = !self.processes.is_empty();
        let load = if !(is_there && is_recent(self.felt_ns, now_ns)) {
            UnmanagedLoad::Quiet
        } else if is_recent(self.crowded_ns, now_ns) {
            UnmanagedLoad::Crowding
        } else {
            UnmanagedLoad::Felt
        };
        (std::mem::replace(&mut self.told, load) != load).then_some(load)
    }

    /// Those that were busy of late, with their newest figures.
    pub(crate) fn busy(&self) -> impl Iterator<Item = (u32, u32)> {
        let busy = self.processes.iter().filter(|(_, process)| process.is_busy);
        busy.map(|(pid, process)| (*pid, process.busy_ppm.unwrap_or(0)))
    }

    /// The part of the device's time that they use; none where the driver does not say it of one of them.
    pub(crate) fn part_ppm(&self) -> Option<u32> {
        let mut parts = self.processes.values().map(|process| process.busy_ppm);
        parts.try_fold(0, |sum: u32, part| Some(sum.saturating_add(part?).min(WHOLE_PPM)))
    }
}
