// SPDX-License-Identifier: Apache-2.0
//! Whom a rule matches.

use super::asked::Facts;

/// A text in which `*` stands for any characters, and `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

impl Pattern {
    /// Is this what it stands for? In time that is linear in both lengths' product, whatever the pattern.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        // Most are plain names, and a reload asks each of them about each job.
        if !self.0.contains(['*', '?']) {
            return self.0 == text;
        }
        let pattern: Vec<char> = self.0.chars().collect();
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut place) = (0, 0);
        // Where the last star stands, and from where on it may stand for one character more.
        let mut star: Option<(usize, usize)> = None;
        while place < text.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, place));
                    at += 1;
                }
                Some(c) if *c == '?' || *c == text[place] => {
                    at += 1;
                    place += 1;
                }
                _ => match star {
                    Some((star_at, from)) => {
                        star = Some((star_at, from + 1));
                        at = star_at + 1;
                        place = from + 1;
                    }
                    None => return false,
                },
            }
        }
        pattern.iter().skip(at).all(|c| *c == '*')
    }
}

/// Whose jobs a rule is about: every list that is there must have a pattern that fits. Nothing matches everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Login names, or uids in digits.
    pub user: Option<Vec<Pattern>>,
    /// Names of groups, or their gids in digits.
    pub group: Option<Vec<Pattern>>,
    /// Paths of control groups, in whichever hierarchy; what lies below one is in it.
    pub cgroup: Option<Vec<Pattern>>,
    /// Names of program files.
    pub program: Option<Vec<Pattern>>,
    /// Containers that root registered: names, ids, or the beginning of an id (twelve digits or more).
    pub container: Option<Vec<Pattern>>,
    /// Labels that root registered: `key=value`, or a key alone.
    pub label: Option<Vec<Pattern>>,
}

impl Match {
    /// Is it about a job with these facts?
    #[must_use]
    pub fn holds(&self, facts: &Facts) -> bool {
        let has = |patterns: &Option<Vec<Pattern>>, fits: &dyn Fn(&Pattern) -> bool| {
            patterns.as_ref().is_none_or(|patterns| patterns.iter().any(fits))
        };
        let uid = self.user.as_ref().map(|_| facts.uid.to_string()).unwrap_or_default();
        has(&self.user, &|pattern| {
            pattern.matches(&facts.user) || pattern.matches(&uid)
        }) && has(&self.group, &|pattern| {
            facts.groups.iter().any(|group| pattern.matches(group))
        }) && has(&self.cgroup, &|pattern| {
            let mut paths = std::iter::once(&facts.cgroup).chain(&facts.other_cgroups);
            paths.any(|path| is_below(pattern, path))
        }) && has(&self.program, &|pattern| pattern.matches(&facts.program))
            && has(&self.container, &|pattern| is_container(pattern, facts))
            && has(&self.label, &|pattern| {
                facts.labels.iter().any(|label| is_label(pattern, label))
            })
    }

    /// Does it hang on the program's name alone? Anybody can rename a program.
    #[must_use]
    pub fn is_by_program_alone(&self) -> bool {
        let others = [&self.user, &self.group, &self.cgroup, &self.container, &self.label];
        self.program.is_some() && others.into_iter().all(Option::is_none)
    }
}

/// Digits of a container's id that name it, as its runtime shows it.
const SHORT_ID: usize = 12;

/// Is a container with these facts what the pattern stands for? A job in none is not, whatever the pattern.
fn is_container(pattern: &Pattern, facts: &Facts) -> bool {
    let (id, name) = (&facts.container, &facts.container_name);
    let is_beginning = pattern.0.len() >= SHORT_ID && id.starts_with(&pattern.0);
    (!id.is_empty() && (is_beginning || pattern.matches(id))) || (!name.is_empty() && pattern.matches(name))
}

/// `key=value`, or a pattern without `=` for a key with any value.
fn is_label(pattern: &Pattern, (key, value): &(String, String)) -> bool {
    match pattern.0.contains('=') {
        true => pattern.matches(&format!("{key}={value}")),
        false => pattern.matches(key),
    }
}

