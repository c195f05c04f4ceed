// SPDX-License-Identifier: Apache-2.0
//! The options of `run`, checked: each error names the option or variable, the value, and the spelling meant.

use std::path::Path;

use clap::parser::ValueSource;
use partage_protocol::admin::RunRequest;
use partage_protocol::aliases::Variable;
use partage_protocol::labels;
use partage_protocol::size::{Amount, NONE, SizeError, parse_amount, parse_duration, parse_request};
use partage_protocol::snapshot::SavedEvery;
use partage_protocol::terms::{
    TermError, format_part, parse_cap, parse_class, parse_promise, parse_time_limit, parse_weight,
};
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::SECOND_NS;

use crate::arguments::{OnFull, Run, Tcp};
use crate::failure::{Failure, Outcome};

/// Checks the options; the command and the visible devices are added by the caller.
///
/// # Errors
/// `Invalid`, naming where the value came from.
pub fn read_settings(arguments: &Run, sources: &clap::ArgMatches) -> Outcome<RunRequest> {
    let bad = |id: &str, why: String| Failure::invalid(format!("{}: {why}", origin(sources, id)));
    let size = |id: &str, text: &Option<String>, parse: fn(&str) -> Result<Amount, SizeError>| {
        text.as_deref()
            .map(|t| parse(t).map_err(|e: SizeError| bad(id, e.to_string())))
            .transpose()
    };
    refuse_none(arguments, &bad)?;
    let limit = size("mem", &arguments.amounts.mem, parse_amount)?;
    let request = size("mem_request", &arguments.amounts.mem_request, parse_request)?;
    size("process_mem", &arguments.amounts.process_mem, parse_amount)?;
    let is_more = match (request, limit) {
        (Some(Amount::Bytes(request)), Some(Amount::Bytes(limit))) => request > limit,
        (Some(Amount::Share(request)), Some(Amount::Share(limit))) => request > limit,
        _ => false,
    };
    if let (true, Some(request), Some(limit)) = (is_more, request, limit) {
        let why = format!("{request} is more than the limit {limit}: promise at most the limit");
        return Err(bad("mem_request", why));
    }
    if let Some(gpu) = &arguments.gpu {
        check_gpu(gpu).map_err(|why| bad("gpu", why))?;
    }
    if let Some(name) = &arguments.name {
        check_name(name).map_err(|why| bad("name", why))?;
    }
    let wait_timeout_ns = arguments
        .wait_timeout
        .as_deref()
        .map(|t| parse_duration(t).map_err(|e| bad("wait_timeout", e.to_string())))
        .transpose()?;
    let idle_release_ns = read_idle_release(arguments, &bad)?;
    let saved = read_saved(arguments, &bad)?;
    let terms = read_terms(arguments, &bad)?;
    let labels = read_labels(arguments).map_err(|why| bad("label", why))?;
    Ok(RunRequest {
        mem: arguments.amounts.mem.clone(),
        mem_request: arguments.amounts.mem_request.clone(),
        mem_from: from_variable(sources, "mem"),
        mem_request_from: from_variable(sources, "mem_request"),
        process_mem: arguments.amounts.process_mem.clone(),
        compute: arguments.amounts.compute.clone(),
        compute_max: arguments.amounts.compute_max.clone(),
        weight: arguments.amounts.weight.clone(),
        priority: arguments.amounts.priority.clone(),
        time_limit_ns: terms,
        from_variables: TERMS.iter().filter_map(|id| from_variable(sources, id)).collect(),
        aliases: aliases_here(),
        class: arguments.class.clone(),
        gpu: arguments.gpu.clone(),
        name: arguments.name.clone(),
        labels,
        wait: arguments.on_full.unwrap_or_default() == OnFull::Wait,
        wait_timeout_ns,
        strict: arguments.strict,
        preemptible: arguments.preemptible,
        idle_release_ns,
        saved,
        dry_run: arguments.dry_run,
        ..RunRequest::default()
    })
}

