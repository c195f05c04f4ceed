// SPDX-License-Identifier: Apache-2.0
//! Why a job is slow, as one cause and in sentences: its cap, a neighbour, a higher priority, processes that nobody
//! controls, work that does not end, or its own CPU side.
//!
//! ```text
//!   its work does not end ─────────────────────────────────────────────► itself
//!   got under 9/10 of what it may have, and the greater part of the
//!   time in which it had not the device it wanted none of it ──────────► the program
//!   it waited at its gate ─────────────────────────────────────────────► the longest cause of that wait
//!   got under 9/10, and unmanaged processes use the device ────────────► unmanaged
//!   others want the device, so that it may not have all of it ─────────► the neighbour that had most
//! ```
//! A wait for a neighbour counts as one for the cap where the cap is less than the share and all of it was had. Points
//! that a job which always wants the device lacks, and that no other job got, went to *switching and idle*. *Waited* is
//! more than 1 % of the last minute, or now. Beside the one cause stand those of the device itself, which slow down
//! everybody: it is sick, or its temperature or its power lowers its clocks. A job that is alone without a cap is not
//! measured: for it NVML's figures say which process the device works for.

use crate::books::Books;
use crate::caller::Caller;
use crate::job::Job;
use crate::residence::Residence;
use crate::telemetry::{About, Telemetry};
use crate::time::{JobTime, Measured, RECENT_NS};
use partage_protocol::admin::CauseView;
use partage_protocol::terms::WHOLE_PPM;
use partage_protocol::units::{DeviceUuid, JobId};
use partage_scheduling::{Cause, TimeState};

/// Waiting that is worth a word, as a part of the time it is measured over.
const HARDLY: u64 = 100;
/// A neighbour that had less did not slow anybody down.
const LEAST_PPM: u32 = WHOLE_PPM / 20;

/// NVML shows so much more of a job than what was measured of it: it has work that was never marked.
const UNSEEN_PPM: u32 = WHOLE_PPM / 4;

/// What slows a job down on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slowness {
    /// Nothing.
    None,
    /// Its own cap.
    Cap,
    /// Another job's share.
    Neighbour(JobId),
    /// Another job's higher class.
    Priority(JobId),
    /// Processes that nobody controls.
    Unmanaged,
    /// Its own work does not end.
    NotDraining,
    /// It gives the device too little to do.
    Program,
}

impl Slowness {
    /// The word in documents.
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cap => "cap",
            Self::Neighbour(_) => "neighbour",
            Self::Priority(_) => "priority",
            Self::Unmanaged => "unmanaged",
            Self::NotDraining => "not-draining",
            Self::Program => "program",
        }
    }
}

/// Nine tenths of what it may have is all of it.
pub(crate) fn is_short(got_ppm: u32, asked_ppm: u32) -> bool {
    u64::from(got_ppm) * 10 < u64::from(asked_ppm) * 9
}

impl Books {
    /// The cause and a sentence for each device that the job uses, where something is known of its time.
    pub(crate) fn slowness(&self, job: &Job, caller: &Caller) -> (Vec<CauseView>, Vec<String>) {
        let mut found = (Vec::new(), Vec::new());
        let is_meant = !job.state().is_over() && job.residence() == Residence::Here;
        for place in job.record.devices.iter().filter(|_| is_meant) {
            let device = place.device;
            let said = match self.times.get(&(job.id(), device)) {
                Some(measured) => {
                    let now = &measured.now;
                    let is_used = now.got_60s_ppm > 0 || now.waited_ns > 0 || now.is_not_draining;
                    is_used.then(|| {
                        let slowness = self.judge(measured);
                        (slowness, self.slow_text(job, measured, slowness, caller))
                    })
                }
                None => self.alone_text(job, device),
            };
            for (cause, text) in self.device_causes(job, device) {
                found.0.push(CauseView {
                    gpu: self.index_of(device),
                    cause: cause.to_owned(),
                    by: Vec::new(),
                });
                found.1.push(text);
            }
            let Some((slowness, text)) = said else { continue };
            let by = match slowness {
                Slowness::Neighbour(job) | Slowness::Priority(job) => vec![job.to_string()],
                Slowness::Unmanaged => {
                    let busy = self.busy_unmanaged(device).into_iter();
                    busy.map(|(pid, _)| format!("pid {pid}")).collect()
                }
                _ => Vec::new(),
            };
            found.0.push(CauseView {
                gpu: self.index_of(device),
                cause: slowness.word().to_owned(),
                by,
            });
            found.1.push(text);
            if let Some(text) = self.lost_text(job.id(), device) {
                found.0.push(CauseView {
                    gpu: self.index_of(device),
                    cause: "switching-and-idle".to_owned(),
                    by: Vec::new(),
                });
                found.1.push(text);
            }
            let also = self.unmanaged_note(device).filter(|_| slowness != Slowness::Unmanaged);
            found.1.extend(also);
        }
        found
    }

    /// What slows everybody down on a device that the job uses: the device itself.
    fn device_causes(&self, job: &Job, device: DeviceUuid) -> Vec<(&'static str, String)> {
        let measured = self.devices.get(&device).and_then(|known| known.measured.as_ref());
        let Some(told) = measured.map(|measured| &measured.telemetry) else {
            return Vec::new();
        };
        let mut found: Vec<(&str, String)> = Vec::new();
        found.extend(self.sick_note(device).map(|text| ("sick-gpu", text)));
        if job.clients.is_empty() {
            return found;
        }
        for (about, cause) in [(About::Heat, "thermal"), (About::Power, "power")] {
            let words: Vec<&str> = told
                .throttles()
                .filter(|reason| reason.about == about)
                .map(|reason| reason.word)
                .collect();
            if !words.is_empty() {
                found.push((cause, throttle_text(&self.gpu(device), told, about, &words.join(", "))));
            }
        }
        found
    }

