// SPDX-License-Identifier: Apache-2.0
//! Where a frame is drawn: text that other people chose is cleaned here, and colour is left out where nobody wants it.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use crate::show::terminal;

/// What a text means to the eye. Each is also a word or a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// As the terminal writes.
    Plain,
    /// A heading.
    Bold,
    /// Beside the point, or old.
    Dim,
    /// Well; memory of jobs.
    Good,
    /// Worth a thought.
    Warn,
    /// Broken.
    Bad,
    /// Promised.
    Promised,
    /// Of processes of no job.
    Unmanaged,
}

impl Ink {
    /// Of a state word.
    pub fn of_state(word: &str) -> Self {
        match terminal::state_color(word) {
            Some(31) => Self::Bad,
            Some(33) => Self::Warn,
            Some(_) => Self::Good,
            None => Self::Plain,
        }
    }

    fn style(self, has_color: bool) -> Style {
        let color = match self {
            Self::Bold => return Style::new().add_modifier(Modifier::BOLD),
            Self::Dim => return Style::new().add_modifier(Modifier::DIM),
            Self::Plain => return Style::new(),
            Self::Good => Color::Green,
            Self::Warn => Color::Yellow,
            Self::Bad => Color::Red,
            Self::Promised => Color::Cyan,
            Self::Unmanaged => Color::Magenta,
        };
        if has_color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }
}

/// A frame that is being drawn.
pub struct Canvas {
    buffer: Buffer,
    terminal: terminal::Style,
}

impl Canvas {
    /// An empty one.
    pub fn new(area: Rect, terminal: terminal::Style) -> Self {
        Self {
            buffer: Buffer::empty(area),
            terminal,
        }
    }

    /// What was drawn.
    pub fn done(self) -> Buffer {
        self.buffer
    }

    /// Columns.
    pub fn width(&self) -> u16 {
        self.buffer.area.width
    }

    /// Lines.
    pub fn height(&self) -> u16 {
        self.buffer.area.height
    }

    /// The terminal that it is for.
    pub fn terminal(&self) -> &terminal::Style {
        &self.terminal
    }

    /// The one where the terminal writes UTF-8, else the other.
    pub fn either<T>(&self, utf8: T, ascii: T) -> T {
        if self.terminal.is_utf8 { utf8 } else { ascii }
    }

    /// Writes a text, cut to `width` cells, and answers where it ended. What is outside is left out.
    pub fn put(&mut self, x: u16, y: u16, width: u16, text: &str, ink: Ink) -> u16 {
        if y >= self.height() || x >= self.width() {
            return x;
        }
        let text = self.terminal.fit(text, usize::from(width));
        let style = ink.style(self.terminal.has_color);
        self.buffer.set_stringn(x, y, text, usize::from(width), style).0
    }

    /// Writes a text that ends at `x + width`.
    pub fn put_right(&mut self, x: u16, y: u16, width: u16, text: &str, ink: Ink) {
        let text = self.terminal.fit(text, usize::from(width));
        let length = u16::try_from(text.chars().count()).unwrap_or(width);
        self.put(x + width.saturating_sub(length), y, length, &text, ink);
    }

    /// Turns the colours of a whole line round.
    pub fn mark_line(&mut self, y: u16) {
        let line = Rect::new(0, y, self.width(), 1).intersection(self.buffer.area);
        self.buffer
            .set_style(line, Style::new().add_modifier(Modifier::REVERSED));
    }

    /// A whole line, faint.
    pub fn fade_line(&mut self, y: u16) {
        let line = Rect::new(0, y, self.width(), 1).intersection(self.buffer.area);
        self.buffer.set_style(line, Style::new().add_modifier(Modifier::DIM));
    }

    /// Takes away what was drawn in these lines.
    pub fn clear_lines(&mut self, from: u16, to: u16) {
        for y in from..to.min(self.height()) {
            for x in 0..self.width() {
                self.buffer[(x, y)].reset();
            }
        }
    }
}
