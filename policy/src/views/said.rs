// SPDX-License-Identifier: Apache-2.0
//! The words of what decisions come to: the sentences and documents that callers get.
//!
//! A refusal or a notice is one row of a table: its facts, and the sentence that they make. Of the same rows
//! `crate::refusal` and `crate::notice` declare the facts, which is all that decisions know.

/// Declares the facts of a table.
macro_rules! facts {
    ($(#[$doc:meta])* $vis:vis $name:ident:
     $( $(#[$note:meta])* $row:ident($($fact:ident: $of:ty),*) $(= $code:tt)? [$($say:tt)*] $([$($hint:tt)*])?; )*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        $vis enum $name {
            $( $(#[$note])* $row($($of),*), )*
        }
    };
}

/// Has what a table declares display as its sentences.
macro_rules! sentences {
    ($(#[$doc:meta])* $vis:vis $name:ident:
     $( $(#[$note:meta])* $row:ident($($fact:ident: $of:ty),*) $(= $code:tt)? [$($say:tt)*] $([$($hint:tt)*])?; )*) => {
        impl std::fmt::Display for $name {
            #[allow(unused_variables)] // Some facts are the hint's alone.
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $( Self::$row($($fact),*) => write!(out, $($say)*), )*
                }
            }
        }
    };
}

#[macro_use]
mod notices;
#[macro_use]
mod refusals;
mod replies;

pub use notices::stands;

/// As people read it.
fn bytes(bytes: &u64) -> String {
    partage_protocol::size::format_bytes(*bytes)
}

fn span(ns: &u64) -> String {
    partage_protocol::size::format_duration(*ns)
}

fn part(ppm: &u32) -> String {
    partage_protocol::terms::format_part(*ppm)
}

/// `a, b, c`.
fn list<T: ToString>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
