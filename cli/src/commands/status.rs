// SPDX-License-Identifier: Apache-2.0
//! `partage status`: the devices, what is promised on them, who waits, and the broker.

use partage_protocol::admin::{BrokerView, DeviceView, QueuedView, StatusView};
use partage_protocol::size::format_duration;
use serde_json::json;

use crate::commands::config::reading_text;
use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::other_brokers::{self, OtherBroker};
use crate::link::{ask, idle};
use crate::show::job_table::in_one_unit;
use crate::show::report::Report;
use crate::show::tables::{Column, REASON_WIDTH, asks, count, table, wrapped};
use crate::show::terminal::{Style, model};
use crate::show::time;

/// `partage status`.
pub fn status(place: &Place, report: &Report) -> Outcome<u8> {
    let others = other_brokers::beside(place);
    let with_others = |mut body: serde_json::Value| {
        if !others.is_empty() {
            body["other_brokers"] = other_brokers::json(&others);
        }
        body
    };
    let failure = match ask::status(place) {
        Ok(status) => {
            let body = json!({ "broker": status.broker, "devices": status.devices, "queue": status.queue });
            report.data("status", with_others(body), |style| {
                text(style, &status) + &others_text(style, &others)
            });
            return Ok(0);
        }
        Err(failure) => failure,
    };
    let idle = idle::read_machine(place, failure)?;
    let body = json!({ "devices": idle.devices, "queue": [] });
    report.data("status", with_others(body), |style| {
        let driver = idle
            .trouble
            .as_deref()
            .map_or(String::new(), |why| wrapped(&style.text(why), style.width, 0));
        format!(
            "{}{driver}\n{}\n{}",
            devices_text(style, &idle.devices),
            style.text(&idle.broker),
            others_text(style, &others)
        )
    });
    Ok(0)
}

fn others_text(style: &Style, others: &[OtherBroker]) -> String {
    let sentence = other_brokers::sentence(others);
    sentence.map_or(String::new(), |text| wrapped(&style.text(&text), style.width, 0))
}

fn text(style: &Style, status: &StatusView) -> String {
    let mut text = devices_text(style, &status.devices);
    if !status.queue.is_empty() {
        text.push('\n');
        text.push_str(&queue(style, &status.queue));
    }
    text.push('\n');
    text.push_str(&broker_text(style, &status.broker));
    text
}

/// The table of devices, and what is to be said of each.
fn devices_text(style: &Style, views: &[DeviceView]) -> String {
    let mut text = devices(style, views);
    for device in views {
        text.push_str(&time::device_line(device));
        let unified = device.unified.map(|unified| unified.sentence(device.index));
        for note in unified.iter().chain(&device.notes).chain(&device.unmanaged_notes) {
            text.push_str(&wrapped(&style.text(note), style.width, 0));
        }
        let denied = &device.denied;
        let parts = [
            (denied.limit, "by limits"),
            (denied.card_full, "card full"),
            (denied.no_broker, "without broker"),
            (denied.overhead, "for overhead"),
        ];
        let said: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        if denied.failed() > 0 {
            let recovered = denied.recovered_text();
            text.push_str(&format!(
                "denied on GPU {}: {}{recovered}\n",
                device.index,
                said.join(", ")
            ));
        }
    }
    text
}

fn devices(style: &Style, devices: &[DeviceView]) -> String {
    if devices.is_empty() {
        return "no GPUs\n".to_owned();
    }
    let column = |value: fn(&DeviceView) -> u64| in_one_unit(&devices.iter().map(value).collect::<Vec<_>>());
    let usable = column(|device| device.usable_bytes);
    let committed = column(|device| device.committed_bytes);
    let used = column(|device| device.used_bytes);
    let unmanaged = column(|device| device.unmanaged_bytes);
    let rows: Vec<Vec<String>> = devices
        .iter()
        .enumerate()
        .map(|(row, device)| {
            vec![
                device.index.to_string(),
                style.text(model(&device.model)),
                style.state(&device.state),
                usable[row].clone(),
                committed[row].clone(),
                used[row].clone(),
                device.utilization.map_or("-".to_owned(), time::percent),
                unmanaged[row].clone(),
                device.jobs.join(" "),
            ]
        })
        .collect();
    let column = Column::new;
    let columns = [
        column("GPU"),
        column("MODEL").cut(8).leaves(1),
        column("STATE"),
        column("USABLE"),
        column("COMMITTED"),
        column("USED"),
        column("UTIL").leaves(3),
        column("UNMANAGED").leaves(2),
        column("JOBS").wrapped(20),
    ];
    table(style, &columns, &rows)
}

fn queue(style: &Style, queue: &[QueuedView]) -> String {
    let rows: Vec<Vec<String>> = queue
        .iter()
        .map(|job| {
            vec![
                job.job.clone(),
                style.text(&job.user),
                asks(job.mem.as_deref(), job.compute.as_deref()),
                format_duration(job.waited_ns),
                style.text(&job.reason),
            ]
        })
        .collect();
    let waits = match queue.len() {
        1 => "1 job waits".to_owned(),
        many => format!("{many} jobs wait"),
    };
    let length = format!("{waits}; partage queue has a guess of how long still");
    let column = Column::new;
    let columns = [
        column("QUEUED"),
        column("USER").cut_in_the_middle(12),
        column("ASKS"),
        column("WAITED"),
        column("FOR").wrapped(REASON_WIDTH),
    ];
    table(style, &columns, &rows) + &wrapped(&length, style.width, 0)
}

/// The broker in a few lines.
pub fn broker_text(style: &Style, broker: &BrokerView) -> String {
    let mut text = format!(
        "broker {} ({}), {}, {}, up {}\nat {}, version {}\n",
        broker.pid,
        style.text(&broker.kind),
        count(broker.jobs as usize, "job"),
        count(broker.clients as usize, "client"),
        format_duration(broker.uptime_ns),
        style.text(&broker.socket_dir),
        style.text(&broker.version),
    );
    // Every state but `ok` is a sentence that names the driver itself.
    match broker.driver.as_str() {
        "ok" => text.push_str(&format!("driver {}\n", style.state("ok"))),
        other => text.push_str(&wrapped(&style.text(other), style.width, 0)),
    }
    if broker.kind == "private" {
        text.push_str("a private broker: promises hold among your own jobs only\n");
    } else if broker.is_admin {
        text.push_str("you are an administrator here: every job may be seen, changed and stopped\n");
    }
    if let Some(reading) = &broker.config {
        text.push_str(&reading_text(style, reading));
    }
    for note in broker.notes.iter().chain(&broker.errors) {
        text.push_str(&wrapped(&style.text(note), style.width, 0));
    }
    text
}
