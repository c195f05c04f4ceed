// SPDX-License-Identifier: Apache-2.0
//! `atom` and `red`: one lane after the other, each a read-modify-write of the processor.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::lanes::{Binary, Handler, Inst, LANES, Lane, Lanes, NO_GUARD};
use super::memory::{Element, find};
use super::spaces::SpaceTag;

/// A memory word with compare-and-swap.
pub trait Cell: Element {
    /// Replaces `old` by `new`, or says what was found.
    ///
    /// # Safety
    /// `at` is valid and aligned.
    unsafe fn swap(at: *mut u8, old: Self::Raw, new: Self::Raw) -> Result<(), Self::Raw>;
}

macro_rules! cells {
    ($($type:ty, $atomic:ty;)*) => {$(
        impl Cell for $type {
            #[inline(always)]
            unsafe fn swap(at: *mut u8, old: Self::Raw, new: Self::Raw) -> Result<(), Self::Raw> {
                // SAFETY: by contract.
                let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
                match cell.compare_exchange_weak(old as $type, new as $type, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => Ok(()),
                    Err(found) => Err(found.into()),
                }
            }
        }
    )*};
}
cells! {
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

type RawOf<C> = <C as Element>::Raw;

/// How an atomic changes its word.
pub trait Update {
    /// The word.
    type Cell: Cell;
    /// The new value; `b` and `c` are the operands.
    fn apply(old: RawOf<Self::Cell>, b: RawOf<Self::Cell>, c: RawOf<Self::Cell>) -> RawOf<Self::Cell>;
}

/// An update that is an ordinary two-operand operation on a word of type `C`.
pub struct Combine<O, C>(PhantomData<(O, C)>);
impl<C: Cell, T: Lane<Raw = C::Raw>, O: Binary<A = T, B = T, D = T>> Update for Combine<O, C> {
    type Cell = C;
    #[inline(always)]
    fn apply(old: C::Raw, b: C::Raw, _: C::Raw) -> C::Raw {
        O::apply(T::of(old), T::of(b), 0).raw()
    }
}

/// `exch`
pub struct Exchange<C>(PhantomData<C>);
impl<C: Cell> Update for Exchange<C> {
    type Cell = C;
    #[inline(always)]
    fn apply(_: C::Raw, b: C::Raw, _: C::Raw) -> C::Raw {
        b
    }
}

/// `cas`
pub struct CompareExchange<C>(PhantomData<C>);
impl<C: Cell<Raw: PartialEq>> Update for CompareExchange<C> {
    type Cell = C;
    #[inline(always)]
    fn apply(old: C::Raw, b: C::Raw, c: C::Raw) -> C::Raw {
        if old == b { c } else { old }
    }
}

/// `inc`: wraps to zero above the operand.
pub struct Increment;
impl Update for Increment {
    type Cell = u32;
    #[inline(always)]
    fn apply(old: u32, b: u32, _: u32) -> u32 {
        if old >= b { 0 } else { old + 1 }
    }
}

/// `dec`: wraps to the operand below zero.
pub struct Decrement;
impl Update for Decrement {
    type Cell = u32;
    #[inline(always)]
    fn apply(old: u32, b: u32, _: u32) -> u32 {
        if old == 0 || old > b { b } else { old - 1 }
    }
}

/// Update and space of an atomic.
pub struct Atomic<U, S>(PhantomData<(U, S)>);

/// What the handler of an atomic needs to know.
pub trait Atomically {
    /// Update.
    type U: Update;
    /// Space.
    type S: SpaceTag;
}
impl<U: Update, S: SpaceTag> Atomically for Atomic<U, S> {
    type U = U;
    type S = S;
}

/// `atom`: address in row `a` plus `x`, operands `b` and `c`; `d` is the old value, or [`NO_GUARD`] for `red`. Of one
/// form for all processors: nothing in it goes by eight lanes.
#[must_use]
pub fn atomic<A: Atomically>() -> Handler {
    atomic_lanes::<A>
}

unsafe fn atomic_lanes<A: Atomically>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    let mut found = [std::ptr::null_mut(); LANES];
    // SAFETY: the rule on handlers in `lanes`; `find` gave valid, aligned places for every lane in the mask.
    unsafe {
        if !find::<A::S>(lanes, inst, mask, <A::U as Update>::Cell::BYTES, &mut found) {
            return false;
        }
        let b = *lanes.row::<RawOf<<A::U as Update>::Cell>>(inst.b);
        let c = *lanes.row::<RawOf<<A::U as Update>::Cell>>(inst.c);
        let keeps = inst.d != NO_GUARD;
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
            let at = found[lane];
            let mut old = <A::U as Update>::Cell::load(at);
            while let Err(other) = <A::U as Update>::Cell::swap(at, old, A::U::apply(old, b[lane], c[lane])) {
                old = other;
            }
            if keeps {
                (*lanes.row::<RawOf<<A::U as Update>::Cell>>(inst.d))[lane] = old;
            }
        }
    }
    true
}
