// SPDX-License-Identifier: Apache-2.0
//! The words of `partage quota`: whom a quota is for, and `key=value`.
//!
//! A plain key (`mem`) is of all jobs of the subject together, `each-job.mem` of each of them, `each-user.mem` of all
//! jobs of each user. What a value must be, the reader of the configuration knows: here is only where a key goes in a
//! rule, and whether its value is a number.

use std::ffi::CString;
use std::fmt;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// Keys whose values are numbers in the file; those of all others are texts.
const NUMBERS: [&str; 3] = ["weight", "gpus", "jobs"];
/// Keys that add up over jobs.
const TOTALS: [&str; 4] = ["mem", "compute", "gpus", "jobs"];
/// Keys that each job has by itself.
const EACH_JOB: [&str; 8] = [
    "mem",
    "process-mem",
    "compute",
    "compute-max",
    "weight",
    "priority",
    "gpus",
    "time-limit",
];
/// Of those the ones that nobody takes for a sum over jobs: they need no prefix.
const NO_SUM: [&str; 3] = ["process-mem", "priority", "time-limit"];
/// Tables of a rule, with what their keys begin with here; in the order in which they are listed.
pub const TABLES: [(&str, &str); 3] = [
    ("together", "together."),
    ("each_user", "each-user."),
    ("max", "each-job."),
];
/// All keys, for whoever wrote another one.
const KEYS: &str = "for all jobs of SUBJECT together: mem, compute, gpus, jobs; for all jobs of each of its users: \
                    each-user.mem, each-user.compute, each-user.gpus, each-user.jobs; for each job: each-job.mem, \
                    each-job.process-mem, each-job.compute, each-job.compute-max, each-job.weight, \
                    each-job.priority, each-job.gpus, each-job.time-limit; and class";

/// Whom a quota is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `*`.
    Everybody,
    /// `user:alice`: a login name or a uid.
    User(String),
    /// `group:students`: a name or a gid.
    Group(String),
}

impl Subject {
    /// Reads `user:alice`, `group:students` or `*`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Everybody);
        }
        let subject = match text.split_once(':') {
            Some(("user", name)) => Self::User(name.to_owned()),
            Some(("group", name)) => Self::Group(name.to_owned()),
            _ => return Err(format!("{text:?} is nobody; write user:NAME, group:NAME or '*'")),
        };
        let name = subject.name();
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '?' | ':' | '/');
        if name.is_empty() || name.contains(is_odd) {
            return Err(format!(
                "{text:?}: {name:?} is no name; a rule in the configuration may have patterns"
            ));
        }
        Ok(subject)
    }

    /// The name alone; `*` for everybody.
    pub fn name(&self) -> &str {
        self.matching().map_or("*", |(_, name)| name)
    }

    /// The key of a rule's `match`, and what it must be; none for everybody.
    pub fn matching(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Everybody => None,
            Self::User(name) => Some(("user", name)),
            Self::Group(name) => Some(("group", name)),
        }
    }

    /// The table of its rule with what all its jobs may have together. A user's has one of its own since before there
    /// were groups' totals.
    pub fn total(&self) -> &'static str {
        match self {
            Self::User(_) => "each_user",
            Self::Group(_) | Self::Everybody => "together",
        }
    }

    /// `alice`, `group students`, `everybody`.
    pub fn who(&self) -> String {
        match self {
            Self::Everybody => "everybody".to_owned(),
            Self::User(name) => name.clone(),
            Self::Group(name) => format!("group {name}"),
        }
    }

    /// Is this user meant?
    pub fn has(&self, uid: u32, user: &str) -> bool {
        match self {
            Self::Everybody => true,
            Self::User(name) => user == name || name.parse() == Ok(uid),
            Self::Group(_) => self.number().is_some_and(|gid| is_member(uid, user, gid)),
        }
    }

    /// The name of its rule. A name that rules cannot have is replaced by its number, which is as unique.
    pub fn rule_name(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let Some((kind, name)) = self.matching() else {
            return "quota-everybody".to_owned();
        };
        let word = match name.chars().all(is_plain) && name.len() <= 48 {
            true => name.to_owned(),
            false => self.number().map_or("x".to_owned(), |number| number.to_string()),
        };
        format!("quota-{kind}-{word}")
    }

    /// Does the host know it? A number is nobody's name and may be anybody's.
    pub fn is_known(&self) -> bool {
        *self == Self::Everybody || self.number().is_some()
    }

    fn number(&self) -> Option<u32> {
        match self {
            Self::Everybody => None,
            Self::User(name) => {
                let user = User::from_name(name).ok().flatten();
                user.map(|user| user.uid.as_raw()).or_else(|| name.parse().ok())
            }
            Self::Group(name) => {
                let group = Group::from_name(name).ok().flatten();
                group.map(|group| group.gid.as_raw()).or_else(|| name.parse().ok())
            }
        }
    }
}

