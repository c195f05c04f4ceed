// SPDX-License-Identifier: Apache-2.0
//! Matrix instructions and asynchronous copies.

use super::{Translator, Words};
use crate::error::Result;
use crate::execute::integer::AddImmediate;
use crate::execute::lanes::{Handler, Kind, unary};
use crate::execute::matrix::{copy_async, load_matrix, multiply, store_matrix};
use crate::execute::shape::{Element, Shape, Total};
use crate::syntax::{Operand, Scalar, Space};

/// Which way matrices go, and which operand is what.
struct Moved {
    run: Handler,
    fragments: usize,
    address: usize,
}

impl<'a> Translator<'a, '_> {
    /// `mma.sync.aligned.m16n8kK.row.col.d.a.b.c`
    pub(super) fn multiply_matrices(&mut self, words: Words<'a, '_>) -> Result<()> {
        let Some(shape) = shape_of(&words) else {
            return words.unsupported();
        };
        let [in_a, in_b, in_c] = shape.registers();
        let (single, total) = (
            Scalar::B32,
            if shape.total == Total::F64 {
                Scalar::F64
            } else {
                Scalar::B32
            },
        );
        let multiplicand = if shape.a == Element::F64 { Scalar::F64 } else { single };
        let mut rows = Vec::new();
        for operand in self.parts(words.operand(0)?, in_c)? {
            rows.push(self.destination(operand, total)?.row);
        }
        for (index, count, scalar) in [(1, in_a, multiplicand), (2, in_b, multiplicand), (3, in_c, total)] {
            for operand in self.parts(words.operand(index)?, count)? {
                rows.push(self.value(operand, scalar)?);
            }
        }
        let list = self.list(&rows);
        let number = self.code.shapes.len() as u64;
        self.code.shapes.push(shape);
        let all = self.constant(u64::MAX, false);
        let inst = self.emit(multiply, 0, 0, 0, list, number);
        (inst.kind, inst.m) = (Kind::Converge, all);
        Ok(())
    }

    fn parts<'o>(&self, operand: &'o Operand<'a>, count: usize) -> Result<Vec<&'o Operand<'a>>> {
        match operand {
            Operand::Vector(parts) if parts.len() == count => Ok(parts.iter().collect()),
            operand if count == 1 && !matches!(operand, Operand::Vector(_)) => Ok(vec![operand]),
            _ => self.wrong("fragment of another size expected"),
        }
    }

    /// `ldmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16`
    pub(super) fn load_matrix(&mut self, words: Words<'a, '_>) -> Result<()> {
        let (run, fragments, address) = (load_matrix, 0, 1);
        self.move_matrices(
            words,
            Moved {
                run,
                fragments,
                address,
            },
        )
    }

    /// `stmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16`
    pub(super) fn store_matrix(&mut self, words: Words<'a, '_>) -> Result<()> {
        let (run, fragments, address) = (store_matrix, 1, 0);
        self.move_matrices(
            words,
            Moved {
                run,
                fragments,
                address,
            },
        )
    }

    fn move_matrices(&mut self, words: Words<'a, '_>, moved: Moved) -> Result<()> {
        let counts = [("x1", 1), ("x2", 2), ("x4", 4)];
        let Some((_, count)) = counts.into_iter().find(|(word, _)| words.has(word)) else {
            return words.unsupported();
        };
        if !words.has("m8n8") || !words.has("b16") {
            return words.unsupported();
        }
        let shared = words
            .modifiers()
            .iter()
            .any(|word| Space::from_word(word) == Some(Space::Shared));
        let space = if shared { Space::Shared } else { Space::Generic };
        let mut rows = Vec::new();
        for operand in self.parts(words.operand(moved.fragments)?, count)? {
            rows.push(if moved.fragments == 0 {
                self.destination(operand, Scalar::B32)?.row
            } else {
                self.value(operand, Scalar::B32)?
            });
        }
        let address = self.address(words.operand(moved.address)?, space)?;
        let list = self.list(&rows);
        let all = self.constant(u64::MAX, false);
        let x = u64::from(address.offset as u32)
            | u64::from(words.has("trans")) << 32
            | u64::from(address.space == Space::Generic) << 33;
        let inst = self.emit(moved.run, 0, address.row, count as u32, list, x);
        (inst.kind, inst.m) = (Kind::Converge, all);
        Ok(())
    }

    /// `cp.async` and its waiting.
    pub(super) fn copy_async(&mut self, words: Words<'a, '_>) -> Result<()> {
        if words.modifiers().first() != Some(&"async") || words.has("bulk") || words.has("mbarrier") {
            return words.unsupported();
        }
        if ["commit_group", "wait_group", "wait_all"]
            .iter()
            .any(|word| words.has(word))
        {
            return Ok(());
        }
        let Operand::Integer(bytes @ (4 | 8 | 16)) = words.operand(2)? else {
            return words.unsupported();
        };
        let to = self.address(words.operand(0)?, Space::Shared)?;
        let from = self.address(words.operand(1)?, Space::Global)?;
        // A policy of caches is the last operand, and changes nothing.
        let count = words.count() - usize::from(words.has("L2::cache_hint"));
        if count > 3 && !matches!(words.operand(3)?, Operand::Integer(_) | Operand::Name(_)) {
            return words.unsupported();
        }
        let taken = if count > 3 {
            self.value(words.operand(3)?, Scalar::U32)?
        } else {
            self.constant(*bytes, false)
        };
        let mut rows = [to.row, from.row];
        for (row, offset) in rows.iter_mut().zip([to.offset, from.offset]) {
            if offset != 0 {
                let moved = self.frame.temporary(Scalar::B64);
                self.emit(unary::<AddImmediate<u64>>(), moved, *row, 0, 0, offset);
                *row = moved;
            }
        }
        self.emit(copy_async, 0, rows[0], rows[1], taken, *bytes);
        Ok(())
    }
}

