// SPDX-License-Identifier: Apache-2.0
//! Turns operands into rows, widening or narrowing where an instruction allows operands of another size.

use super::Translator;
use super::scope::Symbol;
use super::symbols::function_address;
use crate::error::{ParseError, Result};
use crate::execute::code::{ROW32, Special};
use crate::execute::collective::clock;
use crate::execute::convert::Resize;
use crate::execute::integer::{AddImmediate, Part};
use crate::execute::lanes::{SPECIAL, unary};
use crate::syntax::{Operand, Scalar, Space};

/// A destination row and what must follow the instruction that writes it.
pub struct Destination {
    /// Row that the instruction writes.
    pub row: u32,
    /// The row of the 64-bit register that the value goes to from there.
    extend: Option<u32>,
}

/// An address: row of 64-bit words, displacement, and what it addresses.
pub struct Address {
    /// Row of the base.
    pub row: u32,
    /// Added to it.
    pub offset: u64,
    /// State space, with `Param` only for kernel parameters.
    pub space: Space,
}

fn is_wide(scalar: Scalar) -> bool {
    scalar.bytes() == 8
}

impl<'a> Translator<'a, '_> {
    /// A constant row.
    pub fn constant(&mut self, value: u64, wide: bool) -> u32 {
        self.code.constants.row(value, wide)
    }

    /// The row that holds an operand of a type.
    pub fn value(&mut self, operand: &Operand<'a>, scalar: Scalar) -> Result<u32> {
        let wide = is_wide(scalar);
        match operand {
            Operand::Name(name) => self.named_value(name, 0, wide),
            Operand::Offset(name, offset) => self.named_value(name, *offset, wide),
            Operand::Component(name, component) => self.special(name, Some(component), wide),
            Operand::Integer(value) => Ok(self.constant(*value, wide)),
            Operand::Single(bits) if scalar == Scalar::F64 => {
                Ok(self.constant(f64::from(f32::from_bits(*bits)).to_bits(), true))
            }
            Operand::Single(bits) => Ok(self.constant(u64::from(*bits), wide)),
            Operand::Double(bits) if scalar == Scalar::F32 => {
                Ok(self.constant(u64::from((f64::from_bits(*bits) as f32).to_bits()), false))
            }
            Operand::Double(bits) => Ok(self.constant(*bits, wide)),
            _ => self.wrong("operand of another kind expected"),
        }
    }

    fn named_value(&mut self, name: &'a str, offset: i64, wide: bool) -> Result<u32> {
        match self.frame.find(name) {
            Some(Symbol::Register(_, Scalar::Pred)) => self.wrong("a predicate cannot be used as a value"),
            Some(Symbol::Register(row, scalar)) if offset == 0 => Ok(self.resized(row, is_wide(scalar), wide)),
            Some(Symbol::Register(..)) => self.wrong("an offset needs an address"),
            Some(symbol) => self.address_of(&symbol, offset, wide),
            None => match self.module_symbol(name) {
                Some(symbol) => self.address_of(&symbol, offset, wide),
                None if name.starts_with('%') => self.special(name, None, wide),
                None => Err(ParseError::unresolved(self.place, name)),
            },
        }
    }

    /// A name of module scope.
    pub fn module_symbol(&mut self, name: &str) -> Option<Symbol<'a>> {
        match self.symbols.find_variable(self.source, name) {
            Some(Ok(address)) => {
                self.has_addresses = true;
                return Some(Symbol::Device(address));
            }
            Some(Err(variable)) => {
                let offset = self.shared.get(&std::ptr::from_ref(variable)).copied().unwrap_or(0);
                return Some(Symbol::Shared(offset));
            }
            None => {}
        }
        let (source, number) = self.symbols.find_function(self.source, name)?;
        Some(Symbol::Function(source, number))
    }

    fn address_of(&mut self, symbol: &Symbol<'a>, offset: i64, wide: bool) -> Result<u32> {
        let address = match symbol {
            Symbol::Param(at) | Symbol::Shared(at) => u64::from(*at),
            Symbol::Device(address) => *address,
            Symbol::Function(source, number) => {
                if !self.symbols.function(*source, *number).is_entry {
                    self.include(*source, *number);
                }
                function_address(self.symbols.number(*source, *number))
            }
            Symbol::Local(at) => {
                let row = self.frame.temporary(Scalar::B64);
                let offset = u64::from(*at).wrapping_add(offset as u64);
                self.compute(unary::<AddImmediate<u64>>(), row, 0, 0, 0, offset);
                return Ok(self.resized(row, true, wide));
            }
            _ => return self.wrong("this name has no address"),
        };
        Ok(self.constant(address.wrapping_add(offset as u64), wide))
    }

    /// The same value in a row of the width wanted; widening adds zeros.
    pub fn resized(&mut self, row: u32, from_wide: bool, to_wide: bool) -> u32 {
        match (from_wide, to_wide) {
            (false, true) => {
                let target = self.frame.temporary(Scalar::B64);
                self.compute(unary::<Resize<u32, u64>>(), target, row, 0, 0, 0);
                target
            }
            (true, false) => {
                let target = self.frame.temporary(Scalar::B32);
                self.compute(unary::<Resize<u64, u32>>(), target, row, 0, 0, 0);
                target
            }
            _ => row,
        }
    }

    fn special(&mut self, name: &str, component: Option<&str>, wide: bool) -> Result<u32> {
        if let Some(special) = Special::from_name(name, component) {
            return Ok(self.resized((special as u32 * ROW32) | SPECIAL, false, wide));
        }
        let constant = match name {
            "%clock" | "%clock64" | "%clock_hi" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi" => {
                return Ok(self.clock(name, wide));
            }
            "%nctaid" | "%cluster_nctaid" | "%cluster_nctarank" => 1,
            "%gridid" | "%cluster_ctaid" | "%cluster_ctarank" | "%aggr_smem_size" => 0,
            "%reserved_smem_offset_begin" | "%reserved_smem_offset_end" | "%reserved_smem_offset_cap" => 0,
            _ if name.starts_with("%envreg") || name.starts_with("%pm") => 0,
            _ => return Err(ParseError::unresolved(self.place, name)),
        };
        Ok(self.constant(constant, wide))
    }

    fn clock(&mut self, name: &str, wide: bool) -> u32 {
        let row = self.frame.temporary(Scalar::B64);
        self.emit(clock, row, 0, 0, 0, u64::from(name.starts_with("%global")));
        if name.ends_with("_hi") {
            let upper = self.frame.temporary(Scalar::B32);
            self.compute(unary::<Part<u64, u32>>(), upper, row, 0, 0, 32);
            return self.resized(upper, false, wide);
        }
        self.resized(row, true, wide)
    }

    /// Row and negation of a predicate operand.
    pub fn predicate(&mut self, operand: &Operand<'a>) -> Result<(u32, bool)> {
        let (name, negated) = match operand {
            Operand::Name(name) => (*name, false),
            Operand::Not(name) => (*name, true),
            Operand::Integer(value) => {
                return Ok((self.constant(if *value != 0 { u64::MAX } else { 0 }, false), false));
            }
            _ => return self.wrong("predicate expected"),
        };
        match self.frame.find(name) {
            Some(Symbol::Register(row, Scalar::Pred)) => Ok((row, negated)),
            Some(_) => self.wrong("predicate expected"),
            None if name == "%is_explicit_cluster" => Ok((self.constant(0, false), negated)),
            None => Err(ParseError::unresolved(self.place, name)),
        }
    }

    /// Row of a predicate that is written; `_` discards it.
    pub fn predicate_destination(&mut self, name: &'a str) -> Result<u32> {
        if name == "_" {
            return Ok(self.frame.temporary(Scalar::Pred));
        }
        match self.frame.find(name) {
            Some(Symbol::Register(row, Scalar::Pred)) => Ok(row),
            Some(_) => self.wrong("predicate expected"),
            None => Err(ParseError::unresolved(self.place, name)),
        }
    }

    /// The row an instruction of type `scalar` writes for a register operand.
    pub fn destination(&mut self, operand: &Operand<'a>, scalar: Scalar) -> Result<Destination> {
        let Operand::Name(name) = operand else {
            return self.wrong("register expected");
        };
        if *name == "_" {
            return Ok(Destination {
                row: self.frame.temporary(scalar),
                extend: None,
            });
        }
        match self.frame.find(name) {
            Some(Symbol::Register(_, Scalar::Pred)) => self.wrong("a predicate cannot take a value"),
            Some(Symbol::Register(row, register)) => {
                // A 32-bit row takes a narrower result as it is: handlers store it already extended.
                if is_wide(register) == is_wide(scalar) {
                    return Ok(Destination { row, extend: None });
                }
                if is_wide(scalar) {
                    return self.wrong("register is narrower than the instruction's type");
                }
                Ok(Destination {
                    row: self.frame.temporary(scalar),
                    extend: Some(row),
                })
            }
            Some(_) => self.wrong("register expected"),
            None => Err(ParseError::unresolved(self.place, name)),
        }
    }

    /// Completes a destination after the instruction that wrote it.
    pub fn settle(&mut self, destination: &Destination, scalar: Scalar) {
        let Some(register) = destination.extend else {
            return;
        };
        let run = match scalar {
            Scalar::S8 => unary::<Resize<i8, u64>>(),
            Scalar::S16 => unary::<Resize<i16, u64>>(),
            Scalar::S32 => unary::<Resize<i32, u64>>(),
            Scalar::B8 | Scalar::U8 => unary::<Resize<u8, u64>>(),
            _ if scalar.bytes() == 2 => unary::<Resize<u16, u64>>(),
            _ => unary::<Resize<u32, u64>>(),
        };
        self.compute(run, register, destination.row, 0, 0, 0);
    }

    /// The parts of a memory operand.
    pub fn address(&mut self, operand: &Operand<'a>, space: Space) -> Result<Address> {
        let Operand::Address(base, offset) = operand else {
            return self.wrong("address in brackets expected");
        };
        let offset = *offset as u64;
        let Some(name) = base else {
            return Ok(Address {
                row: self.constant(0, true),
                offset,
                space,
            });
        };
        let symbol = match self.frame.find(name) {
            Some(symbol) => symbol,
            None => match self.module_symbol(name) {
                Some(symbol) => symbol,
                None => return Err(ParseError::unresolved(self.place, name)),
            },
        };
        let zero = self.constant(0, true);
        Ok(match symbol {
            Symbol::Register(_, Scalar::Pred) => return self.wrong("a predicate is no address"),
            Symbol::Register(row, scalar) => {
                let row = self.resized(row, is_wide(scalar), true);
                // In a device function, parameters are local memory.
                let space = if space == Space::Param && !self.frame.is_entry {
                    Space::Local
                } else {
                    space
                };
                Address { row, offset, space }
            }
            Symbol::Param(at) => Address {
                row: zero,
                offset: offset.wrapping_add(u64::from(at)),
                space: Space::Param,
            },
            Symbol::Local(at) => Address {
                row: 0,
                offset: offset.wrapping_add(u64::from(at)),
                space: Space::Local,
            },
            Symbol::Shared(at) => Address {
                row: zero,
                offset: offset.wrapping_add(u64::from(at)),
                space: Space::Shared,
            },
            Symbol::Device(address) => Address {
                row: self.constant(address, true),
                offset,
                space: Space::Global,
            },
            _ => return self.wrong("this name has no memory"),
        })
    }

    /// Appends an operand list and returns where it begins.
    pub fn list(&mut self, rows: &[u32]) -> u32 {
        let at = self.code.lists.len() as u32;
        self.code.lists.extend_from_slice(rows);
        at
    }
}
