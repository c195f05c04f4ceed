// SPDX-License-Identifier: Apache-2.0
//! The text of `90-quota.toml`: a rule for each subject, edited so that comments and everything else stay.

use serde::Serialize;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value};

use super::words::{Key, Subject, TABLES};

/// What the file begins with.
const HEAD: &str =
    "# Quotas, written by `partage quota`. Comments and other rules in this file are kept.\nschema = 1\n";

/// A key that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The key, as it is written on the command line.
    pub key: String,
    /// What it was; null where it was not there.
    pub old: Option<String>,
    /// What it is; null where it is gone.
    pub new: Option<String>,
}

/// A quota of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quota {
    /// Whom it is for.
    pub subject: String,
    /// Its rule.
    pub rule: String,
    /// Keys and values, as they are written on the command line.
    pub values: Vec<(String, String)>,
}

/// Why a file cannot be edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uneditable {
    /// It is no TOML, or written in another form than a table for each rule.
    Form(String),
    /// There is no such quota, or it has no such key.
    Missing(String),
}

/// These keys have these values from now on.
///
/// # Errors
/// [`Uneditable`] when the text is no configuration.
pub fn set(text: &str, subject: &Subject, settings: &[(Key, String)]) -> Result<(String, Vec<Changed>), Uneditable> {
    let mut document = read(text)?;
    let rules = rules(&mut document)?;
    let place = match place_of(rules, subject) {
        Some(place) => place,
        None => {
            rules.push(new_rule(subject));
            rules.len() - 1
        }
    };
    let mut changed = Vec::new();
    if let Some(rule) = rules.get_mut(place) {
        for (key, text) in settings {
            let old = put(rule, key, text);
            changed.push(Changed {
                key: key.to_string(),
                old,
                new: Some(text.clone()),
            });
        }
    }
    Ok((document.to_string(), changed))
}

/// These keys are gone from now on; without keys, the whole quota.
///
/// # Errors
/// [`Uneditable`] when one is not there.
pub fn unset(text: &str, subject: &Subject, keys: &[Key]) -> Result<(String, Vec<Changed>), Uneditable> {
    let mut document = read(text)?;
    let rules = rules(&mut document)?;
    let place = place_of(rules, subject).ok_or_else(|| Uneditable::Missing(format!("{subject} has no quota")))?;
    let mut changed = Vec::new();
    if let Some(rule) = rules.get_mut(place) {
        for key in keys {
            let old = take(rule, key).ok_or_else(|| Uneditable::Missing(format!("{subject} has no quota of {key}")))?;
            changed.push(gone(key.to_string(), old));
        }
        if keys.is_empty() {
            let all = values(rule, Some(subject)).into_iter();
            changed = all.map(|(key, old)| gone(key, old)).collect();
        }
        let is_bare = rule.iter().all(|(key, _)| matches!(key, "name" | "match"));
        if keys.is_empty() || is_bare {
            rules.remove(place);
        }
    }
    Ok((document.to_string(), changed))
}

/// The quotas of a file.
///
/// # Errors
/// [`Uneditable`] when the text is no configuration.
pub fn list(text: &str) -> Result<Vec<Quota>, Uneditable> {
    let mut document = read(text)?;
    let rules = rules(&mut document)?;
    let quota = |rule: &Table| {
        let name = rule.get("name").and_then(Item::as_str).unwrap_or_default();
        let subject = subject_of(rule);
        Quota {
            values: values(rule, subject.as_ref()),
            subject: subject.map_or_else(|| format!("rule {name}"), |subject| subject.to_string()),
            rule: name.to_owned(),
        }
    };
    Ok(rules.iter().map(quota).collect())
}

fn gone(key: String, old: String) -> Changed {
    Changed {
        key,
        old: Some(old),
        new: None,
    }
}

fn read(text: &str) -> Result<DocumentMut, Uneditable> {
    let text = if text.trim().is_empty() { HEAD } else { text };
    text.parse()
        .map_err(|error: toml_edit::TomlError| Uneditable::Form(error.to_string()))
}

fn rules(document: &mut DocumentMut) -> Result<&mut ArrayOfTables, Uneditable> {
    let item = document
        .entry("rule")
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    item.as_array_of_tables_mut()
        .ok_or_else(|| Uneditable::Form("its rules are not written as tables, [[rule]]".to_owned()))
}

