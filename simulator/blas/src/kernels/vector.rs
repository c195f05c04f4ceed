// SPDX-License-Identifier: Apache-2.0
//! The text of the operations on vectors, and of a matrix times a vector.
//!
//! Reductions run in a single block and sum in a fixed order, so that a result is the same each time.

use super::element::{Element, Sum};
use super::gemm::scalar;
use super::text::{Text, line};

/// Offsets in the parameter block, in the order of [`crate::vectors::Parameters`].
pub mod at {
    /// Addresses of x, y, the matrix or result.
    pub const ADDRESSES: usize = 0;
    /// Addresses of alpha and beta, or zero.
    pub const SCALARS: usize = 24;
    /// Alpha and beta as doubles where the addresses are zero.
    pub const VALUES: usize = 40;
    /// Bytes from an element of x and of y, from a row of the matrix and along it, to the next.
    pub const STRIDES: usize = 56;
    /// Elements of the result; terms of each of its sums; flags.
    pub const SIZES: usize = 88;
    /// Bytes of the block.
    pub const END: usize = 104;
}

/// Threads of a block.
pub const THREADS: u32 = 64;

/// An operation on vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// x becomes alpha * x.
    Scale,
    /// y becomes alpha * x + y.
    Add,
    /// y becomes x.
    Copy,
    /// The sum of x * y.
    Dot,
    /// The square root of the sum of x * x.
    Norm,
    /// The sum of |x|.
    Magnitudes,
    /// y becomes alpha * A * x + beta * y.
    MatrixVector,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Scale,
        Self::Add,
        Self::Copy,
        Self::Dot,
        Self::Norm,
        Self::Magnitudes,
        Self::MatrixVector,
    ];

    /// Name of its kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Add => "add_scaled",
            Self::Copy => "copy",
            Self::Dot => "dot",
            Self::Norm => "norm",
            Self::Magnitudes => "magnitudes",
            Self::MatrixVector => "matrix_vector",
        }
    }

    /// True where all elements become one.
    pub fn reduces(self) -> bool {
        matches!(self, Self::Dot | Self::Norm | Self::Magnitudes)
    }
}

/// Text of one kernel.
pub fn kernel(text: &mut Text, operation: Operation, element: Element) {
    let sum = element.sum();
    line!(
        text,
        ".visible .entry {}(.param .align 8 .b8 p[{}])\n{{",
        operation.name(),
        at::END
    );
    line!(text, ".shared .align 8 .b8 part[{}];", THREADS as usize * sum.bytes());
    line!(
        text,
        ".reg .pred %has, %is_more;\n.reg .b16 %half;\n.reg .b32 %single, %n, %k, %flags, %i, %t<4>;"
    );
    line!(
        text,
        ".reg .f64 %double;\n.reg .b64 %x, %y, %a, %alpha_at, %beta_at, %dx, %dy, %da, %dk, %w<4>;"
    );
    line!(text, ".reg .{} %alpha, %beta, %sum, %u, %v;", sum.name());
    for (index, register) in ["%x", "%y", "%a", "%alpha_at", "%beta_at"].iter().enumerate() {
        line!(text, "ld.param.u64 {register}, [p+{}];", 8 * index);
    }
    for (index, register) in ["%dx", "%dy", "%da", "%dk"].iter().enumerate() {
        line!(text, "ld.param.u64 {register}, [p+{}];", at::STRIDES + 8 * index);
    }
    for (index, register) in ["%n", "%k", "%flags"].iter().enumerate() {
        line!(text, "ld.param.u32 {register}, [p+{}];", at::SIZES + 4 * index);
    }
    line!(
        text,
        "mov.u32 %i, %tid.x;\nmov.u32 %t0, %ctaid.x;\nmad.lo.u32 %i, %t0, {THREADS}, %i;"
    );
    line!(text, "cvt.u64.u32 %w0, %i;");
    if operation.reduces() {
        reduce(text, operation, element, sum);
    } else {
        map(text, operation, element, sum);
    }
    line!(text, "ret;\n}}");
}

