// SPDX-License-Identifier: Apache-2.0
//! `top` on a terminal: waits for keys, signals and news at once, and draws.

use std::io::{self, BufWriter, Stdout};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::failure::{Failure, Outcome, reason};
use crate::launch::place::Place;
use crate::show::report;
use crate::show::terminal::{self, Style};
use crate::top::keys;
use crate::top::screen::{Modes, Screen};
use crate::top::source::{self, Answer, Mailbox, News};
use crate::top::state::State;
use crate::top::state::mode::{Effect, Mode};
use crate::top::state::press;
use crate::top::view;

/// All of it while it runs.
struct Window<'a> {
    state: State,
    place: &'a Place,
    style: Style,
    screen: Screen<BufWriter<Stdout>>,
    mailbox: Mailbox,
    news: Receiver<News>,
}

/// Why it ends.
enum End {
    /// Somebody wanted it, or the terminal is gone.
    Left,
    /// A signal came.
    Signal(Signal),
}

const SIGNALS: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// Shows `top` until somebody leaves it.
///
/// # Errors
/// The terminal cannot be used.
pub fn open(state: State, place: &Place, style: Style) -> Outcome<u8> {
    let failed = |error: io::Error| Failure::failed(format!("cannot use this terminal: {}", reason(&error)));
    // Before any thread is there: they leave the signals to this one.
    let mask: SigSet = SIGNALS.into_iter().collect();
    let signals = mask
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
    let signals = signals.map_err(|errno| failed(errno.into()))?;
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
    let wake = Arc::new(wake.map_err(|errno| failed(errno.into()))?);
    let (sender, news) = channel();
    let mailbox = Mailbox::new(sender, Arc::clone(&wake));
    source::begin(place, mailbox.clone());
    let modes = Modes::take().map_err(failed)?;
    let mut window = Window {
        state,
        place,
        style,
        screen: Screen::new(BufWriter::with_capacity(1 << 16, io::stdout())),
        mailbox,
        news,
    };
    // A terminal that is gone ends it; there is nobody to tell.
    let end = window.run(&modes, &signals, &wake).unwrap_or(End::Left);
    drop(modes);
    match end {
        End::Left => Ok(0),
        End::Signal(signal) => Ok(u8::try_from(128 + signal as i32).unwrap_or(1)),
    }
}

impl Window<'_> {
    fn run(&mut self, modes: &Modes, signals: &SignalFd, wake: &EventFd) -> io::Result<End> {
        let input = io::stdin();
        loop {
            self.draw()?;
            let mut waits = [input.as_fd(), signals.as_fd(), wake.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut waits, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let [has_keys, has_signals, has_news] = waits.map(|wait| wait.any().unwrap_or(true));
            if has_signals {
                while let Ok(Some(signal)) = signals.read_signal() {
                    let signal = i32::try_from(signal.ssi_signo)
                        .ok()
                        .and_then(|number| Signal::try_from(number).ok());
                    if let Some(end) = signal.map_or(Ok(None), |signal| self.hear_signal(modes, signal))? {
                        return Ok(end);
                    }
                }
            }
            if has_news {
                let _ = wake.read();
                while let Ok(news) = self.news.try_recv() {
                    self.take(news);
                }
            }
            if has_keys {
                let mut bytes = [0; 256];
                let length = nix::unistd::read(&input, &mut bytes)?;
                if length == 0 {
                    return Ok(End::Left);
                }
                for key in keys::keys(&bytes[..length]) {
                    if let Some(end) = self.press(modes, key)? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let size = terminal::size(io::stdout().as_raw_fd()).unwrap_or((80, 24));
        let cells = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).min(1000);
        let frame = view::frame(&mut self.state, self.style, cells(size.0), cells(size.1));
        self.screen.show(frame)
    }

    fn hear_signal(&mut self, modes: &Modes, signal: Signal) -> io::Result<Option<End>> {
        match signal {
            // The next frame is made for the new size.
            Signal::SIGWINCH => {}
            Signal::SIGCONT => {
                modes.take_again()?;
                self.screen.forget();
            }
            Signal::SIGTSTP => self.stop(modes)?,
            other => return Ok(Some(End::Signal(other))),
        }
        Ok(None)
    }

    /// Stops this process, as a shell's Ctrl-Z does, with the terminal as it was.
    fn stop(&mut self, modes: &Modes) -> io::Result<()> {
        modes.give_back();
        raise(Signal::SIGSTOP)?;
        modes.take_again()?;
        self.screen.forget();
        Ok(())
    }

    fn press(&mut self, modes: &Modes, key: keys::Key) -> io::Result<Option<End>> {
        match press::press(&mut self.state, key) {
            Effect::Draw => {}
            Effect::Redraw => self.screen.forget(),
            Effect::Leave => return Ok(Some(End::Left)),
            Effect::Stop => self.stop(modes)?,
            Effect::Ask(ask) => source::perform(self.place, ask, self.mailbox.clone()),
        }
        Ok(None)
    }

    fn take(&mut self, news: News) {
        match news {
            News::Shot(shot) => match *shot {
                Ok(shot) => self.state.take(shot),
                Err(failure) => self.state.miss(&failure.sentence(), &clock()),
            },
            News::Answer(_, Ok(Answer::Done(message))) => self.state.message = Some(message),
            News::Answer(ask, Ok(Answer::Why(sentences))) => {
                let head = format!("partage {}", ask.words());
                self.state.mode = Mode::Said(std::iter::once(head).chain(sentences).collect());
            }
            News::Answer(ask, Err(failure)) => {
                self.state.message = Some(format!("{}: {}", ask.words(), failure.sentence()));
            }
        }
    }
}

/// `17:01:03 UTC`.
pub fn clock() -> String {
    let now = report::timestamp(report::moment(report::now_ns()));
    format!("{} UTC", now.get(11..19).unwrap_or(&now))
}
