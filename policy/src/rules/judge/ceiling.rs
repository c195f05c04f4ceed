// SPDX-License-Identifier: Apache-2.0
//! The most that a job may have which root registered: what root said then, or administrators later, else the numbers
//! of its class. And the most that was named beside a registration (`--at-most`).

use std::cmp::Ordering;

use partage_protocol::size::{NONE, parse_amount, parse_request};
use partage_protocol::terms::{parse_cap, parse_class, parse_promise, parse_time_limit, parse_weight};

use super::{Cap, Caps, Judge, within};
use crate::registration::Ceiling;
use crate::rules::{NotAllowed, Preset, Said, Written};

impl Caps {
    /// What is allowed at most, where that is stricter: `by` says who said so, `class` is what the job began with.
    pub(super) fn add_ceiling(&mut self, by: &str, ceiling: &Ceiling, class: Option<&Preset>) {
        let none = Preset::default();
        let of = class.unwrap_or(&none);
        let limit = |text: &str| parse_amount(text).ok();
        let (mem, process_mem) = (&ceiling.mem, &ceiling.process_mem);
        self.mem.extend(most(by, ("mem", mem), limit, (of, &of.mem)));
        self.mem_request.extend(most(
            by,
            ("mem-request", &ceiling.mem_request),
            |text| parse_request(text).ok(),
            (of, &of.mem_request),
        ));
        self.process_mem
            .extend(most(by, ("process-mem", process_mem), limit, (of, &of.process_mem)));
        strictest(
            &mut self.compute_promise,
            most(by, ("compute", &ceiling.promise), promise, (of, &of.compute_promise)),
        );
        let cap = |text: &str| parse_cap(text).ok().flatten();
        strictest(
            &mut self.compute_max,
            most(by, ("compute-max", &ceiling.cap), cap, (of, &of.compute_max)),
        );
        let weight = |text: &str| parse_weight(text).ok();
        strictest(
            &mut self.weight,
            most(by, ("weight", &ceiling.weight), weight, (of, &of.weight)),
        );
        let class = |text: &str| parse_class(text).ok();
        strictest(
            &mut self.priority,
            most(by, ("priority", &ceiling.priority), class, (of, &of.priority)),
        );
        let time = |text: &str| parse_time_limit(text).ok();
        strictest(
            &mut self.time_limit,
            most(by, ("time-limit", &ceiling.time_limit), time, (of, &of.time_limit)),
        );
    }
}

impl Judge {
    /// A promise of memory under what root registered.
    ///
    /// # Errors
    /// [`NotAllowed::Above`] where something firm is above it.
    pub(super) fn request_within(&self, said: Option<Said<u64>>, usable: u64) -> Result<Option<Said<u64>>, NotAllowed> {
        let caps = self.caps.mem_request.iter().map(|cap| cap.with(cap.value.on(usable)));
        let (Some(said), Some(cap)) = (said.clone(), caps.min_by(Cap::stricter)) else {
            return Ok(said);
        };
        let judged = within(Some(said.clone()), said.clone(), Some(&cap))?;
        Ok(Some(Said {
            value: judged.value,
            words: judged.words,
            ..said
        }))
    }
}

/// No promise is one of nothing.
fn promise(text: &str) -> Option<u32> {
    match text {
        NONE => Some(0),
        text => parse_promise(text).ok(),
    }
}

/// What was said of a key, else the class's number; `none` is no ceiling.
fn most<T: Clone>(
    by: &str,
    (key, said): (&str, &Option<String>),
    parse: impl Fn(&str) -> Option<T>,
    (class, written): (&Preset, &Option<Written<T>>),
) -> Option<Cap<T>> {
    let (value, text, words) = match (said, written) {
        (Some(text), _) => (parse(text)?, text.clone(), format!("{by}, {key} = {text}")),
        (None, Some(written)) => (
            written.value.clone(),
            written.text.clone(),
            format!("{by}, class {}, {key} = {} ({})", class.name, written.text, written.at),
        ),
        (None, None) => return None,
    };
    Some(Cap {
        value,
        text,
        words,
        binds_administrators: true,
    })
}

fn strictest<T: Ord>(place: &mut Option<Cap<T>>, cap: Option<Cap<T>>) {
    let Some(cap) = cap else { return };
    if place.as_ref().is_none_or(|other| cap.stricter(other) == Ordering::Less) {
        *place = Some(cap);
    }
}
