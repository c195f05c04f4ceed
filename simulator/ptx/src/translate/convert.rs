// SPDX-License-Identifier: Apache-2.0
//! `cvt`: picks the conversion for two types, a rounding and the flags.

use super::arithmetic::rounding_of;
use super::{Translator, Words};
use crate::error::Result;
use crate::execute::convert::{
    FromHalf, Integral, PackFloats, RELU, Refloat, Resize, ResizeSaturated, ToBrain, ToFloat, ToHalf, ToInteger, ToTf32,
};
use crate::execute::float::{Relu, Saturate};
use crate::execute::lanes::{Handler, binary, unary};
use crate::execute::number::{Bf16, F16, Ftz, Rounding};
use crate::syntax::Scalar;

/// Expands to a match on an integer type.
macro_rules! each_integer {
    ($scalar:expr, $name:ident => $body:expr) => {
        match $scalar {
            Scalar::U8 | Scalar::B8 => {
                type $name = u8;
                Some($body)
            }
            Scalar::S8 => {
                type $name = i8;
                Some($body)
            }
            Scalar::U16 | Scalar::B16 => {
                type $name = u16;
                Some($body)
            }
            Scalar::S16 => {
                type $name = i16;
                Some($body)
            }
            Scalar::U32 | Scalar::B32 => {
                type $name = u32;
                Some($body)
            }
            Scalar::S32 => {
                type $name = i32;
                Some($body)
            }
            Scalar::U64 | Scalar::B64 => {
                type $name = u64;
                Some($body)
            }
            Scalar::S64 => {
                type $name = i64;
                Some($body)
            }
            _ => None,
        }
    };
}

/// Expands to a match on a floating type.
macro_rules! each_float {
    ($scalar:expr, $flush:expr, $name:ident => $body:expr) => {
        match $scalar {
            Scalar::F16 => {
                type $name = F16;
                Some($body)
            }
            Scalar::Bf16 => {
                type $name = Bf16;
                Some($body)
            }
            Scalar::F32 if $flush => {
                type $name = Ftz;
                Some($body)
            }
            Scalar::F32 => {
                type $name = f32;
                Some($body)
            }
            Scalar::F64 => {
                type $name = f64;
                Some($body)
            }
            _ => None,
        }
    };
}

impl<'a> Translator<'a, '_> {
    pub(super) fn convert(&mut self, words: Words<'a, '_>) -> Result<()> {
        let types: Vec<Scalar> = words
            .modifiers()
            .iter()
            .filter_map(|word| Scalar::from_word(word))
            .collect();
        let [to, from] = types[..] else {
            return words.unsupported();
        };
        if matches!(to, Scalar::F16x2 | Scalar::Bf16x2) && from == Scalar::F32 {
            return self.pack_floats(words, to);
        }
        let (saturated, flush) = (words.has("sat"), words.has("ftz"));
        let x = rounding_of(&words).unwrap_or(Rounding::Nearest) as u64;
        let run = match (from.is_float(), to.is_float()) {
            (false, false) if saturated => resize_saturated(from, to),
            (false, false) => resize(from, to),
            (false, true) => to_float(from, to),
            (true, false) => to_integer(from, to, flush),
            (true, true) => refloat(&words, from, to, flush),
        };
        let Some(run) = run else {
            return words.unsupported();
        };
        let a = self.value(words.operand(1)?, from)?;
        let destination = self.destination(words.operand(0)?, to)?;
        let relu = if words.has("relu") { RELU } else { 0 };
        self.compute(run, destination.row, a, 0, 0, x | relu);
        if to.is_float() && saturated {
            let saturate = each_float!(to, false, T => unary::<Saturate<T>>());
            self.emit_in_place(saturate, destination.row);
        }
        if to.is_float() && words.has("relu") && to != Scalar::Tf32 {
            let clamp = each_float!(to, false, T => unary::<Relu<T>>());
            self.emit_in_place(clamp, destination.row);
        }
        self.settle(&destination, to);
        Ok(())
    }

    fn emit_in_place(&mut self, run: Option<Handler>, row: u32) {
        if let Some(run) = run {
            self.compute(run, row, row, 0, 0, 0);
        }
    }

    fn pack_floats(&mut self, words: Words<'a, '_>, to: Scalar) -> Result<()> {
        let rounding = rounding_of(&words).unwrap_or(Rounding::Nearest) as u64;
        let relu = if words.has("relu") { RELU } else { 0 };
        let a = self.value(words.operand(1)?, Scalar::F32)?;
        let b = self.value(words.operand(2)?, Scalar::F32)?;
        let destination = self.destination(words.operand(0)?, Scalar::B32)?;
        let run = if to == Scalar::F16x2 {
            binary::<PackFloats<F16>>()
        } else {
            binary::<PackFloats<Bf16>>()
        };
        self.compute(run, destination.row, a, b, 0, rounding | relu);
        Ok(())
    }
}

fn resize(from: Scalar, to: Scalar) -> Option<Handler> {
    each_integer!(from, S => each_integer!(to, D => unary::<Resize<S, D>>()))?
}

fn resize_saturated(from: Scalar, to: Scalar) -> Option<Handler> {
    each_integer!(from, S => each_integer!(to, D => unary::<ResizeSaturated<S, D>>()))?
}

fn to_float(from: Scalar, to: Scalar) -> Option<Handler> {
    each_integer!(from, S => each_float!(to, false, D => unary::<ToFloat<S, D>>()))?
}

fn to_integer(from: Scalar, to: Scalar, flush: bool) -> Option<Handler> {
    each_float!(from, flush, S => each_integer!(to, D => unary::<ToInteger<S, D>>()))?
}

fn refloat(words: &Words<'_, '_>, from: Scalar, to: Scalar, flush: bool) -> Option<Handler> {
    if to == Scalar::Tf32 && from == Scalar::F32 {
        return Some(unary::<ToTf32>());
    }
    let integral = ["rni", "rzi", "rmi", "rpi"].iter().any(|word| words.has(word));
    if from == to && integral {
        return each_float!(from, flush, T => unary::<Integral<T>>());
    }
    let nearest = matches!(rounding_of(words), None | Some(Rounding::Nearest));
    match (from, to) {
        (Scalar::F32, Scalar::F16) if nearest && !flush => Some(unary::<ToHalf>()),
        (Scalar::F16, Scalar::F32) => Some(unary::<FromHalf>()),
        (Scalar::F32, Scalar::Bf16) if nearest && !flush => Some(unary::<ToBrain>()),
        _ => each_float!(from, flush, S => each_float!(to, flush, D => unary::<Refloat<S, D>>()))?,
    }
}
