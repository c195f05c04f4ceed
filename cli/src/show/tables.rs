// SPDX-License-Identifier: Apache-2.0
//! Columns and lines of a terminal's width: every table of the command line is written here.

use crate::show::terminal::Style;

/// The room beside a row that a sentence needs: with less it stands below.
pub const REASON_WIDTH: usize = 36;

/// What a waiting job asks: `25%`, `25% 30% time`, `30% time`, `-`.
pub fn asks(mem: Option<&str>, compute: Option<&str>) -> String {
    let time = compute.map(|part| format!("{part} time"));
    let parts: Vec<String> = mem.map(str::to_owned).into_iter().chain(time).collect();
    joined(&parts, " ", "-")
}

/// The parts with this between them; `nothing` where there is none.
pub fn joined(parts: &[String], between: &str, nothing: &str) -> String {
    match parts {
        [] => nothing.to_owned(),
        parts => parts.join(between),
    }
}

/// Blanks between two columns.
const GAP: usize = 2;
/// How far a text that has no room beside its row stands to the right, below it.
const BELOW: usize = 4;

/// How the cells of a column become narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Narrowing {
    /// They do not: numbers, ids, states.
    No,
    /// Their end is cut off: command lines.
    End,
    /// Their middle is cut out: names, which often differ at their end alone.
    Middle,
    /// By words, over several lines; for the last column.
    Words,
}

/// When a column is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Never.
    No,
    /// While nothing stands in it.
    Blank,
    /// While nothing stands in it; else after all columns with a smaller number.
    Place(u8),
}

/// A column of a table: its heading, and how it gives way where the terminal is too narrow.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    heading: &'static str,
    narrowing: Narrowing,
    least: usize,
    leaving: Leaving,
}

impl Column {
    /// A column whose cells stay whole.
    pub const fn new(heading: &'static str) -> Self {
        Self {
            heading,
            narrowing: Narrowing::No,
            least: 0,
            leaving: Leaving::No,
        }
    }

    /// Cells may lose their end, down to `least` columns.
    pub const fn cut(self, least: usize) -> Self {
        self.narrows(Narrowing::End, least)
    }

    /// Cells may lose their middle, down to `least` columns.
    pub const fn cut_in_the_middle(self, least: usize) -> Self {
        self.narrows(Narrowing::Middle, least)
    }

    /// Cells may be broken into lines of `least` columns and more; with less room they stand below their row. Only the
    /// last column.
    pub const fn wrapped(self, least: usize) -> Self {
        self.narrows(Narrowing::Words, least)
    }

    const fn narrows(self, narrowing: Narrowing, least: usize) -> Self {
        Self {
            narrowing,
            least,
            ..self
        }
    }

    /// It is left out where there is no room for it and nothing stands in it.
    pub const fn leaves_when_blank(self) -> Self {
        Self {
            leaving: Leaving::Blank,
            ..self
        }
    }

    /// It is left out where there is no room for it: the smallest place first.
    pub const fn leaves(self, place: u8) -> Self {
        Self {
            leaving: Leaving::Place(place),
            ..self
        }
    }

    /// It stays, whatever the width.
    pub const fn stays(self) -> Self {
        Self {
            leaving: Leaving::No,
            ..self
        }
    }
}

/// What of a table is shown, and how wide.
struct Layout {
    /// The columns that are shown, by their places, each with its width.
    shown: Vec<(usize, usize)>,
    /// The last column's cells stand below their rows.
    is_below: bool,
}

