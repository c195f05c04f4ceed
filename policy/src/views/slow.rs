// SPDX-License-Identifier: Apache-2.0
//! Why a job is slow, as one cause and in sentences: its cap, a neighbour, a higher priority, processes that nobody
//! controls, work that does not end, or its own CPU side.
//!
//! ```text
//!   its work does not end ─────────────────────────────────────────────► itself
//!   got under 9/10 of what it may have, and the greater part of the
//!   time in which it had not the device it wanted none of it ──────────► the program
//!   it waited at its gate ─────────────────────────────────────────────► for what it waited most
//!   got under 9/10, and unmanaged processes use the device ────────────► unmanaged
//!   others want the device, so that it may not have all of it ─────────► the neighbour that had most
//! ```
//! A wait for a neighbour counts as one for the cap where the cap is less than the share and all of it was had. What
//! a job that always wants the device lacks by some points, and nobody had, went to *switching and idle*. *Waited* is
//! more than 1 % of the last minute, or now. A job that is alone without a cap is not measured: of it NVML's figures
//! say whether the device works for it, or for whom else.

use partage_protocol::admin::{CauseView, JobView};
use partage_protocol::size::format_duration;
use partage_protocol::terms::{DEFAULT_WEIGHT, WHOLE_PPM, format_measured, format_part};
use partage_protocol::units::{DeviceUuid, JobId};
use partage_scheduling::{Cause, TimeState};

use crate::caller::Caller;
use crate::decisions::Policy;
use crate::job::Job;
use crate::terms::{Terms, part};
use crate::time::{JobTime, Measured, WINDOW_NS};

/// Waiting that is worth a word, as a part of the time it is measured over.
const HARDLY: u64 = 100;
/// A neighbour that had less did not slow anybody down.
const LEAST_PPM: u32 = WHOLE_PPM / 20;

/// Who wanted the device for so much of the last minute wanted it always.
const ALWAYS_PPM: u32 = WHOLE_PPM / 20 * 19;
/// A percentage point.
const POINT_PPM: u32 = WHOLE_PPM / 100;

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
fn is_short(got_ppm: u32, asked_ppm: u32) -> bool {
    u64::from(got_ppm) * 10 < u64::from(asked_ppm) * 9
}

