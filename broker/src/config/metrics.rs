// SPDX-License-Identifier: Apache-2.0
//! `[metrics]` of the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use partage_metrics::{JobLabel, MOST_SERIES};
use toml::Spanned;

use super::error::ConfigError;
use super::file::MetricsTable;
use super::source::{Source, one_of};

/// Where the listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket's path.
    Unix(PathBuf),
}

impl Listen {
    /// Reads `127.0.0.1:9811`, `[::1]:9811` or `unix:/run/partage/metrics.sock`.
    ///
    /// # Errors
    /// What it is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err(format!("{text:?}: a socket's path begins with /")),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(Self::Tcp(address)),
            _ => Err(format!(
                "{text:?} is no address with a port: write 127.0.0.1:9811, [::1]:9811 or unix:/run/partage/metrics.sock"
            )),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where; nowhere unless it is said.
    pub listen: Option<Listen>,
    /// What names somebody and is told all the same.
    pub labels: Vec<JobLabel>,
    /// The file with the token that a scrape has to bring.
    pub token_file: Option<PathBuf>,
    /// Series of jobs beyond which the smallest jobs are summed.
    pub most_series: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            listen: None,
            labels: Vec::new(),
            token_file: None,
            most_series: MOST_SERIES,
        }
    }
}

impl MetricsSettings {
    /// Takes what a file says.
    pub(super) fn merge(&mut self, table: MetricsTable, source: Source<'_>) -> Result<(), ConfigError> {
        if let Some(text) = &table.listen {
            self.listen = Some(source.read("metrics.listen", text, Listen::parse)?);
        }
        if let Some(labels) = &table.labels {
            let read =
                |label: &Spanned<String>| one_of(source, "metrics.labels", label, (&JobLabel::ALL, JobLabel::word));
            self.labels = labels.iter().map(read).collect::<Result<_, _>>()?;
            // In the order in which they are written, each once.
            self.labels.sort_unstable();
            self.labels.dedup();
        }
        if let Some(text) = table.token_file {
            let path = PathBuf::from(text.get_ref());
            if !path.is_absolute() {
                return Err(source.wrong(text.span(), "metrics.token_file", "a path that begins with /"));
            }
            self.token_file = Some(path);
        }
        if let Some(most) = table.most_series {
            self.most_series = most.into_inner();
        }
        Ok(())
    }

    /// What an administrator should read about these settings; none where nothing is odd.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let is_far = matches!(&self.listen, Some(Listen::Tcp(address)) if !address.ip().is_loopback());
        let names = !self.labels.is_empty() && self.token_file.is_none();
        (is_far && names).then(|| {
            let labels: Vec<&str> = self.labels.iter().map(|label| label.word()).collect();
            format!(
                "[metrics] labels: whoever reaches the listener reads {}: set token_file, or listen on 127.0.0.1",
                labels.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_written() {
        for text in [
            "127.0.0.1:9811",
            "[::1]:9811",
            "0.0.0.0:1",
            "unix:/run/partage/metrics.sock",
        ] {
            assert_eq!(
                Listen::parse(text).map(|listen| listen.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "",
            "9811",
            "localhost:9811",
            "127.0.0.1",
            "127.0.0.1:0",
            "unix:metrics.sock",
            "unix:",
        ] {
            assert!(Listen::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_for_everybody_who_reaches_it_are_warned_of() {
        let far = MetricsSettings {
            listen: Listen::parse("0.0.0.0:9811").ok(),
            labels: vec![JobLabel::User],
            ..MetricsSettings::default()
        };
        assert!(far.warning().is_some_and(|text| text.contains("reads user")));
        let quiet = [
            MetricsSettings {
                listen: Listen::parse("127.0.0.1:9811").ok(),
                ..far.clone()
            },
            MetricsSettings {
                labels: Vec::new(),
                ..far.clone()
            },
            MetricsSettings {
                token_file: Some("/etc/partage/token".into()),
                ..far
            },
        ];
        assert!(quiet.iter().all(|settings| settings.warning().is_none()));
    }
}
