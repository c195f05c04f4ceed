// SPDX-License-Identifier: Apache-2.0
//! `partage quota`: limits of users and groups, as rules in a file of the host's configuration.
//!
//! The file is changed whole or not at all: the new text is written beside it, read by the broker's own program
//! together with the rest of the configuration, and takes the file's place only then. Where the broker does not take
//! it, the old text is put back.

mod edit;
mod file;
mod meaning;
mod words;

use std::path::PathBuf;

use serde_json::json;

use crate::arguments::QuotaAction;
use crate::commands::user::together;
use crate::failure::{Failure, Kind, Outcome};
use crate::launch::place::Place;
use crate::link::ask;
use crate::show::report::Report;
use crate::show::tables::described;
use crate::show::terminal::Style;

use edit::{Changed, Quota, Uneditable};
use file::QuotaFile;
use words::{Key, Subject};

/// Where the values begin.
const SUBJECT_WIDTH: usize = 21;

/// `partage quota`.
pub fn quota(action: &QuotaAction, place: &Place, report: &Report) -> Outcome<u8> {
    match action {
        QuotaAction::List => list(place, report),
        QuotaAction::Set { subject, settings } => {
            let subject = read(Subject::parse(subject))?;
            let settings = settings.iter().map(|text| read(words::setting(text, &subject)));
            let settings = settings.collect::<Outcome<Vec<(Key, String)>>>()?;
            let edit = |text: &str| edit::set(text, &subject, &settings);
            change(&subject, edit, place, report)
        }
        QuotaAction::Unset { subject, keys } => {
            let subject = read(Subject::parse(subject))?;
            let keys = keys.iter().map(|text| read(Key::parse(text, &subject)));
            let keys = keys.collect::<Outcome<Vec<Key>>>()?;
            change(&subject, |text| edit::unset(text, &subject, &keys), place, report)
        }
    }
}

fn read<T>(result: Result<T, String>) -> Outcome<T> {
    result.map_err(Failure::invalid)
}

/// The configuration that the broker reads.
fn configuration(place: &Place) -> Outcome<PathBuf> {
    let reading = ask::config(place, None)?.reading.ok_or_else(|| {
        let why = "quotas are for a host with one broker for everybody, and this broker is one user's own";
        Failure::failed(why).hint("sudo partage install makes one")
    })?;
    Ok(PathBuf::from(reading.file))
}

fn list(place: &Place, report: &Report) -> Outcome<u8> {
    let file = QuotaFile::beside(&configuration(place)?);
    let text = file.text()?;
    let quotas = edit::list(&text).map_err(|why| uneditable(&file, why))?;
    let body = json!({ "file": file.path(), "quotas": quotas });
    report.data("quotas", body, |style| list_text(style, &quotas));
    Ok(0)
}

fn list_text(style: &Style, quotas: &[Quota]) -> String {
    let one = |quota: &Quota| {
        let values: Vec<String> = quota
            .values
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let subject = style.text(&format!("{:<20} ", quota.subject));
        described(style, &subject, SUBJECT_WIDTH, &style.text(&values.join(" ")))
    };
    match quotas {
        [] => "no quotas\n".to_owned(),
        quotas => quotas.iter().map(one).collect(),
    }
}

fn change(
    subject: &Subject,
    edit: impl Fn(&str) -> Result<(String, Vec<Changed>), Uneditable>,
    place: &Place,
    report: &Report,
) -> Outcome<u8> {
    if !nix::unistd::geteuid().is_root() {
        let failure = Failure::new(
            Kind::NotAllowed,
            "only root may change quotas: they are a file of the host's",
        );
        return Err(failure.hint("with sudo; partage quota list shows them"));
    }
    let configuration = configuration(place)?;
    let file = QuotaFile::beside(&configuration).locked()?;
    let old = file.text()?;
    let (new, changed) = edit(&old).map_err(|why| uneditable(&file, why))?;
    let is_new = changed.iter().any(|changed| changed.new.is_some());
    if is_new && !subject.is_known() {
        let (kind, name) = subject.matching().unwrap_or_default();
        return Err(Failure::new(
            Kind::NoTarget,
            format!("this host has no {kind} {name:?}"),
        ));
    }
    file.replace(&new)?;
    let message = ask::reload(place).or_else(|failure| {
        file.put_back(&old)?;
        // A broker that was late may have read the new text.
        Err(match ask::reload(place) {
            Ok(_) => failure,
            Err(_) => failure.hint("the file is as it was; partage status says which rules hold"),
        })
    })?;
    answer(subject, (&file, &changed, &message), place, report)
}

/// What was changed, what it means, whether it limits anything, and what the subject has now.
fn answer(
    subject: &Subject,
    (file, changed, message): (&QuotaFile, &[Changed], &str),
    place: &Place,
    report: &Report,
) -> Outcome<u8> {
    let devices = ask::status(place)?.devices;
    let jobs = meaning::jobs_of(subject, ask::jobs(place, false)?.0);
    let now = together(&jobs);
    let new = |changed: &Changed| Some((Key::parse(&changed.key, subject).ok()?, changed.new.clone()?));
    let set: Vec<(Key, String)> = changed.iter().filter_map(new).collect();
    let meanings: Vec<String> = set
        .iter()
        .map(|(key, value)| meaning::meaning(subject, key, value))
        .collect();
    let questions = set
        .iter()
        .filter_map(|(key, value)| meaning::question(key, value, &devices));
    let questions: Vec<String> = questions.collect();
    let body = json!({
        "subject": subject.to_string(), "file": file.path(), "changed": changed, "message": message,
        "meanings": meanings, "warnings": questions, "devices": now
    });
    report.data("quota", body, |style| {
        let lines = changed.iter().map(|changed| changed_text(subject, changed));
        let lines = lines.chain(meanings.iter().map(|words| format!("  {words}")));
        let lines = lines.chain([meaning::now_text(subject, &now), message.to_owned()]);
        lines.map(|line| style.text(&line) + "\n").collect()
    });
    for question in &questions {
        report.say(&format!("warning: {question}"));
    }
    Ok(0)
}

fn changed_text(subject: &Subject, changed: &Changed) -> String {
    let key = &changed.key;
    match (&changed.old, &changed.new) {
        (Some(old), Some(new)) => format!("{subject}: {key} {new} (was {old})"),
        (None, Some(new)) => format!("{subject}: {key} {new}"),
        (Some(old), None) => format!("{subject}: {key} unset (was {old})"),
        (None, None) => format!("{subject}: {key}"),
    }
}

fn uneditable(file: &QuotaFile, why: Uneditable) -> Failure {
    match why {
        Uneditable::Missing(why) => Failure::new(Kind::NoTarget, why).hint("partage quota list shows what there is"),
        Uneditable::Form(why) => {
            let why = why.trim_end();
            let failure = Failure::failed(format!("{}: {why}", file.path().display()));
            failure.hint("edit it by hand; partage config check says what is wrong")
        }
    }
}