impl Policy {
    /// The cause and a sentence for each device that the job uses, where something is known of its time.
    pub(crate) fn slowness(&self, job: &Job, caller: &Caller) -> (Vec<CauseView>, Vec<String>) {
        let mut found = (Vec::new(), Vec::new());
        for place in job.record.devices.iter().filter(|_| !job.state().is_over()) {
            let device = place.device;
            let said = match self.times().get(&(job.id(), device)) {
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

    /// What became of the points between a job's share and what it got, where it wanted the device all the time and
    /// nobody had them: the device passes from one job to another, and idles for moments in between.
    fn lost_text(&self, job: JobId, device: DeviceUuid) -> Option<String> {
        let now = &self.times().get(&(job, device))?.now;
        let wanted_all = now.wanted_60s_ppm >= ALWAYS_PPM;
        let is_low =
            now.got_60s_ppm.saturating_add(POINT_PPM) <= now.asked_ppm && !is_short(now.got_60s_ppm, now.asked_ppm);
        let here = self.times().values().filter(|measured| measured.now.device == device);
        let had = here.fold(0, |sum: u32, measured| sum.saturating_add(measured.now.got_60s_ppm));
        let lost = WHOLE_PPM
            .saturating_sub(had)
            .saturating_sub(self.unmanaged_part(device).unwrap_or(0));
        (wanted_all && is_low && lost >= POINT_PPM).then(|| {
            format!(
                "{}: switching and idle: its jobs had {} of the last minute together; {} went to passing the device \
                 from one to another and to idle moments between, which is missing in every share (this job: {} of {})",
                self.gpu(device),
                format_measured(had),
                format_measured(lost),
                format_measured(now.got_60s_ppm),
                format_measured(now.asked_ppm)
            )
        })
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
                self.jobs()
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
        let whole = self.jobs().get(&now.job).and_then(|job| job.record.terms.cap_ppm);
        if is_short(now.asked_ppm, whole.unwrap_or(WHOLE_PPM)) {
            return self.greatest_neighbour(now.job, now.device);
        }
        Slowness::None
    }

    /// The other job that had most of a device of late.
    fn greatest_neighbour(&self, job: JobId, device: DeviceUuid) -> Slowness {
        let here = self.times().values().map(|measured| &measured.now);
        let others = here.filter(|now| now.device == device && now.job != job);
        let had = others.filter(|now| now.is_not_draining || now.got_60s_ppm >= LEAST_PPM);
        had.max_by_key(|now| now.got_60s_ppm)
            .map_or(Slowness::None, |now| Slowness::Neighbour(now.job))
    }

    /// Another job with work that began before anybody measured and has not ended, and the part of the device that NVML
    /// shows for it: its clients marked nothing then.
    fn unseen_neighbour(&self, now: &JobTime) -> Option<(JobId, u32)> {
        let own = self.shown_part(now.job, now.device)?;
        let others = self
            .jobs()
            .values()
            .filter(|job| job.state().may_get_time() && job.id() != now.job);
        let unseen = others.filter_map(|job| {
            let shown = self.shown_part(job.id(), now.device)?;
            let measured = self.times().get(&(job.id(), now.device));
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

    fn slow_text(&self, job: &Job, measured: &Measured, slowness: Slowness, caller: &Caller) -> String {
        let (id, terms, now) = (job.id(), &job.record.terms, &measured.now);
        let gpu = self.gpu(now.device);
        let got = format!(
            "it got {} of {gpu} in the last second and {} in the last minute",
            format_measured(now.got_1s_ppm),
            format_measured(now.got_60s_ppm)
        );
        let asked = format_measured(now.asked_ppm);
        let waited = waited_text(measured);
        match slowness {
            Slowness::NotDraining => format!(
                "{gpu}: its work does not end (a kernel that waits for another job, or for ever), so others do not \
                 wait for it to; {got}"
            ),
            Slowness::Cap => {
                let cap = terms.cap_ppm.map_or_else(|| asked.clone(), format_part);
                let by = match terms.origin.cap.as_str() {
                    "" => String::new(),
                    words => format!(" ({words})"),
                };
                format!(
                    "{gpu}: its cap of {cap}{by} holds it back: {got}; {waited}; raise it with: partage set {id} \
                     compute-max=PCT, or none"
                )
            }
            Slowness::Neighbour(other) if self.is_not_draining(other, now.device) => {
                let who = self.holder_name(&other.to_string(), caller);
                format!(
                    "{gpu}: the work of {who} does not end (a kernel that waits for another job, or for ever), and \
                     the device itself divides its time between it and this job, whose share is {asked}: {got}; \
                     {waited}; its owner ends it with: partage stop {other}"
                )
            }
            Slowness::Neighbour(other)
                if let Some((_, shown)) = self.unseen_neighbour(now).filter(|(job, _)| *job == other) =>
            {
                let who = self.holder_name(&other.to_string(), caller);
                format!(
                    "{gpu}: {who} has work there from before this job came that has not ended, and NVML shows the \
                     device at work for it for {} of the last second: the device itself divides its time; where that \
                     does not end, its owner ends it with: partage stop {other}",
                    format_part(shown)
                )
            }
            Slowness::Neighbour(other) => {
                let who = self.holder_name(&other.to_string(), caller);
                format!(
                    "{gpu}: it shares the device with {who}{}: its share is {asked}, {got}; {waited}; a greater \
                     share: partage set {id} compute=PCT, or weight=N",
                    self.unlike(terms.weight, other)
                )
            }
            Slowness::Priority(other) => {
                let who = self.holder_name(&other.to_string(), caller);
                let class = self
                    .jobs()
                    .get(&other)
                    .map_or("higher", |job| job.record.terms.class.word());
                format!(
                    "{gpu}: {who} has priority {class}, this job {}, so that one's work goes first: its share is \
                     {asked}, {got}; {waited}; to go no later: partage set {id} priority={class}",
                    terms.class
                )
            }
            Slowness::Unmanaged => {
                let who = self.unmanaged_text(now.device).unwrap_or_default();
                format!(
                    "{gpu}: {who} without Partage, which cannot share that out: of {asked} that this job may have \
                     beside other jobs, {got}; start that program with `partage run` as well, or end it"
                )
            }
            Slowness::Program => format!(
                "{gpu}: nothing of Partage holds it back: it may have {asked}, {got}, and it wanted the GPU for {} \
                 of that minute; {waited}. The GPU waits for the program: look at its CPU side (input, Python, \
                 synchronisation)",
                format_measured(now.wanted_60s_ppm)
            ),
            Slowness::None if hardly_waited(measured) => {
                format!("{gpu}: {got}, of {asked} that it may have, and hardly waited")
            }
            Slowness::None => format!("{gpu}: {got}, of {asked} that it may have; {waited}, and not at the moment"),
        }
    }

    fn is_not_draining(&self, job: JobId, device: DeviceUuid) -> bool {
        self.times()
            .get(&(job, device))
            .is_some_and(|measured| measured.now.is_not_draining)
    }

    /// Of a job that is alone without a cap, as far as NVML tells.
    fn alone_text(&self, job: &Job, device: DeviceUuid) -> Option<(Slowness, String)> {
        let gpu = self.gpu(device);
        let part = self.shown_part(job.id(), device)?;
        let shown = format!(
            "NVML shows it at work for this job for {} of the last second",
            format_part(part)
        );
        let is_short = is_short(part, WHOLE_PPM);
        if let Some(who) = self.unmanaged_text(device).filter(|_| is_short) {
            let text = format!(
                "{gpu}: {who} without Partage, which cannot share that out; {shown}; start that program with \
                 `partage run` as well, or end it"
            );
            return Some((Slowness::Unmanaged, text));
        }
        Some(if is_short {
            let text = format!(
                "{gpu}: nothing of Partage holds it back: no other job has a program there, and {shown}. The GPU \
                 waits for the program: look at its CPU side (input, Python, synchronisation)"
            );
            (Slowness::Program, text)
        } else {
            let text = format!("{gpu}: no other job has a program there, and {shown}");
            (Slowness::None, text)
        })
    }

    /// What makes shares unlike, where it is a weight.
    fn unlike(&self, weight: u32, other: JobId) -> String {
        let others = self
            .jobs()
            .get(&other)
            .map_or(DEFAULT_WEIGHT, |job| job.record.terms.weight);
        match weight == others {
            true => String::new(),
            false => format!(" (weight {weight} against {others})"),
        }
    }

    /// Who uses a device's time without anybody's leave.
    pub(crate) fn unmanaged_note(&self, device: DeviceUuid) -> Option<String> {
        let (gpu, who) = (self.gpu(device), self.unmanaged_text(device)?);
        Some(format!("{gpu}: {who} without Partage, which cannot share that out"))
    }

    /// Promises of a device's time that add up to more than there is, and what that means.
    pub(crate) fn time_note(&self, device: DeviceUuid) -> Option<String> {
        let promised = self.promised_time(device, None);
        let index = self.devices().get(&device)?.seen.index;
        (promised > u64::from(WHOLE_PPM)).then(|| {
            format!(
                "promises on GPU {index} add up to {} of its time: each is worth its proportion",
                part(promised)
            )
        })
    }
}

fn hardly_waited(measured: &Measured) -> bool {
    let window_ns = measured.window_ns().min(WINDOW_NS);
    measured.waited_recently_ns().saturating_mul(HARDLY) <= window_ns
}

/// `it waited 7s in the last 10s`.
fn waited_text(measured: &Measured) -> String {
    let recently = format_duration(measured.waited_recently_ns());
    match measured.window_ns().min(WINDOW_NS) {
        0 => format!("it waited {} since it came", format_duration(measured.now.waited_ns)),
        window_ns => format!("it waited {recently} in the last {}", format_duration(window_ns)),
    }
}

/// Which words set the terms of time; nothing for a job that said nothing.
pub(crate) fn terms_rule(job: &Job, view: &JobView) -> Option<String> {
    let (terms, said) = (&job.record.terms, &job.record.terms.origin);
    let is_usual = *terms == Terms::default();
    if is_usual || view.devices.is_empty() {
        return None;
    }
    let by = |words: &str| match words {
        "" => String::new(),
        words => format!(" by {words}"),
    };
    let promise = match terms.promise_ppm {
        0 => format!("no promise{}", by(&said.promise)),
        ppm => format!("promise {}{}", format_part(ppm), by(&said.promise)),
    };
    let cap = terms
        .cap_ppm
        .map_or_else(|| "no cap".to_owned(), |ppm| format!("cap {}", format_part(ppm)));
    let mut text = format!(
        "time: {promise}, {cap}{}, weight {}{}, priority {}{}",
        by(&said.cap),
        terms.weight,
        by(&said.weight),
        terms.class,
        by(&said.class)
    );
    if let Some(limit_ns) = terms.time_limit_ns {
        text.push_str(&format!(
            ", at most {}{}",
            format_duration(limit_ns),
            by(&said.time_limit)
        ));
    }
    Some(text)
}
