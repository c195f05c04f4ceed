// SPDX-License-Identifier: Apache-2.0
//! `partage ps`: the jobs, and the processes of no job.

use partage_protocol::admin::{JobView, UnmanagedView};
use partage_protocol::size::format_bytes;
use serde_json::json;

use crate::arguments::Ps;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::other_brokers::{self, OtherBroker};
use crate::link::{ask, commands, idle};
use crate::show::report::{Report, now_ns};
use crate::show::terminal::Style;
use crate::show::{job_table, tables, time};

/// `partage ps`.
pub fn ps(arguments: &Ps, place: &Place, report: &Report) -> Outcome<u8> {
    let (jobs, unmanaged) = match ask::jobs(place, arguments.all) {
        Ok((mut jobs, unmanaged)) => {
            commands::fill(place, &mut jobs);
            (jobs, unmanaged)
        }
        Err(failure) => {
            let idle = idle::read_machine(place, failure)?;
            (Vec::new(), idle.unmanaged)
        }
    };
    let jobs = job_table::filtered(jobs, &arguments.filter)?;
    let others = other_brokers::beside(place);
    let mut body = json!({ "jobs": jobs, "unmanaged": unmanaged });
    if !others.is_empty() {
        body["other_brokers"] = other_brokers::json(&others);
    }
    report.data("ps", body, |style| {
        let style = &Style {
            is_cut: style.is_cut && !arguments.no_trunc,
            ..*style
        };
        ps_text(style, &jobs, (&unmanaged, &others), arguments)
    });
    Ok(0)
}

fn ps_text(
    style: &Style,
    jobs: &[JobView],
    (unmanaged, others): (&[UnmanagedView], &[OtherBroker]),
    arguments: &Ps,
) -> String {
    let columns = job_table::columns(&arguments.columns, arguments.all);
    let is_asked = !arguments.columns.is_empty();
    let table = job_table::text(style, jobs, &columns, is_asked, now_ns());
    if is_asked {
        return table;
    }
    let mut text = if jobs.is_empty() { "no jobs\n".to_owned() } else { table };
    text.push_str(&time::table(style, jobs));
    let line = |said: String| tables::described(style, "", 0, &style.text(&said));
    text.extend(unmanaged.iter().map(unmanaged_text).map(line));
    // What was noted of a job that ended is `why`'s to tell: hundreds may have ended.
    for job in jobs.iter().filter(|job| job.ended_ns.is_none()) {
        text.extend(job.notes.iter().map(|note| line(format!("{}: {note}", job.job))));
    }
    text.extend(other_brokers::sentence(others).map(line));
    text
}

/// `unmanaged: pid 77 (python) of carol uses 5 GiB on GPU 1 …`.
pub fn unmanaged_text(process: &UnmanagedView) -> String {
    let user = match (&process.user, process.uid) {
        (Some(user), _) => format!(" of {user}"),
        (None, Some(uid)) => format!(" of uid {uid}"),
        (None, None) => String::new(),
    };
    let said = |before: &str, word: &Option<String>, after: &str| match word {
        Some(word) => format!("{before}{word}{after}"),
        None => String::new(),
    };
    let command = said(" (", &process.command, ")");
    let job = said(", started in ", &process.job, "");
    let time = process.busy.filter(|part| *part > 0.0).map(time::percent);
    let time = said(" and ", &time, " of its time");
    let broker = said(", managed by ", &process.other_broker, "'s broker");
    format!(
        "unmanaged: pid {}{command}{user} uses {} on GPU {}{time}{job}{broker}",
        process.pid,
        format_bytes(process.used_bytes),
        process.gpu
    )
}
