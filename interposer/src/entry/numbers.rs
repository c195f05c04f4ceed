// SPDX-License-Identifier: Apache-2.0
//! Which rows are numbers ([`by_words`](super::by_words)), and the table of what is their own.

/// Expands to the first part where a row's arguments are words, few enough for the registers of each processor with one
/// to spare, and else to the second.
macro_rules! by_words {
    (cuIpcOpenEventHandle $arguments:tt $words:tt { $($own:tt)* }) => { $($own)* };
    (cuIpcOpenMemHandle $arguments:tt $words:tt { $($own:tt)* }) => { $($own)* };
    (cuIpcOpenMemHandle_v2 $arguments:tt $words:tt { $($own:tt)* }) => { $($own)* };
    (
        $symbol:ident($($a:ident $(, $b:ident $(, $c:ident $(, $d:ident $(, $e:ident)?)?)?)?)?)
        { $($words:tt)* } $own:tt
    ) => { $($words)* };
    ($symbol:ident $arguments:tt $words:tt { $($own:tt)* }) => { $($own)* };
}

/// What the table names: what is a numbered row's own, and nothing for the other rows.
macro_rules! numbered_bodies {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        $( numbered_body! { $word ($($($operand)*)?) $symbol($($arg),*) } )*
    };
}

macro_rules! numbered_body {
    (pass $operand:tt $symbol:ident $arguments:tt) => {
        pub(in crate::entry) use crate::entry::not_ours as $symbol;
    };
    (gate (launch $($rest:tt)*) $symbol:ident $arguments:tt) => {
        pub(in crate::entry) use crate::entry::not_ours as $symbol;
    };
    ($word:ident $operand:tt $symbol:ident($($arg:ident),*)) => {
        by_words! {
            $symbol($($arg),*)
            { pub use super::outermost::$symbol; }
            { pub(in crate::entry) use crate::entry::not_ours as $symbol; }
        }
    };
}

/// Where what is a numbered row's own is, as distances from the table's start; 0 for every other hooked row.
macro_rules! numbered_table {
    ($( [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?; )*) => {
        core::arch::global_asm!(
            ".pushsection .rodata.partage_numbered,\"a\",%progbits",
            ".balign 4",
            ".globl partage_numbered",
            ".hidden partage_numbered",
            ".type partage_numbered, %object",
            "partage_numbered:",
            $( numbered_distance!($word ($($($operand)*)?) $symbol($($arg),*)), )*
            ".size partage_numbered, . - partage_numbered",
            ".popsection",
            $( sym shared::numbered::$symbol, )*
        );
    };
}

/// One line of it.
macro_rules! numbered_distance {
    (pass $operand:tt $symbol:ident $arguments:tt) => {
        "/* {} */"
    };
    (gate (launch $($rest:tt)*) $symbol:ident $arguments:tt) => {
        ".long 0 /* {} */"
    };
    ($word:ident $operand:tt $symbol:ident($($arg:ident),*)) => {
        by_words! { $symbol($($arg),*) { ".long {} - partage_numbered" } { ".long 0 /* {} */" } }
    };
}