impl Layout {
    /// Of columns as wide as their cells. On a terminal that is too narrow, in this order: ends are cut off or wrapped,
    /// middles are cut out, texts go below their rows, columns are left out.
    fn of(style: &Style, columns: &[Column], rows: &[Vec<String>]) -> Self {
        let widest = |place: usize| {
            let cells = rows.iter().filter_map(|row| row.get(place));
            cells.map(|cell| visible(cell)).max().unwrap_or(0)
        };
        let mut shown: Vec<(usize, usize)> = (0..columns.len())
            .map(|place| (place, widest(place).max(columns[place].heading.len())))
            .collect();
        let is_below = false;
        if !style.is_cut || total(&shown) <= style.width {
            return Self { shown, is_below };
        }
        let last = columns.last().filter(|column| column.narrowing == Narrowing::Words);
        loop {
            if let Some(shown) = narrowed(columns, &shown, style.width) {
                return Self { shown, is_below: false };
            }
            if last.is_some()
                && let Some(shown) = narrowed(columns, &shown[..shown.len() - 1], style.width)
            {
                return Self { shown, is_below: true };
            }
            let is_blank = |place: usize| {
                rows.iter()
                    .all(|row| row.get(place).is_none_or(|cell| is_nothing(cell)))
            };
            let leaves = shown.iter().filter_map(|&(place, _)| match columns[place].leaving {
                Leaving::No => None,
                Leaving::Blank | Leaving::Place(_) if is_blank(place) => Some((0, place)),
                Leaving::Blank => None,
                Leaving::Place(order) => Some((order, place)),
            });
            let Some((_, first)) = leaves.min() else {
                // Too narrow for what has to be there: the terminal breaks the lines.
                let is_below = last.is_some();
                shown.truncate(shown.len() - usize::from(is_below));
                let least = |&(place, width): &(usize, usize)| (place, width.min(columns[place].least_width(width)));
                return Self {
                    shown: shown.iter().map(least).collect(),
                    is_below,
                };
            };
            shown.retain(|&(place, _)| place != first);
        }
    }
}

impl Column {
    fn least_width(&self, width: usize) -> usize {
        match self.narrowing {
            Narrowing::No => width,
            _ => self.least.max(self.heading.len()).min(width),
        }
    }
}

/// The columns made narrower until they fit; none where they cannot.
fn narrowed(columns: &[Column], shown: &[(usize, usize)], width: usize) -> Option<Vec<(usize, usize)>> {
    let mut shown = shown.to_vec();
    for (place, own) in &mut shown {
        if matches!(columns[*place].narrowing, Narrowing::End | Narrowing::Words) {
            *own = columns[*place].least_width(*own);
        }
    }
    // The widest first, so that a short name stays whole beside a long one.
    while total(&shown) > width {
        let middles = shown.iter_mut().filter(|(place, own)| {
            columns[*place].narrowing == Narrowing::Middle && *own > columns[*place].least_width(*own)
        });
        middles.max_by_key(|(_, own)| *own)?.1 -= 1;
    }
    // What is left goes back to the last column, whose cells are cut or wrapped.
    let room = width - total(&shown);
    if let Some((place, own)) = shown.last_mut()
        && matches!(columns[*place].narrowing, Narrowing::End | Narrowing::Words)
    {
        *own += room;
    }
    Some(shown)
}

fn total(shown: &[(usize, usize)]) -> usize {
    shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
}

fn visible(cell: &str) -> usize {
    strip_color(cell).chars().count()
}

/// Nothing stands there.
fn is_nothing(cell: &str) -> bool {
    matches!(cell, "" | "-")
}

/// Rows under headings, columns as wide as their widest cell, two blanks between. Columns of numbers stand to the
/// right. A terminal's lines stay within its width, see [`Column`]; a pipe or a file gets every cell whole.
pub fn table(style: &Style, columns: &[Column], rows: &[Vec<String>]) -> String {
    let is_number = |place: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(place)).map(String::as_str);
        let is_right =
            |cell: &str| matches!(cell, "" | "-" | "?" | "none") || cell.starts_with(|c: char| c.is_ascii_digit());
        place + 1 < columns.len() && cells.all(is_right)
    };
    let layout = Layout::of(style, columns, rows);
    let numbers: Vec<bool> = layout.shown.iter().map(|&(place, _)| is_number(place)).collect();
    let heading: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    let mut text = String::new();
    for (number, row) in std::iter::once(&heading).chain(rows).enumerate() {
        let mut line = String::new();
        let mut lines_below = String::new();
        let mut begin = 0;
        for (i, &(place, width)) in layout.shown.iter().enumerate() {
            let narrowing = columns[place].narrowing;
            let is_last = i + 1 == layout.shown.len();
            let cell = row.get(place).map_or("", String::as_str);
            let cell = match narrowing {
                _ if !style.is_cut => cell.to_owned(),
                Narrowing::No => cell.to_owned(),
                Narrowing::End => style.fit(cell, width),
                Narrowing::Middle => style.fit_in_the_middle(cell, width),
                Narrowing::Words => wrapped(cell, begin + width, begin).trim_end().to_owned(),
            };
            let pad = " ".repeat(width.saturating_sub(visible(&cell)));
            match (is_last, numbers[i]) {
                (true, false) => line.push_str(&cell),
                (true, true) => line.push_str(&(pad + &cell)),
                (false, true) => line.push_str(&format!("{pad}{cell}  ")),
                (false, false) => line.push_str(&format!("{cell}{pad}  ")),
            }
            begin += width + GAP;
        }
        let below = row
            .last()
            .filter(|cell| layout.is_below && number > 0 && !is_nothing(cell));
        if let Some(cell) = below {
            lines_below = " ".repeat(BELOW) + &wrapped(cell, style.width, BELOW);
        }
        text.push_str(line.trim_end());
        text.push('\n');
        text.push_str(&lines_below);
    }
    text
}

