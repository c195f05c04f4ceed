// SPDX-License-Identifier: Apache-2.0
//! Translates syntax trees into code, once per module and kernel.
//!
//! Each kernel is translated with every function it can call, so that shared and local memory have one layout per
//! kernel. Registers get rows of a fixed frame, immediates and addresses become constant rows, and every instruction
//! becomes one or a few handlers chosen by type: nothing is decided again while the kernel runs.

mod arithmetic;
mod bits;
mod collective;
mod control;
mod convert;
mod data;
mod matrix;
mod operand;
mod scope;
mod symbols;

pub use symbols::{Symbols, VariableInfo};

use std::collections::VecDeque;

use crate::error::{ParseError, Result};
use crate::execute::code::{Code, Constants, FunctionLayout, Slot};
use crate::execute::collective::nothing;
use crate::execute::lanes::{Handler, Inst, Kind, NO_GUARD};
use crate::hasher::{Map, Set};
use crate::place::Place;
use crate::syntax::{Formal, Function, Instruction, Operand, Space, Statement, Variable};
use scope::{Frame, Symbol};
use symbols::function_address;

/// Local memory of a thread whose calls have no known depth.
const RECURSIVE_STACK: u32 = 64 << 10;

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset in the parameter buffer.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// Lays out a kernel's parameters as the driver does: in order, each at its alignment.
pub fn parameters(function: &Function<'_>) -> Vec<Parameter> {
    let mut offset = 0u32;
    function
        .parameters
        .iter()
        .map(|formal| {
            let size = formal.variable.bytes().unwrap_or(0).min(1 << 20) as u32;
            let align = formal.variable.align.max(1);
            let at = offset.next_multiple_of(align);
            offset = at + size;
            Parameter {
                offset: at,
                size,
                align,
            }
        })
        .collect()
}

/// Translates kernel `entry` of source `source`; true when the code holds addresses of variables.
pub fn kernel(symbols: &Symbols<'_, '_>, source: usize, entry: usize) -> (Result<Code>, bool) {
    let mut translator = Translator::new(symbols);
    let read = translator.kernel(source, entry);
    let has_addresses = translator.has_addresses;
    (read.and_then(|()| translator.finish()), has_addresses)
}

/// State of one kernel's translation.
struct Translator<'a, 's> {
    symbols: &'s Symbols<'a, 's>,
    code: Code,
    /// Index in `code.functions` by (source, function).
    included: Map<(usize, usize), u32>,
    waiting: VecDeque<(usize, usize)>,
    /// Functions that each included function calls; `None` stands for an unknown one.
    calls: Vec<Set<u32>>,
    /// Offsets of shared variables.
    shared: Map<*const Variable<'a>, u32>,
    /// Current function.
    frame: Frame<'a>,
    source: usize,
    current: u32,
    /// Guard and line of the current instruction.
    guard: u32,
    negated: bool,
    place: Place,
    /// True once the address of a variable was asked for.
    has_addresses: bool,
}

impl<'a, 's> Translator<'a, 's> {
    fn new(symbols: &'s Symbols<'a, 's>) -> Self {
        Self {
            symbols,
            code: Code {
                insts: Vec::new(),
                lists: Vec::new(),
                constants: Constants::default(),
                functions: Vec::new(),
                calls: Vec::new(),
                barriers: Vec::new(),
                shapes: Vec::new(),
                shared: 0,
                local: 0,
            },
            included: Map::default(),
            waiting: VecDeque::new(),
            calls: Vec::new(),
            shared: Map::default(),
            frame: Frame::default(),
            source: 0,
            current: 0,
            guard: NO_GUARD,
            negated: false,
            place: Place::default(),
            has_addresses: false,
        }
    }

    fn kernel(&mut self, source: usize, entry: usize) -> Result<()> {
        self.include(source, entry);
        self.lay_out_shared()?;
        while let Some((source, function)) = self.waiting.pop_front() {
            self.function(source, function)?;
        }
        Ok(())
    }

    /// The index of a function in this kernel's code.
    fn include(&mut self, source: usize, function: usize) -> u32 {
        let next = self.code.functions.len() as u32;
        let index = *self.included.entry((source, function)).or_insert(next);
        if index == next {
            self.waiting.push_back((source, function));
            self.calls.push(Set::default());
            self.code.functions.push(FunctionLayout {
                address: function_address(self.symbols.number(source, function)),
                ..FunctionLayout::default()
            });
        }
        index
    }

    /// Gives every shared variable that the kernel can reach its offset; unsized ones follow all others.
    fn lay_out_shared(&mut self) -> Result<()> {
        let (mut unsized_ones, mut offset) = (Vec::new(), 0u32);
        for variable in self.symbols.reachable_shared(self.waiting[0]) {
            let bytes = variable.bytes().unwrap_or(0);
            if bytes == 0 {
                unsized_ones.push(variable);
                continue;
            }
            offset = offset.next_multiple_of(variable.align.max(1));
            self.shared.insert(variable, offset);
            let end = u64::from(offset) + bytes;
            if end > 1 << 20 {
                return Err(ParseError::unsupported(
                    variable.place,
                    "more than 1 MiB of shared memory",
                ));
            }
            offset = end as u32;
        }
        let align = unsized_ones.iter().map(|variable| variable.align).max().unwrap_or(1);
        offset = offset.next_multiple_of(align.max(1));
        for variable in unsized_ones {
            self.shared.insert(variable, offset);
        }
        self.code.shared = offset;
        Ok(())
    }