/// An element of the result for each thread.
fn map(text: &mut Text, operation: Operation, element: Element, sum: Sum) {
    let real = sum.name();
    line!(text, "setp.ge.u32 %has, %i, %n;\n@%has ret;");
    if operation != Operation::Copy {
        scalar(text, "alpha", at::VALUES, sum);
    }
    if operation != Operation::MatrixVector {
        line!(text, "mad.lo.u64 %x, %w0, %dx, %x;");
        element.load(text, "%u", "%x", None);
    }
    if operation != Operation::Scale {
        line!(text, "mad.lo.u64 %y, %w0, %dy, %y;");
    }
    match operation {
        Operation::Scale => {
            line!(text, "mul.rn.{real} %u, %u, %alpha;");
            element.store(text, "%u", "%x", None);
        }
        Operation::Add => {
            element.load(text, "%v", "%y", None);
            line!(text, "fma.rn.{real} %v, %alpha, %u, %v;");
            element.store(text, "%v", "%y", None);
        }
        Operation::Copy => element.store(text, "%u", "%y", None),
        _ => matrix_vector(text, element, sum),
    }
}

fn matrix_vector(text: &mut Text, element: Element, sum: Sum) {
    let real = sum.name();
    scalar(text, "beta", at::VALUES + 8, sum);
    line!(text, "mad.lo.u64 %a, %w0, %da, %a;\nmov.{real} %sum, {};", sum.zero());
    line!(text, "setp.eq.u32 %has, %k, 0;\n@%has bra summed;\nterm:");
    element.load(text, "%u", "%a", None);
    element.load(text, "%v", "%x", None);
    line!(
        text,
        "fma.rn.{real} %sum, %u, %v, %sum;\nadd.u64 %a, %a, %dk;\nadd.u64 %x, %x, %dx;"
    );
    line!(
        text,
        "sub.u32 %k, %k, 1;\nsetp.ne.u32 %is_more, %k, 0;\n@%is_more bra term;\nsummed:"
    );
    line!(
        text,
        "mul.rn.{real} %sum, %sum, %alpha;\nsetp.neu.{real} %has, %beta, {};",
        sum.zero()
    );
    element.load(text, "%v", "%y", Some("%has"));
    line!(text, "@%has fma.rn.{real} %sum, %beta, %v, %sum;");
    element.store(text, "%sum", "%y", None);
}

/// One sum, by a single block.
fn reduce(text: &mut Text, operation: Operation, element: Element, sum: Sum) {
    let (real, bytes) = (sum.name(), sum.bytes());
    line!(text, "mad.lo.u64 %x, %w0, %dx, %x;\nmad.lo.u64 %y, %w0, %dy, %y;");
    line!(
        text,
        "mul.lo.u64 %dx, %dx, {THREADS};\nmul.lo.u64 %dy, %dy, {THREADS};\nmov.{real} %sum, {};",
        sum.zero()
    );
    line!(
        text,
        "mov.u32 %t1, %i;\nsetp.ge.u32 %has, %t1, %n;\n@%has bra summed;\nterm:"
    );
    element.load(text, "%u", "%x", None);
    match operation {
        Operation::Dot => {
            element.load(text, "%v", "%y", None);
            line!(text, "fma.rn.{real} %sum, %u, %v, %sum;");
        }
        Operation::Norm => line!(text, "fma.rn.{real} %sum, %u, %u, %sum;"),
        _ => line!(text, "abs.{real} %u, %u;\nadd.rn.{real} %sum, %sum, %u;"),
    }
    line!(
        text,
        "add.u64 %x, %x, %dx;\nadd.u64 %y, %y, %dy;\nadd.u32 %t1, %t1, {THREADS};"
    );
    line!(text, "setp.lt.u32 %is_more, %t1, %n;\n@%is_more bra term;\nsummed:");
    line!(
        text,
        "mov.u32 %t2, part;\nmad.lo.u32 %t3, %i, {bytes}, %t2;\nst.shared.{real} [%t3], %sum;\nbar.sync 0;"
    );
    line!(
        text,
        "setp.ne.u32 %has, %i, 0;\n@%has ret;\nmov.{real} %sum, {};\nmov.u32 %t1, {THREADS};\npart_sum:",
        sum.zero()
    );
    line!(
        text,
        "ld.shared.{real} %u, [%t2];\nadd.rn.{real} %sum, %sum, %u;\nadd.u32 %t2, %t2, {bytes};"
    );
    line!(
        text,
        "sub.u32 %t1, %t1, 1;\nsetp.ne.u32 %is_more, %t1, 0;\n@%is_more bra part_sum;"
    );
    if operation == Operation::Norm {
        line!(text, "sqrt.rn.{real} %sum, %sum;");
    }
    element.store(text, "%sum", "%a", None);
}
