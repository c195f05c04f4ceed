// SPDX-License-Identifier: Apache-2.0
//! Names and register rows of one function.
//!
//! The frame begins with the row that holds where the function's local memory starts; register rows, predicates and
//! temporaries follow in order of first use.

use crate::execute::code::{ROW32, ROW64};
use crate::execute::warp::FRAME_START;
use crate::hasher::Map;
use crate::place::Place;
use crate::syntax::{Scalar, Statement};

/// What a name stands for inside a function.
#[derive(Clone, Debug)]
pub enum Symbol<'a> {
    /// A register and its type.
    Register(u32, Scalar),
    /// Registers `name0` to `name<count>`, allocated when first used.
    Registers(Scalar, Vec<Option<u32>>),
    /// A kernel parameter at an offset.
    Param(u32),
    /// Local memory at an offset in the function's part.
    Local(u32),
    /// Shared memory at an offset.
    Shared(u32),
    /// Device memory at an address.
    Device(u64),
    /// A function: source and number.
    Function(usize, usize),
    /// Labels of an indexed branch.
    Targets(Vec<&'a str>),
    /// The shape of an indirect call; the callee says the same.
    Prototype,
}

/// A label: its number within the function.
pub type Label = u32;

/// Names and rows of the function being translated.
#[derive(Default)]
pub struct Frame<'a> {
    /// True in a kernel, where `.param` with a register address means the kernel's parameters.
    pub is_entry: bool,
    scopes: Vec<Map<&'a str, Symbol<'a>>>,
    labels: Vec<Map<&'a str, Label>>,
    places: Vec<Option<u32>>,
    branches: Vec<(usize, Label, Place)>,
    tables: Vec<(usize, Label, Place)>,
    next: u32,
    predicate_line: Option<(u32, u32)>,
    local: u32,
    temporaries: [Vec<u32>; 3],
    used: [usize; 3],
    /// Row of the carry flag, once used.
    carry: Option<u32>,
}

impl<'a> Frame<'a> {
    pub fn new(is_entry: bool) -> Self {
        Self {
            is_entry,
            next: FRAME_START,
            ..Self::default()
        }
    }

    pub fn open_scope(&mut self) {
        self.scopes.push(Map::default());
    }

    pub fn close_scope(&mut self) {
        self.scopes.pop();
        self.labels.pop();
    }

    pub fn define(&mut self, name: &'a str, symbol: Symbol<'a>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, symbol);
        }
    }

    pub fn declare_registers(&mut self, name: &'a str, count: Option<u32>, scalar: Scalar) {
        let symbol = match count {
            Some(count) => Symbol::Registers(scalar, vec![None; count as usize]),
            None => Symbol::Register(self.allocate(scalar), scalar),
        };
        self.define(name, symbol);
    }

    /// The symbol of a name in this function; registers are allocated on the way.
    pub fn find(&mut self, name: &str) -> Option<Symbol<'a>> {
        for depth in (0..self.scopes.len()).rev() {
            match self.scopes[depth].get(name) {
                Some(Symbol::Registers(..)) | None => {}
                Some(symbol) => return Some(symbol.clone()),
            }
            if let Some(symbol) = self.find_numbered(depth, name) {
                return Some(symbol);
            }
        }
        None
    }

    fn find_numbered(&mut self, depth: usize, name: &str) -> Option<Symbol<'a>> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        for split in name.len() - digits..name.len() {
            let Some(Symbol::Registers(scalar, rows)) = self.scopes[depth].get(&name[..split]) else {
                continue;
            };
            let number: usize = name[split..].parse().ok()?;
            let scalar = *scalar;
            let row = match rows.get(number)? {
                Some(row) => *row,
                None => {
                    let row = self.allocate(scalar);
                    if let Some(Symbol::Registers(_, rows)) = self.scopes[depth].get_mut(&name[..split]) {
                        rows[number] = Some(row);
                    }
                    row
                }
            };
            return Some(Symbol::Register(row, scalar));
        }
        None
    }

    /// A new row for a register of a type.
    pub fn allocate(&mut self, scalar: Scalar) -> u32 {
        if scalar == Scalar::Pred {
            return self.allocate_predicate();
        }
        let at = self.next;
        self.next += if scalar.bytes() == 8 { ROW64 } else { ROW32 };
        at
    }

    fn allocate_predicate(&mut self) -> u32 {
        let (line, used) = match self.predicate_line {
            Some((line, used)) if used < 16 => (line, used),
            _ => {
                let line = self.next;
                self.next += 64;
                (line, 0)
            }
        };
        self.predicate_line = Some((line, used + 1));
        line + used * 4
    }

    /// A row for the current instruction only: 32 bits, 64 bits or a predicate.
    pub fn temporary(&mut self, scalar: Scalar) -> u32 {
        let class = match scalar {
            Scalar::Pred => 2,
            _ if scalar.bytes() == 8 => 1,
            _ => 0,
        };
        let used = self.used[class];
        self.used[class] += 1;
        if let Some(row) = self.temporaries[class].get(used) {
            return *row;
        }
        let row = self.allocate(scalar);
        self.temporaries[class].push(row);
        row
    }

    pub fn free_temporaries(&mut self) {
        self.used = [0; 3];
    }

    /// Row of the carry flag.
    pub fn carry(&mut self) -> u32 {
        if let Some(row) = self.carry {
            return row;
        }
        let row = self.allocate_predicate();
        self.carry = Some(row);
        row
    }

    pub fn allocate_local(&mut self, bytes: u32, align: u32) -> u32 {
        let at = self.local.next_multiple_of(align.clamp(1, 64));
        self.local = at + bytes;
        at
    }

    /// Bytes of registers.
    pub fn bytes(&self) -> u32 {
        self.next.next_multiple_of(64)
    }

    /// Bytes of local memory; parts of callers and callees keep every alignment.
    pub fn local_bytes(&self) -> u32 {
        self.local.next_multiple_of(64)
    }

    /// Makes the labels of a block known before its instructions are read.
    pub fn declare_labels(&mut self, statements: &[Statement<'a>]) {
        let mut labels = Map::default();
        for statement in statements {
            if let Statement::Label(name, _) = statement {
                labels.insert(*name, self.places.len() as Label);
                self.places.push(None);
            }
        }
        self.labels.push(labels);
    }

    pub fn find_label(&self, name: &str) -> Option<Label> {
        self.labels.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    pub fn set_label(&mut self, name: &str, pc: u32) -> Result<(), ()> {
        let label = self
            .labels
            .last()
            .and_then(|scope| scope.get(name).copied())
            .ok_or(())?;
        match self.places[label as usize].replace(pc) {
            None => Ok(()),
            Some(_) => Err(()),
        }
    }

    pub fn label(&self, label: Label) -> Option<u32> {
        self.places[label as usize]
    }

    /// Notes that instruction `inst` jumps to `label`.
    pub fn branch_to(&mut self, inst: usize, label: Label, place: Place) {
        self.branches.push((inst, label, place));
    }

    /// Notes that list entry `entry` is the target `label`.
    pub fn table_to(&mut self, entry: usize, label: Label, place: Place) {
        self.tables.push((entry, label, place));
    }

    pub fn take_branches(&mut self) -> Vec<(usize, Label, Place)> {
        std::mem::take(&mut self.branches)
    }

    pub fn take_tables(&mut self) -> Vec<(usize, Label, Place)> {
        std::mem::take(&mut self.tables)
    }
}