    /// What slows a job down where its time is measured.
    pub(crate) fn judge(&self, measured: &Measured) -> Slowness {
        let now = &measured.now;
        if now.is_not_draining {
            return Slowness::NotDraining;
        }
        let had_not = WHOLE_PPM.saturating_sub(now.got_60s_ppm);
        let wanted_none = WHOLE_PPM.saturating_sub(now.wanted_60s_ppm);
        if is_short(now.got_60s_ppm, now.asked_ppm) && wanted_none >= had_not / 2 {
            return Slowness::Program;
        }
        let waits = matches!(now.state, TimeState::Waiting | TimeState::Capped);
        if waits || !hardly_waited(measured) {
            // What it waited for of late may be no more: other terms, a job that ended.
            let terms = |job: JobId| {
                self.jobs
                    .get(&job)
                    .filter(|job| job.state().may_get_time())
                    .map(|job| &job.record.terms)
            };
            let own = terms(now.job);
            // It has all of a cap that is less than its share would be: no neighbour's leaving would give it more.
            let binds = |cap: u32| now.asked_ppm >= cap && !is_short(now.got_60s_ppm, cap);
            let cap = own.and_then(|own| own.cap_ppm);
            match now.waits_for {
                Cause::Cap if cap.is_some() => return Slowness::Cap,
                Cause::Neighbour(_) | Cause::Priority(_) if cap.is_some_and(binds) => return Slowness::Cap,
                Cause::Neighbour(job) | Cause::Priority(job) => match (own, terms(job)) {
                    (Some(own), Some(other)) if other.class > own.class => return Slowness::Priority(job),
                    (_, Some(_)) => return Slowness::Neighbour(job),
                    _ => {}
                },
                Cause::Cap | Cause::None | Cause::Unmanaged => {}
            }
        }
        if is_short(now.got_1s_ppm, now.asked_ppm) && !self.busy_unmanaged(now.device).is_empty() {
            return Slowness::Unmanaged;
        }
        if let Some((other, _)) = self.unseen_neighbour(now) {
            return Slowness::Neighbour(other);
        }
        let whole = self.jobs.get(&now.job).and_then(|job| job.record.terms.cap_ppm);
        if is_short(now.asked_ppm, whole.unwrap_or(WHOLE_PPM)) {
            return self.greatest_neighbour(now.job, now.device);
        }
        Slowness::None
    }

    /// The other job that had most of a device of late.
    fn greatest_neighbour(&self, job: JobId, device: DeviceUuid) -> Slowness {
        let here = self.times.values().map(|measured| &measured.now);
        let others = here.filter(|now| now.device == device && now.job != job);
        let had = others.filter(|now| now.is_not_draining || now.got_60s_ppm >= LEAST_PPM);
        had.max_by_key(|now| now.got_60s_ppm)
            .map_or(Slowness::None, |now| Slowness::Neighbour(now.job))
    }

    /// Another job with work that began before anybody measured and has not ended, and the part of the device that NVML
    /// shows for it: its clients marked nothing then.
    pub(crate) fn unseen_neighbour(&self, now: &JobTime) -> Option<(JobId, u32)> {
        let own = self.shown_part(now.job, now.device)?;
        let others = self
            .jobs
            .values()
            .filter(|job| job.state().may_get_time() && job.id() != now.job);
        let unseen = others.filter_map(|job| {
            let shown = self.shown_part(job.id(), now.device)?;
            let measured = self.times.get(&(job.id(), now.device));
            // What was charged to it since, because NVML shows it, was not seen any more than before.
            let got = measured.map_or(0, |measured| {
                let unseen = measured.audit.unseen_ppm();
                measured.now.got_1s_ppm.saturating_sub(unseen)
            });
            (shown >= got.saturating_add(UNSEEN_PPM)).then_some((job.id(), shown))
        });
        let found = unseen.max_by_key(|(_, shown)| *shown);
        found.filter(|_| is_short(own, now.asked_ppm))
    }

    pub(crate) fn is_not_draining(&self, job: JobId, device: DeviceUuid) -> bool {
        self.times
            .get(&(job, device))
            .is_some_and(|measured| measured.now.is_not_draining)
    }
}

fn throttle_text(gpu: &str, told: &Telemetry, about: About, words: &str) -> String {
    let watts = |milliwatts: u32| format!("{} W", milliwatts.div_ceil(1000));
    let (why, now) = match about {
        About::Heat => (
            "it is too warm",
            told.temperature_celsius.map(|celsius| format!("{celsius} C, ")),
        ),
        _ => {
            let limit = told
                .power_limit_milliwatts
                .map_or(String::new(), |limit| format!(" of {}", watts(limit)));
            let power = told.power_milliwatts.map(|power| format!("{}{limit}, ", watts(power)));
            ("it may not take more power", power)
        }
    };
    format!(
        "{gpu} runs with lower clocks because {why} ({}{words})",
        now.unwrap_or_default()
    )
}

pub(crate) fn hardly_waited(measured: &Measured) -> bool {
    let window_ns = measured.window_ns().min(RECENT_NS);
    measured.waited_recently_ns().saturating_mul(HARDLY) <= window_ns
}
