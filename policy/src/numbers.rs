// SPDX-License-Identifier: Apache-2.0
//! Which of a job's numbers differ between two of its records, for the audit log.

use partage_protocol::size::{NONE, format_bytes, format_duration};
use partage_protocol::terms::{WHOLE_PPM, format_part};
use partage_protocol::units::DeviceUuid;

use crate::job::{JobRecord, OwnLimit, Placement};

/// One number that is another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberChange {
    /// As `partage set` calls it: `mem`, `mem-request`, `compute`, …; `process:PID mem` for one process alone.
    pub number: String,
    /// The device, for numbers of a device.
    pub device: Option<DeviceUuid>,
    /// What it was; of a job that begins, what was asked.
    pub old: String,
    /// What it is.
    pub new: String,
    /// What set it: an option, or a rule with file and line; empty where nothing did.
    pub words: String,
}

/// A number of a record, in words.
struct Number<'a> {
    number: &'static str,
    device: Option<DeviceUuid>,
    value: String,
    /// What was asked, where anything was.
    asked: Option<String>,
    words: &'a str,
}

/// The numbers that differ. Of a job that begins (without an old record): those that are not what was asked, and those
/// that were changed while it waited.
#[must_use]
pub fn changed_numbers(old: Option<&JobRecord>, new: &JobRecord) -> Vec<NumberChange> {
    let (record, new) = (new, numbers(new));
    let change = |number: Number<'_>, old: String| NumberChange {
        number: number.number.to_owned(),
        device: number.device,
        old,
        new: number.value,
        words: number.words.to_owned(),
    };
    let Some(before) = old else {
        let begun = new.into_iter().filter_map(|number| {
            let asked = number.asked.clone()?;
            let is_set = number.words.starts_with("partage set ");
            (asked != number.value || is_set).then(|| change(number, asked))
        });
        return begun.collect();
    };
    // Places keep their order; a job that moved has the same numbers elsewhere.
    let pairs = numbers(before).into_iter().zip(new);
    let changed = pairs.filter(|(old, new)| old.number == new.number && old.value != new.value);
    let mut changed: Vec<_> = changed.map(|(old, new)| change(new, old.value)).collect();
    let places = before.devices.iter().zip(&record.devices);
    changed.extend(places.flat_map(|(old, new)| own_limits(old, new)));
    changed
}

/// What single processes may hold, where that is another number now.
fn own_limits(old: &Placement, new: &Placement) -> Vec<NumberChange> {
    let before = |own: &OwnLimit| old.own.iter().find(|old| old.process == own.process);
    let changed = new
        .own
        .iter()
        .filter(|own| before(own).map(|old| old.limit) != Some(own.limit));
    let change = |own: &OwnLimit| NumberChange {
        number: format!("process:{} mem", own.process.pid),
        device: Some(new.device),
        old: bytes(before(own).map_or(old.process, |old| old.limit)),
        new: bytes(own.limit),
        words: own.asked.words.clone(),
    };
    changed.map(change).collect()
}

fn numbers(record: &JobRecord) -> Vec<Number<'_>> {
    let part = |part: u32| if part == 0 { none() } else { format_part(part) };
    let cap = |cap: Option<u32>| cap.filter(|cap| *cap != WHOLE_PPM).map_or_else(none, format_part);
    let time = |limit: Option<u64>| limit.map_or_else(none, format_duration);
    let terms = &record.terms;
    let asked = record.asked_terms();
    let of_time = |number, value, asked, words| Number {
        number,
        device: None,
        value,
        asked,
        words,
    };
    let said = &terms.origin;
    let mut numbers = vec![
        of_time(
            "compute",
            part(terms.promise_ppm),
            asked.promise.map(|said| part(said.value)),
            &said.promise,
        ),
        of_time(
            "compute-max",
            cap(terms.cap_ppm),
            asked.cap.map(|said| cap(said.value)),
            &said.cap,
        ),
        of_time(
            "weight",
            terms.weight.to_string(),
            asked.weight.map(|said| said.value.to_string()),
            &said.weight,
        ),
        of_time(
            "priority",
            terms.class.to_string(),
            asked.priority.map(|said| said.value.to_string()),
            &said.class,
        ),
        of_time(
            "time-limit",
            time(terms.time_limit_ns),
            asked.time_limit.map(|said| time(said.value)),
            &said.time_limit,
        ),
    ];
    numbers.extend(record.devices.iter().flat_map(on_place));
    numbers
}

/// The numbers of one device, always as many.
fn on_place(place: &Placement) -> [Number<'_>; 3] {
    let asked = place.asked();
    let on_device = |number, value, asked, words| Number {
        number,
        device: Some(place.device),
        value,
        asked,
        words,
    };
    let origin = &place.origin;
    let request = |bytes: u64| if bytes == 0 { none() } else { format_bytes(bytes) };
    let limit = asked.limit.map(|said| bytes(said.value));
    let process = asked.process.map(|said| bytes(said.value));
    let promised = asked.request.map(|said| request(said.value));
    [
        on_device("mem", bytes(place.limit), limit, &origin.limit),
        on_device("process-mem", bytes(place.process), process, &origin.process),
        on_device("mem-request", request(place.request), promised, &origin.request),
    ]
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(none, format_bytes)
}

fn none() -> String {
    NONE.to_owned()
}
