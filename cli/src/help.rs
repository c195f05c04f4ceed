// SPDX-License-Identifier: Apache-2.0
//! How help is laid out: the commands in five groups, `--help` with explanations and examples, `-h` without.

use std::ffi::OsString;

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;
use crate::show::tables::wrapped;

/// The commands by what one wants to do; each is in one group.
pub const GROUPS: [(&str, &str); 5] = [
    ("Run programs", "run sim demo"),
    ("Look", "ps status top queue get why events metrics"),
    ("Change jobs", "set stop suspend resume migrate checkpoint restore"),
    (
        "Administer a host",
        "quota config drain undrain broker install uninstall register hook cdi",
    ),
    ("Check", "doctor verify version completions man help"),
];
/// Columns of the list of commands.
const WIDTH: usize = 80;
/// Where the descriptions begin.
const INDENT: usize = 15;

/// The whole command line, with everything that `--help` says.
pub fn command() -> Command {
    let command = Arguments::command();
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in names.split(' ') {
            let about = match command.find_subcommand(name) {
                Some(sub) => about(sub),
                // clap adds it while it builds the command.
                None => "Print this list, or the help of a command".to_owned(),
            };
            text.push_str(&format!("  {name:<12} {}", wrapped(&about, WIDTH, INDENT)));
        }
        text.push('\n');
    }
    text
}

fn about(command: &Command) -> String {
    let about = command.get_about().map_or(String::new(), ToString::to_string);
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    match aliases.as_slice() {
        [] => about,
        aliases => format!("{about} [alias: {}]", aliases.join(", ")),
    }
}

/// The same with what `-h` says: no explanations, no examples.
pub fn brief() -> Command {
    shortened(command(), "partage")
}

fn shortened(command: Command, title: &str) -> Command {
    let has_more = command.get_after_help().is_some();
    let command = match has_more {
        true => command.after_help(format!("More, with examples: {title} --help")),
        false => command,
    };
    command.mut_subcommands(|sub| {
        let title = format!("{title} {}", sub.get_name());
        shortened(sub, &title)
    })
}

/// Did somebody ask for all of it, with `--help` or `partage help`?
pub fn is_long(words: &[OsString]) -> bool {
    let mut before_command = words.iter().skip(1).take_while(|word| *word != "--");
    words.get(1).is_some_and(|word| word == "help") || before_command.any(|word| word == "--help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = command();
        command.build();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        known.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(known, grouped);
    }

    #[test]
    fn the_list_of_commands_has_a_line_for_each() {
        let groups = groups(&command());
        let lines: Vec<&str> = groups.lines().filter(|line| line.starts_with("  ")).collect();
        let count: usize = GROUPS.iter().map(|(_, names)| names.split(' ').count()).sum();
        assert_eq!(lines.len(), count, "{groups}");
    }

    /// Titles of every command, with what it prints at 80 columns.
    fn helps(root: fn() -> Command, flag: &str) -> Vec<(String, String)> {
        let mut built = root();
        built.build();
        let mut titles = vec!["partage".to_owned()];
        for sub in built.get_subcommands().filter(|sub| sub.get_name() != "help") {
            titles.push(format!("partage {}", sub.get_name()));
            let inner = sub.get_subcommands().filter(|inner| inner.get_name() != "help");
            titles.extend(inner.map(|inner| format!("partage {} {}", sub.get_name(), inner.get_name())));
        }
        let help = |title: String| {
            let words = title.split(' ').chain([flag]);
            let error = root().term_width(WIDTH).try_get_matches_from(words);
            let text = error.expect_err("help ends parsing").render().to_string();
            (title, text)
        };
        titles.into_iter().map(help).collect()
    }

    #[test]
    fn no_line_of_help_is_broken_twice() {
        let mut bad = Vec::new();
        for (title, text) in helps(command, "--help") {
            let lines: Vec<&str> = text.lines().collect();
            // Descriptions go on far to the right; explanations and examples begin at the left.
            let goes_on = |line: &str| line.starts_with(&" ".repeat(12)) && !line.trim_start().starts_with('-');
            for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| goes_on(line))) {
                bad.push(format!("{title}: {}", pair.join(" /")));
            }
        }
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }

    #[test]
    fn the_lines_that_we_broke_are_not_broken_again() {
        fn all(command: &Command, texts: &mut Vec<String>) {
            texts.extend(command.get_after_help().map(ToString::to_string));
            command.get_subcommands().for_each(|sub| all(sub, texts));
        }
        let mut texts = Vec::new();
        all(&command(), &mut texts);
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.len() <= WIDTH, "{} columns: {line}", line.len());
        }
    }

    #[test]
    fn short_help_is_shorter_and_says_where_the_rest_is() {
        let (long, short) = (helps(command, "--help"), helps(brief, "-h"));
        for ((title, long), (_, short)) in long.iter().zip(&short) {
            let more = format!("More, with examples: {title} --help");
            let has_more = short.contains(&more);
            assert!(has_more || short == long, "{title}: {short}");
            assert!(!short.contains("Example"), "{title}: {short}");
        }
        let lines = |text: &str| text.lines().count();
        assert!(lines(&short[1].1) + 20 < lines(&long[1].1), "partage run");
    }

    #[test]
    fn long_help_is_what_was_asked_for() {
        let is_long = |line: &str| is_long(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is_long("partage help") && is_long("partage help run") && is_long("partage run --help"));
        assert!(!is_long("partage -h") && !is_long("partage run -h") && !is_long("partage run -- x --help"));
    }
}
