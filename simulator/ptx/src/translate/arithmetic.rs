// SPDX-License-Identifier: Apache-2.0
//! Integer and floating arithmetic.

use super::operand::Destination;
use super::{Translator, Words};
use crate::error::Result;
use crate::execute::float::{self, Pair};
use crate::execute::integer::{self, carry, carrying};
use crate::execute::lanes::{Handler, binary, ternary, unary};
use crate::execute::number::{Bf16, F16, Ftz, Rounding};
use crate::syntax::Scalar;

/// Picks the handler of an operation that exists for 16-, 32- and 64-bit integers.
macro_rules! by_integer {
    ($scalar:expr, $pick:ident, $operation:ident) => {
        match $scalar {
            Scalar::U16 | Scalar::B16 => Some($pick::<$operation<u16>>()),
            Scalar::S16 => Some($pick::<$operation<i16>>()),
            Scalar::U32 | Scalar::B32 => Some($pick::<$operation<u32>>()),
            Scalar::S32 => Some($pick::<$operation<i32>>()),
            Scalar::U64 | Scalar::B64 => Some($pick::<$operation<u64>>()),
            Scalar::S64 => Some($pick::<$operation<i64>>()),
            _ => None,
        }
    };
    ($scalar:expr, $pick:ident, $module:ident :: $operation:ident) => {
        match $scalar {
            Scalar::U16 | Scalar::B16 => Some($pick::<$module::$operation<u16>>()),
            Scalar::S16 => Some($pick::<$module::$operation<i16>>()),
            Scalar::U32 | Scalar::B32 => Some($pick::<$module::$operation<u32>>()),
            Scalar::S32 => Some($pick::<$module::$operation<i32>>()),
            Scalar::U64 | Scalar::B64 => Some($pick::<$module::$operation<u64>>()),
            Scalar::S64 => Some($pick::<$module::$operation<i64>>()),
            _ => None,
        }
    };
}
pub(super) use by_integer;

/// Picks the handler of an operation that exists for every floating type.
macro_rules! by_float {
    ($scalar:expr, $flush:expr, $pick:ident, $operation:ident) => {
        match $scalar {
            Scalar::F32 if $flush => Some($pick::<float::$operation<Ftz>>()),
            Scalar::F32 => Some($pick::<float::$operation<f32>>()),
            Scalar::F64 => Some($pick::<float::$operation<f64>>()),
            Scalar::F16 => Some($pick::<float::$operation<F16>>()),
            Scalar::Bf16 => Some($pick::<float::$operation<Bf16>>()),
            Scalar::F16x2 => Some($pick::<Pair<float::$operation<F16>>>()),
            Scalar::Bf16x2 => Some($pick::<Pair<float::$operation<Bf16>>>()),
            _ => None,
        }
    };
}

/// The last type among the modifiers, which is the instruction's.
pub(super) fn type_of(words: &Words<'_, '_>) -> Option<Scalar> {
    words.modifiers().iter().rev().find_map(|word| Scalar::from_word(word))
}

/// The rounding among the modifiers.
pub(super) fn rounding_of(words: &Words<'_, '_>) -> Option<Rounding> {
    words.modifiers().iter().find_map(|word| match *word {
        "rn" | "rni" => Some(Rounding::Nearest),
        "rz" | "rzi" => Some(Rounding::Zero),
        "rm" | "rmi" => Some(Rounding::Down),
        "rp" | "rpi" => Some(Rounding::Up),
        "rna" => Some(Rounding::Away),
        _ => None,
    })
}