    fn function(&mut self, source: usize, number: usize) -> Result<()> {
        let function = self.symbols.function(source, number);
        self.current = self.included[&(source, number)];
        self.source = source;
        self.frame = Frame::new(function.is_entry);
        self.place = function.place;
        let Some(body) = &function.body else {
            return Err(ParseError::unresolved(function.place, function.name));
        };
        let start = self.code.insts.len() as u32;
        self.frame.open_scope();
        let (parameters, returns) = self.formals(function)?;
        self.statements(body)?;
        self.guard = NO_GUARD;
        self.emit_control(Kind::Return, 0);
        self.resolve_labels()?;
        let layout = &mut self.code.functions[self.current as usize];
        layout.start = start;
        layout.parameters = parameters;
        layout.returns = returns;
        layout.frame = self.frame.bytes();
        layout.local = self.frame.local_bytes();
        Ok(())
    }

    fn formals(&mut self, function: &Function<'a>) -> Result<(Vec<Slot>, Vec<Slot>)> {
        if function.is_entry {
            for (formal, parameter) in function.parameters.iter().zip(parameters(function)) {
                self.frame.define(formal.variable.name, Symbol::Param(parameter.offset));
            }
            return Ok((Vec::new(), Vec::new()));
        }
        let mut slots =
            |formals: &[Formal<'a>]| -> Vec<Slot> { formals.iter().map(|formal| self.formal(formal)).collect() };
        Ok((slots(&function.parameters), slots(&function.returns)))
    }

    fn formal(&mut self, formal: &Formal<'a>) -> Slot {
        let variable = &formal.variable;
        if formal.is_register {
            let at = self.frame.allocate(variable.scalar);
            self.frame.define(variable.name, Symbol::Register(at, variable.scalar));
            return Slot::Row(at, variable.scalar.bytes() == 8);
        }
        let bytes = variable.bytes().unwrap_or(0) as u32;
        let offset = self.frame.allocate_local(bytes, variable.align);
        self.frame.define(variable.name, Symbol::Local(offset));
        Slot::Local(offset, bytes)
    }

    fn statements(&mut self, statements: &'s [Statement<'a>]) -> Result<()> {
        self.frame.declare_labels(statements);
        for statement in statements {
            match statement {
                Statement::Label(name, place) => {
                    let pc = self.code.insts.len() as u32;
                    self.frame
                        .set_label(name, pc)
                        .map_err(|()| ParseError::syntax(*place, format!("label {name} is defined twice")))?;
                }
                Statement::Registers(scalar, 1, names) => {
                    for (name, count) in names {
                        self.frame.declare_registers(name, *count, *scalar);
                    }
                }
                Statement::Registers(..) => {
                    return Err(ParseError::unsupported(self.place, "a vector register"));
                }
                Statement::Variable(variable) => self.variable(variable)?,
                Statement::Block(inner) => {
                    self.frame.open_scope();
                    self.statements(inner)?;
                    self.frame.close_scope();
                }
                Statement::BranchTargets(name, targets) => {
                    self.frame.define(name, Symbol::Targets(targets.clone()));
                }
                Statement::Prototype(name) => self.frame.define(name, Symbol::Prototype),
                Statement::Instruction(instruction) => self.instruction(instruction)?,
            }
        }
        Ok(())
    }

    fn variable(&mut self, variable: &'s Variable<'a>) -> Result<()> {
        let bytes = variable.bytes().unwrap_or(0);
        match variable.space {
            Space::Local | Space::Param => {
                if bytes > 1 << 24 {
                    return Err(ParseError::unsupported(
                        variable.place,
                        "more than 16 MiB of local memory",
                    ));
                }
                let offset = self.frame.allocate_local(bytes as u32, variable.align);
                self.frame.define(variable.name, Symbol::Local(offset));
            }
            Space::Shared => {
                let offset = self.shared.get(&std::ptr::from_ref(variable)).copied().unwrap_or(0);
                self.frame.define(variable.name, Symbol::Shared(offset));
            }
            _ => {
                self.has_addresses = true;
                let address = self
                    .symbols
                    .local_variable(self.source, variable.name, variable.place)?;
                self.frame.define(variable.name, Symbol::Device(address));
            }
        }
        Ok(())
    }

