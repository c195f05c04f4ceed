// SPDX-License-Identifier: Apache-2.0
//! Sentences about devices' time: what slows a job down, and which words set its terms.

use crate::books::Books;
use crate::caller::Caller;
use crate::job::Job;
use crate::terms::{Terms, part};
use crate::time::{JobTime, Measured, RECENT_NS};
use crate::views::slow::{Slowness, hardly_waited, is_short};
use partage_protocol::admin::JobView;
use partage_protocol::size::format_duration;
use partage_protocol::terms::{DEFAULT_WEIGHT, WHOLE_PPM, format_measured, format_part};
use partage_protocol::units::{DeviceUuid, JobId};

/// Who wanted the device for so much of the last minute wanted it always.
const ALWAYS_PPM: u32 = WHOLE_PPM / 20 * 19;
/// A percentage point.
const POINT_PPM: u32 = WHOLE_PPM / 100;

impl Books {
    /// What became of the points between a job's share and what it got, where it wanted the device all the time and
    /// nobody had them: the device passes from one job to another, and idles for moments in between.
    pub(crate) fn lost_text(&self, job: JobId, device: DeviceUuid) -> Option<String> {
        let now = &self.times.get(&(job, device))?.now;
        let wanted_all = now.wanted_60s_ppm >= ALWAYS_PPM;
        let is_low =
            now.got_60s_ppm.saturating_add(POINT_PPM) <= now.asked_ppm && !is_short(now.got_60s_ppm, now.asked_ppm);
        let here = self.times.values().filter(|measured| measured.now.device == device);
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

    pub(crate) fn slow_text(&self, job: &Job, measured: &Measured, slowness: Slowness, caller: &Caller) -> String {
        let (id, terms, now) = (job.id(), &job.record.terms, &measured.now);
        let gpu = self.gpu(now.device);
        let got = got_text(now, &gpu);
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
            Slowness::Neighbour(other) => {
                let text = self.neighbour_text(job, measured, other, caller);
                format!("{gpu}: {text}")
            }
            Slowness::Priority(other) => {
                let who = self.holder_name(&other.to_string(), caller);
                let class = self
                    .jobs
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
                    "{gpu}: {who}, which cannot share that out: of {asked} that this job may have beside other \
                     jobs, {got}; {}",
                    self.unmanaged_advice(now.device)
                )
            }
            Slowness::Program => format!(
                "{gpu}: it may have {asked}, {got}, and it wanted the GPU for {} of that minute; {waited}; nothing of \
                 Partage holds it back. The GPU waits for the program: look at its CPU side (input, Python, \
                 synchronisation)",
                format_measured(now.wanted_60s_ppm)
            ),
            Slowness::None if hardly_waited(measured) => {
                format!("{gpu}: {got}, of {asked} that it may have, and hardly waited")
            }
            Slowness::None => format!("{gpu}: {got}, of {asked} that it may have; {waited}, and not at the moment"),
        }
    }

    /// Of a job that a neighbour holds back.
    fn neighbour_text(&self, job: &Job, measured: &Measured, other: JobId, caller: &Caller) -> String {
        let (id, now) = (job.id(), &measured.now);
        let got = got_text(now, &self.gpu(now.device));
        let asked = format_measured(now.asked_ppm);
        let waited = waited_text(measured);
        let who = self.holder_name(&other.to_string(), caller);
        if self.is_not_draining(other, now.device) {
            return format!(
                "the work of {who} does not end (a kernel that waits for another job, or for ever), and the device \
                 itself divides its time between it and this job, whose share is {asked}: {got}; {waited}; its owner \
                 ends it with: partage stop {other}"
            );
        }
        if let Some((_, shown)) = self.unseen_neighbour(now).filter(|(job, _)| *job == other) {
            return format!(
                "{who} has work there from before this job came that has not ended, and NVML shows the device at work \
                 for it for {} of the last second: the device itself divides its time; where that does not end, its \
                 owner ends it with: partage stop {other}",
                format_part(shown)
            );
        }
        format!(
            "it shares the device with {who}{}: its share is {asked}, {got}; {waited}; a greater share: partage set \
             {id} compute=PCT, or weight=N",
            self.unlike(job.record.terms.weight, other)
        )
    }

    /// Of a job that is alone without a cap, as far as NVML tells.
    pub(crate) fn alone_text(&self, job: &Job, device: DeviceUuid) -> Option<(Slowness, String)> {
        let gpu = self.gpu(device);
        let part = self.shown_part(job.id(), device)?;
        let shown = format!(
            "NVML shows it at work for this job for {} of the last second",
            format_part(part)
        );
        let is_short = is_short(part, WHOLE_PPM);
        if let Some(who) = self.unmanaged_text(device).filter(|_| is_short) {
            let text = format!(
                "{gpu}: {who}, which cannot share that out; {shown}; {}",
                self.unmanaged_advice(device)
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
    pub(crate) fn unlike(&self, weight: u32, other: JobId) -> String {
        let others = self
            .jobs
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
        Some(format!("{gpu}: {who}, which cannot share that out"))
    }

    /// What lets the time of a device's unmanaged processes be shared.
    fn unmanaged_advice(&self, device: DeviceUuid) -> &'static str {
        match (self.busy_other_broker(device), self.is_private_broker()) {
            (None, _) => "start that program with `partage run` as well, or end it",
            (Some(_), true) => "one broker for everybody shares it: sudo partage install",
            (Some(_), false) => "what that user starts from now on comes to this broker",
        }
    }

    /// Promises of a device's time that add up to more than there is, and what that means.
    pub(crate) fn time_note(&self, device: DeviceUuid) -> Option<String> {
        let promised = self.promised_time(device, None);
        let index = self.devices.get(&device)?.seen.index;
        (promised > u64::from(WHOLE_PPM)).then(|| {
            format!(
                "promises on GPU {index} add up to {} of its time: each is worth its proportion",
                part(promised)
            )
        })
    }
}

/// What a job got of a device.
fn got_text(now: &JobTime, gpu: &str) -> String {
    format!(
        "it got {} of {gpu} in the last second and {} in the last minute",
        format_measured(now.got_1s_ppm),
        format_measured(now.got_60s_ppm)
    )
}

/// `it waited 7s in the last 10s`.
pub(crate) fn waited_text(measured: &Measured) -> String {
    let recently = format_duration(measured.waited_recently_ns());
    match measured.window_ns().min(RECENT_NS) {
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
