// SPDX-License-Identifier: Apache-2.0
//! Words that the glossary does not have and no name may be made of, with the glossary's word.

use crate::listed::Fault;
use crate::source::{Kind, tokens, without_tests};
use crate::tree::File;

/// The words, and what to say instead; `docs/glossary.md` has the meanings.
const REFUSED: [(&str, &str); 7] = [
    ("stranger", "unmanaged process"),
    ("strangers", "unmanaged processes"),
    ("look", "poll or sample; `find` for a search"),
    ("looks", "polls or samples"),
    ("stand", "wait, or be held back"),
    ("seat", "the client or the job on a device"),
    ("told", "published, notified"),
];

/// What declares a name: a type, a function, a module.
const DECLARES: [&str; 7] = ["fn", "struct", "enum", "union", "trait", "type", "mod"];

/// The file, type and function names of `file` that have such a word, tests left out.
pub fn faults(file: &File) -> Option<Fault> {
    if file.extension() != "rs" || !file.path.contains("/src/") || file.path.ends_with("/tests.rs") {
        return None;
    }
    let stem = file.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"))?;
    let mut found = Vec::new();
    if let Some(instead) = refused(stem) {
        found.push(format!("the file's name ({instead})"));
    }
    let all = tokens(&file.text);
    for pair in without_tests(&all).windows(2) {
        let declares = DECLARES.contains(&pair[0].text) && pair[1].kind == Kind::Word;
        if declares && let Some(instead) = refused(pair[1].text) {
            found.push(format!("`{}` in line {} ({instead})", pair[1].text, pair[1].line));
        }
    }
    (!found.is_empty()).then(|| Fault {
        rule: "words",
        subject: file.path.clone(),
        count: found.len(),
        what: format!("no word of the glossary: {}", found.join(", ")),
    })
}

/// What to say instead of a word in `name`, which is written `so_or_so` or `SoOrSo`.
fn refused(name: &str) -> Option<&'static str> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase().filter(|c| *c != '_'));
        }
    }
    REFUSED
        .iter()
        .find(|(word, _)| words.iter().any(|w| w == word))
        .map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_into_words() {
        assert!(refused("show_stranger").is_some());
        assert!(refused("StrangerOf").is_some());
        assert!(refused("look_again").is_some());
        assert!(refused("lookup").is_none());
        assert!(refused("Standard").is_none());
    }

    #[test]
    fn declared_names_count_and_used_ones_do_not() {
        let count = |path: &str, text: &str| {
            let file = File {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            faults(&file).map_or(0, |fault| fault.count)
        };
        assert_eq!(
            count(
                "a/src/b.rs",
                "struct Seat; fn stand() {} fn f() { look(); let told = 1; }"
            ),
            2
        );
        assert_eq!(count("a/src/strangers.rs", ""), 1);
        assert_eq!(
            count("a/src/b.rs", "#[cfg(test)] mod t { fn a_stranger_is_seen() {} }"),
            0
        );
        assert_eq!(count("a/tests/b.rs", "fn a_stranger_is_seen() {}"), 0);
    }
}
