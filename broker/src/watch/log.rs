// SPDX-License-Identifier: Apache-2.0
//! The broker's log: JSON lines in a file that is rotated by size, and text on stderr in the foreground.
//!
//! `partaged.log` is the newest; `.1` to `.3` are older. A full disk loses log lines, never the broker.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::log_filter;
use crate::error::Error;

/// Older files kept beside the newest.
const KEPT: u32 = 3;

/// Starts logging for the whole process. `level` is read by [`log_filter`], else `info`;
/// `size` is the bytes at which a new file is begun.
///
/// # Errors
/// [`Error::File`] when the log file cannot be opened.
pub fn start(path: &Path, level: &str, size: u64, with_stderr: bool) -> Result<(), Error> {
    let file = RotatingFile::open(path, size).map_err(Error::file("open", path))?;
    let filter = log_filter(level).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let json = tracing_subscriber::fmt::layer().json().with_writer(file);
    let is_terminal = io::stderr().is_terminal();
    let text = with_stderr.then(|| {
        tracing_subscriber::fmt::layer()
            .with_ansi(is_terminal)
            .with_writer(io::stderr)
    });
    // A second start in one process happens only in tests; the first subscriber stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(json)
        .with(text)
        .try_init();
    Ok(())
}

/// A file that begins anew when it has grown to its size.
#[derive(Clone, Debug)]
pub struct RotatingFile {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    written: u64,
    size: u64,
}

impl RotatingFile {
    /// Opens or continues the file; `size` in bytes.
    ///
    /// # Errors
    /// The system's, when it cannot be opened.
    pub fn open(path: &Path, size: u64) -> io::Result<Self> {
        let file = append(path)?;
        let written = file.metadata()?.len();
        let inner = Inner {
            path: path.to_owned(),
            file,
            written,
            size,
        };
        Ok(Self {
            inner: Arc::new(Mutex::new(inner)),
        })
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

impl Inner {
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", self.path.display()));
        for number in (1..KEPT).rev() {
            // The older file is missing until that many rotations happened.
            let _ = std::fs::rename(numbered(number), numbered(number + 1));
        }
        std::fs::rename(&self.path, numbered(1))?;
        self.file = append(&self.path)?;
        self.written = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.written > 0 && inner.written + line.len() as u64 > inner.size {
            // Without a new file the old one goes on growing, which loses less than dropping lines.
            let _ = inner.rotate();
        }
        inner.file.write_all(line)?;
        inner.written += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn old_files_are_kept_up_to_three_and_no_line_is_cut() {
        let scratch = Scratch::new("log");
        let path = scratch.path().join("l.log");
        let mut log = RotatingFile::open(&path, 100).expect("opened");
        for number in 0..50 {
            log.write_all(format!("line {number:034}\n").as_bytes())
                .expect("written");
        }
        let mut files: Vec<_> = std::fs::read_dir(scratch.path())
            .expect("listed")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        files.sort();
        assert_eq!(files, ["l.log", "l.log.1", "l.log.2", "l.log.3"]);
        for file in files {
            let text = std::fs::read_to_string(scratch.path().join(file)).expect("text");
            assert!(text.len() <= 100 && text.lines().all(|line| line.len() == 39), "{text}");
        }
    }
}
