// SPDX-License-Identifier: Apache-2.0
//! The last line of `run --summary`: what the job was given and what it used.

use std::time::{Duration, Instant};

use partage_protocol::admin::{Admitted, JobView, Request};
use partage_protocol::summary::Summary;
use serde_json::json;

use crate::failure::Outcome;
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::{Report, now_ns};

/// The broker is given this long to hear that a job's clients left.
const CLIENTS_LEAVE: Duration = Duration::from_secs(1);

/// The last line of `run --summary`. What a broker that does not answer would have told is left out.
pub fn summarise(admitted: &Admitted, code: u32, place: &Place, report: &Report) {
    let now_ns = now_ns();
    let mut answer = job(admitted, place);
    if report.is_json {
        answer = ended(answer, admitted, place, (code, now_ns));
    }
    let known = answer
        .as_ref()
        .map_or_else(|_| Summary::default(), |job| Summary::of(job, now_ns));
    let summary = Summary {
        exit_code: Some(code),
        ..known
    };
    if let (true, Ok(job)) = (report.is_json, &answer) {
        report.document("job", json!({ "job": job }));
    }
    report.say(&format!("{} {}", admitted.job, summary.sentence()));
}

fn job(admitted: &Admitted, place: &Place) -> Outcome<JobView> {
    let target = admitted.job.clone();
    ask::job(place, &Request::Get { target })
}

/// The job as it is without this process, which is its first and about to leave: it ended with COMMAND, unless other
/// clients of it live on. The broker hears of COMMAND's end a moment after us.
fn ended(
    mut answer: Outcome<JobView>,
    admitted: &Admitted,
    place: &Place,
    (code, now_ns): (u32, u64),
) -> Outcome<JobView> {
    let until = Instant::now() + CLIENTS_LEAVE;
    while let Ok(known) = &answer
        && !known.clients.is_empty()
        && Instant::now() < until
    {
        std::thread::sleep(CLIENTS_LEAVE / 50);
        answer = job(admitted, place);
    }
    if let Ok(job) = &mut answer
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