/// Is the path, or one above it, what the pattern stands for?
fn is_below(pattern: &Pattern, path: &str) -> bool {
    let ends = path
        .char_indices()
        .filter(|(end, c)| *c == '/' && *end > 0)
        .map(|(end, _)| end);
    ends.chain([path.len()]).any(|end| pattern.matches(&path[..end]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Pattern(pattern.to_owned()).matches(text)
    }

    /// The definition, slow and plain.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|skip| by_definition(rest, &text[skip..])),
            Some(('?', rest)) => !text.is_empty() && by_definition(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fits(&pattern, &text), by_definition(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn a_long_pattern_of_stars_ends() {
        assert!(!fits(&"a*".repeat(2_000), &"a".repeat(1_999)));
    }

    #[test]
    fn every_key_must_hold_and_one_pattern_of_each_is_enough() {
        let facts = Facts {
            uid: 1000,
            user: "alice".into(),
            groups: vec!["students".into(), "100".into()],
            cgroup: "/user.slice/user-1000.slice/session-4.scope".into(),
            program: "python3.11".into(),
            labels: vec![("team".into(), "vision".into())],
            container: "0123456789abcdef".into(),
            container_name: "train-1".into(),
            ..Facts::default()
        };
        let list = |texts: &[&str]| Some(texts.iter().map(|text| Pattern((*text).to_owned())).collect::<Vec<_>>());
        let mut matching = Match::default();
        assert!(matching.holds(&facts), "no key matches everybody");
        matching.user = list(&["bob", "al*"]);
        matching.group = list(&["100"]);
        matching.cgroup = list(&["/user.slice/user-*.slice"]);
        matching.program = list(&["python?.*"]);
        matching.container = list(&["0123456789ab"]);
        matching.label = list(&["team=vis*"]);
        assert!(matching.holds(&facts));
        for change in [
            (|m: &mut Match| m.user = Some(vec![Pattern("bob".into())])) as fn(&mut Match),
            |m| m.group = Some(vec![Pattern("staff".into())]),
            |m| m.cgroup = Some(vec![Pattern("/user.slice/user-100".into())]),
            |m| m.program = Some(vec![Pattern("python".into())]),
            |m| m.user = Some(Vec::new()),
            |m| m.container = Some(vec![Pattern("0123456789".into())]),
            |m| m.container = Some(vec![Pattern("train".into())]),
            |m| m.label = Some(vec![Pattern("team=".into())]),
            |m| m.label = Some(vec![Pattern("vision".into())]),
        ] {
            let mut other = matching.clone();
            change(&mut other);
            assert!(!other.holds(&facts), "{other:?}");
        }
        matching.user = list(&["1000"]);
        assert!(matching.holds(&facts), "a uid in digits");
        for (container, label) in [("train-*", "team"), ("0123*", "t*=vision"), ("0123456789abcdef", "*")] {
            (matching.container, matching.label) = (list(&[container]), list(&[label]));
            assert!(matching.holds(&facts), "{container}, {label}");
        }
        let bare = Facts {
            container: String::new(),
            container_name: String::new(),
            ..facts.clone()
        };
        assert!(!matching.holds(&bare), "no pattern stands for no container");
        let unlabelled = Facts {
            labels: Vec::new(),
            ..facts
        };
        assert!(!matching.holds(&unlabelled), "no pattern stands for no label");
    }

    #[test]
    fn a_path_counts_in_any_hierarchy() {
        let slurm = Facts {
            cgroup: "/".into(),
            other_cgroups: vec!["/slurm_node1/uid_1000/job_7".into(), "/user.slice".into()],
            ..Facts::default()
        };
        for (pattern, is_it) in [
            ("/slurm*", true),
            ("/slurm_node1/uid_*", true),
            ("/", true),
            ("/slurm", false),
        ] {
            let matching = Match {
                cgroup: Some(vec![Pattern(pattern.into())]),
                ..Match::default()
            };
            assert_eq!(matching.holds(&slurm), is_it, "{pattern}: any hierarchy counts");
        }
    }
}
