// SPDX-License-Identifier: Apache-2.0
//! Device time for people: a job's terms, what it got of each GPU, and what of a GPU's time is promised.

use partage_protocol::admin::{DeviceView, JobDeviceView, JobView, TermsChange, TermsView, TimeView};
use partage_protocol::size::{NONE, format_duration};
use partage_protocol::terms::{
    DEFAULT_WEIGHT, TermError, format_measured, format_part, parse_cap, parse_class, parse_promise, parse_time_limit,
    parse_weight, ppm,
};

use crate::show::devices::gpu;
use crate::show::terminal::Style;
use crate::show::{report, tables};

const USUAL_PRIORITY: &str = "normal";

/// `, promise 30 %, cap 50 %, weight 300, priority low, at most 2h`: what differs from the usual, each with a comma
/// before.
pub fn terms_text(terms: &TermsView) -> String {
    let mut text = String::new();
    let mut say = |part: String| {
        text.push_str(", ");
        text.push_str(&part);
    };
    if let Some(promise) = promise(terms) {
        say(format!("promise {promise}"));
    }
    if let Some(cap) = terms.cap {
        say(format!("cap {}{}", exact(cap), alias(&terms.cap_from)));
    }
    if terms.weight != DEFAULT_WEIGHT {
        say(format!("weight {}", terms.weight));
    }
    if terms.priority != USUAL_PRIORITY {
        say(format!("priority {}{}", terms.priority, alias(&terms.priority_from)));
    }
    if let Some(limit_ns) = terms.time_limit_ns {
        say(format!("at most {}", format_duration(limit_ns)));
    }
    text
}

/// ` (CUDA_DEVICE_SM_LIMIT=50)` where another tool's variable set it; what one wrote oneself is not repeated.
fn alias(words: &str) -> String {
    let name = words.split('=').next().unwrap_or_default();
    match partage_protocol::time_aliases::TimeVariable::of(name.as_bytes()) {
        Some(_) => format!(" ({words})"),
        None => String::new(),
    }
}

/// Where `set KEY=…` goes.
pub fn place_of<'a>(terms: &'a mut TermsChange, key: &str) -> Option<&'a mut Option<String>> {
    match key {
        "compute" => Some(&mut terms.compute),
        "compute-max" => Some(&mut terms.compute_max),
        "weight" => Some(&mut terms.weight),
        "priority" => Some(&mut terms.priority),
        "time-limit" => Some(&mut terms.time_limit),
        _ => None,
    }
}

/// Is it a value for this key of `set`?
pub fn check(key: &str, value: &str) -> Result<(), TermError> {
    match key {
        "compute" | "compute-max" | "time-limit" if value == NONE => Ok(()),
        "time-limit" => parse_time_limit(value).map(drop),
        "compute" => parse_promise(value).map(drop),
        "compute-max" => parse_cap(value).map(drop),
        "weight" => parse_weight(value).map(drop),
        _ => parse_class(value).map(drop),
    }
}

/// `, by --mem 8GiB`: what set a number; nothing where nobody did.
pub fn by(style: &Style, words: &str) -> String {
    match words {
        "" => String::new(),
        words => format!(", by {}", style.text(words)),
    }
}

/// The lines of `get` about terms; none for a job with the usual ones.
pub fn terms_lines(style: &Style, terms: &TermsView) -> Vec<(&'static str, String)> {
    if terms_text(terms).is_empty() {
        return Vec::new();
    }
    let by = |words: &str| by(style, words);
    let promise = promise(terms).unwrap_or_else(|| NONE.to_owned());
    let cap = terms.cap.map_or(NONE.to_owned(), exact);
    let mut lines = vec![
        ("promise", promise + &by(&terms.promise_from)),
        ("cap", cap + &by(&terms.cap_from)),
        ("weight", terms.weight.to_string() + &by(&terms.weight_from)),
        ("priority", style.text(&terms.priority) + &by(&terms.priority_from)),
    ];
    if let Some(limit_ns) = terms.time_limit_ns {
        let ends = terms.ends_ns.map_or(String::new(), |unix_ns| {
            format!(", until {}", report::timestamp(report::moment(unix_ns)))
        });
        lines.push(("time limit", format_duration(limit_ns) + &ends));
    }
    lines
}

/// The lines of `get` about what a job got of one GPU's time.
pub fn time_lines(style: &Style, device: &JobDeviceView) -> Vec<(&'static str, String)> {
    let Some(time) = &device.time else { return Vec::new() };
    let got = format!(
        "{} in the last second, {} in the last minute, of {} that it may have",
        measured(time.got_1s),
        measured(time.got_60s),
        measured(time.share)
    );
    let waited = format!(
        "{} in the last minute, {} in all",
        format_duration(time.waited_60s_ns),
        format_duration(time.waited_ns)
    );
    let unit = match time.unit_ns {
        0 => String::new(),
        ns => format!(", longest piece of work {}", short(ns)),
    };
    let used = format_duration(time.used_ns);
    let used = format!("{used} of this GPU's time, while it was measured");
    let turn = format!("{}, {}{unit}", style.text(&state(time)), style.text(&time.regime));
    vec![
        ("  time", got),
        ("  used", used),
        ("  waited", waited),
        ("  turn", turn),
    ]
}

