// SPDX-License-Identifier: Apache-2.0
//! Logic, shifts, bit fields, comparisons and selections.

use super::arithmetic::{by_integer, type_of};
use super::{Translator, Words};
use crate::error::Result;
use crate::execute::bytes::{self, video};
use crate::execute::compare::{self, logic, nonzero, predicate_logic, select, select_float_sign, select_sign, spread};
use crate::execute::float::Pair;
use crate::execute::integer::{self, insert};
use crate::execute::lanes::{Binary, Handler, Lane, NO_GUARD, binary, compare as compared, setp_bits, ternary, unary};
use crate::execute::number::{Bf16, F16, Ftz};
use crate::syntax::{Operand, Scalar};

/// A half-precision comparison as a value, for `set` on packed pairs.
struct AsValue<C, const ONE: u32>(std::marker::PhantomData<C>);

impl<C, T, const ONE: u32> Binary for AsValue<C, ONE>
where
    T: Lane<Raw = u32>,
    C: crate::execute::lanes::Compare<A = T>,
{
    type A = T;
    type B = T;
    type D = T;
    fn apply(a: T, b: T, _: u64) -> T {
        T::of(if C::apply(a, b) { ONE } else { 0 })
    }
}

impl<'a> Translator<'a, '_> {
    pub(super) fn bits(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Some(scalar) = type_of(&words) else {
            return self.wrong("the instruction has no type");
        };
        match words.opcode() {
            "setp" => self.set_predicate(words, scalar),
            "set" => self.set_value(words, scalar),
            "selp" => self.select(words, scalar),
            "slct" => self.select_by_sign(words),
            "and" | "or" | "xor" | "not" if scalar == Scalar::Pred => self.predicate_logic(words),
            "bfi" => self.insert_field(words, scalar),
            "vshl" | "vshr" => self.video_shift(words),
            _ => self.plain_bits(words, scalar),
        }
    }

    /// Instructions whose operands are all values.
    fn plain_bits(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let word = Scalar::U32;
        let (both, shift) = ([scalar, scalar], [scalar, word]);
        let (run, result, sources, x): (Option<Handler>, Scalar, &[Scalar], u64) = match words.opcode() {
            "and" => (by_integer!(scalar, binary, integer::And), scalar, &both, 0),
            "or" => (by_integer!(scalar, binary, integer::Or), scalar, &both, 0),
            "xor" => (by_integer!(scalar, binary, integer::Xor), scalar, &both, 0),
            "not" => (by_integer!(scalar, unary, integer::Not), scalar, &both[..1], 0),
            "cnot" => (by_integer!(scalar, unary, integer::IsZero), scalar, &both[..1], 0),
            "shl" => (by_integer!(scalar, binary, integer::ShiftLeft), scalar, &shift, 0),
            "shr" => (by_integer!(scalar, binary, integer::ShiftRight), scalar, &shift, 0),
            "popc" => (by_integer!(scalar, unary, integer::Ones), word, &both[..1], 0),
            "clz" => (by_integer!(scalar, unary, integer::LeadingZeros), word, &both[..1], 0),
            "bfind" => {
                let amount = u64::from(words.has("shiftamt"));
                let run = by_integer!(scalar, unary, integer::FindHighest);
                (run, word, &both[..1], amount)
            }
            "brev" => (by_integer!(scalar, unary, integer::Reverse), scalar, &both[..1], 0),
            "bfe" => {
                let run = by_integer!(scalar, ternary, integer::Extract);
                (run, scalar, &[scalar, word, word], 0)
            }
            "szext" => {
                let wrap = u64::from(words.has("wrap"));
                (by_integer!(scalar, binary, integer::ExtendFrom), scalar, &shift, wrap)
            }
            "bmsk" => {
                let wrap = u64::from(words.has("wrap"));
                (Some(binary::<bytes::BitMask>()), word, &[word; 2], wrap)
            }
            _ => match self.of_three_words(&words) {
                Some((run, x)) => (Some(run), word, &[word; 3], x),
                None => return words.unsupported(),
            },
        };
        let Some(run) = run else {
            return words.unsupported();
        };
        let mut rows = [0; 3];
        for (index, source) in sources.iter().enumerate() {
            rows[index] = self.value(words.operand(index + 1)?, *source)?;
        }
        let destination = self.destination(words.operand(0)?, result)?;
        self.compute(run, destination.row, rows[0], rows[1], rows[2], x);
        self.settle(&destination, result);
        Ok(())
    }

    /// What computes a 32-bit word of three others, and how it is told which way; `None` for what does not.
    fn of_three_words(&self, words: &Words<'a, '_>) -> Option<(Handler, u64)> {
        Some(match words.opcode() {
            "shf" => {
                let run = match words.has("l") {
                    true => ternary::<bytes::FunnelLeft>(),
                    false => ternary::<bytes::FunnelRight>(),
                };
                (run, u64::from(words.has("wrap")))
            }
            "prmt" => {
                let modes = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];
                let mode = modes
                    .iter()
                    .position(|mode| words.has(mode))
                    .map_or(0, |at| at as u64 + 1);
                (ternary::<bytes::Permute>(), mode)
            }
            "dp4a" => (ternary::<bytes::Dot4>(), self.dot_flags(words)),
            "dp2a" => {
                let high = if words.has("hi") { 4 } else { 0 };
                (ternary::<bytes::Dot2>(), self.dot_flags(words) | high)
            }
            "lop3" => match words.operand(4) {
                Ok(Operand::Integer(table)) => (ternary::<integer::Lookup3<u32>>(), *table),
                _ => return None,
            },
            _ => return None,
        })
    }

    /// Which operands of a dot product are signed: the two types stand in order.
    fn dot_flags(&self, words: &Words<'_, '_>) -> u64 {
        let signed: Vec<bool> = words
            .modifiers()
            .iter()
            .filter_map(|word| Scalar::from_word(word))
            .map(Scalar::is_signed)
            .collect();
        u64::from(signed.first() == Some(&true)) | u64::from(signed.get(1) == Some(&true)) << 1
    }

    /// `vshl` and `vshr` of whole words. Parts of words (`a.b0`) are refused.
    fn video_shift(&mut self, words: Words<'a, '_>) -> Result<()> {
        let types: Vec<Scalar> = words
            .modifiers()
            .iter()
            .filter_map(|word| Scalar::from_word(word))
            .collect();
        let [
            result @ (Scalar::U32 | Scalar::S32),
            source @ (Scalar::U32 | Scalar::S32),
            Scalar::U32,
        ] = types[..]
        else {
            return words.unsupported();
        };
        let parts = |at| matches!(words.operand(at), Ok(Operand::Component(..)));
        if (0..words.count()).any(parts) || words.has("clamp") == words.has("wrap") {
            return words.unsupported();
        }
        let flags = [
            (words.opcode() == "vshl", video::LEFT),
            (words.has("wrap"), video::WRAP),
            (source.is_signed(), video::SIGNED_SOURCE),
            (result.is_signed(), video::SIGNED_RESULT),
            (words.has("sat"), video::SATURATED),
        ];
        let mut x = flags
            .iter()
            .filter(|(is_set, _)| *is_set)
            .fold(0, |x, (_, bit)| x | bit);
        let combined = [("add", video::ADD), ("min", video::MINIMUM), ("max", video::MAXIMUM)];
        let second = combined
            .iter()
            .find(|(word, _)| words.has(word))
            .map_or(0, |(_, bit)| *bit);
        x |= second;
        if words.count() != if second == 0 { 3 } else { 4 } {
            return words.unsupported();
        }
        let a = self.value(words.operand(1)?, source)?;
        let b = self.value(words.operand(2)?, Scalar::U32)?;
        let c = match second {
            0 => a,
            _ => self.value(words.operand(3)?, result)?,
        };
        let destination = self.destination(words.operand(0)?, result)?;
        self.compute(ternary::<bytes::VideoShift>(), destination.row, a, b, c, x);
        Ok(())
    }

    fn insert_field(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let run = match scalar.bytes() {
            4 => insert::<u32>(),
            8 => insert::<u64>(),
            _ => return words.unsupported(),
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let b = self.value(words.operand(2)?, scalar)?;
        let position = self.value(words.operand(3)?, Scalar::U32)?;
        let length = self.value(words.operand(4)?, Scalar::U32)?;
        let destination = self.destination(words.operand(0)?, scalar)?;
        self.compute(run, destination.row, a, b, position, 0).m = length;
        Ok(())
    }

    fn predicate_logic(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Operand::Name(name) = words.operand(0)? else {
            return self.wrong("predicate expected");
        };
        let (a, a_negated) = self.predicate(words.operand(1)?)?;
        let (b, b_negated) = if words.opcode() == "not" {
            (a, false)
        } else {
            self.predicate(words.operand(2)?)?
        };
        let d = self.predicate_destination(name)?;
        let mut x = match words.opcode() {
            "and" => predicate_logic::AND,
            "or" => predicate_logic::OR,
            "xor" => predicate_logic::XOR,
            _ => predicate_logic::MOVE,
        };
        if a_negated ^ (words.opcode() == "not") {
            x |= predicate_logic::NOT_A;
        }
        if b_negated {
            x |= predicate_logic::NOT_B;
        }
        self.compute(logic, d, a, b, 0, x);
        Ok(())
    }

    /// Makes a predicate from the words of a row.
    pub(super) fn nonzero(&mut self, operand: &Operand<'a>, row: u32) -> Result<()> {
        let Operand::Name(name) = operand else {
            return self.wrong("predicate expected");
        };
        let d = self.predicate_destination(name)?;
        self.compute(nonzero, d, row, 0, 0, 0);
        Ok(())
    }

    fn set_predicate(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let (first, second) = match words.operand(0)? {
            Operand::Name(name) => (*name, None),
            Operand::Pair(first, second) => (*first, Some(*second)),
            _ => return self.wrong("predicate expected"),
        };
        if matches!(scalar, Scalar::F16x2 | Scalar::Bf16x2) {
            return self.set_predicate_pair(words, scalar, first, second);
        }
        let Some(run) = comparison(&words, scalar) else {
            return words.unsupported();
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let b = self.value(words.operand(2)?, scalar)?;
        let (c, x) = self.combination(words, 3)?;
        let d = self.predicate_destination(first)?;
        let m = match second {
            Some(name) => self.predicate_destination(name)?,
            None => NO_GUARD,
        };
        self.compute(run, d, a, b, c, x).m = m;
        Ok(())
    }

    /// Row and bits of the predicate that a comparison is combined with.
    fn combination(&mut self, words: Words<'a, '_>, index: usize) -> Result<(u32, u64)> {
        let mut x = if words.has("and") {
            setp_bits::AND
        } else if words.has("or") {
            setp_bits::OR
        } else if words.has("xor") {
            setp_bits::XOR
        } else {
            return Ok((0, 0));
        };
        let (c, negated) = self.predicate(words.operand(index)?)?;
        if negated {
            x |= setp_bits::NEGATED;
        }
        Ok((c, x))
    }

    /// `setp.f16x2 p|q, a, b`: one predicate for each half.
    fn set_predicate_pair(
        &mut self,
        words: Words<'a, '_>,
        scalar: Scalar,
        first: &'a str,
        second: Option<&'a str>,
    ) -> Result<()> {
        let half = if scalar == Scalar::F16x2 {
            Scalar::F16
        } else {
            Scalar::Bf16
        };
        let Some(run) = comparison(&words, half) else {
            return words.unsupported();
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let b = self.value(words.operand(2)?, scalar)?;
        let (c, x) = self.combination(words, 3)?;
        let low = self.predicate_destination(first)?;
        let (a_high, b_high) = (self.frame.temporary(Scalar::B32), self.frame.temporary(Scalar::B32));
        self.compute(unary::<integer::Part<u32, u32>>(), a_high, a, 0, 0, 16);
        self.compute(unary::<integer::Part<u32, u32>>(), b_high, b, 0, 0, 16);
        self.compute(run, low, a, b, c, x);
        if let Some(name) = second {
            let high = self.predicate_destination(name)?;
            self.compute(run, high, a_high, b_high, c, x);
        }
        Ok(())
    }

    fn set_value(&mut self, words: Words<'a, '_>, source: Scalar) -> Result<()> {
        let types: Vec<Scalar> = words
            .modifiers()
            .iter()
            .filter_map(|word| Scalar::from_word(word))
            .collect();
        let [result, _] = types[..] else {
            return words.unsupported();
        };
        if matches!(source, Scalar::F16x2 | Scalar::Bf16x2) {
            return self.set_value_pair(words, source, result);
        }
        let Some(run) = comparison(&words, source) else {
            return words.unsupported();
        };
        let a = self.value(words.operand(1)?, source)?;
        let b = self.value(words.operand(2)?, source)?;
        let (c, x) = self.combination(words, 3)?;
        let found = self.frame.temporary(Scalar::Pred);
        self.compute(run, found, a, b, c, x);
        let (spread, held) = match result {
            Scalar::F32 => (spread::<u32>(), u64::from(1f32.to_bits())),
            Scalar::F16 => (spread::<u32>(), 0x3c00),
            Scalar::Bf16 => (spread::<u32>(), 0x3f80),
            _ if result.bytes() == 4 => (spread::<u32>(), u64::MAX),
            _ if result.bytes() == 2 => (spread::<u32>(), 0xffff),
            _ => return words.unsupported(),
        };
        let destination = self.destination(words.operand(0)?, result)?;
        self.compute(spread, destination.row, found, 0, 0, held);
        Ok(())
    }

    fn set_value_pair(&mut self, words: Words<'a, '_>, source: Scalar, result: Scalar) -> Result<()> {
        macro_rules! pick {
            ($($word:literal $name:ident)*) => {
                match (source, result.is_float()) {
                    $((Scalar::F16x2, true) if words.has($word) =>
                        Some(binary::<Pair<AsValue<compare::$name<F16>, 0x3c00>>>()),
                    (Scalar::F16x2, false) if words.has($word) =>
                        Some(binary::<Pair<AsValue<compare::$name<F16>, 0xffff>>>()),
                    (_, true) if words.has($word) =>
                        Some(binary::<Pair<AsValue<compare::$name<Bf16>, 0x3f80>>>()),
                    (_, false) if words.has($word) =>
                        Some(binary::<Pair<AsValue<compare::$name<Bf16>, 0xffff>>>()),)*
                    _ => None,
                }
            };
        }
        let run = pick! {
            "eq" Equal "ne" Unequal "lt" Less "le" LessEqual "gt" Greater "ge" GreaterEqual
            "equ" EqualUnordered "neu" UnequalUnordered "ltu" LessUnordered "leu" LessEqualUnordered
            "gtu" GreaterUnordered "geu" GreaterEqualUnordered "num" BothNumbers "nan" AnyNan
        };
        let (Some(run), 3) = (run, words.count()) else {
            return words.unsupported();
        };
        let a = self.value(words.operand(1)?, source)?;
        let b = self.value(words.operand(2)?, source)?;
        let destination = self.destination(words.operand(0)?, Scalar::B32)?;
        self.compute(run, destination.row, a, b, 0, 0);
        Ok(())
    }

    fn select(&mut self, words: Words<'a, '_>, scalar: Scalar) -> Result<()> {
        let a = self.value(words.operand(1)?, scalar)?;
        let b = self.value(words.operand(2)?, scalar)?;
        let (c, negated) = self.predicate(words.operand(3)?)?;
        let destination = self.destination(words.operand(0)?, scalar)?;
        let run = if scalar.bytes() == 8 {
            select::<u64>()
        } else {
            select::<u32>()
        };
        self.compute(run, destination.row, a, b, c, u64::from(negated));
        Ok(())
    }

    fn select_by_sign(&mut self, words: Words<'a, '_>) -> Result<()> {
        let types: Vec<Scalar> = words
            .modifiers()
            .iter()
            .filter_map(|word| Scalar::from_word(word))
            .collect();
        let [scalar, sign] = types[..] else {
            return words.unsupported();
        };
        let run = match (sign, scalar.bytes()) {
            (Scalar::S32, 8) => select_sign::<u64>(),
            (Scalar::S32, _) => select_sign::<u32>(),
            (Scalar::F32, 8) => select_float_sign::<u64>(),
            (Scalar::F32, _) => select_float_sign::<u32>(),
            _ => return words.unsupported(),
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let b = self.value(words.operand(2)?, scalar)?;
        let c = self.value(words.operand(3)?, sign)?;
        let destination = self.destination(words.operand(0)?, scalar)?;
        self.compute(run, destination.row, a, b, c, 0);
        Ok(())
    }
}

/// The handler of a comparison of values of a type.
fn comparison(words: &Words<'_, '_>, scalar: Scalar) -> Option<Handler> {
    let flush = words.has("ftz");
    macro_rules! typed {
        ($name:ident) => {
            match scalar {
                Scalar::U16 | Scalar::B16 => Some(compared::<compare::$name<u16>>()),
                Scalar::S16 => Some(compared::<compare::$name<i16>>()),
                Scalar::U32 | Scalar::B32 => Some(compared::<compare::$name<u32>>()),
                Scalar::S32 => Some(compared::<compare::$name<i32>>()),
                Scalar::U64 | Scalar::B64 => Some(compared::<compare::$name<u64>>()),
                Scalar::S64 => Some(compared::<compare::$name<i64>>()),
                _ => typed!(@float $name),
            }
        };
        (@float $name:ident) => {
            match scalar {
                Scalar::F32 if flush => Some(compared::<compare::$name<Ftz>>()),
                Scalar::F32 => Some(compared::<compare::$name<f32>>()),
                Scalar::F64 => Some(compared::<compare::$name<f64>>()),
                Scalar::F16 => Some(compared::<compare::$name<F16>>()),
                Scalar::Bf16 => Some(compared::<compare::$name<Bf16>>()),
                _ => None,
            }
        };
    }
    let word = words.modifiers().iter().find(|word| {
        matches!(
            **word,
            "eq" | "ne"
                | "lt"
                | "le"
                | "gt"
                | "ge"
                | "lo"
                | "ls"
                | "hi"
                | "hs"
                | "equ"
                | "neu"
                | "ltu"
                | "leu"
                | "gtu"
                | "geu"
                | "num"
                | "nan"
        )
    })?;
    match *word {
        "eq" => typed!(Equal),
        "ne" => typed!(Unequal),
        "lt" | "lo" => typed!(Less),
        "le" | "ls" => typed!(LessEqual),
        "gt" | "hi" => typed!(Greater),
        "ge" | "hs" => typed!(GreaterEqual),
        "equ" => typed!(@float EqualUnordered),
        "neu" => typed!(@float UnequalUnordered),
        "ltu" => typed!(@float LessUnordered),
        "leu" => typed!(@float LessEqualUnordered),
        "gtu" => typed!(@float GreaterUnordered),
        "geu" => typed!(@float GreaterEqualUnordered),
        "num" => typed!(@float BothNumbers),
        _ => typed!(@float AnyNan),
    }
}
