// SPDX-License-Identifier: Apache-2.0
//! Moves, loads, stores, address conversions and atomics.

use super::arithmetic::type_of;
use super::operand::Address;
use super::{Translator, Words};
use crate::error::Result;
use crate::execute::atomic::{Atomic, Combine, CompareExchange, Decrement, Exchange, Increment, atomic};
use crate::execute::compare::{logic, predicate_logic};
use crate::execute::float::{self, Pair};
use crate::execute::integer::{self, AddImmediate, Move, Pack, Part};
use crate::execute::lanes::{Handler, NO_GUARD, binary, unary};
use crate::execute::memory::{Access, fence, is_in_space, load, store};
use crate::execute::number::{Bf16, F16};
use crate::execute::spaces::{Generic, Global, LOCAL_WINDOW, Local, PARAM_WINDOW, Param, SHARED_WINDOW, Shared};
use crate::syntax::{Operand, Scalar, Space};

/// Picks a handler by space, for an operation generic over element and space.
macro_rules! by_space {
    ($space:expr, $pick:ident, $kind:ident, $element:ty) => {
        match $space {
            Space::Generic => $pick::<$kind<$element, Generic>>(),
            Space::Global | Space::Const => $pick::<$kind<$element, Global>>(),
            Space::Shared => $pick::<$kind<$element, Shared>>(),
            Space::Local => $pick::<$kind<$element, Local>>(),
            Space::Param => $pick::<$kind<$element, Param>>(),
        }
    };
}

/// As [`by_space`], for the spaces that atomics can address.
macro_rules! by_atomic_space {
    ($space:expr, $update:ty) => {
        match $space {
            Space::Generic => Some(atomic::<Atomic<$update, Generic>>()),
            Space::Global => Some(atomic::<Atomic<$update, Global>>()),
            Space::Shared => Some(atomic::<Atomic<$update, Shared>>()),
            _ => None,
        }
    };
}

