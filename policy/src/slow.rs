// SPDX-License-Identifier: Apache-2.0
//! Why a job is slow, in sentences: its cap, a neighbour, a higher priority, processes that nobody controls, work that
//! does not end, or its own CPU side.
//!
//! The job waited: whoever shares out the time says for what. It got less than it may have and hardly waited: then
//! nothing of ours held it back, and the GPU was idle because it was given nothing to do. *Hardly* is 1 % of the last
//! minute, *less* is under nine tenths.

use partage_protocol::admin::JobView;
use partage_protocol::size::format_duration;
use partage_protocol::terms::{DEFAULT_WEIGHT, format_measured, format_part};
use partage_protocol::units::{DeviceUuid, JobId};

use crate::event::Caller;
use crate::job::Job;
use crate::measured_time::{Cause, Measured, WINDOW_NS};
use crate::policy::Policy;

/// Waiting that is worth a word, as a part of the time it is measured over.
const HARDLY: u64 = 100;

impl Policy {
    /// One sentence for each device that the job uses, where its time is measured.
    pub(crate) fn slowness(&self, job: &Job, caller: &Caller) -> Vec<String> {
        let places = job.record.devices.iter().filter(|_| job.is_live());
        let measured = places.filter_map(|place| self.times.get(&(job.id(), place.device)));
        let is_used = |measured: &&Measured| {
            let now = &measured.now;
            now.got_60s_ppm > 0 || now.waited_ns > 0 || now.is_not_draining
        };
        let used = measured.filter(is_used);
        used.map(|measured| self.slow_text(job, measured, caller)).collect()
    }

    fn slow_text(&self, job: &Job, measured: &Measured, caller: &Caller) -> String {
        let (id, terms, now) = (job.id(), &job.record.terms, &measured.now);
        let gpu = self.devices.get(&now.device).map_or(u32::MAX, |known| known.seen.index);
        let waited_ns = measured.waited_recently_ns();
        let got = format!(
            "it got {} of GPU {gpu} in the last second and {} in the last minute",
            format_measured(now.got_1s_ppm),
            format_measured(now.got_60s_ppm)
        );
        let asked = format_measured(now.asked_ppm);
        let window_ns = measured.window_ns().min(WINDOW_NS);
        let waited = match window_ns {
            0 => format!("it waited {}", format_duration(waited_ns)),
            window_ns => format!(
                "it waited {} in the last {}",
                format_duration(waited_ns),
                format_duration(window_ns)
            ),
        };
        if now.is_not_draining {
            return format!(
                "GPU {gpu}: its work does not end (a kernel that waits for another job, or for ever), so others do not \
                 wait for it to; {got}"
            );
        }
        let hardly_waited = waited_ns.saturating_mul(HARDLY) <= window_ns;
        match now.cause {
            Cause::Cap => {
                let cap = terms.cap_ppm.map_or_else(|| asked.clone(), format_part);
                let by = match terms.origin.cap.as_str() {
                    "" => String::new(),
                    words => format!(" ({words})"),
                };
                format!(
                    "GPU {gpu}: its cap of {cap}{by} holds it back: {got}; {waited}; raise it with: partage set {id} \
                     compute-max=PCT, or none"
                )
            }
            Cause::Neighbour(other) => {
                let who = self.holder_name(&other.to_string(), caller);
                format!(
                    "GPU {gpu}: it shares the device with {who}{}: its share is {asked}, {got}; {waited}; a greater \
                     share: partage set {id} compute=PCT, or weight=N",
                    self.unlike(terms.weight, other)
                )
            }
            Cause::Priority(other) => {
                let who = self.holder_name(&other.to_string(), caller);
                let class = self
                    .jobs
                    .get(&other)
                    .map_or("higher", |job| job.record.terms.class.word());
                format!(
                    "GPU {gpu}: {who} has priority {class}, this job {}, so that one's work goes first: {got}; {waited}",
                    terms.class
                )
            }
            Cause::Unmanaged => format!(
                "GPU {gpu}: {} without Partage, whose time nobody can share out: {got}; {waited}",
                self.strangers_text(now.device)
            ),
            Cause::None if u64::from(now.got_60s_ppm) * 10 < u64::from(now.asked_ppm) * 9 && hardly_waited => format!(
                "GPU {gpu}: nothing of Partage holds it back: it may have {asked}, {got}, and it hardly waited; the GPU \
                 was idle because the program gave it no work: look at its CPU side (input, Python, synchronisation)"
            ),
            Cause::None if hardly_waited => format!("GPU {gpu}: {got}, of {asked} that it may have, and hardly waited"),
            Cause::None => format!("GPU {gpu}: {got}, of {asked} that it may have; {waited}, and not at the moment"),
        }
    }

    /// What makes shares unlike, where it is a weight.
    fn unlike(&self, weight: u32, other: JobId) -> String {
        let others = self
            .jobs
            .get(&other)
            .map_or(DEFAULT_WEIGHT, |job| job.record.terms.weight);
        match weight == others {
            true => String::new(),
            false => format!(" (weight {weight} against {others})"),
        }
    }

    /// `pid 77 uses it`, as far as processes are known.
    fn strangers_text(&self, device: DeviceUuid) -> String {
        let managed = self.managed_pids();
        let processes = self.devices.get(&device).and_then(|known| known.measured.as_ref());
        let pids: Vec<String> = processes
            .into_iter()
            .flat_map(|measured| &measured.processes)
            .filter(|process| !managed.contains_key(&process.pid))
            .take(4)
            .map(|process| process.pid.to_string())
            .collect();
        match pids.as_slice() {
            [] => "processes that cannot be seen here use it".to_owned(),
            [pid] => format!("pid {pid} uses it"),
            pids => format!("pids {} use it", pids.join(", ")),
        }
    }

    /// Promises of a device's time that add up to more than there is, and what that means.
    pub(crate) fn time_note(&self, device: DeviceUuid) -> Option<String> {
        let promised = self.promised_time(device, None);
        let index = self.devices.get(&device)?.seen.index;
        (promised > u64::from(partage_protocol::terms::WHOLE_PPM)).then(|| {
            format!(
                "promises on GPU {index} add up to {} of its time: each is worth its proportion",
                crate::terms::part(promised)
            )
        })
    }
}

/// Which words set the terms of time; nothing for a job that said nothing.
pub(crate) fn terms_rule(job: &Job, view: &JobView) -> Option<String> {
    let (terms, said) = (&job.record.terms, &job.record.terms.origin);
    let is_usual = *terms == crate::terms::Terms::default();
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
