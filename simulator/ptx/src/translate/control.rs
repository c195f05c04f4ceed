// SPDX-License-Identifier: Apache-2.0
//! Branches, calls, barriers and the end of threads.

use super::scope::Symbol;
use super::{Translator, Words};
use crate::error::{ParseError, Result};
use crate::execute::code::{BarrierAction, BarrierSite, CallSite, Slot};
use crate::execute::collective::{nanosleep, nothing};
use crate::execute::lanes::Kind;
use crate::execute::memory::fence;
use crate::execute::print::{fail_assertion, print};
use crate::syntax::{Operand, Scalar};

impl<'a> Translator<'a, '_> {
    pub(super) fn control(&mut self, words: Words<'a, '_>) -> Result<()> {
        match words.opcode() {
            "bra" => self.branch(words),
            "brx" => self.branch_indexed(words),
            "call" => self.call(words),
            "ret" => {
                self.emit_control(Kind::Return, 0);
                Ok(())
            }
            "exit" => {
                self.emit_control(Kind::Exit, 0);
                Ok(())
            }
            "trap" | "brkpt" => {
                self.emit_control(Kind::Trap, 0);
                Ok(())
            }
            "bar" if words.has("warp") => {
                let members = self.value(words.operand(0)?, Scalar::B32)?;
                let inst = self.emit_control(Kind::Converge, 0);
                inst.m = members;
                Ok(())
            }
            "bar" | "barrier" => self.barrier(words),
            "membar" | "fence" => {
                self.emit(fence, 0, 0, 0, 0, 0);
                Ok(())
            }
            "nanosleep" => {
                let a = self.value(words.operand(0)?, Scalar::U32)?;
                self.emit(nanosleep, 0, a, 0, 0, 0).kind = Kind::Yield;
                Ok(())
            }
            // Hints to the hardware's scheduler, and counters that nobody reads.
            "griddepcontrol" | "setmaxnreg" | "pmevent" => {
                self.emit(nothing, 0, 0, 0, 0, 0);
                Ok(())
            }
            _ => words.unsupported(),
        }
    }

    fn branch(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Operand::Name(name) = words.operand(0)? else {
            return self.wrong("label expected");
        };
        let Some(label) = self.frame.find_label(name) else {
            return Err(ParseError::unresolved(self.place, name));
        };
        let at = self.code.insts.len();
        self.emit_control(Kind::Branch, 0);
        self.frame.branch_to(at, label, self.place);
        Ok(())
    }

    fn branch_indexed(&mut self, words: Words<'a, '_>) -> Result<()> {
        let index = self.value(words.operand(0)?, Scalar::U32)?;
        let targets: Vec<&'a str> = match words.operand(1)? {
            Operand::Name(name) => match self.frame.find(name) {
                Some(Symbol::Targets(targets)) => targets,
                _ => return Err(ParseError::unresolved(self.place, name)),
            },
            _ => return self.wrong("list of labels expected"),
        };
        let list = self.code.lists.len();
        for (entry, name) in targets.iter().enumerate() {
            let Some(label) = self.frame.find_label(name) else {
                return Err(ParseError::unresolved(self.place, name));
            };
            self.code.lists.push(0);
            self.frame.table_to(list + entry, label, self.place);
        }
        let inst = self.emit_control(Kind::BranchIndexed, 0);
        (inst.a, inst.b, inst.c) = (index, list as u32, targets.len() as u32);
        Ok(())
    }

    fn call(&mut self, words: Words<'a, '_>) -> Result<()> {
        let operands = &words.instruction.operands;
        let (returns, rest): (&[Operand<'a>], &[Operand<'a>]) = match operands.first() {
            Some(Operand::List(returns)) => (returns, &operands[1..]),
            _ => (&[], operands),
        };
        let Some(Operand::Name(target)) = rest.first() else {
            return self.wrong("function expected");
        };
        let arguments: &[Operand<'a>] = match rest.get(1) {
            Some(Operand::List(arguments)) => arguments,
            _ => &[],
        };
        let in_module = self.symbols.find_function(self.source, target);
        let pointer = match self.frame.find(target) {
            Some(Symbol::Register(..)) => true,
            _ if in_module.is_none() => return self.built_in(target, returns, arguments),
            _ => false,
        };
        let mut site = CallSite::default();
        for operand in arguments {
            site.arguments.push(self.slot(operand)?);
        }
        for operand in returns {
            site.returns.push(self.slot(operand)?);
        }
        let current = self.current as usize;
        let number = self.code.calls.len() as u64;
        if pointer {
            for (source, function) in self.symbols.taken() {
                let callee = self.include(source, function);
                self.calls[current].insert(callee);
            }
            let a = self.value(&Operand::Name(target), Scalar::U64)?;
            self.emit_control(Kind::CallIndirect, number).a = a;
        } else if let Some((source, function)) = in_module {
            let callee = self.symbols.function(source, function);
            if callee.is_entry {
                return self.wrong("a kernel cannot be called");
            }
            if callee.parameters.len() != arguments.len() || callee.returns.len() != returns.len() {
                return self.wrong("call does not match the function");
            }
            site.function = self.include(source, function);
            self.calls[current].insert(site.function);
            self.emit_control(Kind::Call, number);
        }
        self.code.calls.push(site);
        Ok(())
    }

    /// Where an argument or result of a call is.
    fn slot(&mut self, operand: &Operand<'a>) -> Result<Slot> {
        let Operand::Name(name) = operand else {
            // An immediate: wide enough for either size, because only the callee's bytes are copied.
            return Ok(Slot::Row(self.value(operand, Scalar::B64)?, true));
        };
        match self.frame.find(name) {
            Some(Symbol::Register(_, Scalar::Pred)) => self.wrong("a predicate cannot be passed"),
            Some(Symbol::Register(row, scalar)) => Ok(Slot::Row(row, scalar.bytes() == 8)),
            Some(Symbol::Local(offset)) => Ok(Slot::Local(offset, u32::MAX)),
            _ => Err(ParseError::unresolved(self.place, name)),
        }
    }

    /// Functions that the driver provides.
    fn built_in(&mut self, name: &str, returns: &[Operand<'a>], arguments: &[Operand<'a>]) -> Result<()> {
        let run = match (name, arguments.len()) {
            ("vprintf", 2) => print,
            ("__assertfail", 5) => fail_assertion,
            _ => return Err(ParseError::unresolved(self.place, name)),
        };
        let mut rows = Vec::new();
        for (index, operand) in arguments.iter().enumerate() {
            let scalar = if name == "__assertfail" && index == 2 {
                Scalar::U32
            } else {
                Scalar::U64
            };
            rows.push(match self.slot(operand)? {
                Slot::Row(row, wide) => self.resized(row, wide, scalar == Scalar::U64),
                Slot::Local(offset, _) => self.load_local(offset, scalar),
            });
        }
        let result = self.frame.temporary(Scalar::B32);
        let list = self.list(&rows);
        self.emit(run, result, rows[0], rows[1], list, 0);
        if let Some(operand) = returns.first() {
            match self.slot(operand)? {
                Slot::Row(row, _) => self.move_word(row, result),
                Slot::Local(offset, _) => self.store_local(offset, result),
            }
        }
        Ok(())
    }

    fn barrier(&mut self, words: Words<'a, '_>) -> Result<()> {
        if words.has("cluster") {
            // Every block is its own cluster, and has one thread's view of it.
            self.emit(fence, 0, 0, 0, 0, 0);
            return Ok(());
        }
        let action = if words.has("arrive") {
            BarrierAction::Arrive
        } else if !words.has("red") {
            BarrierAction::Wait
        } else if words.has("popc") {
            BarrierAction::Count
        } else if words.has("and") {
            BarrierAction::And
        } else {
            BarrierAction::Or
        };
        let is_reduction = words.has("red");
        let first = usize::from(is_reduction);
        let index = match words.instruction.operands.get(first) {
            Some(operand) => self.value(operand, Scalar::U32)?,
            None => self.constant(0, false),
        };
        let count = words.count() - first.min(words.count());
        let has_threads = count > 1 + usize::from(is_reduction);
        let threads = if has_threads {
            Some(self.value(words.operand(first + 1)?, Scalar::U32)?)
        } else {
            None
        };
        let mut site = BarrierSite {
            action,
            index,
            threads,
            predicate: (self.constant(0, false), false),
            result: 0,
        };
        if is_reduction {
            site.predicate = self.predicate(words.operand(words.count() - 1)?)?;
            site.result = match (words.operand(0)?, action) {
                (operand, BarrierAction::Count) => self.destination(operand, Scalar::U32)?.row,
                (Operand::Name(name), _) => self.predicate_destination(name)?,
                _ => return self.wrong("predicate expected"),
            };
        }
        let number = self.code.barriers.len() as u64;
        self.code.barriers.push(site);
        self.emit_control(Kind::Barrier, number);
        Ok(())
    }
}
