// SPDX-License-Identifier: Apache-2.0
//! One body for all rows with as many arguments, each of which is a word: what is the same for all that the driver does
//! not run, around what is the row's own.
//!
//! A row is a number here, which its export adds behind the last argument: the [place](crate::names) of its function,
//! and whose it is. Each argument takes a register, by the processor's calling convention whole: what a function reads
//! of it is what its caller wrote. The function gets a word more than the driver's own takes, and that looks at no
//! register behind its last argument.

use partage_abi::HOOKED;
use partage_abi::types::CuResult;

use crate::guard;
use crate::hold;
use crate::real::{self, Library};

// Named as the libraries are.
/// In a row's number: the driver's.
pub const DRIVER: usize = 0;
/// There: the second driver's.
pub const SECOND_DRIVER: usize = 0x8000;

const _: () = assert!(HOOKED.len() < SECOND_DRIVER);

unsafe extern "C" {
    static partage_outermost: [i32; HOOKED.len()];
}

/// The library that a row's number means, and what to call there: in the outermost hook the row's own body, else the
/// driver's function.
#[inline(never)]
fn meant(row: usize, is_outermost: bool) -> (*const (), &'static Library) {
    let real = if row & SECOND_DRIVER == 0 {
        &real::DRIVER
    } else {
        &real::SECOND_DRIVER
    };
    let place = row & !SECOND_DRIVER;
    // SAFETY: the table that `entry` makes, which nothing writes; it has a line for each hooked row.
    let table: &'static [i32] = unsafe { &partage_outermost };
    let function = match table.get(place) {
        Some(distance) if is_outermost => table.as_ptr().cast::<()>().wrapping_byte_offset(*distance as isize),
        _ => real.function(place),
    };
    (function, real)
}

macro_rules! bodies {
    ($( $name:ident: $function:ty = ($($word:ident),*); )*) => { $(
        /// The body of a row with so many words, and its number.
        ///
        /// # Safety
        /// The number is that of a row whose arguments these are, and which has a body of its own in the table.
        pub unsafe extern "C" fn $name($($word: usize,)* row: usize) -> CuResult {
            let held = hold::begin(guard::here());
            let (function, real) = meant(row, held.is_outermost());
            // SAFETY: the row's own body, or the driver's function of that row: both take these words, whole registers
            // of which they read what their caller wrote, and the latter does not look at the last.
            let result = unsafe { core::mem::transmute::<*const (), $function>(function)($($word,)* real) };
            hold::end(held);
            result
        }
    )* };
}

type Real = &'static Library;

bodies! {
    none: unsafe extern "C" fn(Real) -> CuResult = ();
    one: unsafe extern "C" fn(usize, Real) -> CuResult = (a);
    two: unsafe extern "C" fn(usize, usize, Real) -> CuResult = (a, b);
    three: unsafe extern "C" fn(usize, usize, usize, Real) -> CuResult = (a, b, c);
    four: unsafe extern "C" fn(usize, usize, usize, usize, Real) -> CuResult = (a, b, c, d);
    five: unsafe extern "C" fn(usize, usize, usize, usize, usize, Real) -> CuResult = (a, b, c, d, e);
}
