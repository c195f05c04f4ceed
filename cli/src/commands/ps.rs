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
    for process in unmanaged {
        text.push_str(&tables::described(style, "", 0, &style.text(&unmanaged_text(process))));
    }
    // What was noted of a job that ended is `why`'s to tell: hundreds may have ended.
    for (job, note) in jobs
        .iter()
        .filter(|job| job.ended_ns.is_none())
        .flat_map(|job| job.notes.iter().map(move |note| (job, note)))
    {
        text.push_str(&tables::described(
            style,
            "",
            0,
            &style.text(&format!("{}: {note}", job.job)),
        ));
    }
    if let Some(sentence) = other_brokers::sentence(others) {
        text.push_str(&tables::described(style, "", 0, &style.text(&sentence)));
    }
    text
}

fn unmanaged_text(process: &UnmanagedView) -> String {
    let user = match (&process.user, process.uid) {
        (Some(user), _) => format!(" of {user}"),
        (None, Some(uid)) => format!(" of uid {uid}"),
        (None, None) => String::new(),
    };
    let command = process
        .command
        .as_ref()
        .map_or(String::new(), |command| format!(" ({command})"));
    let job = process
        .job
        .as_ref()
        .map_or(String::new(), |job| format!(", started in {job}"));
    let time = process.busy.filter(|part| *part > 0.0).map_or(String::new(), |part| {
        format!(" and {} of its time", time::percent(part))
    });
    let broker = process
        .other_broker
        .as_ref()
        .map_or(String::new(), |owner| format!(", managed by {owner}'s broker"));
    format!(
        "unmanaged: pid {}{command}{user} uses {} on GPU {}{time}{job}{broker}",
        process.pid,
        format_bytes(process.used_bytes),
        process.gpu
    )
}
