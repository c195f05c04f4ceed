// SPDX-License-Identifier: Apache-2.0
//! Classes and rules of the files, checked, as the policy knows them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use partage_policy::{GpuName, Match, Max, Pattern, Per, Preset, Rule, Rules, Total, WithoutBroker, Written};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::size::{Amount, SizeError, parse_amount, parse_request, parse_share};
use partage_protocol::terms::{MAX_WEIGHT, TermError, parse_class, parse_promise, parse_time_limit, parse_weight};
use toml::Spanned;

use super::error::ConfigError;
use super::nearest::suggestion;
use super::rule_tables::{ClassTable, GpuWord, Many, MatchTable, MaxTable, RuleTable, TotalTable};
use super::source::{Source, one_of};

/// Where names stand that can only be judged once every file is read.
#[derive(Default)]
pub(super) struct Names {
    files: usize,
    /// File, place, key and class of each mention.
    classes: Vec<(usize, Range<usize>, &'static str, String)>,
    /// Rules' names with their first place.
    rules: BTreeMap<String, String>,
}

impl Names {
    /// The number of the file that is read now.
    pub(super) fn next_file(&mut self) -> usize {
        self.files += 1;
        self.files - 1
    }

    /// Is every class that a rule names there?
    pub(super) fn check(&self, texts: &[(PathBuf, String)], rules: &Rules) -> Result<(), ConfigError> {
        for (file, span, key, name) in &self.classes {
            let Some((path, text)) = texts.get(*file) else { continue };
            if !rules.presets.contains_key(name) {
                let known = rules.presets.keys().map(String::as_str);
                let why = match rules.presets.is_empty() {
                    true => format!("there is no class {name:?}: write a table [class.{name}]"),
                    false => format!("there is no class {name:?}{}", suggestion(name, known)),
                };
                return Err(Source { path, text }.wrong(span.clone(), key, why));
            }
        }
        Ok(())
    }
}

/// Merges presets into the rules: later files' keys replace earlier ones'.
pub(super) fn merge_presets(
    rules: &mut Rules,
    tables: BTreeMap<Spanned<String>, ClassTable>,
    source: Source<'_>,
) -> Result<(), ConfigError> {
    for (name, table) in tables {
        let (span, name) = (name.span(), name.into_inner());
        check_name(source, &span, "class", &name)?;
        let preset = rules.presets.entry(name.clone()).or_insert_with(|| Preset {
            name,
            at: source.at(&span),
            ..Preset::default()
        });
        merge_preset(preset, table, source)?;
    }
    Ok(())
}

fn merge_preset(preset: &mut Preset, table: ClassTable, source: Source<'_>) -> Result<(), ConfigError> {
    let key = |key: &str| format!("class.{}.{key}", preset.name);
    let new = Preset {
        mem: number(source, &key("mem"), table.mem.as_ref(), parse_amount)?,
        mem_request: number(source, &key("mem_request"), table.mem_request.as_ref(), parse_request)?,
        process_mem: number(source, &key("process_mem"), table.process_mem.as_ref(), parse_amount)?,
        compute_promise: number(source, &key("compute"), table.compute.as_ref(), parse_promise)?,
        compute_max: number(source, &key("compute_max"), table.compute_max.as_ref(), part)?,
        weight: weight(source, &key("weight"), table.weight.as_ref())?,
        priority: number(source, &key("priority"), table.priority.as_ref(), parse_class)?,
        time_limit: number(source, &key("time_limit"), table.time_limit.as_ref(), parse_time_limit)?,
        ..Preset::default()
    };
    let keys = (key("mem_request"), key("compute"));
    preset.mem = new.mem.or(preset.mem.take());
    preset.mem_request = new.mem_request.or(preset.mem_request.take());
    preset.process_mem = new.process_mem.or(preset.process_mem.take());
    preset.compute_promise = new.compute_promise.or(preset.compute_promise.take());
    preset.compute_max = new.compute_max.or(preset.compute_max.take());
    preset.weight = new.weight.or(preset.weight.take());
    preset.priority = new.priority.or(preset.priority.take());
    preset.time_limit = new.time_limit.or(preset.time_limit.take());
    check_preset(preset, (&table, keys), source)
}

/// A preset must make sense by itself: its promises are within its limits.
fn check_preset(
    preset: &Preset,
    (table, keys): (&ClassTable, (String, String)),
    source: Source<'_>,
) -> Result<(), ConfigError> {
    let place = |here: &Option<Spanned<String>>, other: &Option<Spanned<String>>| {
        here.as_ref().or(other.as_ref()).map_or(0..0, Spanned::span)
    };
    if let (Some(request), Some(limit)) = (&preset.mem_request, &preset.mem) {
        let is_more = match (request.value, limit.value) {
            (Amount::Bytes(request), Amount::Bytes(limit)) => request > limit,
            (Amount::Share(request), Amount::Share(limit)) => request > limit,
            _ => false,
        };
        if is_more {
            let why = format!(
                "{} is more than mem = {}: promise at most the limit",
                request.text, limit.text
            );
            return Err(source.wrong(place(&table.mem_request, &table.mem), &keys.0, why));
        }
    }
    if let (Some(promise), Some(cap)) = (&preset.compute_promise, &preset.compute_max)
        && promise.value > cap.value
    {
        let why = format!(
            "{} is more than compute_max = {}: promise at most the cap",
            promise.text, cap.text
        );
        return Err(source.wrong(place(&table.compute, &table.compute_max), &keys.1, why));
    }
    Ok(())
}

/// Reads one rule.
pub(super) fn read_rule(
    table: Spanned<RuleTable>,
    source: Source<'_>,
    (file, names): (usize, &mut Names),
) -> Result<Rule, ConfigError> {
    let span = table.span();
    let table = table.into_inner();
    let Some(name) = &table.name else {
        return Err(source.wrong(span, "rule", "has no name; write one, such as name = \"students\""));
    };
    check_name(source, &name.span(), "rule.name", name.get_ref())?;
    let at = source.at(&name.span());
    if let Some(first) = names.rules.insert(name.get_ref().clone(), at.to_string()) {
        let why = format!(
            "{:?} is another rule's name already ({first}); each needs its own",
            name.get_ref()
        );
        return Err(source.wrong(name.span(), "rule.name", why));
    }
    let per = read_per(table.per.as_ref(), table.class.is_some(), source)?;
    if let Some(class) = &table.class {
        names
            .classes
            .push((file, class.span(), "rule.class", class.get_ref().clone()));
    }
    let presets = match table.classes {
        None => None,
        Some(list) => {
            let (span, list) = filled(source, "rule.classes", list)?;
            let mentions = list
                .iter()
                .map(|name| (file, span.clone(), "rule.classes", name.clone()));
            names.classes.extend(mentions);
            Some(source.written(&span, list))
        }
    };
    let without_broker = match &table.without_broker {
        None => None,
        Some(word) => Some(read_without_broker(word, &table.matching, source)?),
    };
    Ok(Rule {
        name: name.get_ref().clone(),
        at,
        matching: read_match(table.matching, source)?,
        preset: table.class.map(Spanned::into_inner),
        per,
        presets,
        gpu: table.gpu.map(|list| gpus(source, list)).transpose()?,
        max: read_max(&table.max, source)?,
        each_user: read_total(("rule.each_user", &table.each_user), source)?,
        together: read_total(("rule.together", &table.together), source)?,
        is_strict: table.strict.unwrap_or(false),
        without_broker,
    })
}

/// Whom a rule's class is for, of programs without `run`.
fn read_per(per: Option<&Spanned<String>>, has_class: bool, source: Source<'_>) -> Result<Per, ConfigError> {
    let Some(per) = per else { return Ok(Per::default()) };
    let found = one_of(source, "rule.per", per, (&Per::ALL, Per::word))?;
    if !has_class {
        let why = "says whom the class of this rule is for, and it has none; write class, too";
        return Err(source.wrong(per.span(), "rule.per", why));
    }
    Ok(found)
}

/// Nobody but the process itself can tell whom a rule is about while the broker is away: it knows its numbers alone.
fn read_without_broker(
    word: &Spanned<String>,
    matching: &MatchTable,
    source: Source<'_>,
) -> Result<WithoutBroker, ConfigError> {
    const KEY: &str = "rule.without_broker";
    let wrong = |why: &str| Err(source.wrong(word.span(), KEY, why));
    let has_pattern = [&matching.user, &matching.group]
        .into_iter()
        .flatten()
        .any(|list| list.get_ref().0.iter().any(|name| name.contains(['*', '?'])));
    let others = [
        &matching.cgroup,
        &matching.program,
        &matching.container,
        &matching.label,
    ];
    if others.into_iter().any(Option::is_some) || (matching.user.is_some() && matching.group.is_some()) {
        return wrong("goes with a match by user or by group alone, or without a match");
    }
    if has_pattern {
        return wrong("goes with whole names or numbers, without * and ?");
    }
    one_of(source, KEY, word, (&WithoutBroker::ALL, WithoutBroker::word))
}

fn read_match(table: MatchTable, source: Source<'_>) -> Result<Match, ConfigError> {
    let span = table.label.as_ref().map(Spanned::span);
    let patterns = |key: &str, list: Option<Spanned<Many<String>>>| match list {
        None => Ok(None),
        Some(list) => {
            let (span, list) = filled(source, key, list)?;
            if list.iter().any(String::is_empty) {
                return Err(source.wrong(
                    span,
                    key,
                    "an empty text matches nothing; leave the key out for everybody",
                ));
            }
            Ok(Some(list.into_iter().map(Pattern).collect()))
        }
    };
    Ok(Match {
        user: patterns("rule.match.user", table.user)?,
        group: patterns("rule.match.group", table.group)?,
        cgroup: patterns("rule.match.cgroup", table.cgroup)?,
        program: patterns("rule.match.program", table.program)?,
        container: patterns("rule.match.container", table.container)?,
        label: labels(source, patterns("rule.match.label", table.label)?, span)?,
    })
}

fn read_max(table: &MaxTable, source: Source<'_>) -> Result<Max, ConfigError> {
    let gpus = count(source, "rule.max.gpus", table.gpus.as_ref(), MAX_DEVICES)?;
    Ok(Max {
        mem: number(source, "rule.max.mem", table.mem.as_ref(), none_or_amount)?,
        process_mem: number(source, "rule.max.process_mem", table.process_mem.as_ref(), parse_amount)?,
        compute_promise: number(source, "rule.max.compute", table.compute.as_ref(), none_or_promise)?,
        compute_max: number(source, "rule.max.compute_max", table.compute_max.as_ref(), part)?,
        weight: weight(source, "rule.max.weight", table.weight.as_ref())?,
        priority: number(source, "rule.max.priority", table.priority.as_ref(), parse_class)?,
        gpus,
        time_limit: number(
            source,
            "rule.max.time_limit",
            table.time_limit.as_ref(),
            parse_time_limit,
        )?,
    })
}

fn read_total((name, table): (&str, &TotalTable), source: Source<'_>) -> Result<Total, ConfigError> {
    /// Whoever has more jobs than that has no total.
    const MOST_JOBS: usize = 100_000;
    let key = |key: &str| format!("{name}.{key}");
    Ok(Total {
        mem: number(source, &key("mem"), table.mem.as_ref(), none_or_amount)?,
        compute_promise: number(source, &key("compute"), table.compute.as_ref(), none_or_promise)?,
        // All GPUs of a host, which may be more than a job can have.
        gpus: count(source, &key("gpus"), table.gpus.as_ref(), MOST_JOBS)?,
        jobs: count(source, &key("jobs"), table.jobs.as_ref(), MOST_JOBS)?,
    })
}

fn count(
    source: Source<'_>,
    key: &str,
    number: Option<&Spanned<i64>>,
    most: usize,
) -> Result<Option<Written<usize>>, ConfigError> {
    let Some(number) = number else { return Ok(None) };
    match usize::try_from(*number.get_ref()) {
        Ok(value) if (0..=most).contains(&value) => Ok(Some(source.written(&number.span(), value))),
        _ => {
            let why = format!("{} is not from 0 (none at all) to {most}", number.get_ref());
            Err(source.wrong(number.span(), key, why))
        }
    }
}

/// A cap: the whole caps nothing.
fn part(text: &str) -> Result<u32, TermError> {
    Ok(parse_share(text)?.millionths())
}

/// The most that jobs may have: `0` bars them.
fn none_or_amount(text: &str) -> Result<Amount, SizeError> {
    match text {
        "0" => Ok(Amount::Bytes(0)),
        text => parse_amount(text),
    }
}

/// The most that may be promised: `0%` for nothing.
fn none_or_promise(text: &str) -> Result<u32, TermError> {
    match text {
        "0%" => Ok(0),
        text => parse_promise(text),
    }
}

fn number<T, E: std::fmt::Display>(
    source: Source<'_>,
    key: &str,
    text: Option<&Spanned<String>>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<Written<T>>, ConfigError> {
    let read = |text: &Spanned<String>| Ok(source.written(&text.span(), source.read(key, text, parse)?));
    text.map(read).transpose()
}

fn weight(source: Source<'_>, key: &str, number: Option<&Spanned<i64>>) -> Result<Option<Written<u32>>, ConfigError> {
    let Some(number) = number else { return Ok(None) };
    match parse_weight(&number.get_ref().to_string()) {
        Ok(weight) => Ok(Some(source.written(&number.span(), weight))),
        Err(_) => {
            let why = format!("{} is not from 1 to {MAX_WEIGHT}", number.get_ref());
            Err(source.wrong(number.span(), key, why))
        }
    }
}

fn gpus(source: Source<'_>, list: Spanned<Many<GpuWord>>) -> Result<Written<Vec<GpuName>>, ConfigError> {
    let (span, list) = filled(source, "rule.gpu", list)?;
    let name = |word: &GpuWord| {
        GpuName::parse(&word.0).ok_or_else(|| {
            let why = format!("{:?} is neither an index nor a UUID (`GPU-…`, `MIG-…`)", word.0);
            source.wrong(span.clone(), "rule.gpu", why)
        })
    };
    let names = list.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    Ok(source.written(&span, names))
}

/// A list that has something in it.
fn filled<T>(source: Source<'_>, key: &str, list: Spanned<Many<T>>) -> Result<(Range<usize>, Vec<T>), ConfigError> {
    let span = list.span();
    match list.into_inner().0 {
        list if list.is_empty() => {
            Err(source.wrong(span, key, "an empty list fits nothing; leave it out, or name something"))
        }
        list => Ok((span, list)),
    }
}

/// Patterns of labels, each of which names a key.
fn labels(
    source: Source<'_>,
    patterns: Option<Vec<Pattern>>,
    span: Option<Range<usize>>,
) -> Result<Option<Vec<Pattern>>, ConfigError> {
    let has_no_key = |pattern: &Pattern| pattern.0.starts_with('=');
    if let Some(pattern) = patterns.iter().flatten().find(|pattern| has_no_key(pattern)) {
        let why = format!("{:?} names no key; write key=value, or a key alone", pattern.0);
        return Err(source.wrong(span.unwrap_or_default(), "rule.match.label", why));
    }
    Ok(patterns)
}

/// Names are words that need no quoting.
fn check_name(source: Source<'_>, span: &Range<usize>, key: &str, name: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.chars().all(is_plain) && name.len() <= 64 {
        return Ok(());
    }
    let why = format!("bad name {name:?}; use letters, digits, '.', '_' or '-', at most 64");
    Err(source.wrong(span.clone(), key, why))
}
