// SPDX-License-Identifier: Apache-2.0
//! `partage set`: other limits and terms for a job that is there.

use partage_protocol::admin::{JobDeviceView, JobView, Request, TermsChange};
use partage_protocol::size::{NONE, format_bytes, parse_amount, parse_request};
use serde_json::json;

use crate::arguments::Set;
use crate::failure::{Failure, Outcome};
use crate::launch::place::Place;
use crate::launch::run_settings::check_name;
use crate::link::ask;
use crate::show::devices::{gpu, limit};
use crate::show::report::Report;
use crate::show::time;

/// `partage set`.
pub fn set(arguments: &Set, place: &Place, report: &Report) -> Outcome<u8> {
    let request = request(&arguments.target, &arguments.settings, arguments.force)?;
    let job = ask::job(place, &request)?;
    report.data("job", json!({ "job": job }), |_| set_text(&job));
    Ok(0)
}

/// What `set TARGET KEY=VALUE ...` asks of the broker.
///
/// # Errors
/// A key or a value that cannot be read.
pub fn request(target: &str, settings: &[String], force: bool) -> Outcome<Request> {
    let (mut mem, mut mem_request, mut process_mem, mut name) = (None, None, None, None);
    let mut terms = TermsChange::default();
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| needs_a_value(setting))?;
        let place = match key {
            "mem" => &mut mem,
            "mem-request" => &mut mem_request,
            "process-mem" => &mut process_mem,
            "name" => &mut name,
            _ => time::place_of(&mut terms, key).ok_or_else(|| {
                let hint = "what can be set: mem=SIZE|PCT|none, mem-request=SIZE|PCT|none, \
                            process-mem=SIZE|PCT|none, compute=PCT|none, compute-max=PCT|none, weight=N, \
                            priority=low|normal|high|realtime, time-limit=DUR|none, name=NAME|none";
                Failure::invalid(format!("unknown setting {key:?}")).hint(hint)
            })?,
        };
        let checked = match key {
            "mem" | "process-mem" | "name" if value == NONE => Ok(()),
            "mem" | "process-mem" => parse_amount(value).map(drop).map_err(|e| e.to_string()),
            "mem-request" => parse_request(value).map(drop).map_err(|e| e.to_string()),
            "name" => check_name(value),
            _ => time::check(key, value).map_err(|e| e.to_string()),
        };
        checked.map_err(|why| Failure::invalid(format!("{key}: {why}")))?;
        *place = Some(value.to_owned());
    }
    Ok(Request::Set {
        target: target.to_owned(),
        mem,
        name,
        mem_request,
        process_mem,
        terms,
        force,
    })
}

/// What now holds, a line for each device.
pub fn set_text(job: &JobView) -> String {
    let one = |d: &JobDeviceView| {
        let over = d.limit_bytes.is_some_and(|limit| d.used_bytes > limit);
        let note = if job.state == "suspended" {
            "; it is suspended, and what it has counts again when it is back"
        } else if over {
            "; it uses more and gets no more until it frees"
        } else {
            ""
        };
        let promised = match d.request_bytes {
            bytes if bytes == d.limit_bytes.unwrap_or(0) => String::new(),
            0 => ", nothing promised".to_owned(),
            bytes => format!(", promised {}", format_bytes(bytes)),
        };
        let each = d.process_limit_bytes.map_or(String::new(), |bytes| {
            format!(", each process at most {}", format_bytes(bytes))
        });
        format!(
            "{}: limit {} on GPU {}{promised}{each}, in use {}{}{note}\n",
            job.job,
            limit(d),
            gpu(d),
            format_bytes(d.used_bytes),
            time::terms_text(&job.terms)
        )
    };
    job.devices.iter().map(one).collect()
}

/// What `set JOB mem` lacks.
fn needs_a_value(key: &str) -> Failure {
    let example = match key {
        "compute" | "compute-max" => "30%",
        "weight" => "200",
        "priority" => "low",
        "mem" | "mem-request" | "process-mem" => "8GiB",
        _ => return Failure::invalid(format!("{key:?} needs a value")).hint("e.g. mem=8GiB"),
    };
    Failure::invalid(format!("{key} needs a value, e.g. {key}={example}"))
}
