// SPDX-License-Identifier: Apache-2.0
//! What a key means, and what it makes of the state.

use crate::top::keys::Key;
use crate::top::state::State;
use crate::top::state::mode::{Ask, Effect, Mode, Verb};
use crate::top::state::rows::Filter;

/// Takes a key.
pub fn press(state: &mut State, key: Key) -> Effect {
    match key {
        Key::Interrupt => return Effect::Leave,
        Key::Stop => return Effect::Stop,
        Key::Redraw => return Effect::Redraw,
        _ => state.message = None,
    }
    match std::mem::take(&mut state.mode) {
        Mode::Table => in_table(state, key),
        // Any key closes them.
        Mode::Help | Mode::Said(_) => Effect::Draw,
        Mode::Filter(text) => in_filter(state, text, key),
        Mode::Settings(job, text) => in_settings(state, job, text, key),
        Mode::Confirm(ask) => match key {
            Key::Char('y' | 'Y') => {
                state.message = Some(format!("asked: {}", ask.words()));
                Effect::Ask(ask)
            }
            _ => {
                state.message = Some(format!("not done: {}", ask.words()));
                Effect::Draw
            }
        },
    }
}

fn in_table(state: &mut State, key: Key) -> Effect {
    let page = isize::try_from(state.page.max(1)).unwrap_or(isize::MAX);
    match key {
        Key::Char('q') => return Effect::Leave,
        Key::Char('?' | 'h') => state.mode = Mode::Help,
        Key::Up => state.choose(-1),
        Key::Down => state.choose(1),
        Key::PageUp => state.choose(-page),
        Key::PageDown => state.choose(page),
        Key::Home => state.choose(isize::MIN),
        Key::End => state.choose(isize::MAX),
        Key::Char('o') => state.order = state.order.next(),
        Key::Char('O') => state.order.is_reversed = !state.order.is_reversed,
        Key::Char('t') => state.is_tree = !state.is_tree,
        Key::Char('/') => state.mode = Mode::Filter(state.filter.text.clone()),
        Key::Escape => {
            state.filter = Filter::default();
            state.keep_chosen();
        }
        Key::Char('w') | Key::Enter => return about_chosen(state, Verb::Why),
        Key::Char('z') => return about_chosen(state, Verb::Suspend),
        Key::Char('r') => return about_chosen(state, Verb::Resume),
        Key::Char('x') => return about_chosen(state, Verb::Stop),
        Key::Char('e') => return about_chosen(state, Verb::Set(String::new())),
        _ => {}
    }
    Effect::Draw
}

/// `why` is asked at once, settings are typed first, and the rest is confirmed.
fn about_chosen(state: &mut State, verb: Verb) -> Effect {
    let Some(job) = state.chosen.clone() else {
        state.message = Some("no job is chosen".to_owned());
        return Effect::Draw;
    };
    match verb {
        Verb::Why => return Effect::Ask(Ask { job, verb }),
        Verb::Set(text) => state.mode = Mode::Settings(job, text),
        verb => state.mode = Mode::Confirm(Ask { job, verb }),
    }
    Effect::Draw
}

fn in_filter(state: &mut State, text: String, key: Key) -> Effect {
    match typed(text, key) {
        Typed::More(text) => state.mode = Mode::Filter(text),
        Typed::Given(text) => match Filter::read(&text) {
            Ok(filter) => {
                state.filter = filter;
                state.keep_chosen();
            }
            Err(failure) => {
                state.message = Some(failure.sentence());
                state.mode = Mode::Filter(text);
            }
        },
        Typed::Dropped => {}
    }
    Effect::Draw
}

fn in_settings(state: &mut State, job: String, text: String, key: Key) -> Effect {
    match typed(text, key) {
        Typed::More(text) => state.mode = Mode::Settings(job, text),
        Typed::Given(text) if text.trim().is_empty() => {}
        Typed::Given(text) => {
            let verb = Verb::Set(text.trim().to_owned());
            state.mode = Mode::Confirm(Ask { job, verb });
        }
        Typed::Dropped => {}
    }
    Effect::Draw
}