    fn instruction(&mut self, instruction: &Instruction<'a>) -> Result<()> {
        self.place = instruction.place;
        self.frame.free_temporaries();
        (self.guard, self.negated) = (NO_GUARD, false);
        if let Some((name, negated)) = instruction.guard {
            let (row, inverted) = self.predicate(&Operand::Name(name))?;
            (self.guard, self.negated) = (row, negated ^ inverted);
        }
        let words = Words {
            instruction,
            place: instruction.place,
        };
        match instruction.opcode {
            "add" | "sub" | "mul" | "mad" | "fma" | "mul24" | "mad24" | "sad" | "div" | "rem" | "abs" | "neg"
            | "min" | "max" | "addc" | "subc" | "madc" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2"
            | "tanh" | "testp" | "copysign" => self.arithmetic(words),
            "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "popc" | "clz" | "bfind"
            | "brev" | "bfe" | "bfi" | "prmt" | "dp4a" | "dp2a" | "bmsk" | "szext" | "set" | "setp" | "selp"
            | "slct" | "vshl" | "vshr" => self.bits(words),
            "mov" | "ld" | "ldu" | "st" | "cvta" | "isspacep" | "atom" | "red" | "prefetch" | "prefetchu"
            | "discard" | "applypriority" | "createpolicy" => self.data(words),
            "cvt" => self.convert(words),
            "mma" => self.multiply_matrices(words),
            "ldmatrix" => self.load_matrix(words),
            "stmatrix" => self.store_matrix(words),
            "cp" => self.copy_async(words),
            "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => self.collective(words),
            _ => self.control(words),
        }
    }

    /// Adds an instruction under the current guard.
    fn emit(&mut self, run: Handler, d: u32, a: u32, b: u32, c: u32, x: u64) -> &mut Inst {
        self.code.insts.push(Inst {
            run,
            kind: Kind::Compute,
            negated: self.negated,
            is_pure: false,
            guard: self.guard,
            d,
            a,
            b,
            c,
            m: NO_GUARD,
            line: self.place.line,
            x,
        });
        let last = self.code.insts.len() - 1;
        &mut self.code.insts[last]
    }

    /// Adds an instruction that does nothing but write registers.
    fn compute(&mut self, run: Handler, d: u32, a: u32, b: u32, c: u32, x: u64) -> &mut Inst {
        let inst = self.emit(run, d, a, b, c, x);
        inst.is_pure = true;
        inst
    }

    fn emit_control(&mut self, kind: Kind, x: u64) -> &mut Inst {
        let inst = self.emit(nothing, 0, 0, 0, 0, x);
        inst.kind = kind;
        inst
    }

    fn resolve_labels(&mut self) -> Result<()> {
        for (inst, label, place) in self.frame.take_branches() {
            let pc = self
                .frame
                .label(label)
                .ok_or_else(|| ParseError::syntax(place, "label is not defined"))?;
            self.code.insts[inst].x = u64::from(pc);
        }
        for (entry, label, place) in self.frame.take_tables() {
            let pc = self
                .frame
                .label(label)
                .ok_or_else(|| ParseError::syntax(place, "label is not defined"))?;
            self.code.lists[entry] = pc;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Code> {
        self.code.local = match self.deepest(0, &mut Vec::new()) {
            Some(bytes) => bytes,
            None => RECURSIVE_STACK,
        };
        self.code.constants.finish();
        // Most kernels of a large module are never launched: none keeps room to grow.
        self.code.insts.shrink_to_fit();
        Ok(self.code)
    }

    /// Local memory from `function` down the deepest chain of calls; `None` when a chain comes back to itself.
    fn deepest(&self, function: u32, path: &mut Vec<u32>) -> Option<u32> {
        if path.contains(&function) {
            return None;
        }
        path.push(function);
        let mut below = 0;
        for callee in &self.calls[function as usize] {
            below = below.max(self.deepest(*callee, path)?);
        }
        path.pop();
        Some(self.code.functions[function as usize].local + below)
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        Err(ParseError::syntax(self.place, what))
    }
}

/// An instruction with checked access to its words.
#[derive(Clone, Copy)]
struct Words<'a, 'i> {
    instruction: &'i Instruction<'a>,
    place: Place,
}

impl<'a, 'i> Words<'a, 'i> {
    fn opcode(&self) -> &'a str {
        self.instruction.opcode
    }

    fn modifiers(&self) -> &'i [&'a str] {
        &self.instruction.modifiers
    }

    fn has(&self, modifier: &str) -> bool {
        self.instruction.modifiers.contains(&modifier)
    }

    /// The instruction's full opcode, for messages.
    fn name(&self) -> String {
        let mut name = self.instruction.opcode.to_owned();
        for modifier in &self.instruction.modifiers {
            name.push('.');
            name.push_str(modifier);
        }
        name
    }

    fn operand(&self, index: usize) -> Result<&'i Operand<'a>> {
        match self.instruction.operands.get(index) {
            Some(operand) => Ok(operand),
            None => Err(ParseError::syntax(
                self.place,
                format!("{} lacks an operand", self.name()),
            )),
        }
    }

    fn count(&self) -> usize {
        self.instruction.operands.len()
    }

    fn unsupported<T>(&self) -> Result<T> {
        Err(ParseError::unsupported(self.place, &self.name()))
    }
}
