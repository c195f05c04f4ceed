// SPDX-License-Identifier: Apache-2.0
//! State spaces of a running warp: loads and stores.
//!
//! A generic address is a device address, or lies in one of three windows far above them that stand for shared, local
//! and parameter memory. Every access is a relaxed atomic of its size, because other blocks, copies and processes
//! touch the same memory at the same time.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::lanes::{Inst, LANES, Lanes, Word, each_lane, handler};
use super::spaces::*;
use crate::error::FaultKind;

/// A value as memory holds it.
pub trait Element {
    /// Size in memory.
    const BYTES: u64;
    /// How a row holds it.
    type Raw: Word;
    /// Reads it.
    ///
    /// # Safety
    /// `at` is valid and aligned.
    unsafe fn load(at: *mut u8) -> Self::Raw;
    /// Writes it.
    ///
    /// # Safety
    /// `at` is valid and aligned.
    unsafe fn store(at: *mut u8, value: Self::Raw);
}

macro_rules! elements {
    ($($type:ty, $raw:ty, $word:ty, $atomic:ty;)*) => {$(
        impl Element for $type {
            const BYTES: u64 = size_of::<$type>() as u64;
            type Raw = $raw;
            #[inline(always)]
            unsafe fn load(at: *mut u8) -> $raw {
                // SAFETY: by contract.
                (unsafe { <$atomic>::from_ptr(at.cast()).load(Ordering::Relaxed) } as $type) as $raw
            }
            #[inline(always)]
            unsafe fn store(at: *mut u8, value: $raw) {
                // SAFETY: by contract.
                unsafe { <$atomic>::from_ptr(at.cast()).store(value as $word, Ordering::Relaxed) }
            }
        }
    )*};
}
elements! {
    u8, u32, u8, AtomicU8;
    i8, u32, u8, AtomicU8;
    u16, u32, u16, AtomicU16;
    i16, u32, u16, AtomicU16;
    u32, u32, u32, AtomicU32;
    u64, u64, u64, AtomicU64;
}

/// Element and space of an access.
pub struct Access<E, S>(PhantomData<(E, S)>);

/// What the handlers of an access need to know.
pub trait Accessed {
    /// Element.
    type E: Element;
    /// Space.
    type S: SpaceTag;
}
impl<E: Element, S: SpaceTag> Accessed for Access<E, S> {
    type E = E;
    type S = S;
}

handler!(/// `ld`: `b` elements at row `a` plus `x`, into `d`, or into the list at `c` where there are several.
    load, load_lanes<A: Accessed>);
handler!(/// `st`: `b` elements to row `a` plus `x`, from `d`, or from the list at `c` where there are several.
    store, store_lanes<A: Accessed>);

/// Finds where each lane's access lands; false after a fault.
#[inline(always)]
pub unsafe fn find<S: SpaceTag>(
    lanes: &mut Lanes,
    inst: &Inst,
    mask: u32,
    bytes: u64,
    found: &mut [*mut u8; LANES],
) -> bool {
    // SAFETY: the rule on handlers in `lanes`.
    let addresses = unsafe { *lanes.row::<u64>(inst.a) };
    let mut misaligned = 0u64;
    if S::SPACE == GLOBAL || S::SPACE == GENERIC {
        let (mut least, mut most) = (u64::MAX, 0u64);
        each_lane(mask, |lane| {
            let address = addresses[lane].wrapping_add(inst.x);
            misaligned |= address;
            least = least.min(address);
            most = most.max(address);
        });
        if misaligned & (bytes - 1) == 0
            && let Some(span) = (most - least).checked_add(bytes)
            && (S::SPACE == GLOBAL || least < SHARED_WINDOW)
            && let Some(host) = lanes.spaces.device(least, span)
        {
            let origin = host.wrapping_sub(least as usize).wrapping_add(inst.x as usize);
            for lane in 0..LANES {
                found[lane] = origin.wrapping_add(addresses[lane] as usize);
            }
            return true;
        }
    }
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let address = addresses[lane].wrapping_add(inst.x);
        match lanes.spaces.locate::<S>(address, lane, bytes) {
            Some(host) if address & (bytes - 1) == 0 => found[lane] = host,
            Some(_) => return lanes.fail(FaultKind::MisalignedAddress(address)),
            None if address & (bytes - 1) != 0 => return lanes.fail(FaultKind::MisalignedAddress(address)),
            None => return lanes.fail(FaultKind::IllegalAddress(address)),
        }
    }
    true
}

#[inline(always)]
unsafe fn load_lanes<A: Accessed>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    let count = inst.b;
    let mut found = [std::ptr::null_mut(); LANES];
    // SAFETY: the rule on handlers in `lanes`; `find` gave valid, aligned places for every lane in the mask.
    unsafe {
        if !find::<A::S>(lanes, inst, mask, A::E::BYTES * u64::from(count), &mut found) {
            return false;
        }
        for index in 0..count {
            let row = if count == 1 {
                inst.d
            } else {
                lanes.listed(inst.c, index)
            };
            let d = lanes.row::<<A::E as Element>::Raw>(row);
            let skip = (u64::from(index) * A::E::BYTES) as usize;
            if mask == super::lanes::ALL {
                for (lane, at) in found.iter().enumerate() {
                    (*d)[lane] = A::E::load(at.add(skip));
                }
            } else {
                each_lane(mask, |lane| (*d)[lane] = A::E::load(found[lane].add(skip)));
            }
        }
    }
    true
}

#[inline(always)]
unsafe fn store_lanes<A: Accessed>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    let count = inst.b;
    let mut found = [std::ptr::null_mut(); LANES];
    // SAFETY: as in `load_lanes`.
    unsafe {
        if !find::<A::S>(lanes, inst, mask, A::E::BYTES * u64::from(count), &mut found) {
            return false;
        }
        for index in 0..count {
            let row = if count == 1 {
                inst.d
            } else {
                lanes.listed(inst.c, index)
            };
            let d = lanes.row::<<A::E as Element>::Raw>(row);
            let skip = (u64::from(index) * A::E::BYTES) as usize;
            each_lane(mask, |lane| A::E::store(found[lane].add(skip), (*d)[lane]));
        }
    }
    true
}

/// `isspacep`: 1 where the generic address in `a` lies in the space whose number is `x`.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn is_in_space(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let a = lanes.row::<u64>(inst.a);
        let mut result = 0;
        each_lane(mask, |lane| result |= u32::from((*a)[lane] >> 56 == inst.x) << lane);
        lanes.set_predicate(inst.d, result, mask);
    }
    true
}

/// Orders memory accesses (`membar`, `fence`).
pub unsafe fn fence(_: &mut Lanes, _: &Inst, _: u32) -> bool {
    std::sync::atomic::fence(Ordering::SeqCst);
    true
}
