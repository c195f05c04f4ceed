// SPDX-License-Identifier: Apache-2.0
//! What is said about words that the command line does not have: the answer of [`habits`], else the word that was
//! meant where only a letter or two are wrong, else where all words are listed.
//!
//! The parser's own guess is not shown: it is the nearest string, and for `top` that is `stop`.

mod habits;

use std::ffi::{OsStr, OsString};

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::failure::Failure;
use crate::help;

/// What is wrong with the words, and what to type; none for errors of another kind.
pub fn explain(words: &[OsString], error: &clap::Error) -> Option<Failure> {
    let typed = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let mut root = help::command();
    root.build();
    let (path, command) = reached(&root, words);
    let title = ["partage"].iter().chain(&path).copied().collect::<Vec<_>>().join(" ");
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = typed(ContextKind::InvalidSubcommand)?;
            Some(no_command(&title, command, &path, &word))
        }
        ErrorKind::UnknownArgument => {
            let word = typed(ContextKind::InvalidArg)?;
            let word = whole_word(words, word, path.first().copied().unwrap_or_default());
            Some(no_option(&title, command, &path, &word))
        }
        _ => None,
    }
}

/// The parser takes `-KILL` for `-K` and more letters: the whole word, where people are known to type it.
fn whole_word(words: &[OsString], letter: String, command: &str) -> String {
    let mut words = words.iter().skip(1).take_while(|word| *word != OsStr::new("--"));
    let is_it = |word: &&OsString| {
        let word = word.to_str().unwrap_or_default();
        word.starts_with(&letter) && !word.starts_with("--") && habits::answer(command, word).is_some()
    };
    let whole = words.find(is_it).and_then(|word| word.to_str());
    whole.map_or(letter, str::to_owned)
}

/// The command that the words lead to, by its names, and itself.
fn reached<'a>(root: &'a Command, words: &[OsString]) -> (Vec<&'a str>, &'a Command) {
    let (mut path, mut command) = (Vec::new(), root);
    let mut words = words.iter().skip(1).take_while(|word| *word != OsStr::new("--"));
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--color" | "--socket-dir") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            Some("help") if path.is_empty() => {}
            word => match word.and_then(|word| command.find_subcommand(word)) {
                Some(sub) => {
                    path.push(sub.get_name());
                    command = sub;
                }
                None => break,
            },
        }
    }
    (path, command)
}

fn no_command(title: &str, command: &Command, path: &[&str], word: &str) -> Failure {
    let names = command
        .get_subcommands()
        .flat_map(Command::get_name_and_visible_aliases);
    let hint = match habits::answer(path.first().copied().unwrap_or_default(), word) {
        Some(answer) => answer.to_owned(),
        None => match (nearest(word, names), path.is_empty() && is_program(word)) {
            (Some(name), _) => format!("did you mean `{title} {name}`?"),
            (None, true) => format!("`partage run -m 25% -- {word} ...` runs it under a limit"),
            (None, false) => format!("`{title} --help` lists the commands"),
        },
    };
    Failure::invalid(format!("{title} has no command {word:?}")).hint(hint)
}

fn no_option(title: &str, command: &Command, path: &[&str], word: &str) -> Failure {
    // `--gpus=2` is `--gpus`.
    let name = word.split('=').next().unwrap_or(word);
    let what = match name.starts_with('-') {
        true => format!("{title} has no option {name}"),
        false => format!("{title} takes no argument {name:?}"),
    };
    let hint = match habits::answer(path.first().copied().unwrap_or_default(), name) {
        Some(answer) => answer.to_owned(),
        None => {
            let options = command.get_arguments().filter_map(|argument| argument.get_long());
            let meant = name.strip_prefix("--").and_then(|long| nearest(long, options));
            match meant {
                Some(option) => format!("did you mean --{option}?"),
                None if matches!(path, ["run" | "sim"]) => {
                    format!("`{title} --help` lists them; those of COMMAND stand behind COMMAND")
                }
                None => format!("`{title} --help` says what it takes"),
            }
        }
    };
    Failure::invalid(what).hint(hint)
}