impl<'a> Translator<'a, '_> {
    pub(super) fn arithmetic(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Some(scalar) = type_of(&words) else {
            return self.wrong("the instruction has no type");
        };
        if words.opcode() == "testp" {
            return self.test_property(words, scalar);
        }
        if scalar.is_float() {
            self.float(words, scalar)
        } else {
            self.integer(words, scalar)
        }
    }

    /// Emits a handler with up to three sources of types `sources`.
    fn apply(
        &mut self,
        words: Words<'a, '_>,
        run: Option<Handler>,
        result: Scalar,
        sources: &[Scalar],
        x: u64,
    ) -> Result<Destination> {
        let Some(run) = run else {
            return words.unsupported();
        };
        let mut rows = [0; 3];
        for (index, scalar) in sources.iter().enumerate() {
            rows[index] = self.value(words.operand(index + 1)?, *scalar)?;
        }
        if words.count() > sources.len() + 1 {
            return self.wrong("too many operands");
        }
        let destination = self.destination(words.operand(0)?, result)?;
        self.compute(run, destination.row, rows[0], rows[1], rows[2], x);
        Ok(destination)
    }

    fn integer(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let opcode = words.opcode();
        if words.has("u16x2") || words.has("s16x2") {
            return words.unsupported();
        }
        if words.has("cc") || matches!(opcode, "addc" | "subc" | "madc") {
            return self.carrying(words, scalar);
        }
        if words.has("wide") {
            return self.widening(words, scalar);
        }
        let (saturated, high) = (words.has("sat"), words.has("hi"));
        let shift = if high { 16 } else { 0 };
        let run = match opcode {
            "add" if saturated => by_integer!(scalar, binary, integer::AddSaturated),
            "add" => by_integer!(scalar, binary, integer::Add),
            "sub" if saturated => by_integer!(scalar, binary, integer::SubtractSaturated),
            "sub" => by_integer!(scalar, binary, integer::Subtract),
            "mul" if high => by_integer!(scalar, binary, integer::MultiplyHigh),
            "mul" => by_integer!(scalar, binary, integer::Multiply),
            "mad" if high && saturated => by_integer!(scalar, ternary, integer::MultiplyHighAddSaturated),
            "mad" if high => by_integer!(scalar, ternary, integer::MultiplyHighAdd),
            "mad" => by_integer!(scalar, ternary, integer::MultiplyAdd),
            "mul24" => by_integer!(scalar, binary, integer::Multiply24),
            "mad24" => by_integer!(scalar, ternary, integer::Multiply24Add),
            "sad" => by_integer!(scalar, ternary, integer::DistanceAdd),
            "div" => by_integer!(scalar, binary, integer::Divide),
            "rem" => by_integer!(scalar, binary, integer::Remainder),
            "min" => by_integer!(scalar, binary, integer::Minimum),
            "max" => by_integer!(scalar, binary, integer::Maximum),
            "abs" => by_integer!(scalar, unary, integer::Absolute),
            "neg" => by_integer!(scalar, unary, integer::Negate),
            _ => None,
        };
        let sources = match opcode {
            "mad" | "mad24" | "sad" => 3,
            "abs" | "neg" => 1,
            _ => 2,
        };
        let x = if opcode.ends_with("24") { shift } else { 0 };
        self.apply(words, run, scalar, &[scalar; 3][..sources], x)?;
        if words.has("relu")
            && let Some(run) = by_integer!(scalar, binary, integer::Maximum)
        {
            let destination = self.destination(words.operand(0)?, scalar)?;
            let zero = self.constant(0, scalar.bytes() == 8);
            self.compute(run, destination.row, destination.row, zero, 0, 0);
        }
        Ok(())
    }

    /// `mul.wide` and `mad.wide`.
    fn widening(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let wide = match scalar {
            Scalar::U16 | Scalar::B16 => Scalar::U32,
            Scalar::S16 => Scalar::S32,
            Scalar::U32 | Scalar::B32 => Scalar::U64,
            Scalar::S32 => Scalar::S64,
            _ => return words.unsupported(),
        };
        match words.opcode() {
            "mul" => {
                let run = by_integer!(scalar, binary, integer::MultiplyWide);
                self.apply(words, run, wide, &[scalar, scalar], 0)?;
            }
            _ => {
                let run = by_integer!(scalar, ternary, integer::MultiplyWideAdd);
                self.apply(words, run, wide, &[scalar, scalar, wide], 0)?;
            }
        }
        Ok(())
    }

    fn carrying(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let multiplies = matches!(words.opcode(), "mad" | "madc");
        let mut x = match words.opcode() {
            "add" | "addc" => carry::ADD,
            "sub" | "subc" => carry::SUBTRACT,
            _ if words.has("hi") => carry::MULTIPLY_HIGH,
            _ => carry::MULTIPLY_LOW,
        };
        if words.opcode().ends_with('c') {
            x |= carry::IN;
        }
        if words.has("cc") {
            x |= carry::OUT;
        }
        let run = match scalar {
            Scalar::U32 | Scalar::B32 => Some(carrying::<u32>()),
            Scalar::S32 => Some(carrying::<i32>()),
            Scalar::U64 | Scalar::B64 => Some(carrying::<u64>()),
            Scalar::S64 => Some(carrying::<i64>()),
            _ => None,
        };
        let sources = [scalar; 3];
        self.apply(words, run, scalar, &sources[..if multiplies { 3 } else { 2 }], x)?;
        let flag = self.frame.carry();
        if let Some(inst) = self.code.insts.last_mut() {
            inst.m = flag;
        }
        Ok(())
    }

    fn float(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let flush = words.has("ftz");
        let directed = match rounding_of(&words) {
            Some(Rounding::Nearest) | None => None,
            Some(rounding) => Some(rounding as u64),
        };
        let x = directed.unwrap_or(0);
        let is_directed = directed.is_some();
        let nan = if words.has("NaN") { float::PROPAGATE_NAN } else { 0 };
        if words.has("xorsign") {
            return words.unsupported();
        }
        let (one, two, three) = ([scalar], [scalar; 2], [scalar; 3]);
        macro_rules! plain {
            ($pick:ident, $operation:ident, $sources:expr, $x:expr) => {
                self.apply(
                    words,
                    by_float!(scalar, flush, $pick, $operation),
                    scalar,
                    $sources,
                    $x,
                )?
            };
        }
        macro_rules! rounded {
            ($pick:ident, $nearest:ident, $directed:ident, $sources:expr) => {
                if is_directed {
                    plain!($pick, $directed, $sources, x)
                } else {
                    plain!($pick, $nearest, $sources, 0)
                }
            };
        }
        let destination = match words.opcode() {
            "add" => rounded!(binary, Add, AddDirected, &two),
            "sub" => rounded!(binary, Subtract, SubtractDirected, &two),
            "mul" => rounded!(binary, Multiply, MultiplyDirected, &two),
            "div" => rounded!(binary, Divide, DivideDirected, &two),
            "fma" | "mad" => rounded!(ternary, MultiplyAdd, MultiplyAddDirected, &three),
            "rcp" => rounded!(unary, Reciprocal, ReciprocalDirected, &one),
            "sqrt" => rounded!(unary, SquareRoot, SquareRootDirected, &one),
            "rsqrt" => plain!(unary, ReciprocalRoot, &one, 0),
            "sin" => plain!(unary, Sine, &one, 0),
            "cos" => plain!(unary, Cosine, &one, 0),
            "lg2" => plain!(unary, Logarithm, &one, 0),
            "ex2" => plain!(unary, Exponential, &one, 0),
            "tanh" => plain!(unary, Tangent, &one, 0),
            "neg" => plain!(unary, Negate, &one, 0),
            "abs" => plain!(unary, Absolute, &one, 0),
            "min" if words.count() == 4 => plain!(ternary, Minimum3, &three, nan),
            "max" if words.count() == 4 => plain!(ternary, Maximum3, &three, nan),
            "min" => plain!(binary, Minimum, &two, nan),
            "max" => plain!(binary, Maximum, &two, nan),
            "copysign" => plain!(binary, CopySign, &two, 0),
            _ => return words.unsupported(),
        };
        for (modifier, run) in [
            ("sat", by_float!(scalar, false, unary, Saturate)),
            ("relu", by_float!(scalar, false, unary, Relu)),
        ] {
            if let (true, Some(run)) = (words.has(modifier), run) {
                self.compute(run, destination.row, destination.row, 0, 0, 0);
            }
        }
        Ok(())
    }

    fn test_property(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let names = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
        let Some(property) = names.iter().position(|name| words.has(name)) else {
            return words.unsupported();
        };
        let run = match scalar {
            Scalar::F32 => unary::<float::Classify<f32>>(),
            Scalar::F64 => unary::<float::Classify<f64>>(),
            _ => return words.unsupported(),
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let found = self.frame.temporary(Scalar::B32);
        self.compute(run, found, a, 0, 0, property as u64);
        self.nonzero(words.operand(0)?, found)
    }
}
