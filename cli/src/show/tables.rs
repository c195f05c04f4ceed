// SPDX-License-Identifier: Apache-2.0
//! Columns and lines of a terminal's width.

use crate::show::terminal::Style;

/// What a waiting job asks: `25%`, `25% 30% time`, `30% time`, `-`.
pub fn asks(mem: Option<&str>, compute: Option<&str>) -> String {
    let time = compute.map(|part| format!("{part} time"));
    let parts: Vec<String> = mem.map(str::to_owned).into_iter().chain(time).collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(" ")
    }
}

/// Rows under headings, columns as wide as their widest cell, two blanks between. Columns of numbers stand to the
/// right; on a terminal the last column is cut to the width.
pub fn table(style: &Style, headings: &[&str], rows: &[Vec<String>]) -> String {
    let columns = headings.len();
    let visible = |cell: &str| strip_color(cell).chars().count();
    let is_number = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        let is_right =
            |cell: &str| matches!(cell, "" | "-" | "?" | "none") || cell.starts_with(|c: char| c.is_ascii_digit());
        column + 1 < columns && cells.all(is_right)
    };
    let numbers: Vec<bool> = (0..columns).map(is_number).collect();
    let mut widths: Vec<usize> = headings.iter().map(|h| h.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(visible(cell));
        }
    }
    let mut text = String::new();
    let heading: Vec<String> = headings.iter().map(|&h| h.to_owned()).collect();
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        let mut used = 0;
        for (i, cell) in row.iter().enumerate().take(columns) {
            let pad = " ".repeat(widths[i] - visible(cell));
            if i + 1 == columns && style.is_cut {
                line.push_str(&style.fit(cell, style.width.saturating_sub(used).max(8)));
            } else if numbers[i] {
                line.push_str(&format!("{pad}{cell}  "));
            } else {
                line.push_str(&format!("{cell}{pad}  "));
            }
            used += widths[i] + 2;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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

/// Lines of at most `width` columns, cut at blanks; all but the first are indented, and the first is taken to be. A
/// longer word stays whole.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut used = indent;
    for (i, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if i > 0 && used + 1 + length > width {
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
        let text = table(&style, &["JOB", "STATE", "COMMAND"], &rows);
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
        let text = table(&whole, &["JOB", "STATE", "COMMAND"], &rows);
        assert!(text.contains("python train.py --epochs 100"), "{text}");
        let amounts = [["8.0 GiB", "x"], ["10.5 GiB", "1"], ["none", "y"]].map(|row| row.map(str::to_owned).to_vec());
        let text = table(&whole, &["USED", "COMMAND"], &amounts);
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
