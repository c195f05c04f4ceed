// SPDX-License-Identifier: Apache-2.0
//! Register rows and the handlers that map an operation over the 32 lanes of a warp.
//!
//! A *row* holds one register for all lanes: 32 words of 32 or 64 bits, or one 32-bit mask for a predicate. 8- and
//! 16-bit values live in 32-bit rows; the bits above them are unspecified. An operand is a byte offset whose two
//! highest bits choose what it is relative to: the frame, the constants or the special registers.
//! A *handler* runs one instruction for the lanes in `mask`.
//!
//! Safety of every handler: the translator emitted the instruction for this frame layout, so each operand names a row
//! of the width that the handler uses.

use super::shape::Shape;
use super::spaces::Spaces;
use crate::error::FaultKind;

pub use super::shape::LANES;

/// All lanes.
pub const ALL: u32 = u32::MAX;
/// Operand flag: relative to the module's constants.
pub const CONSTANT: u32 = 1 << 30;
/// Operand flag: relative to the warp's special registers.
pub const SPECIAL: u32 = 2 << 30;
/// Guard of an instruction that always runs.
pub const NO_GUARD: u32 = u32::MAX;

/// Runs one instruction for the lanes in the mask; false after a fault.
pub type Handler = unsafe fn(&mut Lanes, &Inst, u32) -> bool;

/// What the warp loop does with an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Run the handler.
    Compute,
    /// Run the handler once every lane of the member mask (row `m`) has arrived.
    Converge,
    /// Jump to `x`.
    Branch,
    /// Jump to entry `a` of the target list at `b`, `c` long.
    BranchIndexed,
    /// Call site `x`, known function.
    Call,
    /// Call site `x`, function address in row `a`.
    CallIndirect,
    /// Return from a function, or exit from a kernel.
    Return,
    /// End the thread.
    Exit,
    /// Wait at (or only arrive at) a block barrier; details at barrier site `x`.
    Barrier,
    /// Stop the kernel.
    Trap,
    /// Give other blocks and processes a chance.
    Yield,
}

/// One translated instruction.
#[derive(Clone)]
pub struct Inst {
    /// Handler.
    pub run: Handler,
    /// What the warp loop does with it.
    pub kind: Kind,
    /// True when the guard is negated.
    pub negated: bool,
    /// True when it does nothing but write registers: it may then run for lanes that no longer exist.
    pub is_pure: bool,
    /// Row of the guard predicate or [`NO_GUARD`].
    pub guard: u32,
    /// Destination row.
    pub d: u32,
    /// First source row.
    pub a: u32,
    /// Second source row.
    pub b: u32,
    /// Third source row.
    pub c: u32,
    /// Member mask row or a further operand.
    pub m: u32,
    /// Line of the text.
    pub line: u32,
    /// Immediate operand.
    pub x: u64,
}

/// What a handler sees of its warp.
pub struct Lanes {
    /// Frame, constants, special registers, and a spare entry so that every two-bit index is in bounds.
    pub bases: [*mut u8; 4],
    /// Operand lists of vector instructions.
    pub lists: *const u32,
    /// Shapes of matrix multiplications.
    pub shapes: *const Shape,
    /// Memory of the warp.
    pub spaces: Spaces,
    /// Lanes of the running group.
    pub group: u32,
    /// What a handler that returned false found.
    pub fault: Option<FaultKind>,
    /// Text that device-side printf produced.
    pub printed: Vec<u8>,
}

impl Lanes {
    /// Start of a row.
    #[inline(always)]
    pub fn at<R>(&self, operand: u32) -> *mut R {
        let base = self.bases[(operand >> 30) as usize];
        base.wrapping_add((operand & 0x3fff_ffff) as usize).cast()
    }

    /// A row of 32 words.
    #[inline(always)]
    pub fn row<R>(&self, operand: u32) -> *mut [R; LANES] {
        self.at(operand)
    }

    /// The mask of a predicate.
    ///
    /// # Safety
    /// `operand` names a predicate row.
    #[inline(always)]
    pub unsafe fn predicate(&self, operand: u32) -> u32 {
        // SAFETY: by contract.
        unsafe { *self.at::<u32>(operand) }
    }