/// The shape that the words name, if it is one of those that are executed.
fn shape_of(words: &Words<'_, '_>) -> Option<Shape> {
    if !words.has("row") || !words.has("col") || words.has("sp") {
        return None;
    }
    let (m, k) = words.modifiers().iter().find_map(|word| match *word {
        "m16n8k4" => Some((16, 4)),
        "m16n8k8" => Some((16, 8)),
        "m16n8k16" => Some((16, 16)),
        "m16n8k32" => Some((16, 32)),
        "m8n8k4" => Some((8, 4)),
        _ => None,
    })?;
    let types: Vec<Scalar> = words
        .modifiers()
        .iter()
        .filter_map(|word| Scalar::from_word(word))
        .collect();
    let [d, a, b, c] = types[..] else {
        return None;
    };
    let element = |scalar| match scalar {
        Scalar::F16 => Some(Element::F16),
        Scalar::Bf16 => Some(Element::Bf16),
        Scalar::Tf32 => Some(Element::Tf32),
        Scalar::S8 => Some(Element::S8),
        Scalar::U8 => Some(Element::U8),
        Scalar::F64 => Some(Element::F64),
        _ => None,
    };
    let total = match d {
        Scalar::F16 => Total::F16,
        Scalar::F32 => Total::F32,
        Scalar::S32 => Total::S32,
        Scalar::F64 => Total::F64,
        _ => return None,
    };
    let shape = Shape {
        m,
        k,
        a: element(a)?,
        b: element(b)?,
        total,
        saturates: words.has("satfinite"),
    };
    let is_known = match (m, k, shape.a, shape.b) {
        (16, 8 | 16, Element::F16, Element::F16) => matches!(total, Total::F16 | Total::F32),
        (16, 8 | 16, Element::Bf16, Element::Bf16) => total == Total::F32,
        (16, 4 | 8, Element::Tf32, Element::Tf32) => total == Total::F32,
        (16, 16 | 32, Element::S8 | Element::U8, Element::S8 | Element::U8) => total == Total::S32,
        (8 | 16, 4, Element::F64, Element::F64) | (16, 8 | 16, Element::F64, Element::F64) => total == Total::F64,
        _ => false,
    };
    (is_known && c == d).then_some(shape)
}