/// Is a user in a group, as the user database says?
fn is_member(uid: u32, user: &str, gid: u32) -> bool {
    let Ok(Some(account)) = User::from_uid(Uid::from_raw(uid)) else {
        return false;
    };
    let list = CString::new(user)
        .ok()
        .and_then(|name| getgrouplist(&name, account.gid).ok());
    list.is_some_and(|groups| groups.contains(&Gid::from_raw(gid)))
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.matching() {
            None => out.write_str("*"),
            Some((kind, name)) => write!(out, "{kind}:{name}"),
        }
    }
}

/// A key of a quota and its place in a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The table of the rule; none: the rule itself.
    pub table: Option<&'static str>,
    /// As the file has it.
    pub key: String,
    /// As it is written here.
    name: String,
}

impl Key {
    /// Reads `mem`, `each-job.compute-max`, `class`, `each-user.mem`.
    ///
    /// # Errors
    /// There is no such key, or it could mean two things.
    pub fn parse(text: &str, subject: &Subject) -> Result<Self, String> {
        let word = text.replace('_', "-");
        let prefixed = TABLES.iter().find_map(|(table, prefix)| {
            let key = word.strip_prefix(prefix)?;
            let known: &[&str] = if *table == "max" { &EACH_JOB } else { &TOTALS };
            known.contains(&key).then_some((Some(*table), key))
        });
        let (table, key) = match (prefixed, word.as_str()) {
            (Some(found), _) => found,
            (None, "class") => (None, "class"),
            (None, key) if TOTALS.contains(&key) => (Some(subject.total()), key),
            (None, key) if NO_SUM.contains(&key) => (Some("max"), key),
            (None, key) if EACH_JOB.contains(&key) => {
                return Err(format!(
                    "{key} is a number of each job, and there is none of several jobs together: write each-job.{key}"
                ));
            }
            _ => return Err(format!("unknown key `{text}`; there are, {KEYS}")),
        };
        Ok(Self::of(table, &key.replace('-', "_"), Some(subject)))
    }

    /// A key of a rule's table; of one that is for this subject.
    pub fn of(table: Option<&'static str>, key: &str, subject: Option<&Subject>) -> Self {
        let is_plain = subject.is_some_and(|subject| table == Some(subject.total()));
        let prefix = TABLES.iter().find(|(name, _)| table == Some(*name) && !is_plain);
        let name = prefix.map_or("", |(_, prefix)| *prefix).to_owned() + &key.replace('_', "-");
        Self {
            table,
            key: key.to_owned(),
            name,
        }
    }