/// A label and what it says: on a terminal by words, below itself; a pipe or a file gets one line.
pub fn described(style: &Style, label: &str, indent: usize, said: &str) -> String {
    let label = format!("{label:<indent$}");
    if style.is_cut {
        let used = label.chars().count();
        let is_narrow = style.width < indent + REASON_WIDTH;
        let indent = if is_narrow { BELOW } else { indent };
        label + &broken(said, style.width, used, indent)
    } else {
        label + said + "\n"
    }
}

fn strip_color(cell: &str) -> String {
    let mut plain = String::new();
    let mut rest = cell;
    while let Some(start) = rest.find("\x1b[") {
        plain.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        rest = after.find('m').map_or("", |end| &after[end + 1..]);
    }
    plain + rest
}

/// A heading of up to ten letters and what it says beside it, by words.
pub fn headed(style: &Style, heading: &str, said: &str) -> String {
    format!("{heading:<11}{}", wrapped(&style.text(said), style.width, 11))
}

/// Lines of at most `width` columns, cut at blanks; all but the first are indented, and the first is taken to be. A
/// longer word stays whole.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    broken(text, width, indent, indent)
}

/// The same behind something of `used` columns.
fn broken(text: &str, width: usize, mut used: usize, indent: usize) -> String {
    let mut lines = String::new();
    for (i, word) in text.split(' ').enumerate() {
        let length = visible(word);
        let blank = usize::from(i > 0);
        if used > indent && used + blank + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = indent;
        } else if i > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines.push('\n');
    lines
}

/// The words that a hurried reader needs first: `1 job`, `3 jobs`.
pub fn count(number: usize, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stays_within_the_width_and_ignores_colour_codes() {
        let style = Style {
            has_color: true,
            is_utf8: true,
            width: 30,
            is_cut: true,
        };
        let rows = vec![
            vec![
                "j1".to_owned(),
                style.state("running"),
                "python train.py --epochs 100".to_owned(),
            ],
            vec!["j12".to_owned(), "ended".to_owned(), "true".to_owned()],
        ];
        let columns = [Column::new("JOB"), Column::new("STATE"), Column::new("COMMAND").cut(8)];
        let text = table(&style, &columns, &rows);
        let lines: Vec<String> = text.lines().map(strip_color).collect();
        assert_eq!(
            lines,
            [
                "JOB  STATE    COMMAND",
                "j1   running  python train.py…",
                "j12  ended    true"
            ]
        );
        let whole = Style { is_cut: false, ..style };
        let text = table(&whole, &columns, &rows);
        assert!(text.contains("python train.py --epochs 100"), "{text}");
        let amounts = [["8.0 GiB", "x"], ["10.5 GiB", "1"], ["none", "y"]].map(|row| row.map(str::to_owned).to_vec());
        let text = table(&whole, &[Column::new("USED"), Column::new("COMMAND")], &amounts);
        assert_eq!(text, "    USED  COMMAND\n 8.0 GiB  x\n10.5 GiB  1\n    none  y\n");
    }

    #[test]
    fn long_texts_are_wrapped_at_blanks() {
        assert_eq!(
            wrapped("one two three", 26, 18),
            format!("one two\n{}three\n", " ".repeat(18))
        );
        assert_eq!(wrapped("averyverylongword x", 10, 2), "averyverylongword\n  x\n");
    }
}
