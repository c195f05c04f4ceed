// SPDX-License-Identifier: Apache-2.0
//! The admission of `partage run --lazy`: at the first `cuInit` of a process, not at the start of the program.
//!
//! ```text
//!   run --lazy ── the request, in a variable ──► program ── first cuInit ──► the request goes to the broker
//!                                                                              │ admitted: attaches by its token
//!                                                                              │ waiting: cuInit waits
//!                                                                              └ refused: no device memory, ever
//! ```
//! `run` wrote the request as the broker takes it, with a token that it chose. The broker makes one job of all requests
//! with one token, so every process may ask. Whoever was refused has no job: its `cuInit` fails, and no call of it that
//! takes memory gets any. What NVML shows until then: [`foreseen`].

pub mod answer;
pub mod foreseen;

use core::ffi::CStr;

use partage_protocol::frame;

use crate::attachment;
use crate::connection;
use crate::guest::descriptor::Kept;
use crate::guest::sys;
use crate::guest::text::{Text, bytes_of};
use crate::note;
use crate::private_broker;
use crate::settings;
use crate::socket::{self, Refusal};
use crate::state::State;

/// How long a broker may take until it takes connections.
const BROKER_WAIT_NS: u64 = 10_000_000_000;
/// Between two attempts to connect.
const CONNECT_PAUSE_NS: u64 = 10_000_000;
/// One look at a connection on which nothing comes: the program may have closed it meanwhile.
const LOOK_NS: u64 = 1_000_000_000;
/// A broker that is lost this often, each time within [`QUICK_NS`], is not coming back.
const MOST_LOSSES: u32 = 5;
const QUICK_NS: u64 = 1_000_000_000;
/// Bytes of a document in one packet of ours, and of one of the broker's that are read.
const PIECE: usize = 4_000;

const VISIBLE: &CStr = c"CUDA_VISIBLE_DEVICES";

/// How a conversation ended.
enum Said {
    Admitted,
    Refused,
    /// The broker went away.
    Lost,
}

/// Does this process hide every GPU from itself? Then the driver shows it none, and nothing is to be admitted.
pub fn is_blind() -> bool {
    // SAFETY: `getenv` answers null or a string, which is read at once.
    let value = unsafe { libc::getenv(VISIBLE.as_ptr()) };
    // SAFETY: as above.
    let list = unsafe { bytes_of(value) };
    let first = list.split(|byte| *byte == b',').next().unwrap_or(&[]).trim_ascii();
    !value.is_null() && (first.is_empty() || first.starts_with(b"-") || first == b"NoDevFiles")
}

/// Is this a process of a `run --lazy` that belongs to no job of it?
pub fn is_refused(state: &State) -> bool {
    state.settings().is_lazy && attachment::of(state).job().is_none_or(|job| job.is_default)
}

/// Has the broker admit this process's job, and waits for that. `false`: it was refused, and was told why.
/// Precondition: `State::setup` is held.
#[cold]
pub fn admit(state: &State) -> bool {
    let mut losses = 0;
    while losses < MOST_LOSSES {
        let began = sys::now_ns();
        let mut socket = match open(state, sys::now_ns().saturating_add(BROKER_WAIT_NS)) {
            Ok(socket) => socket,
            Err(_) => {
                refuse(state, b"no broker answers");
                return false;
            }
        };
        let said = converse(state, &socket);
        socket.close();
        match said {
            Said::Admitted => return true,
            Said::Refused => return false,
            Said::Lost => {}
        }
        let is_quick = sys::now_ns().saturating_sub(began) < QUICK_NS;
        losses = if is_quick { losses + 1 } else { 1 };
    }
    refuse(state, b"the broker hangs up");
    false
}

/// Connects; starts a private broker where none is.
fn open(state: &State, deadline_ns: u64) -> Result<Kept, Refusal> {
    let turn = &mut connection::of(state).session.hold().start_turn;
    let found = open_until(state, turn, deadline_ns);
    turn.close();
    found
}

fn open_until(state: &State, turn: &mut Kept, deadline: u64) -> Result<Kept, Refusal> {
    let mut has_turn = false;
    let mut has_started = false;
    loop {
        let refusal = match socket::connect(state.settings(), deadline) {
            // No place for one more descriptor of ours: later, perhaps.
            Ok(fd) => match Kept::take(fd) {
                Some(kept) => return Ok(kept),
                None => Refusal::Unable,
            },
            Err(refusal) => refusal,
        };
        if matches!(refusal, Refusal::Final | Refusal::Barred) || sys::now_ns() >= deadline {
            return Err(refusal);
        }
        if refusal == Refusal::Absent && !has_started {
            if has_turn {
                has_started = private_broker::start(state);
            } else {
                has_turn = private_broker::take_turn(state, turn);
                if has_turn {
                    // The failure may have been the moment before another's broker listened: look once more.
                    continue;
                }
            }
        }
        sys::sleep_ns(CONNECT_PAUSE_NS);
    }
}