    /// Is its value a number in the file?
    pub fn is_number(&self) -> bool {
        NUMBERS.contains(&self.key.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

/// Reads `mem=24GiB`.
///
/// # Errors
/// What is wrong with it.
pub fn setting(text: &str, subject: &Subject) -> Result<(Key, String), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("{text:?} has no value; e.g. mem=24GiB"));
    };
    let key = Key::parse(key, subject)?;
    if value.is_empty() || value.contains(char::is_control) {
        return Err(format!(
            "{key} has no value; to take it away: partage quota unset {subject} {key}"
        ));
    }
    if key.is_number() && value.parse::<i64>().is_err() {
        return Err(format!("{key}: {value:?} is no whole number"));
    }
    Ok((key, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_subject_is_a_user_a_group_or_everybody() {
        assert_eq!(Subject::parse("*"), Ok(Subject::Everybody));
        assert_eq!(Subject::parse("user:alice"), Ok(Subject::User("alice".into())));
        assert_eq!(Subject::parse("group:100"), Ok(Subject::Group("100".into())));
        for bad in [
            "alice",
            "user:",
            "user:al*",
            "group:a b",
            "job:j3",
            "",
            "@alice",
            "user:a:b",
        ] {
            assert!(Subject::parse(bad).is_err(), "{bad:?}");
        }
        let root = Subject::User("root".into());
        assert!(root.is_known() && Subject::Everybody.is_known() && Subject::User("4000123".into()).is_known());
        assert!(!Subject::User("no-such-user".into()).is_known() && !Subject::Group("no-such-group".into()).is_known());
        assert_eq!(root.rule_name(), "quota-user-root");
        assert_eq!(Subject::Everybody.rule_name(), "quota-everybody");
    }

    #[test]
    fn a_plain_key_is_of_all_jobs_together_and_a_prefix_says_otherwise() {
        let (alice, all) = (Subject::User("alice".into()), Subject::Everybody);
        let place = |text: &str, subject: &Subject| {
            let key = Key::parse(text, subject).expect("a key");
            (key.table.unwrap_or_default(), key.key.clone(), key.to_string())
        };
        let is = |table: &'static str, key: &str, name: &str| (table, key.to_owned(), name.to_owned());
        assert_eq!(place("mem", &alice), is("each_user", "mem", "mem"));
        assert_eq!(place("each-user.mem", &alice), is("each_user", "mem", "mem"));
        assert_eq!(place("mem", &all), is("together", "mem", "mem"));
        assert_eq!(place("each-user.mem", &all), is("each_user", "mem", "each-user.mem"));
        assert_eq!(place("each-job.mem", &all), is("max", "mem", "each-job.mem"));
        assert_eq!(
            place("time_limit", &all),
            is("max", "time_limit", "each-job.time-limit")
        );
        assert_eq!(place("class", &alice), is("", "class", "class"));
        for (ambiguous, meant) in [("compute-max", "each-job.compute-max"), ("weight", "each-job.weight")] {
            let why = Key::parse(ambiguous, &alice).expect_err("it could mean two things");
            assert!(why.ends_with(&format!("write {meant}")), "{why}");
        }
        for bad in [
            "",
            "each-user.",
            "Mem",
            "mem.x",
            "a b",
            "max.mem",
            "each-job.jobs",
            "each-user.weight",
        ] {
            let why = Key::parse(bad, &alice).expect_err(bad);
            for key in EACH_JOB
                .map(|key| format!("each-job.{key}"))
                .iter()
                .chain(&TOTALS.map(str::to_owned))
            {
                assert!(why.contains(key), "{key} is not listed: {why}");
            }
        }
        for bad in ["mem", "mem=", "gpus=many", "each-job.weight=1.5", "=3"] {
            assert!(setting(bad, &alice).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_said_again(
            kind in "user|group",
            name in "[a-z0-9._@-]{1,20}",
            table in 0..3_usize,
            place in 0..8_usize,
            value in "[ -~]{1,20}",
        ) {
            let text = format!("{kind}:{name}");
            let subject = Subject::parse(&text).expect("a subject");
            prop_assert_eq!(subject.to_string(), text);
            let (table, prefix) = TABLES[table];
            let word = if table == "max" { EACH_JOB[place] } else { TOTALS[place % TOTALS.len()] };
            let key = Key::parse(&format!("{prefix}{word}"), &subject).expect("a key");
            prop_assert_eq!(key.table, Some(table));
            prop_assert_eq!(Key::parse(&key.to_string(), &subject), Ok(key.clone()));
            if !key.is_number() {
                prop_assert_eq!(setting(&format!("{key}={value}"), &subject).map(|(_, value)| value), Ok(value));
            }
        }

        #[test]
        fn no_argument_breaks_the_reader(text in "\\PC{0,40}") {
            let all = Subject::Everybody;
            let _ = (Subject::parse(&text), Key::parse(&text, &all), setting(&text, &all));
        }
    }
}