impl<'a> Translator<'a, '_> {
    pub(super) fn data(&mut self, words: Words<'a, '_>) -> Result<()> {
        match words.opcode() {
            "mov" => self.mov(words),
            "ld" | "ldu" => self.load(words),
            "st" => self.store(words),
            "cvta" => self.convert_address(words),
            "isspacep" => self.is_in_space(words),
            "atom" | "red" => self.atomic(words),
            "createpolicy" => self.create_policy(words),
            // Hints about caches, of which there are none.
            _ => Ok(()),
        }
    }

    /// A policy of caches, of which there are none: whoever hands it on in `.L2::cache_hint` changes nothing.
    fn create_policy(&mut self, words: Words<'a, '_>) -> Result<()> {
        let (fewest, most) = match words.modifiers().first() {
            Some(&"fractional") => (1, 2),
            Some(&"cvt") => (2, 2),
            Some(&"range") => (4, 4),
            _ => return words.unsupported(),
        };
        if !(fewest..=most).contains(&words.count()) || type_of(&words) != Some(Scalar::B64) {
            return self.wrong("not a policy of caches");
        }
        let destination = self.destination(words.operand(0)?, Scalar::B64)?;
        let none = self.constant(0, true);
        self.compute(unary::<Move<u64>>(), destination.row, none, 0, 0, 0);
        Ok(())
    }

    /// Operands that an access has beyond `fewest`: with `.L2::cache_hint` a policy, which changes nothing.
    fn check_hint(&mut self, words: Words<'a, '_>, fewest: usize) -> Result<()> {
        if !words.has("L2::cache_hint") {
            return Ok(());
        }
        if words.count() != fewest + 1 {
            return self.wrong("a cache hint needs a policy");
        }
        self.value(words.operand(fewest)?, Scalar::B64).map(|_| ())
    }

    fn mov(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Some(scalar) = type_of(&words) else {
            return self.wrong("the instruction has no type");
        };
        if scalar == Scalar::B128 {
            return words.unsupported();
        }
        if scalar == Scalar::Pred {
            let Operand::Name(name) = words.operand(0)? else {
                return self.wrong("predicate expected");
            };
            let (a, negated) = self.predicate(words.operand(1)?)?;
            let d = self.predicate_destination(name)?;
            let flip = if negated { predicate_logic::NOT_A } else { 0 };
            self.compute(logic, d, a, a, 0, predicate_logic::MOVE | flip);
            return Ok(());
        }
        match (words.operand(0)?, words.operand(1)?) {
            (Operand::Vector(_), Operand::Vector(_)) => words.unsupported(),
            (Operand::Vector(parts), source) => self.unpack(words, scalar, parts, source),
            (target, Operand::Vector(parts)) => self.pack(words, scalar, target, parts),
            (target, source) => {
                let a = self.value(source, scalar)?;
                let destination = self.destination(target, scalar)?;
                let run = if scalar.bytes() == 8 {
                    unary::<Move<u64>>()
                } else {
                    unary::<Move<u32>>()
                };
                self.compute(run, destination.row, a, 0, 0, 0);
                self.settle(&destination, scalar);
                Ok(())
            }
        }
    }

    /// Type and width in bits of the parts of a packed value.
    fn part_of(&self, words: &Words<'_, '_>, scalar: Scalar, parts: usize) -> Result<(Scalar, u64)> {
        match (scalar.bytes() * 8, parts) {
            (64, 2) => Ok((Scalar::B32, 32)),
            (64, 4) | (32, 2) => Ok((Scalar::B16, 16)),
            (32, 4) | (16, 2) => Ok((Scalar::B8, 8)),
            _ => words.unsupported(),
        }
    }

    fn pack(
        &mut self,
        words: Words<'a, '_>,
        scalar: Scalar,
        target: &Operand<'a>,
        parts: &[Operand<'a>],
    ) -> Result<()> {
        let (part, bits) = self.part_of(&words, scalar, parts.len())?;
        let wide = scalar.bytes() == 8;
        let mut rows = Vec::new();
        for operand in parts {
            let row = self.value(operand, part)?;
            rows.push(self.resized(row, false, wide));
        }
        let destination = self.destination(target, scalar)?;
        // The target may be one of the parts, so the value grows in a temporary.
        let mut row = rows[0];
        for (index, upper) in rows.iter().enumerate().skip(1) {
            let last = index + 1 == rows.len();
            let next = if last {
                destination.row
            } else {
                self.frame.temporary(scalar)
            };
            let run = if wide {
                binary::<Pack<u64>>()
            } else {
                binary::<Pack<u32>>()
            };
            self.compute(run, next, row, *upper, 0, bits * index as u64);
            row = next;
        }
        self.settle(&destination, scalar);
        Ok(())
    }

    fn unpack(
        &mut self,
        words: Words<'a, '_>,
        scalar: Scalar,
        parts: &[Operand<'a>],
        source: &Operand<'a>,
    ) -> Result<()> {
        let (part, bits) = self.part_of(&words, scalar, parts.len())?;
        let wide = scalar.bytes() == 8;
        let source = self.value(source, scalar)?;
        // The source may be one of the targets, so all parts but the last use a copy.
        let copy = self.frame.temporary(scalar);
        self.compute(
            if wide {
                unary::<Move<u64>>()
            } else {
                unary::<Move<u32>>()
            },
            copy,
            source,
            0,
            0,
            0,
        );
        for (index, operand) in parts.iter().enumerate() {
            let destination = self.destination(operand, part)?;
            let run = match (wide, bits) {
                (true, 32) => unary::<Part<u64, u32>>(),
                (true, _) => unary::<Part<u64, u16>>(),
                (false, 16) => unary::<Part<u32, u16>>(),
                (false, _) => unary::<Part<u32, u8>>(),
            };
            self.compute(run, destination.row, copy, 0, 0, bits * index as u64);
            self.settle(&destination, part);
        }
        Ok(())
    }

    fn space_of(&self, words: &Words<'_, '_>) -> Space {
        words
            .modifiers()
            .iter()
            .find_map(|word| Space::from_word(word))
            .unwrap_or(Space::Generic)
    }

    fn vector_of(&self, words: &Words<'_, '_>) -> usize {
        match words
            .modifiers()
            .iter()
            .find(|word| matches!(**word, "v2" | "v4" | "v8"))
        {
            Some(&"v2") => 2,
            Some(&"v4") => 4,
            Some(_) => 8,
            None => 1,
        }
    }

    fn memory_type(&self, words: &Words<'_, '_>) -> Result<Scalar> {
        match type_of(words) {
            Some(Scalar::Pred | Scalar::B128) | None => words.unsupported(),
            Some(scalar) => Ok(scalar),
        }
    }

    /// The registers of a possibly vector operand.
    fn elements<'o>(&self, operand: &'o Operand<'a>, count: usize) -> Result<Vec<&'o Operand<'a>>> {
        match operand {
            Operand::Vector(parts) if parts.len() == count => Ok(parts.iter().collect()),
            Operand::Vector(_) => self.wrong("vector of another length expected"),
            operand if count == 1 => Ok(vec![operand]),
            _ => self.wrong("vector expected"),
        }
    }

    fn load(&mut self, words: Words<'a, '_>) -> Result<()> {
        let scalar = self.memory_type(&words)?;
        let space = self.space_of(&words);
        let address = self.address(words.operand(1)?, space)?;
        self.check_hint(words, 2)?;
        let count = self.vector_of(&words);
        let mut destinations = Vec::new();
        for operand in self.elements(words.operand(0)?, count)? {
            destinations.push(self.destination(operand, scalar)?);
        }
        let run = match (scalar.bytes(), scalar.is_signed()) {
            (1, false) => by_space!(address.space, load, Access, u8),
            (1, true) => by_space!(address.space, load, Access, i8),
            (2, false) => by_space!(address.space, load, Access, u16),
            (2, true) => by_space!(address.space, load, Access, i16),
            (4, _) => by_space!(address.space, load, Access, u32),
            _ => by_space!(address.space, load, Access, u64),
        };
        let rows: Vec<u32> = destinations.iter().map(|destination| destination.row).collect();
        self.access(run, &address, &rows);
        for destination in &destinations {
            self.settle(destination, scalar);
        }
        if words.has("acquire") {
            self.emit(fence, 0, 0, 0, 0, 0);
        }
        Ok(())
    }

    fn store(&mut self, words: Words<'a, '_>) -> Result<()> {
        let scalar = self.memory_type(&words)?;
        let space = self.space_of(&words);
        let address = self.address(words.operand(0)?, space)?;
        self.check_hint(words, 2)?;
        let count = self.vector_of(&words);
        let mut rows = Vec::new();
        for operand in self.elements(words.operand(1)?, count)? {
            rows.push(self.value(operand, scalar)?);
        }
        if words.has("release") {
            self.emit(fence, 0, 0, 0, 0, 0);
        }
        let run = match scalar.bytes() {
            1 => by_space!(address.space, store, Access, u8),
            2 => by_space!(address.space, store, Access, u16),
            4 => by_space!(address.space, store, Access, u32),
            _ => by_space!(address.space, store, Access, u64),
        };
        self.access(run, &address, &rows);
        Ok(())
    }

    fn access(&mut self, run: Handler, address: &Address, rows: &[u32]) {
        let list = if rows.len() == 1 { 0 } else { self.list(rows) };
        self.emit(run, rows[0], address.row, rows.len() as u32, list, address.offset);
    }

    fn window(&self, words: &Words<'_, '_>) -> u64 {
        match self.space_of(words) {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Param if self.frame.is_entry => PARAM_WINDOW,
            Space::Param => LOCAL_WINDOW,
            _ => 0,
        }
    }

    fn convert_address(&mut self, words: Words<'a, '_>) -> Result<()> {
        if type_of(&words) != Some(Scalar::U64) {
            return words.unsupported();
        }
        let window = self.window(&words);
        let moved = if words.has("to") { window.wrapping_neg() } else { window };
        let a = match words.operand(1)? {
            // `cvta.param.u64 %rd, name` and the like: the address of the name in its space.
            operand @ (Operand::Name(_) | Operand::Offset(..) | Operand::Integer(_)) => {
                self.value(operand, Scalar::U64)?
            }
            _ => return self.wrong("register or name expected"),
        };
        let destination = self.destination(words.operand(0)?, Scalar::U64)?;
        self.compute(unary::<AddImmediate<u64>>(), destination.row, a, 0, 0, moved);
        Ok(())
    }

    fn is_in_space(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Operand::Name(name) = words.operand(0)? else {
            return self.wrong("predicate expected");
        };
        let a = self.value(words.operand(1)?, Scalar::U64)?;
        let d = self.predicate_destination(name)?;
        self.emit(is_in_space, d, a, 0, 0, self.window(&words) >> 56);
        Ok(())
    }

    fn atomic(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Some(scalar) = type_of(&words) else {
            return self.wrong("the instruction has no type");
        };
        if self.vector_of(&words) != 1 {
            return words.unsupported();
        }
        let keeps = words.opcode() == "atom";
        let first = usize::from(keeps);
        let space = self.space_of(&words);
        let address = self.address(words.operand(first)?, space)?;
        let Some(run) = update(&words, scalar, address.space) else {
            return words.unsupported();
        };
        self.check_hint(words, first + 2 + usize::from(words.has("cas")))?;
        let b = self.value(words.operand(first + 1)?, scalar)?;
        let c = if words.has("cas") {
            self.value(words.operand(first + 2)?, scalar)?
        } else {
            b
        };
        let destination = if keeps {
            Some(self.destination(words.operand(0)?, scalar)?)
        } else {
            None
        };
        let d = destination.as_ref().map_or(NO_GUARD, |destination| destination.row);
        self.emit(run, d, address.row, b, c, address.offset);
        if let Some(destination) = destination {
            self.settle(&destination, scalar);
        }
        Ok(())
    }
}