fn new_rule(subject: &Subject) -> Table {
    let mut rule = Table::new();
    rule.insert("name", value(subject.rule_name()));
    if let Some((key, name)) = subject.matching() {
        let mut matching = InlineTable::new();
        matching.insert(key, name.into());
        rule.insert("match", value(matching));
    }
    rule
}

fn place_of(rules: &ArrayOfTables, subject: &Subject) -> Option<usize> {
    rules.iter().position(|rule| subject_of(rule).as_ref() == Some(subject))
}

/// Whom a rule is for, where it asks for one user or group, or for nothing.
fn subject_of(rule: &Table) -> Option<Subject> {
    let Some(matching) = rule.get("match") else {
        return Some(Subject::Everybody);
    };
    let matching = matching.as_table_like()?;
    let mut keys = matching.iter();
    let subject = match (keys.next(), keys.next()) {
        (None, _) => Subject::Everybody,
        (Some(("user", name)), None) => Subject::User(name.as_str()?.to_owned()),
        (Some(("group", name)), None) => Subject::Group(name.as_str()?.to_owned()),
        _ => return None,
    };
    // A pattern is for many.
    (subject == Subject::Everybody || !subject.name().contains(['*', '?'])).then_some(subject)
}

/// Answers what it was.
fn put(rule: &mut Table, key: &Key, text: &str) -> Option<String> {
    let new: Value = match text.parse::<i64>() {
        Ok(number) if key.is_number() => number.into(),
        _ => text.into(),
    };
    let place: &mut dyn TableLike = match key.table {
        None => rule,
        Some(table) => {
            let item = rule.entry(table).or_insert_with(|| value(InlineTable::new()));
            item.as_table_like_mut()?
        }
    };
    let Some(old) = place.get_mut(&key.key).and_then(Item::as_value_mut) else {
        place.insert(&key.key, value(new));
        key.table.into_iter().for_each(|table| space(rule, table));
        return None;
    };
    let said = say(old);
    // What is beside it, such as a comment, stays.
    let beside = old.decor().clone();
    *old = new;
    *old.decor_mut() = beside;
    Some(said)
}

/// Answers what it was, where it was there.
fn take(rule: &mut Table, key: &Key) -> Option<String> {
    let Some(table) = key.table else {
        return rule.remove(&key.key).as_ref().and_then(Item::as_value).map(say);
    };
    let place = rule.get_mut(table)?.as_table_like_mut()?;
    let old = place.remove(&key.key).as_ref().and_then(Item::as_value).map(say);
    if place.is_empty() {
        rule.remove(table);
    }
    space(rule, table);
    old
}

/// Blanks and commas of a table within a line are as usual again: a key came or went.
fn space(rule: &mut Table, table: &str) {
    if let Some(table) = rule.get_mut(table).and_then(Item::as_inline_table_mut) {
        table.fmt();
    }
}

fn values(rule: &Table, subject: Option<&Subject>) -> Vec<(String, String)> {
    let mut values = Vec::new();
    if let Some(class) = rule.get("class").and_then(Item::as_value) {
        values.push(("class".to_owned(), say(class)));
    }
    for (table, _) in TABLES {
        let place = rule.get(table).and_then(Item::as_table_like).into_iter();
        for (key, item) in place.flat_map(TableLike::iter) {
            let key = Key::of(Some(table), key, subject);
            values.extend(item.as_value().map(|value| (key.to_string(), say(value))));
        }
    }
    values
}

