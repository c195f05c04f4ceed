// SPDX-License-Identifier: Apache-2.0
//! `partage man`: the manual pages, from the command line's own definitions. The broker's page is written by hand.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_mangen::Man as Page;

use crate::arguments::Man;
use crate::failure::{Failure, Kind, Outcome};
use crate::help;
use crate::show::report::Report;

/// The broker's page, which a test of the broker holds against its options.
const BROKER_PAGE: &str = include_str!("partaged.8");

/// How the generator begins each part: an apostrophe, whichever program shows the page.
const START: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// `partage man DIR`.
pub fn write(arguments: &Man, report: &Report) -> Outcome<u8> {
    let folder = &arguments.folder;
    if !folder.is_dir() {
        let message = format!("no folder {}", folder.display());
        return Err(Failure::new(Kind::NotFound, message).hint(format!("mkdir -p {}", folder.display())));
    }
    let pages = pages().map_err(|error| Failure::cannot("make a page for", folder, error))?;
    for (name, text) in &pages {
        write_page(&folder.join(name), text)?;
    }
    let message = format!("{} pages in {}", pages.len(), folder.display());
    Ok(report.done(&message))
}

fn write_page(path: &Path, text: &str) -> Outcome<()> {
    fs::write(path, text).map_err(|error| Failure::cannot("write", path, error))
}

/// Every page by its file's name.
fn pages() -> std::io::Result<Vec<(String, String)>> {
    // clap's own `help` is no page.
    let root = help::command().disable_help_subcommand(true);
    let mut root = root.mut_subcommands(|sub| sub.disable_help_subcommand(true));
    root.build();
    let mut pages = vec![("partaged.8".to_owned(), BROKER_PAGE.to_owned())];
    add(&root, "partage", &mut pages)?;
    Ok(pages)
}

/// The page of a command, then those of the commands below it.
fn add(command: &Command, title: &str, pages: &mut Vec<(String, String)>) -> std::io::Result<()> {
    pages.push((format!("{title}.1"), page(command, title)?));
    let shown = |sub: &&Command| !sub.is_hide_set();
    for sub in command.get_subcommands().filter(shown) {
        add(sub, &format!("{title}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

fn page(command: &Command, title: &str) -> std::io::Result<String> {
    // The page's name is that of its file; what one types has blanks in it.
    let page = Page::new(command.clone().display_name(title))
        .title(title)
        .section("1")
        .source(concat!("partage ", env!("CARGO_PKG_VERSION")))
        .manual("Partage");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    // Once is enough: each part has it.
    let mut text = START.to_owned() + &String::from_utf8_lossy(&text).replace(START, "");
    if let Some(notes) = command.get_after_help() {
        text.push_str(&notes_text(&notes.to_string()));
    }
    text.push_str(".SH SEE ALSO\n");
    text.push_str(match title {
        "partage" => "\\fBpartaged\\fR(8)\n",
        _ => "\\fBpartage\\fR(1), \\fBpartaged\\fR(8)\n",
    });
    Ok(text)
}

/// What stands below the options in `--help`: laid out already.
fn notes_text(notes: &str) -> String {
    let mut text = ".SH NOTES\n.nf\n".to_owned();
    for line in notes.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) {
            text.push_str("\\&");
        }
        text.push_str(&line);
        text.push('\n');
    }
    text + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_name_and_every_option() {
        let pages = pages().expect("made");
        let text = |name: &str| {
            let page = pages.iter().find(|(file, _)| file == name);
            page.map(|(_, text)| text.as_str())
                .unwrap_or_else(|| panic!("no {name}"))
        };
        for name in ["partage.1", "partage-run.1", "partage-quota-set.1", "partaged.8"] {
            assert!(!text(name).is_empty());
        }
        assert_eq!(text("partage-run.1").matches(START).count(), 1);
        let mut root = help::command();
        root.build();
        for sub in root.get_subcommands().filter(|sub| sub.get_name() != "help") {
            let text = text(&format!("partage-{}.1", sub.get_name()));
            for option in sub
                .get_arguments()
                .filter(|option| !option.is_hide_set())
                .filter_map(clap::Arg::get_long)
            {
                let shown = format!("\\-\\-{}", option.replace('-', "\\-"));
                assert!(text.contains(&shown), "{} --{option}", sub.get_name());
            }
        }
    }

    #[test]
    fn a_page_has_what_a_reader_of_manual_pages_expects() {
        for (name, text) in pages().expect("made") {
            let (title, section) = name.rsplit_once('.').expect("name.section");
            let head = text.lines().find(|line| line.starts_with(".TH ")).expect("a title");
            assert!(head.contains(title) && head.contains(&format!(" {section} ")), "{head}");
            assert!(text.contains(&title.replace('-', "\\-")), "{name} has its name");
            for part in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH SEE ALSO"] {
                assert!(text.contains(part), "{name}: {part}");
            }
            assert!(text.is_ascii(), "{name}");
            // No part is empty, and no line is a request by accident.
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                assert!(
                    !(pair[0].starts_with(".SH") && pair[1].starts_with(".SH")),
                    "{name}: {pair:?}"
                );
            }
            let known = [
                ".TH", ".SH", ".TP", ".RS", ".RE", ".PP", ".br", ".nf", ".fi", ".ie", ".el", ".sp", ".IP",
            ];
            let known_line = |line: &&str| !line.starts_with('.') || known.iter().any(|word| line.starts_with(word));
            let strange = lines.iter().find(|line| !known_line(line));
            assert!(
                strange.is_none() || strange.is_some_and(|line| line.starts_with(".\\\"")),
                "{name}: {strange:?}"
            );
        }
    }
}
