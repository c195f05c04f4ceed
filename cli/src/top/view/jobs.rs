// SPDX-License-Identifier: Apache-2.0
//! The table of jobs, and the line of the chosen one.

use crate::show::tables::{count, wrapped};
use crate::top::fields::{self, Cell, Field, Room, Seen, compact, percent};
use crate::top::state::State;
use crate::top::state::rows::Row;
use crate::top::view::bars;
use crate::top::view::canvas::{Canvas, Ink};

/// Cells before the first column, with the mark of the chosen job.
const MARGIN: u16 = 2;
const GAP: u16 = 1;

/// A column that is shown, and its width.
struct Column {
    field: &'static Field,
    width: u16,
}

/// Draws the table between two lines.
pub fn draw(canvas: &mut Canvas, state: &State, rows: &[Row<'_>], from: u16, to: u16) {
    let page = usize::from(to.saturating_sub(from + 1)).max(1);
    let chosen = |row: &Row<'_>| matches!(row, Row::Job(seen) if Some(&seen.job.job) == state.chosen.as_ref());
    // By whole pages: most lines stay where they are while another job is chosen.
    let first = rows.iter().position(chosen).unwrap_or(0) / page * page;
    let shown = &rows[first.min(rows.len())..rows.len().min(first + page)];
    let indent = if state.is_tree { MARGIN } else { 0 };
    let columns = columns(canvas.width().saturating_sub(MARGIN + indent), shown);
    draw_headings(canvas, state, &columns, MARGIN + indent, from);
    for (row, y) in shown.iter().zip(from + 1..) {
        match row {
            Row::User {
                user,
                jobs,
                used_bytes,
                got,
            } => {
                let got = format!("{} of a GPU's time", percent(*got));
                let said = format!("{user}: {}, {} used, {got}", count(*jobs, "job"), compact(*used_bytes));
                canvas.put(MARGIN, y, canvas.width().saturating_sub(MARGIN), &said, Ink::Bold);
            }
            Row::Job(seen) => {
                draw_job(canvas, seen, &columns, MARGIN + indent, y);
                if chosen(row) {
                    canvas.put(0, y, 1, ">", Ink::Plain);
                    canvas.mark_line(y);
                }
            }
        }
    }
    if rows.is_empty() {
        let said = match state.shot.as_ref().map_or(0, |shot| shot.jobs.len()) {
            0 => "no jobs; start one: partage run -m 25% -- COMMAND".to_owned(),
            hidden => format!("the filter hides {}; Esc shows all", count(hidden, "job")),
        };
        canvas.put(
            MARGIN,
            from + 1,
            canvas.width().saturating_sub(MARGIN),
            &said,
            Ink::Plain,
        );
    }
    let below = rows.len().saturating_sub(first + shown.len());
    if below > 0 || first > 0 {
        let place = format!(" {}-{} of {} ", first + 1, first + shown.len(), rows.len());
        let width = canvas.width();
        canvas.put_right(width.saturating_sub(24), from.saturating_sub(1), 24, &place, Ink::Dim);
    }
}

fn draw_headings(canvas: &mut Canvas, state: &State, columns: &[Column], mut x: u16, y: u16) {
    for column in columns {
        let heading = column.field.heading;
        let ink = if column.field.name == state.order.field.name {
            Ink::Promised
        } else {
            Ink::Bold
        };
        match column.field.room {
            // Numbers and their headings stand to the right.
            Room::Whole(_) if !is_word(column.field) => canvas.put_right(x, y, column.width, heading, ink),
            _ => drop(canvas.put(x, y, column.width, heading, ink)),
        }
        x += column.width + GAP;
    }
}

fn is_word(field: &Field) -> bool {
    matches!(field.name, "job" | "state")
}

fn draw_job(canvas: &mut Canvas, seen: &Seen<'_>, columns: &[Column], mut x: u16, y: u16) {
    for Column { field, width } in columns {
        let cell = (field.cell)(seen);
        match &cell {
            Cell::Minute(parts) => {
                let line = bars::minute(parts, *width, canvas.terminal().is_utf8);
                canvas.put(x, y, *width, &line, Ink::Plain);
            }
            Cell::Text(word) if field.name == "state" => drop(canvas.put(x, y, *width, word, Ink::of_state(word))),
            Cell::Count(denied) if *denied > 0 => canvas.put_right(x, y, *width, &cell.text(), Ink::Warn),
            cell if cell.is_number() => canvas.put_right(x, y, *width, &cell.text(), Ink::Plain),
            cell => {
                let text = cell.text();
                let text = match field.room {
                    Room::Between(..) => canvas.terminal().fit_in_the_middle(&text, usize::from(*width)),
                    _ => text,
                };
                canvas.put(x, y, *width, &text, Ink::Plain);
            }
        }
        x += width + GAP;
    }
}

/// The columns that have room: blank ones leave, then the others in their order; what is left over goes to those that
/// can use it.
fn columns(width: u16, rows: &[Row<'_>]) -> Vec<Column> {
    let jobs: Vec<&Seen<'_>> = rows
        .iter()
        .filter_map(|row| match row {
            Row::Job(seen) => Some(seen),
            Row::User { .. } => None,
        })
        .collect();
    let mut wanted = Vec::new();
    let mut shown: Vec<Column> = Vec::new();
    for field in fields::all() {
        let cells: Vec<Cell> = jobs.iter().map(|seen| (field.cell)(seen)).collect();
        let is_blank = cells.iter().all(Cell::is_blank);
        if is_blank && matches!(field.name, "name" | "container" | "engine") {
            continue;
        }
        let widest = cells.iter().map(|cell| cell.text().chars().count()).max().unwrap_or(0);
        let widest = u16::try_from(widest)
            .unwrap_or(u16::MAX)
            .max(field.heading.len() as u16);
        let (least, most) = match field.room {
            Room::Whole(least) => (widest.max(least), widest.max(least)),
            Room::Between(least, most) if field.name == "minute" => (least, most),
            Room::Between(least, most) => (least, widest.clamp(least, most)),
            Room::Rest(least) => (least, u16::MAX),
        };
        shown.push(Column { field, width: least });
        wanted.push((field.name, most));
    }
    while total(&shown) > width {
        let first = shown.iter().filter_map(|column| column.field.leaves).min();
        let Some(first) = first else { break };
        shown.retain(|column| column.field.leaves != Some(first));
    }
    let mut left = width.saturating_sub(total(&shown));
    for column in &mut shown {
        let most = wanted
            .iter()
            .find(|(name, _)| *name == column.field.name)
            .map_or(0, |(_, most)| *most);
        let more = most.saturating_sub(column.width).min(left);
        column.width += more;
        left -= more;
    }
    shown
}

fn total(columns: &[Column]) -> u16 {
    let gaps = GAP * u16::try_from(columns.len().saturating_sub(1)).unwrap_or(0);
    columns.iter().map(|column| column.width).sum::<u16>() + gaps
}

/// All that is known of the chosen job, in as many lines as there are: what it waits for or is noted of it first.
pub fn draw_chosen(canvas: &mut Canvas, state: &State, rows: &[Row<'_>], from: u16, lines: u16) {
    let seen = rows.iter().find_map(|row| match row {
        Row::Job(seen) if Some(&seen.job.job) == state.chosen.as_ref() => Some(seen),
        _ => None,
    });
    let Some(seen) = seen else { return };
    let reason = seen.queued.map(|(_, queued)| format!("waits, {}", queued.reason));
    let note = seen.job.notes.first().cloned();
    let own = fields::all().filter_map(|field| {
        let cell = (field.cell)(seen);
        let is_said = matches!(field.name, "job" | "state" | "minute") || cell.is_blank();
        (!is_said && cell.text() != "-").then(|| format!("{} {}", field.name, cell.text()))
    });
    let clients = Some(seen.job.clients.len())
        .filter(|clients| *clients > 0)
        .map(|clients| count(clients, "client"));
    let said: Vec<String> = reason.into_iter().chain(note).chain(own).chain(clients).collect();
    let said = canvas
        .terminal()
        .text(&format!("{}: {}", seen.job.job, said.join(", ")));
    let text = wrapped(&said, usize::from(canvas.width()), 2);
    for (line, y) in text.lines().take(usize::from(lines)).zip(from..) {
        canvas.put(0, y, canvas.width(), line, Ink::Plain);
    }
}