/// `--label KEY=VALUE`, each.
fn read_labels(arguments: &Run) -> Result<Vec<(String, String)>, String> {
    let mut labels = Vec::new();
    for label in &arguments.label {
        match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => labels.push((key.to_owned(), value.to_owned())),
            _ => return Err(format!("{label:?} needs a value, e.g. --label team=vision")),
        }
    }
    labels::check(&labels)?;
    Ok(labels)
}

/// What `from_variables` can name, by its ids here.
const TERMS: [&str; 6] = [
    "process_mem",
    "compute",
    "compute_max",
    "weight",
    "priority",
    "time_limit",
];

/// `none` is what `--mem-request` and `set` take; `run` asks for nothing by leaving the option out.
fn refuse_none(arguments: &Run, bad: &dyn Fn(&str, String) -> Failure) -> Outcome<()> {
    for (id, text, nothing) in [
        ("mem", &arguments.amounts.mem, "limit"),
        ("process_mem", &arguments.amounts.process_mem, "limit of each process"),
        ("compute", &arguments.amounts.compute, "promise"),
    ] {
        if text.as_deref() == Some(NONE) {
            return Err(bad(id, format!("{NONE:?} is no amount: leave it out for no {nothing}")));
        }
    }
    Ok(())
}

/// `--idle-release` in nanoseconds.
fn read_idle_release(arguments: &Run, bad: &dyn Fn(&str, String) -> Failure) -> Outcome<Option<u64>> {
    let ns = arguments.idle_release.as_deref().map(a_second_or_more).transpose();
    ns.map_err(|why| bad("idle_release", why))
}

fn a_second_or_more(text: &str) -> Result<u64, String> {
    match parse_duration(text).map_err(|why| why.to_string())? {
        ns if ns < SECOND_NS => Err(format!("{text:?} is less than 1s")),
        ns => Ok(ns),
    }
}

/// `--checkpoint-every` and `--checkpoint-out`. The folder is made, and CRIU looked for, by
/// [`snapshot::prepare`](crate::commands::snapshot::prepare).
fn read_saved(arguments: &Run, bad: &dyn Fn(&str, String) -> Failure) -> Outcome<Option<SavedEvery>> {
    let lacks = |id, why: &str| Err(bad(id, why.to_owned()));
    match (&arguments.checkpoint_every, &arguments.checkpoint_out) {
        (None, None) => Ok(None),
        (Some(text), Some(out)) => {
            let saved = saved_every(text, out, arguments.tcp).map_err(|why| bad("checkpoint_every", why))?;
            let files_max = files_max(arguments.files_max.as_deref())?;
            Ok(Some(SavedEvery { files_max, ..saved }))
        }
        (Some(_), None) => lacks("checkpoint_every", "where to? Say --checkpoint-out DIR too"),
        (None, Some(_)) => lacks("checkpoint_out", "how often? Say --checkpoint-every DUR too"),
    }
}

/// What `--checkpoint-every` means, for a folder.
///
/// # Errors
/// A clause: it is no time, or too short.
pub fn saved_every(text: &str, out: &Path, tcp: Option<Tcp>) -> Result<SavedEvery, String> {
    Ok(SavedEvery {
        every_ns: a_second_or_more(text)?,
        out: out.to_string_lossy().into_owned(),
        outside: tcp.unwrap_or_default().into(),
        ..SavedEvery::default()
    })
}

/// What `--files-max` means, in bytes.
///
/// # Errors
/// It is no size.
pub fn files_max(text: Option<&str>) -> Outcome<Option<u64>> {
    let bad = |why: String| Failure::invalid(format!("--files-max: {why}"));
    match text.map(parse_amount).transpose() {
        Ok(None) => Ok(None),
        Ok(Some(Amount::Bytes(bytes))) => Ok(Some(bytes)),
        Ok(Some(share)) => Err(bad(format!("{share} of what? use a size, e.g. --files-max 4GiB"))),
        Err(why) => Err(bad(why.to_string())),
    }
}