/// The second table of `ps`: the jobs at work on a GPU whose time is measured.
pub fn table(style: &Style, jobs: &[JobView]) -> String {
    let mut rows = Vec::new();
    for job in jobs.iter().filter(|job| job.ended_ns.is_none()) {
        let at_work = job.devices.iter().filter_map(|device| {
            let time = device.time.as_ref().filter(|time| time.is_at_work());
            time.map(|time| (device, time))
        });
        for (place, (device, time)) in at_work.enumerate() {
            rows.push(vec![
                if place == 0 { job.job.clone() } else { String::new() },
                match (&job.name, place) {
                    (Some(name), 0) => style.text(name),
                    (None, 0) => "-".to_owned(),
                    _ => String::new(),
                },
                gpu(device),
                style.text(&job.terms.priority),
                promise(&job.terms).unwrap_or_else(|| "-".to_owned()),
                job.terms.cap.map_or("-".to_owned(), exact),
                measured(time.share),
                measured(time.got_1s),
                measured(time.got_60s),
                format_duration(time.waited_60s_ns),
                state(time),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let column = tables::Column::new;
    let columns = [
        column("JOB"),
        column("NAME").cut_in_the_middle(8).leaves(1),
        column("GPU"),
        column("PRIORITY").leaves(3),
        column("PROMISE").leaves_when_blank(),
        column("CAP").leaves_when_blank(),
        column("SHARE"),
        column("GOT 1s"),
        column("60s").leaves(2),
        column("WAITED"),
        column("STATE"),
    ];
    String::from("\n") + &tables::table(style, &columns, &rows)
}

/// `time on GPU 3: 30 % promised, overlap, 12 % used without Partage`; nothing where there is nothing to say.
pub fn device_line(device: &DeviceView) -> String {
    let promised = (device.promised_time > 0.0).then(|| format!("{} promised", percent(device.promised_time)));
    let unmanaged = device.unmanaged_time.filter(|part| *part > 0.0);
    let unmanaged = unmanaged.map(|part| format!("{} used without Partage", percent(part)));
    let parts: Vec<String> = promised
        .into_iter()
        .chain(device.regime.clone())
        .chain(unmanaged)
        .collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("time on GPU {}: {}\n", device.index, parts.join(", ")),
    }
}

/// `waiting j41`, `capped`, `open`.
fn state(time: &TimeView) -> String {
    match (time.state.as_str(), &time.held_by) {
        ("waiting", Some(by)) => format!("waiting {by}"),
        (word, _) => word.to_owned(),
    }
}

fn promise(terms: &TermsView) -> Option<String> {
    (terms.promise > 0.0).then(|| exact(terms.promise))
}

fn exact(ratio: f64) -> String {
    format_part(ppm(ratio))
}

fn measured(ratio: f64) -> String {
    format_measured(ppm(ratio))
}

/// A part, or a sum of promises, which may be more than the whole.
pub fn percent(ratio: f64) -> String {
    if ratio <= 1.0 {
        exact(ratio)
    } else {
        format!("{:.0} %", ratio * 100.0)
    }
}

/// A piece of work: `20us`, `5.2ms`, `1.5s`.
fn short(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{}ms", ns / 1_000_000, ns % 1_000_000 / 100_000),
        _ => format_duration(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_the_usual_is_said() {
        let mut terms = TermsView::default();
        assert_eq!(terms_text(&terms), "");
        terms.promise = 0.3;
        assert_eq!(terms_text(&terms), ", promise 30 %");
        terms.cap = Some(0.125);
        terms.weight = 300;
        terms.priority = "low".to_owned();
        terms.time_limit_ns = Some(5_400_000_000_000);
        terms.priority_from = "--priority low".to_owned();
        terms.cap_from = "CUDA_DEVICE_SM_LIMIT=50".to_owned();
        assert_eq!(
            terms_text(&terms),
            ", promise 30 %, cap 12.5 % (CUDA_DEVICE_SM_LIMIT=50), weight 300, priority low, at most 1h30m"
        );
    }

    #[test]
    fn every_setting_has_its_place_and_its_check() {
        let mut change = TermsChange::default();
        for (key, good, bad) in [
            ("compute", "30%", "30"),
            ("compute", "none", "0%"),
            ("compute-max", "none", "no"),
            ("weight", "300", "none"),
            ("priority", "low", "none"),
        ] {
            *place_of(&mut change, key).expect("a place") = Some(good.to_owned());
            assert!(
                check(key, good).is_ok() && check(key, bad).is_err(),
                "{key}={good} and not {bad}"
            );
        }
        assert!(place_of(&mut change, "mem").is_none() && place_of(&mut change, "time").is_none());
        assert!(change.compute.is_some() && change.compute_max.is_some());
        assert!(change.weight.is_some() && change.priority.is_some());
    }

    #[test]
    fn short_times_keep_their_unit() {
        assert_eq!(
            [short(20_000), short(5_200_000), short(1_500_000_000)],
            ["20us", "5.2ms", "1.5s"]
        );
    }
}
