// SPDX-License-Identifier: Apache-2.0
//! Frames of every state at three sizes, each beside its file in `cli/tests/cli/golden/`. After a change that is meant:
//! `PARTAGE_WRITE_GOLDEN=1 cargo test -p partage-cli --bin partage top`, and read the difference.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use ratatui_core::style::Color;

use super::*;
use crate::top::keys::Key;
use crate::top::screen::Screen;
use crate::top::state::press::press;
use crate::top::testing::{self, terminal};

const SIZES: [(u16, u16); 3] = [(60, 20), (80, 24), (200, 60)];

#[track_caller]
fn judge(name: &str, is_utf8: bool, make: impl Fn() -> State) {
    let mut made = String::new();
    for (width, height) in SIZES {
        let frame = frame(&mut make(), terminal(is_utf8), width, height);
        let text = lines(&frame);
        assert_eq!(text.lines().count(), usize::from(height));
        assert!(is_utf8 || text.is_ascii(), "{text}");
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text}");
        made.push_str(&format!("--- {width}x{height}\n{text}"));
    }
    let path = format!("{}/tests/cli/golden/top-{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("PARTAGE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &made).expect("writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{path} has\n{kept}\nbut now it is\n{made}");
}

/// After a minute in which the first job got ever more.
fn full() -> State {
    let mut state = State::default();
    for second in 0..60 {
        let mut shot = testing::full();
        let time = shot.jobs[0].devices[0].time.as_mut().expect("measured");
        time.got_1s = f64::from(second + 1) / 100.0;
        state.take(shot);
    }
    state
}

#[test]
fn frames_are_as_they_were() {
    judge("empty", true, || testing::state(testing::empty()));
    judge("full", true, full);
    judge("sick", true, || testing::state(testing::sick()));
    judge("suspended", true, || testing::state(testing::suspended()));
    judge("500-jobs", true, || {
        let mut state = testing::state(testing::many(500));
        press(&mut state, Key::End);
        state
    });
    judge("ascii", false, full);
    judge("no-broker", true, || {
        let mut state = full();
        state.miss(
            "no broker at /run/partage; this host's administrator starts it",
            "17:01:03 UTC",
        );
        state
    });
    judge("never-a-broker", true, || {
        let mut state = State::default();
        state.miss(
            "no broker at /tmp/partage-1000; the next `partage run` starts one",
            "17:01:03 UTC",
        );
        state
    });
    judge("users", true, || {
        let mut state = full();
        press(&mut state, Key::Char('t'));
        press(&mut state, Key::Down);
        state
    });
}

#[test]
fn what_stands_over_the_table_is_as_it_was() {
    judge("help", true, || {
        let mut state = full();
        press(&mut state, Key::Char('?'));
        state
    });
    judge("why", false, || {
        let mut state = full();
        state.mode = Mode::Said(vec![
            "partage why j42".to_owned(),
            "j41\x1b[31m has the GPU… ".repeat(12),
        ]);
        state
    });
    judge("confirm", true, || {
        let mut state = full();
        press(&mut state, Key::Char('x'));
        state
    });
}

#[test]
fn colour_says_nothing_alone_and_is_left_out_where_it_is_unwanted() {
    let colours = |has_color| {
        let style = Style {
            has_color,
            ..terminal(true)
        };
        let frame = frame(&mut full(), style, 80, 24);
        let colours = frame
            .content
            .iter()
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        (colours.count(), lines(&frame))
    };
    let (with, without) = (colours(true), colours(false));
    assert!(with.0 > 0 && without.0 == 0, "{} {}", with.0, without.0);
    assert_eq!(with.1, without.1);
}

#[test]
fn a_terminal_that_is_too_small_is_told_so() {
    assert!(lines(&frame(&mut full(), terminal(true), 59, 24)).starts_with("59x24: top needs 60x10"));
    assert!(lines(&frame(&mut full(), terminal(true), 80, 9)).starts_with("80x9: top needs"));
    for (width, height) in [(1, 1), (60, 10), (61, 11), (64, 12), (1000, 1000)] {
        frame(&mut full(), terminal(true), width, height);
    }
}

#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Vec<u8>>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn only_what_changed_is_written() {
    let wire = Wire::default();
    let mut screen = Screen::new(wire.clone());
    let style = Style {
        has_color: true,
        ..terminal(true)
    };
    let mut state = full();
    let mut show = |state: &mut State| {
        let before = wire.0.borrow().len();
        screen.show(frame(state, style, 200, 60)).expect("writable");
        wire.0.borrow().len() - before
    };
    assert!(show(&mut state) > 2048);
    assert_eq!(show(&mut state), 0);
    // The same words a second later: the minute moved on, in which nothing else changed.
    let mut idle = testing::state(testing::suspended());
    show(&mut idle);
    idle.take(testing::suspended());
    assert_eq!(show(&mut idle), 0);
    // Ten cells in ten places: the worst there is.
    let mut first = frame(&mut idle, style, 200, 60);
    screen.show(first.clone()).expect("writable");
    for place in 0..10 {
        first[(place * 19, 40 + place)]
            .set_symbol("▓")
            .set_fg(Color::Indexed(200 + place as u8));
    }
    let before = wire.0.borrow().len();
    screen.show(first).expect("writable");
    let written = wire.0.borrow().len() - before;
    assert!(written > 0 && written < 2048, "{written} bytes");
}

#[test]
fn no_text_of_a_job_steers_the_terminal() {
    let wire = Wire::default();
    let mut screen = Screen::new(wire.clone());
    screen
        .show(frame(&mut full(), terminal(true), 200, 60))
        .expect("writable");
    let said = String::from_utf8(wire.0.borrow().clone()).expect("text");
    assert!(said.contains("fine-tun") && said.contains("train.py"), "{said}");
    assert!(!said.contains("\x1b]0;") && !said.contains('\x07'), "{said}");
    // Once, to begin with.
    assert_eq!(said.matches("\x1b[2J").count(), 1);
}

#[test]
fn one_frame_as_text_has_every_job() {
    let pipe = Style {
        is_cut: false,
        ..terminal(true)
    };
    let said = text(&mut testing::state(testing::many(500)), pipe);
    for job in ["j1 ", "j250 ", "j500 "] {
        assert!(said.contains(job), "{job} of {said}");
    }
    assert!(!said.contains('>') && said.ends_with('\n'));
    let full = text(&mut full(), pipe);
    assert!(full.contains("unmanaged: pid 77"), "{full}");
}
