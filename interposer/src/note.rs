// SPDX-License-Identifier: Apache-2.0
//! The library's own log: off unless `PARTAGE_LOG` names a file or `stderr`; one `write` a line, no lock, no buffer
//! that outlives the call, no descriptor kept.

use crate::state::State;
use crate::sys;
use crate::text::Text;

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

/// Writes a sentence that a person may need where `PARTAGE_LOG` says; with `and_terminal` also on a terminal, beginning
/// as `partage`'s own lines do, unless it just went there.
#[cold]
pub fn explain(state: &State, sentence: &Line, and_terminal: bool) {
    write(state, line().push(sentence.as_bytes()));
    if and_terminal && state.settings().log.as_bytes() != b"stderr" {
        tell(Line::new().push("partage: ").push(sentence.as_bytes()));
    }
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
        let _ = sys::write(2, line.as_bytes());
    }
}

fn end(line: &mut Line) {
    if !line.as_bytes().ends_with(b"\n") {
        line.push("\n");
    }
}
