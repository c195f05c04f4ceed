// SPDX-License-Identifier: Apache-2.0
//! What `top` shows: a frame, made of the state alone.
//!
//! - `canvas`: where it is drawn. `bars`: parts as cells. `gpus`, `jobs`: the two tables.

pub mod bars;
mod canvas;
mod gpus;
mod jobs;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::commands::ps::unmanaged_text;
use crate::show::tables::{count, wrapped};
use crate::show::terminal::Style;
use crate::top::state::mode::Mode;
use crate::top::state::{Shot, State};

use canvas::{Canvas, Ink};

/// Columns and lines below which nothing can be read.
const LEAST: (u16, u16) = (60, 10);
/// Lines from which on the chosen job has lines of its own.
const WITH_CHOSEN: u16 = 18;
/// Lines of the chosen job.
const CHOSEN: u16 = 2;
/// Columns of a frame that is no terminal's.
const PIPE: u16 = 200;

const KEYS: [(&str, &str); 14] = [
    ("arrows", "choose a job; PgUp, PgDn, Home and End go further"),
    (
        "w, Enter",
        "why the job is slow, and the rule behind each of its numbers",
    ),
    ("e", "set its limits: mem=8GiB compute=30% priority=low ..."),
    ("z", "suspend it: its memory leaves the GPU, its threads wait"),
    ("r", "resume it"),
    ("x", "stop it: SIGTERM, and SIGKILL after ten seconds"),
    ("o, O", "sort by the next column; the other way round"),
    (
        "/",
        "filter: a text, or user=NAME, state=STATE, label=KEY; Esc shows all",
    ),
    ("t", "group the jobs by user"),
    ("Ctrl-L", "draw everything again"),
    ("Ctrl-Z", "stop; `fg` goes on"),
    ("q", "leave"),
    (
        "bar",
        "used by jobs, by processes of no job, promised and not used, free",
    ),
    (
        "GOT",
        "its part of the GPUs' time in the last second; MINUTE: in the last minute",
    ),
];
const HINT: &str = "? help  q quit  w why  e set  z suspend  r resume  x stop  o sort  / filter  t tree";

/// Draws a frame for a terminal of this size. `state` learns how many jobs it has room for.
pub fn frame(state: &mut State, terminal: Style, width: u16, height: u16) -> Buffer {
    let mut canvas = Canvas::new(Rect::new(0, 0, width, height), terminal);
    if width < LEAST.0 || height < LEAST.1 {
        let said = format!("{width}x{height}: top needs {}x{}", LEAST.0, LEAST.1);
        canvas.put(0, 0, width, &said, Ink::Plain);
        return canvas.done();
    }
    let mut top = draw_head(&mut canvas, state);
    let bottom = height - 1;
    draw_foot(&mut canvas, state, bottom);
    let body = top;
    let rows = state.rows();
    let mut end = bottom;
    if let Some(shot) = &state.shot {
        let chosen = if height >= WITH_CHOSEN { CHOSEN } else { 0 };
        let unmanaged = u16::try_from(shot.unmanaged.len())
            .unwrap_or(u16::MAX)
            .min(1 + height / 20);
        let room = ((bottom - top - chosen - unmanaged) * 2 / 5).max(1);
        let gpus = gpus::lines(&canvas, shot.status.devices.len(), room);
        gpus::draw(&mut canvas, shot, top, room);
        top += gpus + 1;
        end = bottom - chosen - unmanaged;
        draw_unmanaged(&mut canvas, shot, end, unmanaged);
        jobs::draw_chosen(&mut canvas, state, &rows, bottom - chosen, chosen);
        jobs::draw(&mut canvas, state, &rows, top, end);
    }
    drop(rows);
    if state.trouble.is_some() {
        // What is below is old.
        (body..bottom).for_each(|y| canvas.fade_line(y));
    }
    draw_over(&mut canvas, state, body, bottom);
    state.page = usize::from(end.saturating_sub(top + 1));
    canvas.done()
}

/// One frame with everything, as lines of text, for a terminal or for whoever reads a pipe.
pub fn text(state: &mut State, terminal: Style) -> String {
    // Nobody chose a job here.
    state.chosen = None;
    let width = if terminal.is_cut {
        u16::try_from(terminal.width).unwrap_or(PIPE)
    } else {
        PIPE
    };
    let rows = state.rows();
    let shot = state.shot.as_ref();
    let gpus = shot.map_or(0, |shot| shot.status.devices.len());
    let unmanaged = shot.map_or(0, |shot| shot.unmanaged.len());
    let all = 5 + 3 * gpus + rows.len() + unmanaged;
    let height = u16::try_from(all).unwrap_or(u16::MAX);
    let plain = Style {
        has_color: false,
        ..terminal
    };
    let mut canvas = Canvas::new(Rect::new(0, 0, width, height), plain);
    let mut y = draw_head(&mut canvas, state);
    if let Some(shot) = shot {
        let room = 3 * u16::try_from(gpus).unwrap_or(0);
        gpus::draw(&mut canvas, shot, y, room.max(1));
        y += gpus::lines(&canvas, gpus, room) + 1;
        let end = y + 1 + u16::try_from(rows.len().max(1)).unwrap_or(u16::MAX);
        jobs::draw(&mut canvas, state, &rows, y, end);
        draw_unmanaged(&mut canvas, shot, end, u16::try_from(unmanaged).unwrap_or(u16::MAX));
    }
    lines(&canvas.done()).trim_end().to_owned() + "\n"
}