/// A value without its quotes.
fn say(value: &Value) -> String {
    match value {
        Value::String(text) => text.value().clone(),
        other => other.to_string().trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::setting;
    use super::*;

    fn subject(text: &str) -> Subject {
        Subject::parse(text).expect("a subject")
    }

    fn put(text: &str, who: &str, settings: &[&str]) -> String {
        let who = subject(who);
        let settings = settings.iter().map(|text| setting(text, &who).expect("a setting"));
        set(text, &who, &settings.collect::<Vec<_>>()).expect("set").0
    }

    #[test]
    fn a_quota_is_a_rule_and_what_stands_beside_it_stays() {
        let first = put("", "user:alice", &["mem=24GiB", "gpus=2", "class=small"]);
        assert_eq!(
            first,
            format!(
                "{HEAD}\n[[rule]]\nname = \"quota-user-alice\"\nmatch = {{ user = \"alice\" }}\n\
                 each_user = {{ mem = \"24GiB\", gpus = 2 }}\nclass = \"small\"\n"
            )
        );
        let commented = first.replace("gpus = 2 }", "gpus = 2 } # until June");
        let second = put(
            &commented,
            "group:students",
            &["each-job.compute-max=50%", "mem=20GiB", "each-user.mem=8GiB"],
        );
        let third = put(&second, "user:alice", &["mem=16GiB"]);
        let more = put(&third, "group:students", &["each-job.weight=50"]);
        assert!(more.contains("max = { compute_max = \"50%\", weight = 50 }"), "{more}");
        assert!(
            third.contains("each_user = { mem = \"16GiB\", gpus = 2 } # until June"),
            "{third}"
        );
        assert!(
            third.contains(
                "max = { compute_max = \"50%\" }\ntogether = { mem = \"20GiB\" }\neach_user = { mem = \"8GiB\" }"
            ),
            "{third}"
        );
        assert_eq!(third.matches("[[rule]]").count(), 2);
        let quotas = list(&third).expect("read");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(quotas[0].subject, "user:alice");
        assert_eq!(
            quotas[0].values,
            [pair("class", "small"), pair("mem", "16GiB"), pair("gpus", "2")]
        );
        assert_eq!(
            quotas[1].values,
            [
                pair("mem", "20GiB"),
                pair("each-user.mem", "8GiB"),
                pair("each-job.compute-max", "50%")
            ]
        );
    }

    #[test]
    fn a_rule_of_another_form_is_edited_where_it_is() {
        let text = "schema = 1\n[[rule]]\nname = \"mine\"\nmatch.user = \"alice\" # hers\n\n[rule.max]\n# a lot\nmem = \
                    \"1GiB\"   # for now\n\n[[rule]]\nname = \"many\"\nmatch = { user = \"al*\" }\nstrict = true\n";
        let new = put(text, "user:alice", &["each-job.mem=2GiB"]);
        assert_eq!(new, text.replace("1GiB", "2GiB"));
        let everybody = put(text, "*", &["each-job.weight=50"]);
        assert!(
            everybody.contains("name = \"quota-everybody\"\nmax = { weight = 50 }"),
            "{everybody}"
        );
        assert_eq!(list(text).expect("read")[1].subject, "rule many");
    }

    #[test]
    fn unset_takes_a_key_or_the_whole_quota_and_says_what_is_not_there() {
        let text = put("", "user:alice", &["mem=24GiB", "gpus=2"]);
        let key = |word: &str| Key::parse(word, &subject("user:alice")).expect("a key");
        let (less, changed) = unset(&text, &subject("user:alice"), &[key("gpus")]).expect("there");
        assert!(less.contains("each_user = { mem = \"24GiB\" }"), "{less}");
        assert_eq!(changed, [gone("gpus".into(), "2".into())]);
        let (none, _) = unset(&less, &subject("user:alice"), &[key("mem")]).expect("there");
        assert_eq!(none.trim(), HEAD.trim(), "a rule that says nothing is gone");
        let (none, changed) = unset(&text, &subject("user:alice"), &[]).expect("there");
        assert_eq!((none.trim(), changed.len()), (HEAD.trim(), 2));
        let missing = |text: &str, who: &str, keys: &[Key]| unset(text, &subject(who), keys).expect_err("missing");
        let why = Uneditable::Missing("user:bob has no quota".into());
        assert_eq!(missing(&text, "user:bob", &[]), why);
        let why = Uneditable::Missing("user:alice has no quota of each-job.weight".into());
        assert_eq!(missing(&text, "user:alice", &[key("each-job.weight")]), why);
    }

    #[test]
    fn what_is_no_configuration_is_left_alone() {
        for bad in ["schema = ", "schema = 1\nrule = [{ name = \"a\" }]\n"] {
            let settings = [setting("mem=1GiB", &Subject::Everybody).expect("a setting")];
            assert!(
                matches!(set(bad, &subject("*"), &settings), Err(Uneditable::Form(_))),
                "{bad}"
            );
        }
    }
}
