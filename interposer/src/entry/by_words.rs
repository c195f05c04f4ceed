// SPDX-License-Identifier: Apache-2.0
//! One body for all rows with as many arguments, each of which is a word: what is the same for all of them, around what
//! is a row's own. That is, for a `gate` row, a function that says what the call asks of a device; for the others the
//! body of the outermost hook.
//!
//! A row is a number here, which its export adds behind the last argument: the [place](crate::names) of its function,
//! and whose it is. Each argument takes a register, by the processors' calling conventions whole: what a function reads
//! of it is what its caller wrote. Some functions get a word more than they take, and look at no register behind their
//! last argument.

use core::mem::MaybeUninit;

use partage_abi::HOOKED;
use partage_abi::types::CuResult;

use crate::gate::{self, CheckFirst};
use crate::guard;
use crate::hold;
use crate::real::{self, Library};
use crate::stream::work::Work;

// Named as the libraries are.
/// In a row's number: the driver's.
pub const DRIVER: usize = 0;
/// There: the second driver's.
pub const SECOND_DRIVER: usize = 0x8000;

const _: () = assert!(HOOKED.len() < SECOND_DRIVER);

/// May this be the type of a word? A floating-point number goes into a register of another kind, and what is longer
/// takes several, or none.
pub const fn is_word(size: usize, name: &str) -> bool {
    size <= size_of::<usize>() && !matches!(name.as_bytes(), b"f32" | b"f64" | b"c_float" | b"c_double")
}

unsafe extern "C" {
    static partage_numbered: [i32; HOOKED.len()];
}

/// The library that a row's number means, and what is the row's own.
#[inline(never)]
fn own(row: usize) -> (*const (), &'static Library) {
    // SAFETY: the table that `entry` makes, which nothing writes; it has a line for each hooked row.
    let table: &'static [i32] = unsafe { &partage_numbered };
    let distance = table.get(row & !SECOND_DRIVER).copied().unwrap_or(0);
    let own = table.as_ptr().cast::<()>().wrapping_byte_offset(distance as isize);
    (own, library(row))
}

/// The library that a row's number means, and its function.
#[inline(never)]
fn function(row: usize) -> (*const (), &'static Library) {
    let library = library(row);
    (library.function(row & !SECOND_DRIVER), library)
}

fn library(row: usize) -> &'static Library {
    if row & SECOND_DRIVER == 0 {
        &real::DRIVER
    } else {
        &real::SECOND_DRIVER
    }
}

/// What a `gate` row's own function says.
pub type Asked = (Work, CheckFirst);

macro_rules! word {
    ($word:ident) => {
        usize
    };
}

macro_rules! called_bodies {
    ($( $name:ident($($word:ident),*); )*) => { $(
        /// The body of a row with so many words, and its number.
        ///
        /// # Safety
        /// The number is that of a row whose arguments these are, and whose own is the body of the outermost hook.
        pub unsafe extern "C" fn $name($($word: usize,)* row: usize) -> CuResult {
            type Function = unsafe extern "C" fn($(word!($word),)* &'static Library) -> CuResult;
            let held = hold::begin(guard::here());
            let (called, library) = if held.is_outermost() { own(row) } else { function(row) };
            // SAFETY: the row's own body, or the driver's function: both take these words, and the latter does not look
            // at the last.
            let result = unsafe { core::mem::transmute::<*const (), Function>(called)($($word,)* library) };
            hold::end(held);
            result
        }
    )* };
}

macro_rules! gated_bodies {
    ($( $name:ident($($word:ident),*); )*) => { $(
        /// The body of a `gate` row with so many words, and its number.
        ///
        /// # Safety
        /// The number is that of a `gate` row whose arguments these are.
        pub unsafe extern "C" fn $name($($word: usize,)* row: usize) -> CuResult {
            type Says = unsafe extern "C" fn($(word!($word),)* &mut MaybeUninit<Asked>);
            type Function = unsafe extern "C" fn($(word!($word)),*) -> CuResult;
            let mut asked = MaybeUninit::uninit();
            let (says, library) = own(row);
            // SAFETY: the row's own function takes these words, and writes what the call asks for.
            let (work, look) = unsafe {
                core::mem::transmute::<*const (), Says>(says)($($word,)* &mut asked);
                asked.assume_init_ref()
            };
            let passage = gate::begin(library, guard::here(), work, *look);
            // SAFETY: the driver's function takes these words.
            let result = unsafe { core::mem::transmute::<*const (), Function>(function(row).0)($($word),*) };
            gate::end(library, passage);
            result
        }
    )* };
}

/// Of rows that pass the hold alone.
pub mod called {
    use super::*;

    called_bodies! {
        none();
        one(a);
        two(a, b);
        three(a, b, c);
        four(a, b, c, d);
        five(a, b, c, d, e);
    }
}

/// Of rows that pass the gate.
pub mod gated {
    use super::*;

    gated_bodies! {
        one(a);
        two(a, b);
        three(a, b, c);
        four(a, b, c, d);
        five(a, b, c, d, e);
    }
}
