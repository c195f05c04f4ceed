// SPDX-License-Identifier: Apache-2.0
//! Operations among the lanes of a warp.

use super::arithmetic::type_of;
use super::{Translator, Words};
use crate::error::Result;
use crate::execute::collective::{active_mask, elect, match_values, reduce, shuffle, shuffle_mode, vote, vote_mode};
use crate::execute::integer;
use crate::execute::lanes::{Kind, NO_GUARD};
use crate::syntax::{Operand, Scalar};

impl<'a> Translator<'a, '_> {
    pub(super) fn collective(&mut self, words: Words<'a, '_>) -> Result<()> {
        match words.opcode() {
            "shfl" => self.shuffle(words),
            "vote" => self.vote(words),
            "match" => self.match_values(words),
            "redux" => self.reduce(words),
            "elect" => self.elect(words),
            _ => {
                let destination = self.destination(words.operand(0)?, Scalar::B32)?;
                self.emit(active_mask, destination.row, 0, 0, 0, 0);
                Ok(())
            }
        }
    }

    /// Makes the last instruction wait for the lanes of the mask in operand `index`.
    fn converge(&mut self, words: Words<'a, '_>, index: usize) -> Result<()> {
        if !words.has("sync") {
            return Ok(());
        }
        let at = self.code.insts.len() - 1;
        let members = self.value(words.operand(index)?, Scalar::B32)?;
        // The mask is a register or a constant, so nothing was emitted in between.
        let inst = &mut self.code.insts[at];
        inst.m = members;
        inst.kind = Kind::Converge;
        Ok(())
    }

    fn value_and_predicate(&mut self, operand: &Operand<'a>) -> Result<(u32, u32)> {
        match operand {
            Operand::Pair(value, predicate) => {
                let row = self.destination(&Operand::Name(value), Scalar::B32)?.row;
                Ok((row, self.predicate_destination(predicate)?))
            }
            operand => Ok((self.destination(operand, Scalar::B32)?.row, NO_GUARD)),
        }
    }

    fn shuffle(&mut self, words: Words<'a, '_>) -> Result<()> {
        let mode = if words.has("up") {
            shuffle_mode::UP
        } else if words.has("down") {
            shuffle_mode::DOWN
        } else if words.has("bfly") {
            shuffle_mode::BUTTERFLY
        } else {
            shuffle_mode::INDEX
        };
        let (d, predicate) = self.value_and_predicate(words.operand(0)?)?;
        let a = self.value(words.operand(1)?, Scalar::B32)?;
        let b = self.value(words.operand(2)?, Scalar::B32)?;
        let c = self.value(words.operand(3)?, Scalar::B32)?;
        self.emit(shuffle, d, a, b, c, mode | u64::from(predicate) << 8);
        self.converge(words, 4)
    }

    fn vote(&mut self, words: Words<'a, '_>) -> Result<()> {
        let (a, negated) = self.predicate(words.operand(1)?)?;
        let flip = if negated { vote_mode::NEGATED } else { 0 };
        if words.has("ballot") {
            let destination = self.destination(words.operand(0)?, Scalar::B32)?;
            self.emit(vote, destination.row, a, 0, 0, vote_mode::BALLOT | flip);
        } else {
            let Operand::Name(name) = words.operand(0)? else {
                return self.wrong("predicate expected");
            };
            let d = self.predicate_destination(name)?;
            let mode = if words.has("all") {
                vote_mode::ALL
            } else if words.has("any") {
                vote_mode::ANY
            } else {
                vote_mode::UNIFORM
            };
            self.emit(vote, d, a, 0, 0, mode | flip);
        }
        self.converge(words, 2)
    }

    fn match_values(&mut self, words: Words<'a, '_>) -> Result<()> {
        let scalar = type_of(&words).unwrap_or(Scalar::B32);
        let (d, predicate) = self.value_and_predicate(words.operand(0)?)?;
        let a = self.value(words.operand(1)?, scalar)?;
        let run = if scalar.bytes() == 8 {
            match_values::<u64>()
        } else {
            match_values::<u32>()
        };
        self.emit(run, d, a, 0, 0, u64::from(words.has("all")) | u64::from(predicate) << 8);
        self.converge(words, 2)
    }

    fn reduce(&mut self, words: Words<'a, '_>) -> Result<()> {
        let scalar = type_of(&words).unwrap_or(Scalar::B32);
        let signed = scalar.is_signed();
        if scalar.is_float() || scalar.bytes() != 4 {
            return words.unsupported();
        }
        let run = match words.modifiers().get(1).copied().unwrap_or("") {
            "add" => reduce::<integer::Add<u32>>(),
            "min" if signed => reduce::<integer::Minimum<i32>>(),
            "min" => reduce::<integer::Minimum<u32>>(),
            "max" if signed => reduce::<integer::Maximum<i32>>(),
            "max" => reduce::<integer::Maximum<u32>>(),
            "and" => reduce::<integer::And<u32>>(),
            "or" => reduce::<integer::Or<u32>>(),
            "xor" => reduce::<integer::Xor<u32>>(),
            _ => return words.unsupported(),
        };
        let a = self.value(words.operand(1)?, scalar)?;
        let destination = self.destination(words.operand(0)?, scalar)?;
        self.emit(run, destination.row, a, 0, 0, 0);
        self.converge(words, 2)
    }

    fn elect(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Operand::Pair(value, predicate) = words.operand(0)? else {
            return self.wrong("register and predicate expected");
        };
        let d = self.destination(&Operand::Name(value), Scalar::B32)?.row;
        let c = self.predicate_destination(predicate)?;
        self.emit(elect, d, 0, 0, c, 0);
        self.converge(words, 1)
    }
}