enum Typed {
    More(String),
    Given(String),
    Dropped,
}

/// Letters that a line may have.
const LONGEST: usize = 200;

fn typed(mut text: String, key: Key) -> Typed {
    match key {
        Key::Enter => return Typed::Given(text),
        Key::Escape => return Typed::Dropped,
        Key::Backspace => drop(text.pop()),
        Key::Char(letter) if text.len() < LONGEST => text.push(letter),
        _ => {}
    }
    Typed::More(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    fn type_in(state: &mut State, text: &str) -> Effect {
        let mut last = Effect::Draw;
        for letter in text.chars() {
            let key = if letter == '\n' { Key::Enter } else { Key::Char(letter) };
            last = press(state, key);
        }
        last
    }

    #[test]
    fn what_changes_a_job_is_confirmed_first() {
        let mut state = testing::state(testing::full());
        assert_eq!(type_in(&mut state, "x"), Effect::Draw);
        assert_eq!(type_in(&mut state, "n"), Effect::Draw);
        assert_eq!(state.message.as_deref(), Some("not done: stop j41"));
        let ask = |verb| {
            Effect::Ask(Ask {
                job: "j41".to_owned(),
                verb,
            })
        };
        assert_eq!(type_in(&mut state, "xy"), ask(Verb::Stop));
        assert_eq!(type_in(&mut state, "zy"), ask(Verb::Suspend));
        assert_eq!(type_in(&mut state, "ry"), ask(Verb::Resume));
        assert_eq!(type_in(&mut state, "emem=8GiB\n"), Effect::Draw);
        assert_eq!(type_in(&mut state, "y"), ask(Verb::Set("mem=8GiB".to_owned())));
        assert_eq!(type_in(&mut state, "w"), ask(Verb::Why));
    }

    #[test]
    fn a_filter_leaves_the_jobs_that_it_means() {
        let mut state = testing::state(testing::full());
        type_in(&mut state, "/user=bob\n");
        assert_eq!(state.shown(), ["j42"]);
        assert_eq!(state.chosen.as_deref(), Some("j42"));
        type_in(&mut state, "/");
        press(&mut state, Key::Escape);
        press(&mut state, Key::Escape);
        type_in(&mut state, "/EVAL\n");
        assert_eq!(state.shown(), ["j42"]);
        type_in(&mut state, "/x=\n");
        assert!(
            matches!(&state.mode, Mode::Filter(text) if text == "EVALx="),
            "{:?}",
            state.mode
        );
        assert!(state.message.is_some());
    }

    #[test]
    fn the_chosen_job_moves_and_never_leaves_the_table() {
        let mut state = testing::state(testing::full());
        assert_eq!(state.chosen.as_deref(), Some("j41"));
        press(&mut state, Key::Down);
        assert_eq!(state.chosen.as_deref(), Some("j42"));
        press(&mut state, Key::End);
        press(&mut state, Key::Down);
        assert_eq!(state.chosen.as_ref(), state.shown().last());
        press(&mut state, Key::Home);
        press(&mut state, Key::Up);
        assert_eq!(state.chosen.as_deref(), Some("j41"));
        state.take(testing::empty());
        assert_eq!(
            (state.chosen.clone(), press(&mut state, Key::Char('x'))),
            (None, Effect::Draw)
        );
        assert_eq!(state.message.as_deref(), Some("no job is chosen"));
    }

    #[test]
    fn every_column_sorts_and_the_order_comes_round() {
        let mut state = testing::state(testing::full());
        let names: Vec<&str> = crate::top::fields::all()
            .map(|_| {
                press(&mut state, Key::Char('o'));
                assert_eq!(state.shown().len(), 4);
                state.order.field.name
            })
            .collect();
        assert_eq!((names[0], names.last().copied()), ("name", Some("job")));
        press(&mut state, Key::Char('O'));
        assert_eq!(state.shown()[0], "j44");
    }
}
