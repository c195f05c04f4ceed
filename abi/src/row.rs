// SPDX-License-Identifier: Apache-2.0
//! What a row of the two tables says, and the macros that turn rows into data.
//!
//! A table is a macro that holds chapters of rows. [`driver_table!`](crate::driver_table) and
//! [`nvml_table!`](crate::nvml_table) hand the bare rows to a macro of the caller, which makes exports, forwarders or
//! a page of documentation of them; this crate itself makes [`Row`]s, an enum of symbols and function types.

use core::ffi::CStr;

/// What Partage does with a call. The word stands in brackets before the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Seen and decided: not exported, so that the loader binds the real function; costs nothing.
    Pass,
    /// `charge(bytes)`: reserve, call, then commit or roll back. The first argument receives the address.
    Charge,
    /// `refund(pointer)`: call, and give back what was charged for the address.
    Refund,
    /// `gate(work)`, `gate(launch work)`: wait until the gate is open, then call.
    Gate,
    /// `settle(stream)`: what was launched in the stream gets its mark, then the call.
    Settle,
    /// A body of its own rewrites what the program sees, or decides by what the driver answered.
    Answer,
    /// A body of its own remembers a handle or a moment in the life of the process.
    Track,
    /// Hands out driver pointers: the answer is exchanged for ours where the function has a treatment.
    Resolve,
}

impl Treatment {
    /// The word as it stands in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Gate => "gate",
            Self::Settle => "settle",
            Self::Answer => "answer",
            Self::Track => "track",
            Self::Resolve => "resolve",
        }
    }

    /// True when the interposer exports the function and stands in its way.
    pub const fn is_hooked(self) -> bool {
        !matches!(self, Self::Pass)
    }
}

/// One exported function, as data.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The exported name.
    pub symbol: &'static CStr,
    /// What Partage does with the call.
    pub treatment: Treatment,
    /// What stands in the treatment's parentheses, as written; empty without.
    pub operand: &'static str,
    /// The vendor's chapter.
    pub chapter: &'static str,
    /// Why, where the treatment alone would surprise; empty otherwise.
    pub note: &'static str,
    /// Name and type of each argument; the type as the compiler prints it (`*mut T`, or `* mut T`).
    pub arguments: &'static [(&'static str, &'static str)],
}

impl Row {
    /// Number of arguments.
    pub const fn arity(&self) -> usize {
        self.arguments.len()
    }

    /// The exported name as text.
    pub const fn name(&self) -> &'static str {
        match self.symbol.to_str() {
            Ok(name) => name,
            // Symbols are Rust identifiers, hence ASCII; the arm is never taken.
            Err(_) => "",
        }
    }
}

/// Index of `name` in `rows`, which may stand in any order. Usable in constants.
pub const fn position(rows: &[Row], name: &[u8]) -> Option<usize> {
    let mut i = 0;
    while i < rows.len() {
        if equal(rows[i].symbol.to_bytes(), name) {
            return Some(i);
        }
        i += 1;
    }
    None
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Number of rows that the interposer exports.
pub(crate) const fn count_hooked(rows: &[Row]) -> usize {
    let (mut i, mut n) = (0, 0);
    while i < rows.len() {
        n += rows[i].treatment.is_hooked() as usize;
        i += 1;
    }
    n
}

/// Strips a table to its bare rows and hands them to the macro named first.
#[doc(hidden)]
#[macro_export]
macro_rules! bare_rows {
    (
        ($($then:tt)*)
        $( $chapter:literal {
            $( $(#[doc = $note:literal])* [$($treatment:tt)*] $symbol:ident ($($arguments:tt)*) $(-> $answer:ty)?; )*
        } )*
    ) => {
        $($then)* ! { $( $( [$($treatment)*] $symbol ($($arguments)*) $(-> $answer)?; )* )* }
    };
}

/// The variant of [`Treatment`] for a word; a word that is none is a compile error.
#[doc(hidden)]
#[macro_export]
macro_rules! treatment {
    (pass) => {
        $crate::Treatment::Pass
    };
    (charge) => {
        $crate::Treatment::Charge
    };
    (refund) => {
        $crate::Treatment::Refund
    };
    (gate) => {
        $crate::Treatment::Gate
    };
    (settle) => {
        $crate::Treatment::Settle
    };
    (answer) => {
        $crate::Treatment::Answer
    };
    (track) => {
        $crate::Treatment::Track
    };
    (resolve) => {
        $crate::Treatment::Resolve
    };
}

/// Makes `ROWS`, `Symbol`, `HOOKED` and `signatures` of a table, in the module where it is called. The name `Answer`
/// there is the type that rows without a written one return.
macro_rules! declare_rows {
    (
        $( $chapter:literal {
            $(
                $(#[doc = $note:literal])*
                [$word:ident $(($($operand:tt)*))?] $symbol:ident ($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)?;
            )*
        } )*
    ) => {
        /// Every row, in the table's order.
        pub const ROWS: &[$crate::Row] = &[ $( $( $crate::Row {
            symbol: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(symbol) => symbol,
                Err(_) => panic!("an identifier holds no NUL"),
            },
            treatment: $crate::treatment!($word),
            operand: concat!($( $(stringify!($operand)),* )?),
            chapter: $chapter,
            note: concat!($($note),*),
            arguments: &[$( (stringify!($arg), stringify!($type)) ),*],
        }, )* )* ];

        /// A row by name: `Symbol::cuInit as usize` is its index in [`ROWS`].
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Symbol { $( $( $symbol, )* )* }

        impl Symbol {
            /// Every symbol, in the table's order.
            pub const ALL: &[Symbol] = &[ $( $( Symbol::$symbol, )* )* ];

            /// The row.
            pub const fn row(self) -> &'static $crate::Row {
                &ROWS[self as usize]
            }

            /// Position in [`HOOKED`], or `None` for a `pass` row. A constant where the symbol is one.
            pub const fn slot(self) -> Option<usize> {
                let (mut i, mut slot) = (0, 0);
                while i < self as usize {
                    slot += ROWS[i].treatment.is_hooked() as usize;
                    i += 1;
                }
                if ROWS[i].treatment.is_hooked() { Some(slot) } else { None }
            }
        }

        /// The rows that the interposer exports, in the table's order: what it resolves in the real driver.
        pub const HOOKED: [Symbol; $crate::row::count_hooked(ROWS)] = {
            let mut hooked = [Symbol::ALL[0]; $crate::row::count_hooked(ROWS)];
            let (mut i, mut slot) = (0, 0);
            while i < ROWS.len() {
                if ROWS[i].treatment.is_hooked() {
                    hooked[slot] = Symbol::ALL[i];
                    slot += 1;
                }
                i += 1;
            }
            hooked
        };

        /// The type of each function, by its name: `signatures::cuInit` is `unsafe extern "C" fn(c_uint) -> CuResult`.
        #[allow(non_camel_case_types, missing_docs, unused_imports)]
        pub mod signatures {
            use super::*;
            $( $( pub type $symbol = unsafe extern "C" fn($($type),*) -> $crate::answer_type!($($answer)?); )* )*
        }
    };
}
pub(crate) use declare_rows;

/// The written return type, or the `Answer` of the scope.
#[doc(hidden)]
#[macro_export]
macro_rules! answer_type {
    () => {
        Answer
    };
    ($answer:ty) => {
        $answer
    };
}