    /// Sets the lanes `mask` of a predicate to those of `value`.
    ///
    /// # Safety
    /// `operand` names a predicate row.
    #[inline(always)]
    pub unsafe fn set_predicate(&mut self, operand: u32, value: u32, mask: u32) {
        // SAFETY: by contract.
        unsafe {
            let at = self.at::<u32>(operand);
            *at = (*at & !mask) | (value & mask);
        }
    }

    /// Operand `index` of the list at `list`.
    ///
    /// # Safety
    /// The translator made a list of that length.
    #[inline(always)]
    pub unsafe fn listed(&self, list: u32, index: u32) -> u32 {
        // SAFETY: by contract.
        unsafe { *self.lists.add((list + index) as usize) }
    }

    /// Records a fault; a handler returns its result.
    #[cold]
    pub fn fail(&mut self, fault: FaultKind) -> bool {
        self.fault = Some(fault);
        false
    }
}

/// Calls `each` with the number of every lane in `mask`.
#[inline(always)]
pub fn each_lane(mask: u32, mut each: impl FnMut(usize)) {
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
}

/// A word of a row.
pub trait Word: Copy + Default {}
impl Word for u32 {}
impl Word for u64 {}

/// A value that lives in a row.
pub trait Lane: Copy {
    /// How a row stores it.
    type Raw: Word;
    /// Reads it.
    fn of(raw: Self::Raw) -> Self;
    /// Stores it.
    fn raw(self) -> Self::Raw;
}

macro_rules! lanes {
    ($($type:ty, $raw:ty, $of:expr, $store:expr;)*) => {$(
        impl Lane for $type {
            type Raw = $raw;
            #[inline(always)]
            fn of(raw: $raw) -> Self {
                let of: fn($raw) -> $type = $of;
                of(raw)
            }
            #[inline(always)]
            fn raw(self) -> $raw {
                let store: fn($type) -> $raw = $store;
                store(self)
            }
        }
    )*};
}
lanes! {
    u8, u32, |raw| raw as u8, u32::from;
    i8, u32, |raw| raw as i8, |value| value as u32;
    u16, u32, |raw| raw as u16, u32::from;
    i16, u32, |raw| raw as i16, |value| value as u32;
    u32, u32, |raw| raw, |value| value;
    i32, u32, |raw| raw as i32, |value| value as u32;
    u64, u64, |raw| raw, |value| value;
    i64, u64, |raw| raw as i64, |value| value as u64;
    f32, u32, f32::from_bits, f32::to_bits;
    f64, u64, f64::from_bits, f64::to_bits;
}

/// An operation on one value; `x` is the instruction's immediate.
pub trait Unary {
    /// Operand.
    type A: Lane;
    /// Result.
    type D: Lane;
    /// The operation on one lane.
    fn apply(a: Self::A, x: u64) -> Self::D;
}

/// An operation on two values.
pub trait Binary {
    /// First operand.
    type A: Lane;
    /// Second operand.
    type B: Lane;
    /// Result.
    type D: Lane;
    /// The operation on one lane.
    fn apply(a: Self::A, b: Self::B, x: u64) -> Self::D;
}

/// An operation on three values.
pub trait Ternary {
    /// First operand.
    type A: Lane;
    /// Second operand.
    type B: Lane;
    /// Third operand.
    type C: Lane;
    /// Result.
    type D: Lane;
    /// The operation on one lane.
    fn apply(a: Self::A, b: Self::B, c: Self::C, x: u64) -> Self::D;
}

/// A comparison of two values, giving a predicate.
pub trait Compare {
    /// Both operands.
    type A: Lane;
    /// The comparison of one lane.
    fn apply(a: Self::A, b: Self::A) -> bool;
}