/// The text of a frame, without blanks at the ends of its lines.
pub fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width.max(1))) {
        let mut line = String::new();
        let mut covered = 0_usize;
        for cell in row {
            // The cell after a wide letter is that letter's.
            if covered > 0 {
                covered -= 1;
                continue;
            }
            line.push_str(cell.symbol());
            covered = cell.symbol().width().saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// What there is in all, and the broker; with a line of its own where none answers. Answers the next line.
fn draw_head(canvas: &mut Canvas, state: &State) -> u16 {
    let mut said = vec!["partage".to_owned()];
    if let Some(shot) = &state.shot {
        let queue = shot.status.queue.len();
        said.push(count(shot.jobs.len(), "job"));
        said.extend((queue > 0).then(|| format!("{queue} in the queue")));
        let broker = &shot.status.broker;
        said.push(format!("{} broker {}", broker.kind, broker.pid));
        let driver = (broker.driver != "ok").then(|| broker.driver.clone());
        said.extend(driver);
    }
    let width = canvas.width();
    let chosen = choice(state);
    let room = width.saturating_sub(u16::try_from(chosen.chars().count()).unwrap_or(0) + 2);
    canvas.put(0, 0, room, &said.join(", "), Ink::Bold);
    canvas.put_right(0, 0, width, &chosen, Ink::Plain);
    let Some(trouble) = &state.trouble else { return 1 };
    let old = if state.shot.is_some() {
        "; what is below is older"
    } else {
        ""
    };
    let said = format!("no broker since {}{old}: {}", trouble.since, trouble.why);
    canvas.put(0, 1, width, &said, Ink::Bad);
    2
}

/// `by got, reversed, filter "x"`.
fn choice(state: &State) -> String {
    let mut said = vec![format!("by {}", state.order.field.name)];
    said.extend(state.order.is_reversed.then(|| "reversed".to_owned()));
    said.extend(state.is_tree.then(|| "users".to_owned()));
    said.extend((!state.filter.text.is_empty()).then(|| format!("filter {:?}", state.filter.text)));
    said.join(", ")
}

fn draw_unmanaged(canvas: &mut Canvas, shot: &Shot, from: u16, lines: u16) {
    let all = shot.unmanaged.len();
    let shown = if all > usize::from(lines) {
        usize::from(lines).saturating_sub(1)
    } else {
        all
    };
    for (process, y) in shot.unmanaged.iter().take(shown).zip(from..) {
        canvas.put(0, y, canvas.width(), &unmanaged_text(process), Ink::Unmanaged);
    }
    if shown < all && lines > 0 {
        let more = format!("unmanaged: {} more; see partage ps", all - shown);
        canvas.put(0, from + lines - 1, canvas.width(), &more, Ink::Unmanaged);
    }
}

fn draw_foot(canvas: &mut Canvas, state: &State, y: u16) {
    let width = canvas.width();
    let (said, ink) = match (&state.message, &state.mode) {
        (Some(message), _) => (message.clone(), Ink::Bold),
        (None, Mode::Filter(text)) => (format!("filter: {text}_"), Ink::Bold),
        (None, Mode::Settings(job, text)) => (format!("set {job} {text}_  (as mem=8GiB compute=30%)"), Ink::Bold),
        (None, Mode::Confirm(ask)) => (format!("partage {}? y: yes, other keys: no", ask.words()), Ink::Bold),
        (None, Mode::Help | Mode::Said(_)) => ("any key goes back".to_owned(), Ink::Bold),
        (None, Mode::Table) => (HINT.to_owned(), Ink::Dim),
    };
    canvas.put(0, y, width, &said, ink);
}

/// What stands over the tables: the keys, or what `why` said.
fn draw_over(canvas: &mut Canvas, state: &State, from: u16, to: u16) {
    let width = usize::from(canvas.width());
    let described = |(key, meaning): &(&str, &str)| format!("{key:<10}{}", wrapped(meaning, width, 10));
    let text = match &state.mode {
        Mode::Help => KEYS.iter().map(described).collect(),
        Mode::Said(said) => said
            .iter()
            .map(|line| format!("- {}", wrapped(line, width, 2)))
            .collect::<String>(),
        _ => return,
    };
    canvas.clear_lines(from, to);
    let room = usize::from(to - from);
    let all: Vec<&str> = text.lines().collect();
    for (line, y) in all.iter().take(room).zip(from..) {
        canvas.put(0, y, canvas.width(), line, Ink::Plain);
    }
    if all.len() > room {
        canvas.clear_lines(to - 1, to);
        canvas.put(
            0,
            to - 1,
            canvas.width(),
            "and more: a taller terminal, or the command itself",
            Ink::Dim,
        );
    }
}

#[cfg(test)]
mod tests;
