// SPDX-License-Identifier: Apache-2.0
//! `partage events --audit`: who changed whose numbers, from the broker's audit log.
//!
//! The files are read and the broker is not asked: the log is there when no broker is, and only whoever may read the
//! files sees it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::Place;
use crate::show::report::{Report, moment, timestamp};
use crate::show::tables::described;
use crate::show::terminal::Style;

/// Older files that the broker keeps beside the newest.
const OLDER: u32 = 3;

/// Shows the changes since `from_ns` of Unix time, the oldest first.
pub fn audit(place: &Place, from_ns: u64, report: &Report) -> Outcome<u8> {
    // What administrators changed, and what users did of their own; each in the order of time.
    let mut logs =
        ["state/audit.jsonl", "state/audit-users.jsonl"].map(|name| changes(place.dir.join(name)).peekable());
    let mut count = 0;
    loop {
        let mut earliest: Option<(u64, usize)> = None;
        for (number, log) in logs.iter_mut().enumerate() {
            let time = match log.peek() {
                Some(Ok(line)) => time_ns(line),
                // It is the next one, so that it is told.
                Some(Err(_)) => 0,
                None => continue,
            };
            earliest = earliest.into_iter().chain([(time, number)]).min();
        }
        let Some(line) = earliest.and_then(|(_, number)| logs[number].next()).transpose()? else {
            break;
        };
        if time_ns(&line) < from_ns {
            continue;
        }
        count += 1;
        let time = moment(time_ns(&line));
        report.data_at(time, "audit", json!({ "change": line }), |style| written(style, &line));
    }
    if count == 0 {
        report.say("no changes");
    }
    Ok(0)
}

/// The documents of a log, of its oldest file first; one file is held at a time.
fn changes(newest: PathBuf) -> impl Iterator<Item = Outcome<Value>> {
    let older = (1..=OLDER).rev().map(Some).chain([None]);
    older.flat_map(move |number| {
        let path = number.map_or_else(
            || newest.clone(),
            |number| PathBuf::from(format!("{}.{number}", newest.display())),
        );
        let (lines, failure) = match lines(&path) {
            Ok(lines) => (lines, None),
            Err(failure) => (Vec::new(), Some(Err(failure))),
        };
        lines.into_iter().map(Ok).chain(failure)
    })
}

/// The documents of a file; none where it is not there. Half a line, of a broker that was killed, is left out.
fn lines(path: &Path) -> Outcome<Vec<Value>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) if why.kind() == ErrorKind::PermissionDenied => {
            let failure = Failure::new(Kind::NotAllowed, "only root may see who changed whose numbers");
            Err(failure.hint("sudo partage events --audit"))
        }
        Err(why) => Err(Failure::failed(format!("{}: {why}", path.display()))),
    }
}

fn time_ns(line: &Value) -> u64 {
    line["time_ns"].as_u64().unwrap_or(0)
}

fn written(style: &Style, line: &Value) -> String {
    let time = timestamp(moment(time_ns(line)));
    described(style, &format!("{time} "), time.len() + 1, &style.text(&sentence(line)))
}

/// What was changed, by whom, and by what right.
fn sentence(line: &Value) -> String {
    let word = |key: &str| line[key].as_str().unwrap_or_default();
    let by = match (line["by"]["uid"].as_u64(), line["by"]["pid"].as_u64()) {
        (Some(uid), Some(pid)) => format!("uid {uid} (pid {pid})"),
        _ => "the broker".to_owned(),
    };
    let what = match (word("job"), line["old"].as_str(), line["new"].as_str()) {
        ("", None, Some(count)) if word("what") == "left-out" => {
            format!("{count} changes by {} are left out", word("user"))
        }
        ("", Some(old), _) => format!("without {old}"),
        ("", None, new) => format!("with {}", new.unwrap_or_default()),
        (job, old, new) => {
            let device = match word("device") {
                "" => String::new(),
                device => format!(" on {device}"),
            };
            let (old, new) = (old.unwrap_or("none"), new.unwrap_or("none"));
            format!("{job} ({}): {} {old} -> {new}{device}", word("user"), word("number"))
        }
    };
    let from = match word("from") {
        "" => String::new(),
        from => format!("; {from}"),
    };
    format!("{:<12} {by}: {what}{from}", word("what"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_what_old_new_and_why() {
        let line = json!({ "time_ns": 0, "what": "set", "by": { "uid": 0, "pid": 42 }, "job": "j3", "user": "alice",
            "device": "GPU-1", "number": "mem", "old": "8.0 GiB", "new": "2.0 GiB",
            "from": "partage set mem=2GiB by root" });
        let text = sentence(&line);
        let wanted =
            "set          uid 0 (pid 42): j3 (alice): mem 8.0 GiB -> 2.0 GiB on GPU-1; partage set mem=2GiB by root";
        assert!(text.ends_with(wanted), "{text}");
        let left_out = json!({ "time_ns": 0, "what": "left-out", "by": null, "user": "alice", "number": "changes",
            "old": null, "new": "4096", "from": "more than 1 MiB a day" });
        let wanted = "left-out     the broker: 4096 changes by alice are left out; more than 1 MiB a day";
        assert!(sentence(&left_out).ends_with(wanted), "{}", sentence(&left_out));
        let rule = json!({ "time_ns": 0, "what": "reload", "by": null, "number": "rule", "old": null,
            "new": "rule a", "from": "" });
        assert!(
            sentence(&rule).ends_with("reload       the broker: with rule a"),
            "{}",
            sentence(&rule)
        );
    }
}
