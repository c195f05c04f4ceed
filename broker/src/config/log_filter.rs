// SPDX-License-Identifier: Apache-2.0
//! Which lines the log has: a level, or levels by the part of the program that says them.

use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Reads `info`, or `warn,partage_broker::driver=debug`.
///
/// # Errors
/// A word is no level.
pub fn log_filter(text: &str) -> Result<Targets, String> {
    for directive in text.split(',') {
        // Where there is no `=` a word is read as a part's name, and a misspelt level would log everything of it.
        let word = directive.rsplit('=').next().unwrap_or_default();
        if word.trim().is_empty() || word.trim().parse::<LevelFilter>().is_err() {
            return Err(format!("{word:?} is not one of error, warn, info, debug, trace, off"));
        }
    }
    Targets::from_str(text).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_other_words_are_not() {
        for text in ["info", "trace", "off", "warn,partage_broker::driver=debug"] {
            assert!(log_filter(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "loud",
            "partage_broker",
            "warn,partage_broker::driver=loud",
            "info,",
        ] {
            assert!(log_filter(text).is_err(), "{text}");
        }
    }
}
