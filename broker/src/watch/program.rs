// SPDX-License-Identifier: Apache-2.0
//! `[notify]`: a program of the administrator's is told of events, one at a time, as JSON on its standard input.
//!
//! It has no other environment and no shell, and [`PATIENCE`] to end. Events that come while [`WAITING`] of them wait
//! are not told, and counted. The event loop only puts an event into the channel.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use partage_protocol::admin::{EventView, SCHEMA};
use serde::Serialize;
use tracing::{info, warn};

use super::services::{Service, Services};
use crate::config::{NotifySettings, judge_program};
use crate::error::Error;
use crate::host::pidfd::PidFd;

/// So long the program may take for one event.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events that wait while the program is told of another one.
const WAITING: usize = 64;

/// The event loop's end.
#[derive(Debug)]
pub struct Program {
    events: SyncSender<Box<EventView>>,
    kinds: Vec<String>,
    services: Arc<Services>,
}

/// What the program reads.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    kind: &'static str,
    event: &'a EventView,
}

impl Program {
    /// Starts the thread, where the settings name a program.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no thread to give.
    pub fn start(settings: &NotifySettings, services: Arc<Services>) -> Result<Option<Self>, Error> {
        if settings.exec.is_empty() {
            return Ok(None);
        }
        let (events, receiver) = mpsc::sync_channel(WAITING);
        let (exec, said) = (settings.exec.clone(), Arc::clone(&services));
        let thread = std::thread::Builder::new().name("notify".to_owned());
        let started = thread.spawn(move || serve(&exec, &receiver, &said));
        started.map_err(|source| Error::System {
            what: "start the thread of [notify]",
            source,
        })?;
        info!(exec = ?settings.exec, kinds = ?settings.kinds, "tells a program of events");
        Ok(Some(Self {
            events,
            kinds: settings.kinds.clone(),
            services,
        }))
    }

    /// Has it told of an event, if it is one of those that the settings name.
    pub fn tell(&self, event: &EventView) {
        let is_wanted = self.kinds.is_empty() || self.kinds.contains(&event.kind);
        if is_wanted && self.events.try_send(Box::new(event.clone())).is_err() {
            self.services.count_untold();
        }
    }
}

fn serve(exec: &[String], events: &Receiver<Box<EventView>>, services: &Services) {
    while let Ok(event) = events.recv() {
        match tell(exec, &event, PATIENCE) {
            Ok(()) => {
                if services.set(Service::Notify, None) {
                    info!("the program of [notify] takes events again");
                }
            }
            Err(why) => {
                services.count_untold();
                let text = format!("[notify] {}: {why}", exec.first().map_or("", String::as_str));
                if services.set(Service::Notify, Some(text)) {
                    warn!(why, "the program of [notify] was not told of an event");
                }
            }
        }
    }
}

/// Runs the program once.
fn tell(exec: &[String], event: &EventView, patience: Duration) -> Result<(), String> {
    let (program, words) = exec.split_first().ok_or("there is no program")?;
    // What was judged when the configuration was read may have been changed since.
    judge_program(program.as_ref())?;
    let document = Document {
        schema: SCHEMA,
        kind: "event",
        event,
    };
    let input = in_memory(&document).map_err(|why| format!("its input cannot be made: {why}"))?;
    let mut command = Command::new(program);
    command.args(words).env_clear().current_dir("/");
    command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
    // What it starts ends with it.
    command.process_group(0);
    let mut child = command.spawn().map_err(|why| why.to_string())?;
    match wait(&mut child, patience) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => Err(match (status.code(), status.signal()) {
            (Some(code), _) => format!("it ended with code {code}"),
            (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
        }),
        Ok(None) => {
            end(&mut child);
            Err(format!("it did not end within {} s", patience.as_secs()))
        }
        Err(why) => {
            end(&mut child);
            Err(format!("it cannot be waited for: {why}"))
        }
    }
}

/// A file in memory with the document and a line's end: a program that does not read it keeps nobody.
fn in_memory(document: &Document<'_>) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"partage-event", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&serde_json::to_vec(document)?)?;
    file.write_all(b"\n")?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// How it ended; none where it has not in time.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let process = PidFd::open(child.id()).ok_or_else(io::Error::last_os_error)?;
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // One millisecond more: rounding down would spin during the last one.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout);
    }
}

fn end(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It has not been waited for: its number is its own.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use partage_protocol::admin::EventNumbers;

    use super::*;
    use crate::testing::Scratch;

    fn event() -> EventView {
        EventView {
            number: 7,
            time_ns: 1,
            kind: "denied".into(),
            uid: None,
            user: None,
            job: Some("j1".into()),
            pid: None,
            text: "j1 was denied".into(),
            numbers: EventNumbers::default(),
        }
    }

    /// A program of this text, as words.
    fn program(folder: &Path, text: &str) -> Vec<String> {
        let path = folder.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("ours");
        vec![path.display().to_string(), folder.display().to_string()]
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn it_reads_the_event_and_has_no_environment() {
        let scratch = Scratch::new("notify");
        let exec = program(scratch.path(), "cat > $1/event; /usr/bin/env > $1/env");
        assert_eq!(tell(&exec, &event(), LONG), Ok(()));
        let read = std::fs::read(scratch.path().join("event")).expect("written");
        let read: serde_json::Value = serde_json::from_slice(&read).expect("a document");
        assert_eq!((&read["kind"], &read["event"]["number"]), (&"event".into(), &7.into()));
        let env = std::fs::read_to_string(scratch.path().join("env")).expect("written");
        // What the shell itself makes.
        let left = env
            .lines()
            .filter(|line| !["PWD=/", "_=/usr/bin/env", "SHLVL=0", "SHLVL=1"].contains(line));
        assert_eq!(left.count(), 0, "{env}");
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children_and_one_that_fails_is_told() {
        let scratch = Scratch::new("notify");
        let exec = program(scratch.path(), "exit 3");
        assert_eq!(tell(&exec, &event(), LONG), Err("it ended with code 3".to_owned()));
        // A child that outlived it would hold the lock.
        let exec = program(scratch.path(), "flock $1/lock sleep 1000 & sleep 1000");
        let said = tell(&exec, &event(), Duration::from_secs(1));
        assert_eq!(said, Err("it did not end within 1 s".to_owned()));
        let exec = program(scratch.path(), "exec flock $1/lock true");
        assert_eq!(tell(&exec, &event(), LONG), Ok(()));
    }

    #[test]
    fn one_that_others_can_write_is_not_run() {
        let scratch = Scratch::new("notify");
        let exec = program(scratch.path(), "touch $1/ran");
        let path = Path::new(&exec[0]);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("ours");
        let said = tell(&exec, &event(), LONG).expect_err("refused");
        assert!(said.contains("mode 777"), "{said}");
        assert!(!scratch.path().join("ran").exists());
    }
}
