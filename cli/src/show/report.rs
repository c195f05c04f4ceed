// SPDX-License-Identifier: Apache-2.0
//! The only place that writes: data to standard output, messages to standard error.
//!
//! With `--json` a command writes one document (`events`: one a line) to standard output, errors included. `run` and
//! `sim` leave standard output to COMMAND: their documents go to standard error, one a line.

use std::io::{ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use partage_protocol::admin::SCHEMA;
use partage_protocol::utc::civil;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::show::terminal::{self, ColorChoice, Style};

/// Where and how a command writes.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// `--json`.
    pub is_json: bool,
    /// The terminal.
    pub style: Style,
    /// `run` and `sim`: standard output is COMMAND's.
    pub is_launcher: bool,
    /// It is shown again and again, each time in place of the last.
    pub is_in_place: bool,
}

impl Report {
    /// From the arguments that every command has.
    pub fn new(is_json: bool, color: ColorChoice, is_launcher: bool) -> Self {
        Self {
            is_json,
            style: Style::of_stdout(color),
            is_launcher,
            is_in_place: false,
        }
    }

    /// A document of `kind` with `body`'s fields when JSON is asked, else `text`.
    pub fn data(&self, kind: &str, body: Value, text: impl FnOnce(&Style) -> String) {
        self.data_at(SystemTime::now(), kind, body, text);
    }

    /// The same of something that happened at `time`.
    pub fn data_at(&self, time: SystemTime, kind: &str, body: Value, text: impl FnOnce(&Style) -> String) {
        if self.is_json {
            self.document_at(kind, body, time);
        } else {
            let text = text(&self.style);
            write_out(&if self.is_in_place {
                terminal::in_place(&text)
            } else {
                text
            });
        }
    }

    /// That a command is done, in a sentence, and its code.
    pub fn done(&self, message: &str) -> u8 {
        self.data("done", json!({ "message": message }), |style| {
            style.text(message) + "\n"
        });
        0
    }

    /// What a dry run finds, and its code: data on standard output, in the form of any other command's.
    pub fn dry_run(&self, message: &str, body: Value) -> u8 {
        let data = Self {
            is_launcher: false,
            ..*self
        };
        data.data("dry-run", body, |style| style.text(message) + "\n");
        0
    }

    /// A document, in any case.
    pub fn document(&self, kind: &str, body: Value) {
        self.document_at(kind, body, SystemTime::now());
    }

    fn document_at(&self, kind: &str, body: Value, time: SystemTime) {
        let line = document(kind, body, time).to_string() + "\n";
        if self.is_launcher {
            write_err(&line)
        } else {
            write_out(&line)
        }
    }

    /// A message for people: `partage: …` on standard error, nothing with `--json`.
    pub fn say(&self, message: &str) {
        if !self.is_json {
            write_err(&format!("partage: {}\n", self.style.text(message)));
        }
    }

    /// A failure, as the last thing that the process writes.
    pub fn failure(&self, failure: &Failure) {
        if self.is_json {
            let error = json!({
                "code": failure.kind.word(),
                "message": failure.message,
                "hint": failure.hint,
                "holders": failure.holders,
            });
            self.document("error", json!({ "error": error }));
        } else {
            write_err(&self.failure_text(failure));
        }
    }

    /// A failure in the place of what a command shows again and again.
    pub fn failure_in_place(&self, failure: &Failure) {
        if self.is_in_place {
            write_out(&terminal::in_place(&self.failure_text(failure)));
        } else {
            self.failure(failure);
        }
    }

    fn failure_text(&self, failure: &Failure) -> String {
        format!("partage: {}\n", self.style.text(&failure.sentence()))
    }
}

/// `{"schema":"partage/v1","kind":…,"time":…, …body}`.
fn document(kind: &str, body: Value, now: SystemTime) -> Value {
    let mut fields = Map::new();
    fields.insert("schema".to_owned(), SCHEMA.into());
    fields.insert("kind".to_owned(), kind.into());
    fields.insert("time".to_owned(), timestamp(now).into());
    if let Value::Object(more) = body {
        fields.extend(more);
    }
    Value::Object(fields)
}

/// Writes data, or ends the program with 1 and a word when it cannot be written. A reader that went away is not an
/// error worth a word: `partage ps | head -1` has what it wanted.
pub fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            write_err(&format!("partage: cannot write to standard output: {error}\n"));
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Writes a message in one call, so that lines of several processes do not mix.
pub fn write_err(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The time now, in nanoseconds of Unix time.
pub fn now_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in nanoseconds; the longest there is for one that has more.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The moment so many nanoseconds after the beginning of Unix time.
pub fn moment(unix_ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(unix_ns)
}

/// `2026-11-20T22:26:00.123Z`.
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil((since.as_secs() / 86400) as i64);
    let s = since.as_secs() % 86400;
    let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since.subsec_millis()
    )
}

/// A command line as one could type it.
pub fn command_line(words: &[String]) -> String {
    let quote = |word: &String| {
        let is_plain = !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,@%+".contains(c));
        if is_plain {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    terminal::clean(&words.iter().map(quote).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_is_utc_with_milliseconds() {
        let at = |s, ms: u32| timestamp(UNIX_EPOCH + Duration::new(s, ms * 1_000_000));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_795_213_560, 123), "2026-11-20T22:26:00.123Z");
    }

    #[test]
    fn a_command_line_is_quoted_where_a_shell_needs_it() {
        let words = ["sh", "-c", "echo 'a'", ""].map(str::to_owned);
        assert_eq!(command_line(&words), r"sh -c 'echo '\''a'\''' ''");
    }
}
