// SPDX-License-Identifier: Apache-2.0
//! The last line of `run --summary`: what the job was given and what it used.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use partage_protocol::admin::{Admitted, Reply, Request};
use partage_protocol::summary::Summary;
use serde_json::json;

use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::{ask, silence};
use crate::show::report::Report;

/// The broker is given this long to hear that a job's clients left.
const CLIENTS_LEAVE: Duration = Duration::from_secs(1);

/// The last line of `run --summary`. What a broker that does not answer would have told is left out.
pub fn summarise(admitted: &Admitted, code: u32, place: &Place, report: &Report) {
    let target = admitted.job.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut answer = ask::ask(place, &Request::Get { target }, silence::PATIENCE);
    if report.is_json {
        answer = ended(answer, admitted, place, (code, now_ns));
    }
    let summary = match &answer {
        Ok(Reply::Job(job)) => Summary {
            exit_code: Some(code),
            ..Summary::of(job, now_ns)
        },
        _ => Summary {
            exit_code: Some(code),
            ..Summary::default()
        },
    };
    if let (true, Ok(Reply::Job(job))) = (report.is_json, &answer) {
        report.document("job", json!({ "job": job }));
    }
    report.say(&format!("{} {}", admitted.job, summary.sentence()));
}

/// The job as it is without this process, which is its first and about to leave: it ended with COMMAND, unless other
/// clients of it live on. The broker hears of COMMAND's end a moment after us.
fn ended(mut answer: Outcome<Reply>, admitted: &Admitted, place: &Place, (code, now_ns): (u32, u64)) -> Outcome<Reply> {
    let until = Instant::now() + CLIENTS_LEAVE;
    while let Ok(Reply::Job(job)) = &answer
        && !job.clients.is_empty()
        && Instant::now() < until
    {
        std::thread::sleep(CLIENTS_LEAVE / 50);
        let target = admitted.job.clone();
        answer = ask::ask(place, &Request::Get { target }, silence::PATIENCE);
    }
    if let Ok(Reply::Job(job)) = &mut answer
        && job.clients.is_empty()
    {
        job.state = "ended".to_owned();
        job.exit_code = Some(code);
        job.ended_ns.get_or_insert(now_ns);
        job.end_reason
            .get_or_insert_with(|| "its last process is gone".to_owned());
    }
    answer
}
