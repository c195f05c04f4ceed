// SPDX-License-Identifier: Apache-2.0
//! The number that epoll returns with an event, and the descriptor that it stands for.

use crate::peer::ConnectionId;
use crate::site::effect::WatchId;

/// Connections and watches count up from here; the lowest bit tells them apart.
const FIRST: u64 = 16;

/// A descriptor of the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The clients' listener.
    Client,
    /// The administrators' listener.
    Admin,
    /// Signals to the broker.
    Signal,
    /// The devices' side.
    Gpu,
    /// Checked pages of clients that came back.
    Foreign,
    /// Reports of the dispatcher.
    Dispatcher,
    /// Checkpoint helpers.
    Checkpoint,
    /// The helper of the user database.
    Users,
    /// Views that are made.
    Views,
    /// Pages of events.
    History,
    /// A watched process.
    Watch(WatchId),
    /// A connection.
    Connection(ConnectionId),
}

impl Token {
    /// The number for the kernel.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Client => 1,
            Self::Admin => 2,
            Self::Signal => 3,
            Self::Gpu => 4,
            Self::Foreign => 5,
            Self::Dispatcher => 6,
            Self::Checkpoint => 7,
            Self::Users => 8,
            Self::Views => 9,
            Self::History => 10,
            Self::Watch(id) => FIRST + id.0 * 2,
            Self::Connection(id) => FIRST + id.0 * 2 + 1,
        }
    }

    /// What the kernel's number stands for; `None` for one that was never given.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Client,
            2 => Self::Admin,
            3 => Self::Signal,
            4 => Self::Gpu,
            5 => Self::Foreign,
            6 => Self::Dispatcher,
            7 => Self::Checkpoint,
            8 => Self::Users,
            9 => Self::Views,
            10 => Self::History,
            number => {
                let id = number.checked_sub(FIRST)?;
                match id % 2 {
                    0 => Self::Watch(WatchId(id / 2)),
                    _ => Self::Connection(ConnectionId(id / 2)),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_stands_for_the_token_that_it_was_made_of() {
        let fixed = [
            Token::Client,
            Token::Admin,
            Token::Signal,
            Token::Gpu,
            Token::Foreign,
            Token::Dispatcher,
            Token::Checkpoint,
            Token::Users,
            Token::Views,
        ];
        let counted = (0..20).flat_map(|id| [Token::Watch(WatchId(id)), Token::Connection(ConnectionId(id))]);
        let all: Vec<Token> = fixed.into_iter().chain(counted).collect();
        let mut numbers: Vec<u64> = all.iter().map(|token| token.number()).collect();
        assert!(all.iter().all(|token| Token::of_number(token.number()) == Some(*token)));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len(), "no two share one");
        assert_eq!(Token::of_number(0), None);
    }
}