/// Checks the terms of time; answers the time limit in nanoseconds.
fn read_terms(arguments: &Run, bad: &dyn Fn(&str, String) -> Failure) -> Outcome<Option<u64>> {
    fn read<T>(
        (id, text): (&str, &Option<String>),
        parse: fn(&str) -> Result<T, TermError>,
        bad: &dyn Fn(&str, String) -> Failure,
    ) -> Outcome<Option<T>> {
        let parsed = text.as_deref().map(parse).transpose();
        parsed.map_err(|why| bad(id, why.to_string()))
    }
    let promise = read(("compute", &arguments.amounts.compute), parse_promise, bad)?;
    let cap = read(("compute_max", &arguments.amounts.compute_max), parse_cap, bad)?.flatten();
    if let (Some(promise), Some(cap)) = (promise, cap)
        && promise > cap
    {
        let why = format!(
            "{} is more than the cap of {}: promise at most the cap",
            format_part(promise),
            format_part(cap)
        );
        return Err(bad("compute", why));
    }
    read(("weight", &arguments.amounts.weight), parse_weight, bad)?;
    read(("priority", &arguments.amounts.priority), parse_class, bad)?;
    read(("time_limit", &arguments.amounts.time_limit), parse_time_limit, bad)
}

/// Other tools' variables of this process about memory and time, by name. The broker reads them: it knows which ones
/// count.
pub fn aliases_here() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let mut found: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, value)| is_alias(name) && !value.is_empty())
        .collect();
    found.sort();
    found
}

fn is_alias(name: &str) -> bool {
    Variable::of(name.as_bytes()).is_some() || TimeVariable::of(name.as_bytes()).is_some()
}

/// The variable that an option's value came from, if it did.
fn from_variable(sources: &clap::ArgMatches, id: &str) -> Option<String> {
    let is_variable = sources.value_source(id) == Some(ValueSource::EnvVariable);
    is_variable.then(|| origin(sources, id))
}

/// `--mem`, or `PARTAGE_MEM` when the value came from there.
fn origin(sources: &clap::ArgMatches, id: &str) -> String {
    let option = id.replace('_', "-");
    if sources.value_source(id) == Some(ValueSource::EnvVariable) {
        format!("PARTAGE_{}", id.to_ascii_uppercase())
    } else {
        format!("--{option}")
    }
}

/// `auto`, `auto:N`, `all`, indices and UUIDs with commas.
fn check_gpu(text: &str) -> Result<(), String> {
    let is_number = |t: &str| !t.is_empty() && t.len() <= 4 && t.bytes().all(|b| b.is_ascii_digit());
    let is_uuid = |t: &str| {
        let t = t.to_ascii_uppercase();
        let rest = t.strip_prefix("GPU-").or_else(|| t.strip_prefix("MIG-"));
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
    };
    let is_count = |t: &str| is_number(t) && t.bytes().any(|b| b != b'0');
    let is_good = matches!(text, "auto" | "all")
        || text.strip_prefix("auto:").is_some_and(is_count)
        || (!text.is_empty() && text.split(',').all(|part| is_number(part) || is_uuid(part)));
    if is_good {
        return Ok(());
    }
    Err(format!(
        "unknown GPU {text:?} (use auto, auto:2, all, an index as nvidia-smi shows it such as 0 or 0,1, or GPU-UUID)"
    ))
}

/// `[A-Za-z][A-Za-z0-9._-]{0,63}`, and no job id.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_inner) || name.len() > 64 {
        return Err(format!(
            "bad name {name:?} (use a letter, then letters, digits, '.', '_' or '-'; at most 64)"
        ));
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.strip_prefix('j').is_some_and(is_number) {
        true => Err(format!("{name} would look like a job id: choose another name")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_written_in_five_ways() {
        for good in [
            "auto",
            "auto:4",
            "all",
            "0",
            "0,1",
            "GPU-1a2b",
            "MIG-0a-1b",
            "GPU-1a2b,3",
            "gpu-1A2b",
        ] {
            assert_eq!(check_gpu(good), Ok(()), "{good}");
        }
        for bad in [
            "", "auto:0", "auto:", "x", "0,", "-1", "GPU-", "GPU-xyz", "0 1", "99999",
        ] {
            assert!(check_gpu(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_words_that_no_job_id_looks_like() {
        for good in ["a", "train", "a.b_c-9", "job42", "j", "j4x"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "9a", "j42", "a b", "é", "a/b", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
