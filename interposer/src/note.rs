// SPDX-License-Identifier: Apache-2.0
//! The library's own log: off unless `PARTAGE_LOG` names a file or `stderr`; one `write` a line, no lock, no buffer
//! that outlives the call, no descriptor kept.

use crate::guest::sys;
use crate::guest::text::Text;
use crate::state::State;

/// One log line.
pub type Line = Text<512>;

/// Starts a line with who speaks.
pub fn line() -> Line {
    let mut line = Line::new();
    line.push("partage[").push_number(u64::from(sys::pid())).push("]: ");
    line
}

/// Writes the line where `PARTAGE_LOG` says, if anywhere.
#[cold]
pub fn write(state: &State, line: &mut Line) {
    let place = state.settings().log.as_bytes();
    if place.is_empty() {
        return;
    }
    end(line);
    if place == b"stderr" {
        let _ = sys::write(2, line.as_bytes());
        return;
    }
    let file = sys::open(
        state.settings().log.as_c_str(),
        libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOCTTY,
        0o600,
    );
    if let Ok(fd) = i32::try_from(file)
        && fd >= 0
    {
        let _ = sys::write(fd, line.as_bytes());
        sys::close(fd);
    }
}

/// How loud a sentence is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loudness {
    /// For the log only.
    Log,
    /// On a terminal too.
    Terminal,
    /// Wherever the standard error of `partage run` leads.
    Everywhere,
}

/// Writes a sentence that a person may need where `PARTAGE_LOG` says, and as loud as it is on standard error, beginning
/// as `partage`'s own lines do, unless it just went there.
#[cold]
pub fn explain(state: &State, sentence: &Line, loudness: Loudness) {
    write(state, line().push(sentence.as_bytes()));
    speak(state, sentence, loudness);
}

/// The same for a sentence that was written where `PARTAGE_LOG` says.
#[cold]
pub fn speak(state: &State, sentence: &Line, loudness: Loudness) {
    if loudness == Loudness::Log || state.settings().log.as_bytes() == b"stderr" {
        return;
    }
    let mut told = Line::new();
    told.push("partage: ").push(sentence.as_bytes());
    if loudness == Loudness::Everywhere {
        warn(state, &mut told);
    } else {
        tell(&mut told);
    }
}

/// Is descriptor 2 the file that `partage run` had there? A program that closed it may have opened its own data there.
fn is_standard_error_of_run(state: &State) -> bool {
    let run = state.settings().standard_error;
    run.is_some() && sys::identity(2) == run
}

/// Writes a constant line.
#[cold]
pub fn say(state: &State, text: &str) {
    write(state, line().push(text));
}

/// Tells a person at a terminal; a program whose standard error is a file or pipe never sees it.
#[cold]
pub fn tell(line: &mut Line) {
    if sys::is_terminal(2) {
        end(line);
        write_at_once(line);
    }
}

/// Tells a person wherever the standard error of `partage run` leads, or at a terminal.
#[cold]
pub fn warn(state: &State, line: &mut Line) {
    if sys::is_terminal(2) || is_standard_error_of_run(state) {
        end(line);
        write_at_once(line);
    }
}

/// Writes to descriptor 2 without waiting for a reader and without the signal that a reader that left would cost: then
/// the line is lost, and not the program.
fn write_at_once(line: &Line) {
    let ready = sys::poll(2, libc::POLLOUT, 0);
    if ready & libc::POLLOUT == 0 || ready & (libc::POLLERR | libc::POLLHUP) != 0 {
        return;
    }
    // The reader may leave between the look and the write.
    let mask = sys::set_signal_mask(u64::MAX);
    let was_pending = sys::is_pending(libc::SIGPIPE);
    if sys::write(2, line.as_bytes()) == -(libc::EPIPE as isize) && !was_pending {
        sys::take_pending(libc::SIGPIPE);
    }
    sys::set_signal_mask(mask);
}

fn end(line: &mut Line) {
    if !line.as_bytes().ends_with(b"\n") {
        line.push("\n");
    }
}