/// The handler of an atomic.
fn update(words: &Words<'_, '_>, scalar: Scalar, space: Space) -> Option<Handler> {
    macro_rules! combine {
        ($operation:ty, $cell:ty) => {
            by_atomic_space!(space, Combine<$operation, $cell>)
        };
    }
    let operation = words.modifiers().iter().find(|word| {
        matches!(
            **word,
            "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "cas" | "inc" | "dec"
        )
    })?;
    let bytes = scalar.bytes();
    match (*operation, scalar) {
        ("add", Scalar::U32 | Scalar::S32) => combine!(integer::Add<u32>, u32),
        ("add", Scalar::U64 | Scalar::S64) => combine!(integer::Add<u64>, u64),
        ("add", Scalar::F32) => combine!(float::Add<f32>, u32),
        ("add", Scalar::F64) => combine!(float::Add<f64>, u64),
        ("add", Scalar::F16) => combine!(float::Add<F16>, u16),
        ("add", Scalar::Bf16) => combine!(float::Add<Bf16>, u16),
        ("add", Scalar::F16x2) => combine!(Pair<float::Add<F16>>, u32),
        ("add", Scalar::Bf16x2) => combine!(Pair<float::Add<Bf16>>, u32),
        ("min", Scalar::U32) => combine!(integer::Minimum<u32>, u32),
        ("min", Scalar::S32) => combine!(integer::Minimum<i32>, u32),
        ("min", Scalar::U64) => combine!(integer::Minimum<u64>, u64),
        ("min", Scalar::S64) => combine!(integer::Minimum<i64>, u64),
        ("max", Scalar::U32) => combine!(integer::Maximum<u32>, u32),
        ("max", Scalar::S32) => combine!(integer::Maximum<i32>, u32),
        ("max", Scalar::U64) => combine!(integer::Maximum<u64>, u64),
        ("max", Scalar::S64) => combine!(integer::Maximum<i64>, u64),
        ("and", _) if bytes == 4 => combine!(integer::And<u32>, u32),
        ("and", _) if bytes == 8 => combine!(integer::And<u64>, u64),
        ("or", _) if bytes == 4 => combine!(integer::Or<u32>, u32),
        ("or", _) if bytes == 8 => combine!(integer::Or<u64>, u64),
        ("xor", _) if bytes == 4 => combine!(integer::Xor<u32>, u32),
        ("xor", _) if bytes == 8 => combine!(integer::Xor<u64>, u64),
        ("exch", _) if bytes == 4 => by_atomic_space!(space, Exchange<u32>),
        ("exch", _) if bytes == 8 => by_atomic_space!(space, Exchange<u64>),
        ("cas", _) if bytes == 2 => by_atomic_space!(space, CompareExchange<u16>),
        ("cas", _) if bytes == 4 => by_atomic_space!(space, CompareExchange<u32>),
        ("cas", _) if bytes == 8 => by_atomic_space!(space, CompareExchange<u64>),
        ("inc", Scalar::U32) => by_atomic_space!(space, Increment),
        ("dec", Scalar::U32) => by_atomic_space!(space, Decrement),
        _ => None,
    }
}

impl Translator<'_, '_> {
    /// A temporary row with a word of the function's local memory.
    pub(super) fn load_local(&mut self, offset: u32, scalar: Scalar) -> u32 {
        let row = self.frame.temporary(scalar);
        let run = if scalar.bytes() == 8 {
            load::<Access<u64, Local>>()
        } else {
            load::<Access<u32, Local>>()
        };
        self.emit(run, row, 0, 1, 0, u64::from(offset));
        row
    }

    /// Stores a 32-bit row into the function's local memory.
    pub(super) fn store_local(&mut self, offset: u32, row: u32) {
        self.emit(store::<Access<u32, Local>>(), row, 0, 1, 0, u64::from(offset));
    }

    /// Copies a 32-bit row.
    pub(super) fn move_word(&mut self, to: u32, from: u32) {
        self.compute(unary::<Move<u32>>(), to, from, 0, 0, 0);
    }
}