/// The one name that differs by a letter, or by two in a long word.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = if word.chars().count() > 5 { 2 } else { 1 };
    let mut near: Vec<(usize, &str)> = names
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort_unstable();
    match near.as_slice() {
        [(_, name)] => Some(name),
        [(first, name), (second, _), ..] if first < second => Some(name),
        _ => None,
    }
}

/// Letters to add, drop, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Somebody left `run` out.
fn is_program(word: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_file = |path: std::path::PathBuf| path.is_file();
    !word.is_empty() && std::env::split_paths(&path).any(|folder| is_file(folder.join(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands between backquotes and begins with `partage`.
    fn commands_in(answer: &str) -> Vec<Vec<String>> {
        let quoted = answer.split('`').skip(1).step_by(2);
        quoted
            .filter_map(|text| text.find("partage ").map(|at| &text[at + "partage ".len()..]))
            .map(|text| text.split(' ').map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn every_answer_names_a_command_and_options_that_are_there() {
        let mut root = help::command();
        root.build();
        for habit in habits::all() {
            let mut count = 0;
            for words in commands_in(habit.answer) {
                let command = root.find_subcommand(&words[0]);
                let command = command.unwrap_or_else(|| panic!("{}: no command {}", habit.answer, words[0]));
                let inner = words.get(1).and_then(|word| command.find_subcommand(word));
                assert!(!command.has_subcommands() || inner.is_some(), "{}", habit.answer);
                count += 1;
            }
            for option in habit
                .answer
                .split(['`', ' '])
                .filter_map(|word| word.strip_prefix("--"))
            {
                let command = if habit.of.is_empty() { "ps" } else { habit.of };
                let command = root.find_subcommand(command).expect("a command");
                let is_there = |argument: &clap::Arg| argument.get_long() == Some(option);
                assert!(
                    option.is_empty() || habit.of.is_empty() || command.get_arguments().any(is_there),
                    "{}: no --{option}",
                    habit.answer
                );
                count += 1;
            }
            assert!(count > 0 || habit.answer.starts_with("`-"), "{}", habit.answer);
        }
    }

    #[test]
    fn no_word_is_one_that_we_have_and_none_has_two_answers() {
        let mut root = help::command();
        root.build();
        let mut seen = std::collections::BTreeSet::new();
        for habit in habits::all() {
            for typed in &habit.typed {
                assert!(seen.insert((habit.of, *typed)), "{} {typed} twice", habit.of);
                let command = match habit.of {
                    "" => &root,
                    of => root.find_subcommand(of).unwrap_or_else(|| panic!("no command {of}")),
                };
                assert!(command.find_subcommand(typed).is_none(), "{} {typed}", habit.of);
                let is_ours = |argument: &clap::Arg| {
                    let short = argument.get_short().map(|short| format!("-{short}"));
                    let long = argument.get_long().map(|long| format!("--{long}"));
                    [short, long].into_iter().flatten().any(|ours| ours == *typed)
                };
                assert!(!command.get_arguments().any(is_ours), "{} {typed}", habit.of);
            }
        }
    }

    #[test]
    fn a_slip_of_the_finger_is_told_from_another_word() {
        let names = || ["stop", "status", "set", "suspend", "resume"].into_iter();
        for (typed, meant) in [
            ("stauts", Some("status")),
            ("sotp", Some("stop")),
            ("suspned", Some("suspend")),
            ("resum", Some("resume")),
            ("s", None),
            ("report", None),
            ("pause", None),
        ] {
            assert_eq!(nearest(typed, names()), meant, "{typed}");
        }
        assert_eq!(
            (distance("", "ab"), distance("ab", "ba"), distance("abc", "abc")),
            (2, 1, 0)
        );
    }
}
