// SPDX-License-Identifier: Apache-2.0
//! What the terminal can show: colour, letters beyond ASCII, width; and how foreign text is written.
//!
//! Colour only decorates: every state is also a word. Text that other people chose (names, commands) is stripped of
//! control characters before it reaches a terminal.

use std::env;
use std::io::IsTerminal;

use clap::ValueEnum;

/// `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How this process writes to its standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Escape sequences are welcome.
    pub has_color: bool,
    /// The locale is UTF-8.
    pub is_utf8: bool,
    /// Columns of a line.
    pub width: usize,
    /// Lines of a table are cut to the width; a pipe or a file gets them whole.
    pub is_cut: bool,
}

impl Style {
    /// From the environment and the standard output.
    pub fn of_stdout(choice: ColorChoice) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let has_color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            // https://no-color.org: any value that is not empty.
            ColorChoice::Auto => {
                is_terminal
                    && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && env::var_os("TERM").is_none_or(|v| v != "dumb")
            }
        };
        Self {
            has_color,
            is_utf8: locale_is_utf8(|name| env::var(name).ok()),
            width: width(is_terminal),
            is_cut: is_terminal,
        }
    }

    /// Text for this terminal: control characters are gone, and so is what the locale cannot write.
    pub fn text(&self, text: &str) -> String {
        let text = clean(text);
        if self.is_utf8 { text } else { ascii(&text) }
    }

    /// Cuts the end off where the text has more columns, and marks the cut.
    pub fn fit(&self, text: &str, columns: usize) -> String {
        self.shortened(text, columns, 0)
    }

    /// Cuts the middle out where the text has more columns, and marks the cut: `very-lon…g-name`.
    pub fn fit_in_the_middle(&self, text: &str, columns: usize) -> String {
        let room = columns.saturating_sub(self.mark().chars().count());
        self.shortened(text, columns, room * 3 / 7)
    }

    fn mark(&self) -> &'static str {
        if self.is_utf8 { "…" } else { "..." }
    }

    /// The beginning, the mark and the last `end` letters.
    fn shortened(&self, text: &str, columns: usize, end: usize) -> String {
        let text = self.text(text);
        let length = text.chars().count();
        if length <= columns {
            return text;
        }
        let begin = columns.saturating_sub(self.mark().chars().count() + end);
        let mut short: String = text.chars().take(begin).collect();
        short.push_str(self.mark());
        short.extend(text.chars().skip(length - end));
        short
    }

    /// A state word in its colour.
    pub fn state(&self, word: &str) -> String {
        match state_color(word) {
            Some(code) if self.has_color => format!("\x1b[{code}m{}\x1b[0m", self.text(word)),
            _ => self.text(word),
        }
    }

    /// The same for the terminal as it is now: its owner may have made it wider.
    pub fn measured_again(self) -> Self {
        Self {
            width: width(self.is_cut),
            ..self
        }
    }
}

/// The colour of a state word, by its number in escape sequences: 32 green, 33 yellow, 31 red.
pub fn state_color(word: &str) -> Option<u8> {
    match word.split(':').next().unwrap_or(word) {
        "ok" | "running" | "attached" => Some(32),
        "waiting" | "warn" | "away" | "adopting" | "over limit" | "draining" | "drained" => Some(33),
        "fail" | "lost" | "dying" | "sick" | "no driver" | "driver mismatch" => Some(31),
        _ => None,
    }
}

/// The text from the terminal's first line on, in place of what was there, as far as it has lines.
pub fn in_place(text: &str) -> String {
    let height = size(libc::STDOUT_FILENO).map_or(24, |(_, lines)| lines);
    placed(text, height)
}

fn placed(text: &str, height: usize) -> String {
    let lines = text.lines().take(height.saturating_sub(1));
    let lines: String = lines.map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

/// Does a person read standard error, now or later: a terminal, a log file, the journal (a socket)? A pipe may be a
/// program's, which gets what COMMAND writes and nothing else.
pub fn stderr_is_for_people() -> bool {
    let stderr = std::io::stderr();
    if stderr.is_terminal() {
        return true;
    }
    nix::sys::stat::fstat(stderr).is_ok_and(|stat| {
        let kind = stat.st_mode & libc::S_IFMT;
        kind == libc::S_IFREG || kind == libc::S_IFSOCK
    })
}

/// POSIX order: the first of LC_ALL, LC_CTYPE, LANG that is not empty decides.
fn locale_is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|n| variable(n))
        .find(|v| !v.is_empty());
    value.is_some_and(|v| {
        let v = v.to_ascii_lowercase();
        v.contains("utf-8") || v.contains("utf8")
    })
}

/// Below that a table cannot be read.
const LEAST_WIDTH: usize = 40;
/// Lines of text beyond that are hard to read.
const MOST_WIDTH: usize = 240;

/// What the terminal has, within reason; 80 columns elsewhere.
fn width(is_terminal: bool) -> usize {
    if !is_terminal {
        return 80;
    }
    size(libc::STDOUT_FILENO).map_or(80, |(columns, _)| columns.clamp(LEAST_WIDTH, MOST_WIDTH))
}

/// Columns and lines of a terminal; none where it does not say, or is none.
pub fn size(descriptor: libc::c_int) -> Option<(usize, usize)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize, and `size` is one.
    let answer = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    // A terminal that does not know its size says 0.
    let lines = if size.ws_row == 0 { 24 } else { size.ws_row };
    (answer == 0 && size.ws_col > 0).then(|| (usize::from(size.ws_col), usize::from(lines)))
}

/// Without what could move a reader's cursor, recolour other lines or hide what stands there.
pub fn clean(text: &str) -> String {
    partage_protocol::shown::shown(text)
}

/// The nearest ASCII.
pub fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '…' => plain.push_str("..."),
            '×' => plain.push('x'),
            '–' | '—' => plain.push('-'),
            c if c.is_ascii() => plain.push(c),
            _ => plain.push('?'),
        }
    }
    plain
}

/// A model name without the vendor's.
pub fn model(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let of = |all: &'static str, lang: &'static str| {
            locale_is_utf8(move |name| {
                match name {
                    "LC_ALL" => Some(all),
                    "LANG" => Some(lang),
                    _ => None,
                }
                .map(str::to_owned)
            })
        };
        assert!(of("", "en_GB.UTF-8") && of("C.utf8", "C") && !of("C", "en_GB.UTF-8") && !of("", ""));
    }

    #[test]
    fn what_is_shown_again_takes_the_place_of_the_last() {
        assert_eq!(placed("a\nb\n", 24), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(placed("a\nb\nc\n", 3), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        let style = Style {
            has_color: true,
            is_utf8: false,
            width: 80,
            is_cut: true,
        };
        assert_eq!(style.text("a\x1b[2Jb\nc é…"), "a?[2Jb?c ?...");
        assert_eq!(style.fit("abcdefgh", 6), "abc...");
        let utf8 = Style { is_utf8: true, ..style };
        assert_eq!(utf8.fit("abcdefgh", 4), "abc…");
        assert_eq!(
            utf8.fit_in_the_middle("very-long-job-with-a-long-name", 15),
            "very-lon…g-name"
        );
        assert_eq!(
            style.fit_in_the_middle("very-long-job-with-a-long-name", 15),
            "very-lo...-name"
        );
        assert_eq!(utf8.fit_in_the_middle("short", 5), "short");
        assert_eq!(style.state("running"), "\x1b[32mrunning\x1b[0m");
        assert_eq!(
            Style {
                has_color: false,
                ..style
            }
            .state("running"),
            "running"
        );
    }
}