/// Says the request and hears what comes of it.
fn converse(state: &State, socket: &Kept) -> Said {
    let document = settings::lazy_request();
    if document.is_empty() {
        refuse(
            state,
            b"the program removed what run --lazy had put into its environment",
        );
        return Said::Refused;
    }
    if say(socket, &[document]).is_err() {
        return Said::Lost;
    }
    let mut said = Said::Lost;
    hear(socket, u64::MAX, |text| {
        if text.starts_with(br#"{"reply":"waiting""#) {
            wait_on(state, field(text, br#","reason":""#));
            return Heard::More;
        }
        said = if text.starts_with(br#"{"reply":"admitted""#) {
            Said::Admitted
        } else {
            refuse(state, field(text, br#","message":""#));
            Said::Refused
        };
        Heard::Enough
    });
    said
}

/// Says a document that is in parts.
fn say(socket: &Kept, parts: &[&[u8]]) -> Result<(), Refusal> {
    let mut pieces = parts.iter().flat_map(|part| part.chunks(PIECE)).peekable();
    while let Some(piece) = pieces.next() {
        let mut packet = Text::<{ PIECE + frame::HEAD + 1 }>::new();
        packet.push(frame::head(pieces.peek().is_none())).push(piece);
        socket::send(socket, packet.as_bytes())?;
    }
    Ok(())
}

/// What a listener makes of a document.
enum Heard {
    /// It waits for another one.
    More,
    /// It has what it wanted.
    Enough,
}

/// Hands the beginning of each document that comes to `take`, until that has enough, nothing comes any more, or it is
/// too late.
fn hear(socket: &Kept, deadline_ns: u64, mut take: impl FnMut(&[u8]) -> Heard) {
    let mut is_amid = false;
    while sys::now_ns() < deadline_ns {
        let mut buffer = [0_u8; PIECE];
        let Some(fd) = socket.fd() else { return };
        if sys::poll(fd, libc::POLLIN, LOOK_NS) == 0 {
            continue;
        }
        let (length, descriptors) = sys::receive(fd, &mut buffer);
        socket::discard(descriptors);
        if length == -(libc::EAGAIN as isize) {
            continue;
        }
        let packet = usize::try_from(length).ok().and_then(|length| buffer.get(..length));
        let Some((text, is_last)) = packet.and_then(frame::piece) else {
            return;
        };
        // What a document is stands at its beginning, and that is in its first packet.
        if core::mem::replace(&mut is_amid, !is_last) {
            continue;
        }
        if matches!(take(text), Heard::Enough) {
            return;
        }
    }
}

/// A string of a document, as it is written there, from behind `key` on; empty where it is not there.
fn field<'a>(document: &'a [u8], key: &[u8]) -> &'a [u8] {
    let behind = |at: usize| document.get(at..)?.strip_prefix(key);
    let text = (0..document.len()).find_map(behind).unwrap_or(&[]);
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    text.get(..text.iter().position(is_end).unwrap_or(text.len()))
        .unwrap_or(&[])
}

/// Tells a person who was not asked to be left alone.
fn wait_on(state: &State, reason: &[u8]) {
    note::write(state, note::line().push("waits for its admission: ").push(reason));
    if state.settings().standard_error.is_some() {
        let mut line = note::Line::new();
        line.push("partage: waiting: ");
        push_plain(&mut line, reason);
        note::warn(state, &mut line);
    }
}

/// Tells whoever may listen that this process gets no GPU.
fn refuse(state: &State, why: &[u8]) {
    note::write(state, note::line().push("not admitted: ").push(why));
    let mut line = note::Line::new();
    line.push("partage: pid ")
        .push_number(u64::from(sys::pid()))
        .push(" gets no GPU: ");
    push_plain(&mut line, why);
    note::warn(state, &mut line);
}

/// A document's string without what escapes its quotes.
fn push_plain(line: &mut note::Line, text: &[u8]) {
    for byte in text.iter().filter(|byte| **byte != b'\\') {
        line.push([*byte]);
    }
}
