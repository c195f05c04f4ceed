// SPDX-License-Identifier: Apache-2.0
//! The words of `partage quota`: whom a quota is for, and `key=value`.
//!
//! Which keys there are and what a value must be, the reader of the configuration knows: here is only where a key goes
//! in a rule, and whether its value is a number.

use std::fmt;

use nix::unistd::{Group, User};

/// Keys whose values are numbers in the file; those of all others are texts.
const NUMBERS: [&str; 3] = ["weight", "gpus", "jobs"];
/// The table of a rule with the totals of each user, and what its keys begin with here.
const EACH_USER: (&str, &str) = ("each_user", "each-user.");

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
        match self {
            Self::Everybody => "*",
            Self::User(name) | Self::Group(name) => name,
        }
    }

    /// The key of a rule's `match`, and what it must be; none for everybody.
    pub fn matching(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Everybody => None,
            Self::User(name) => Some(("user", name)),
            Self::Group(name) => Some(("group", name)),
        }
    }

    /// The name of its rule. A name that rules cannot have is replaced by its number, which is as unique.
    pub fn rule_name(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let (kind, name) = match self {
            Self::Everybody => return "quota-everybody".to_owned(),
            Self::User(name) => ("user", name),
            Self::Group(name) => ("group", name),
        };
        let word = match name.chars().all(is_plain) && name.len() <= 48 {
            true => name.clone(),
            false => self
                .number()
                .map_or_else(|| "x".to_owned(), |number| number.to_string()),
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
}

impl Key {
    /// Reads `mem`, `compute-max`, `class`, `each-user.mem`.
    ///
    /// # Errors
    /// It is no word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (table, word) = match text.strip_prefix(EACH_USER.1) {
            Some(word) => (Some(EACH_USER.0), word),
            None if text == "class" => (None, text),
            None => (Some("max"), text),
        };
        let is_word = |c: char| c.is_ascii_lowercase() || matches!(c, '-' | '_');
        if word.is_empty() || !word.chars().all(is_word) {
            return Err(format!("{text:?} is no key; e.g. mem, compute-max, class"));
        }
        Ok(Self {
            table,
            key: word.replace('-', "_"),
        })
    }

    /// Is its value a number in the file?
    pub fn is_number(&self) -> bool {
        NUMBERS.contains(&self.key.as_str())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.table == Some(EACH_USER.0) {
            out.write_str(EACH_USER.1)?;
        }
        out.write_str(&self.key.replace('_', "-"))
    }
}

/// Reads `mem=24GiB`.
///
/// # Errors
/// What is wrong with it.
pub fn setting(text: &str) -> Result<(Key, String), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("{text:?} has no value; e.g. mem=24GiB"));
    };
    let key = Key::parse(key)?;
    if value.is_empty() || value.contains(char::is_control) {
        return Err(format!(
            "{key} has no value; to take it away: partage quota unset SUBJECT {key}"
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
    fn a_key_goes_to_its_table() {
        let key = |table, key: &str| Key {
            table,
            key: key.to_owned(),
        };
        assert_eq!(Key::parse("mem"), Ok(key(Some("max"), "mem")));
        assert_eq!(Key::parse("compute-max"), Ok(key(Some("max"), "compute_max")));
        assert_eq!(Key::parse("class"), Ok(key(None, "class")));
        assert_eq!(Key::parse("each-user.mem"), Ok(key(Some("each_user"), "mem")));
        for bad in ["", "each-user.", "Mem", "mem.x", "a b", "max.mem"] {
            assert!(Key::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["mem", "mem=", "gpus=many", "weight=1.5", "=3"] {
            assert!(setting(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_said_again(
            kind in "user|group",
            name in "[a-z0-9._@-]{1,20}",
            word in "[a-z]{1,8}(-[a-z]{1,8})?",
            each in any::<bool>(),
            value in "[ -~]{1,20}",
        ) {
            let text = format!("{kind}:{name}");
            prop_assert_eq!(Subject::parse(&text).map(|subject| subject.to_string()), Ok(text));
            let text = if each { format!("each-user.{word}") } else { word };
            let key = Key::parse(&text);
            prop_assert_eq!(key.as_ref().map(ToString::to_string), Ok(text.clone()));
            let is_number = key.is_ok_and(|key| key.is_number());
            if !is_number {
                prop_assert_eq!(setting(&format!("{text}={value}")).map(|(_, value)| value), Ok(value));
            }
        }

        #[test]
        fn no_argument_breaks_the_reader(text in "\\PC{0,40}") {
            let _ = (Subject::parse(&text), Key::parse(&text), setting(&text));
        }
    }
}