/// Defines a handler twice, for any processor and for one with AVX2 and FMA, and the function that picks one.
///
/// Fused multiply-add in software costs about 50 times the instruction, and the compiler vectorises the lane loops to
/// eight instead of four words. A handler `by lanes` has a last parameter, whether it computes eight lanes at once:
/// [`WITHOUT_AVX2`] in the form for any processor.
macro_rules! handler {
    ($(#[$doc:meta])* $pick:ident, $inner:ident $(<$($parameter:ident: $bound:path),+>)?) => {
        $crate::execute::lanes::handler!(@ $(#[$doc])* $pick, [$($($parameter: $bound),+)?],
            $inner $(::<$($parameter),+>)?, $inner $(::<$($parameter),+>)?);
    };
    ($(#[$doc:meta])* $pick:ident, $inner:ident<$parameter:ident: $bound:path> by lanes) => {
        $crate::execute::lanes::handler!(@ $(#[$doc])* $pick, [$parameter: $bound],
            $inner::<$parameter, { $crate::execute::lanes::WITHOUT_AVX2 }>, $inner::<$parameter, true>);
    };
    (@ $(#[$doc:meta])* $pick:ident, [$($parameter:ident: $bound:path),*], $plain:expr, $wide:expr) => {
        $(#[$doc])*
        pub fn $pick<$($parameter: $bound),*>() -> $crate::execute::lanes::Handler {
            unsafe fn plain<$($parameter: $bound),*>(
                lanes: &mut $crate::execute::lanes::Lanes, inst: &$crate::execute::lanes::Inst, mask: u32,
            ) -> bool {
                // SAFETY: same contract.
                unsafe { $plain(lanes, inst, mask) }
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn wide<$($parameter: $bound),*>(
                    lanes: &mut $crate::execute::lanes::Lanes, inst: &$crate::execute::lanes::Inst, mask: u32,
                ) -> bool {
                    // SAFETY: same contract.
                    unsafe { $wide(lanes, inst, mask) }
                }
                if $crate::execute::lanes::has_wide_vectors() {
                    return wide::<$($parameter),*>;
                }
            }
            plain::<$($parameter),*>
        }
    };
}
pub(crate) use handler;

/// True where the processor has what the wide handlers are compiled for.
#[cfg(target_arch = "x86_64")]
pub fn has_wide_vectors() -> bool {
    static FOUND: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
    })
}

type RawOf<T> = <T as Lane>::Raw;

/// Lanes from which on computing whole groups of [`TOGETHER`] costs less than computing those alone.
pub const WORTH_ALL: u32 = 4;

/// Whether a processor without AVX2 computes several lanes at once. Of the x86-64 processors those are older than 2013:
/// a second vectorised form of each handler would be a fifth of the simulated driver.
pub const WITHOUT_AVX2: bool = cfg!(not(target_arch = "x86_64"));

/// Lanes that are computed together. A loop over all of them is unrolled to scalars where the compiler optimises most.
const TOGETHER: usize = 8;

/// Computes the lanes in the mask. Every lane of `d` may be a source of the same lane. A macro, for a closure would be
/// compiled without the wide handler's instructions, and a fused multiply-add would be a call for each lane.
macro_rules! lanes_of {
    ($together:ident, $mask:expr, $d:expr, |$lane:ident| $value:expr) => {
        if $together && $mask.count_ones() >= WORTH_ALL {
            for first in (0..LANES).step_by(TOGETHER) {
                let mut result = [Default::default(); TOGETHER];
                for (index, slot) in result.iter_mut().enumerate() {
                    let $lane = first + index;
                    *slot = $value;
                }
                let to = (&raw mut (*$d)[first]).cast::<[_; TOGETHER]>();
                if $mask != ALL {
                    let old = to.read();
                    for (index, slot) in result.iter_mut().enumerate() {
                        *slot = if $mask >> (first + index) & 1 == 1 {
                            *slot
                        } else {
                            old[index]
                        };
                    }
                }
                to.write(result);
            }
        } else {
            each_lane($mask, |$lane| (*$d)[$lane] = $value);
        }
    };
}

handler!(/// Handler of a one-operand operation.
    unary, map1<O: Unary> by lanes);
handler!(/// Handler of a two-operand operation.
    binary, map2<O: Binary> by lanes);
handler!(/// Handler of a three-operand operation.
    ternary, map3<O: Ternary> by lanes);
handler!(/// Handler of a comparison; see [`setp_bits`].
    compare, map_compare<O: Compare> by lanes);

#[inline(always)]
unsafe fn map1<O: Unary, const AT_ONCE: bool>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the module's rule on handlers; reading by lane and writing afterwards allows `d` to be a source.
    unsafe {
        let a = lanes.row::<RawOf<O::A>>(inst.a);
        let d = lanes.row::<RawOf<O::D>>(inst.d);
        lanes_of!(AT_ONCE, mask, d, |lane| O::apply(O::A::of((*a)[lane]), inst.x).raw());
    }
    true
}

#[inline(always)]
unsafe fn map2<O: Binary, const AT_ONCE: bool>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: as in `map1`.
    unsafe {
        let a = lanes.row::<RawOf<O::A>>(inst.a);
        let b = lanes.row::<RawOf<O::B>>(inst.b);
        let d = lanes.row::<RawOf<O::D>>(inst.d);
        lanes_of!(AT_ONCE, mask, d, |lane| O::apply(
            O::A::of((*a)[lane]),
            O::B::of((*b)[lane]),
            inst.x
        )
        .raw());
    }
    true
}

#[inline(always)]
unsafe fn map3<O: Ternary, const AT_ONCE: bool>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: as in `map1`.
    unsafe {
        let a = lanes.row::<RawOf<O::A>>(inst.a);
        let b = lanes.row::<RawOf<O::B>>(inst.b);
        let c = lanes.row::<RawOf<O::C>>(inst.c);
        let d = lanes.row::<RawOf<O::D>>(inst.d);
        lanes_of!(AT_ONCE, mask, d, |lane| {
            O::apply(O::A::of((*a)[lane]), O::B::of((*b)[lane]), O::C::of((*c)[lane]), inst.x).raw()
        });
    }
    true
}

/// How a comparison is combined, in bits of `x`: 0-1 none/and/or/xor with predicate `c`, 2 negate `c`.
/// `m` is the row of the second result (the complement), or [`NO_GUARD`].
pub mod setp_bits {
    /// Combine with `and`.
    pub const AND: u64 = 1;
    /// Combine with `or`.
    pub const OR: u64 = 2;
    /// Combine with `xor`.
    pub const XOR: u64 = 3;
    /// The combined predicate is negated first.
    pub const NEGATED: u64 = 4;
}

#[inline(always)]
unsafe fn map_compare<O: Compare, const AT_ONCE: bool>(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: the module's rule on handlers.
    unsafe {
        let a = lanes.row::<RawOf<O::A>>(inst.a);
        let b = lanes.row::<RawOf<O::A>>(inst.b);
        let mut found = 0u32;
        if AT_ONCE && mask.count_ones() >= WORTH_ALL {
            for lane in 0..LANES {
                found |= u32::from(O::apply(O::A::of((*a)[lane]), O::A::of((*b)[lane]))) << lane;
            }
        } else {
            each_lane(mask, |lane| {
                found |= u32::from(O::apply(O::A::of((*a)[lane]), O::A::of((*b)[lane]))) << lane;
            });
        }
        if inst.x == 0 && inst.m == NO_GUARD {
            lanes.set_predicate(inst.d, found, mask);
            return true;
        }
        finish_compare(lanes, inst, found, mask)
    }
}

unsafe fn finish_compare(lanes: &mut Lanes, inst: &Inst, found: u32, mask: u32) -> bool {
    // SAFETY: the module's rule on handlers.
    unsafe {
        let (mut first, mut second) = (found, !found);
        if inst.x & 3 != 0 {
            let other = lanes.predicate(inst.c) ^ if inst.x & setp_bits::NEGATED != 0 { ALL } else { 0 };
            let combine = |value: u32| match inst.x & 3 {
                setp_bits::AND => value & other,
                setp_bits::OR => value | other,
                _ => value ^ other,
            };
            (first, second) = (combine(first), combine(second));
        }
        lanes.set_predicate(inst.d, first, mask);
        if inst.m != NO_GUARD {
            lanes.set_predicate(inst.m, second, mask);
        }
    }
    true
}
