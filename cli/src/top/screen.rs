// SPDX-License-Identifier: Apache-2.0
//! The terminal: its modes while `top` has it, and frames of which only the changes are written.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::backend::Backend;
use ratatui_core::buffer::Buffer;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::style::ResetColor;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// The terminal is ours, and somebody has to give it back.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal's modes. It has its own again when this is dropped, and before a panic says why.
pub struct Modes;

impl Modes {
    /// Takes the terminal: no echo, a screen of its own, no cursor.
    ///
    /// # Errors
    /// It is none, or it is gone.
    pub fn take() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            give_back();
            before(why);
        }));
        take()?;
        Ok(Self)
    }

    /// Takes it again, after somebody else had it.
    ///
    /// # Errors
    /// It is gone.
    pub fn take_again(&self) -> io::Result<()> {
        give_back();
        take()
    }

    /// Gives it back for a while.
    pub fn give_back(&self) {
        give_back();
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    IS_OURS.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        // Nobody is left to hear of an error.
        let _ = execute!(io::stdout(), ResetColor, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// What the terminal shows, written through `W`.
pub struct Screen<W: Write> {
    backend: CrosstermBackend<W>,
    shown: Option<Buffer>,
}

impl<W: Write> Screen<W> {
    /// Nothing is shown yet.
    pub fn new(out: W) -> Self {
        Self {
            backend: CrosstermBackend::new(out),
            shown: None,
        }
    }

    /// The next frame is written whole.
    pub fn forget(&mut self) {
        self.shown = None;
    }

    /// Shows a frame: cells that changed are written, and where none did, nothing is.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&mut self, next: Buffer) -> io::Result<()> {
        let before = match self.shown.take() {
            Some(shown) if shown.area == next.area => shown,
            _ => {
                self.backend.clear()?;
                Buffer::empty(next.area)
            }
        };
        let changes = before.diff(&next);
        if !changes.is_empty() {
            self.backend.draw(changes.into_iter())?;
            Backend::flush(&mut self.backend)?;
        }
        self.shown = Some(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use nix::sys::termios::tcgetattr;

    use super::*;

    #[test]
    #[ignore = "fails on purpose; the next test starts it in a terminal of its own"]
    fn fails_with_the_terminal() {
        let _modes = Modes::take().expect("a terminal");
        panic!("on purpose");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_says_why() {
        let terminal = nix::pty::openpty(None, None).expect("a terminal");
        let before = tcgetattr(&terminal.slave).expect("a terminal");
        let slave = || terminal.slave.try_clone().expect("dup");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([
            "--exact",
            "top::screen::tests::fails_with_the_terminal",
            "--ignored",
            "--nocapture",
        ]);
        let mut child = command
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("starts");
        drop(command);
        assert!(!child.wait().expect("ours").success());
        let after = tcgetattr(&terminal.slave).expect("a terminal");
        drop(terminal.slave);
        let mut said = Vec::new();
        // The end of a terminal is an error.
        let _ = std::fs::File::from(terminal.master).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("no {text:?} in {said:?}"));
        assert!(
            place("\x1b[?1049h") < place("\x1b[?1049l") && place("\x1b[?1049l") < place("on purpose"),
            "{said:?}"
        );
        assert!(place("\x1b[?25h") < place("on purpose"), "{said:?}");
        assert_eq!(
            (before.local_flags, before.input_flags),
            (after.local_flags, after.input_flags)
        );
    }
}
