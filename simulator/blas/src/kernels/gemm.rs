// SPDX-License-Identifier: Apache-2.0
//! The text of the matrix product: D = act(alpha * op(A) * op(B) + beta * C + bias), matrices stored by columns.
//!
//! A block of threads computes a tile of D. It brings slices of A and B through shared memory, converted and padded
//! with zeros, so that the product itself reads whole vectors and asks nothing; each thread keeps its part of the tile
//! in registers. Transposition is a matter of the strides. Every element is summed in the order of k by one thread, so
//! a result does not depend on who computes it.

use super::element::{Element, Sum};
use super::text::{Text, line};

/// Offsets in the parameter block, in the order of [`crate::product::Parameters`].
pub mod at {
    /// Addresses of A, B, C, D and the bias; of the first four, or of arrays of such addresses.
    pub const ADDRESSES: usize = 0;
    /// Addresses of alpha and beta, or zero.
    pub const SCALARS: usize = 40;
    /// Alpha and beta as doubles where the addresses are zero.
    pub const VALUES: usize = 56;
    /// Bytes from a row and a column of op(A), op(B), to the next: a.m, a.k, b.k, b.n.
    pub const STRIDES: usize = 72;
    /// Bytes from a column of C and D to the next.
    pub const COLUMNS: usize = 104;
    /// Bytes from one A, B, C, D and bias of a batch to the next.
    pub const BATCH: usize = 120;
    /// m, n, k.
    pub const SIZES: usize = 160;
    /// Bits of [`super::flag`].
    pub const FLAGS: usize = 172;
    /// Number of the first product of the batch.
    pub const FIRST: usize = 176;
    /// Tiles in a column of D.
    pub const TILES: usize = 180;
    /// Bytes of the block.
    pub const END: usize = 184;
}

/// What the kernel is asked to do beside the product.
pub mod flag {
    /// The addresses are those of arrays of addresses.
    pub const POINTERS: u32 = 1;
    /// Add the bias of a row.
    pub const BIAS: u32 = 2;
    /// Negative results become zero.
    pub const RELU: u32 = 4;
    /// The Gaussian error linear unit, by its tanh form.
    pub const GELU: u32 = 8;
    /// Alpha and beta in device memory are halves.
    pub const HALF_SCALARS: u32 = 16;
}

/// How the work is divided.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Name of the kernel.
    pub name: &'static str,
    /// Rows and columns of D that a block computes.
    pub block: [usize; 2],
    /// Rows and columns of D that a thread computes.
    pub thread: [usize; 2],
    /// Elements of k in a slice.
    pub slice: usize,
}

impl Tile {
    /// Threads of a block.
    pub const fn threads(&self) -> usize {
        self.block[0] / self.thread[0] * (self.block[1] / self.thread[1])
    }
}

/// For large matrices, then for small ones. On the simulated device a multiply-add costs least where a thread has many.
pub const TILES: [Tile; 2] = [
    Tile {
        name: "gemm_large",
        block: [64, 64],
        thread: [8, 16],
        slice: 16,
    },
    Tile {
        name: "gemm_small",
        block: [32, 32],
        thread: [8, 4],
        slice: 16,
    },
];

/// A matrix on its way to shared memory.
struct Side {
    /// Prefix of its registers.
    name: char,
    /// Rows of op(A) or columns of op(B) in a tile.
    extent: usize,
    /// Register with the tile's first, with the limit, with the stride along it and along k.
    first: &'static str,
    limit: &'static str,
    stride: &'static str,
    k_stride: &'static str,
}

/// Text of one kernel.
pub fn kernel(text: &mut Text, tile: &Tile, from: Element, to: Element, sum: Sum) {
    let [rows, columns] = tile.block;
    let sides = [
        Side {
            name: 'a',
            extent: rows,
            first: "%row",
            limit: "%m",
            stride: "%am",
            k_stride: "%ak",
        },
        Side {
            name: 'b',
            extent: columns,
            first: "%column",
            limit: "%n",
            stride: "%bn",
            k_stride: "%bk",
        },
    ];
    begin(text, tile, sum);
    parameters(text, sum);
    for side in &sides {
        place(text, tile, side, sum);
    }
    product(text, tile, &sides, from, sum);
    finish(text, tile, to, sum);
    line!(text, "ret;\n}}");
}

fn begin(text: &mut Text, tile: &Tile, sum: Sum) {
    let ([rows, columns], [height, width], bytes) = (tile.block, tile.thread, sum.bytes());
    let real = sum.name();
    line!(
        text,
        ".visible .entry {}(.param .align 8 .b8 p[{}])\n{{",
        tile.name,
        at::END
    );
    line!(text, ".shared .align 16 .b8 tile_a[{}];", rows * tile.slice * bytes);
    line!(text, ".shared .align 16 .b8 tile_b[{}];", columns * tile.slice * bytes);
    line!(
        text,
        ".reg .pred %has_c, %is_in, %is_column, %is_more, %has, %a_in<4>, %b_in<4>;"
    );
    line!(text, ".reg .b16 %half;\n.reg .b32 %single;\n.reg .f64 %double;");
    line!(
        text,
        ".reg .b32 %m, %n, %k, %flags, %batch, %tiles, %row, %column, %thread, %left, %step, %t<8>;"
    );
    line!(text, ".reg .b32 %a_line, %a_k, %a_to, %b_line, %b_k, %b_to;");
    line!(
        text,
        ".reg .b64 %a, %b, %c, %d, %bias, %alpha_at, %beta_at, %am, %ak, %bk, %bn, %c_ld, %d_ld, %w<8>;"
    );
    line!(
        text,
        ".reg .b64 %a_from<4>, %b_from<4>, %a_next, %b_next, %a_shared, %b_shared, %a_read, %b_read;"
    );
    line!(
        text,
        ".reg .{real} %alpha, %beta, %v, %x<4>, %l<{height}>, %r<{width}>, %sum<{}>;",
        height * width
    );
}

/// Loads the parameters, finds the tile and the product of the batch, and reads alpha and beta.
fn parameters(text: &mut Text, sum: Sum) {
    let words = [
        (at::ADDRESSES, ["%a", "%b", "%c", "%d", "%bias"].as_slice()),
        (at::SCALARS, &["%alpha_at", "%beta_at"]),
        (at::STRIDES, &["%am", "%ak", "%bk", "%bn"]),
        (at::COLUMNS, &["%c_ld", "%d_ld"]),
        (at::BATCH, &["%w0", "%w1", "%w2", "%w3", "%w4"]),
    ];
    for (start, registers) in words {
        for (index, register) in registers.iter().enumerate() {
            line!(text, "ld.param.u64 {register}, [p+{}];", start + 8 * index);
        }
    }
    for (index, register) in ["%m", "%n", "%k", "%flags", "%batch", "%tiles"].iter().enumerate() {
        line!(text, "ld.param.u32 {register}, [p+{}];", at::SIZES + 4 * index);
    }
    line!(
        text,
        "mov.u32 %thread, %tid.x;\nmov.u32 %t0, %ctaid.x;\nmov.u32 %t1, %ctaid.z;"
    );
    line!(text, "add.u32 %batch, %batch, %t1;\ncvt.u64.u32 %w5, %batch;");
    line!(text, "rem.u32 %row, %t0, %tiles;\ndiv.u32 %column, %t0, %tiles;");
    line!(
        text,
        "and.b32 %t2, %flags, {};\nsetp.ne.u32 %has, %t2, 0;",
        flag::POINTERS
    );
    for (index, register) in ["%a", "%b", "%c", "%d"].iter().enumerate() {
        line!(
            text,
            "@%has mad.lo.u64 {register}, %w5, 8, {register};\n@%has ld.global.u64 {register}, [{register}];"
        );
        line!(text, "@!%has mad.lo.u64 {register}, %w5, %w{index}, {register};");
    }
    line!(text, "mad.lo.u64 %bias, %w5, %w4, %bias;");
    for (index, name) in ["alpha", "beta"].iter().enumerate() {
        scalar(text, name, at::VALUES + 8 * index, sum);
    }
    line!(text, "setp.neu.{} %has_c, %beta, {};", sum.name(), sum.zero());
}

/// Alpha or beta, from the parameters or from device memory.
pub fn scalar(text: &mut Text, name: &str, offset: usize, sum: Sum) {
    line!(text, "ld.param.f64 %double, [p+{offset}];");
    match sum {
        Sum::F64 => line!(text, "mov.f64 %{name}, %double;"),
        Sum::F32 => line!(text, "cvt.rn.f32.f64 %{name}, %double;"),
    }
    line!(text, "setp.eq.u64 %has, %{name}_at, 0;\n@%has bra have_{name};");
    if sum == Sum::F32 {
        line!(
            text,
            "and.b32 %single, %flags, {};\nsetp.eq.u32 %has, %single, 0;",
            flag::HALF_SCALARS
        );
        line!(
            text,
            "@!%has ld.global.b16 %half, [%{name}_at];\n@!%has cvt.f32.f16 %{name}, %half;"
        );
        line!(text, "@%has ld.global.f32 %{name}, [%{name}_at];");
    } else {
        line!(text, "ld.global.f64 %{name}, [%{name}_at];");
    }
    line!(text, "have_{name}:");
}

/// Which elements of a slice this thread brings: groups of one vector along the tile, at some elements of k.
fn place(text: &mut Text, tile: &Tile, side: &Side, sum: Sum) {
    let Side {
        name,
        extent,
        first,
        limit,
        stride,
        k_stride,
    } = *side;
    let (vector, bytes) = (sum.vector(), sum.bytes());
    let groups = extent / vector;
    line!(text, "mul.lo.u32 {first}, {first}, {extent};");
    line!(
        text,
        "rem.u32 %{name}_line, %thread, {groups};\ndiv.u32 %{name}_k, %thread, {groups};"
    );
    line!(text, "mul.lo.u32 %{name}_line, %{name}_line, {vector};");
    line!(
        text,
        "mad.lo.u32 %t0, %{name}_k, {extent}, %{name}_line;\nmul.lo.u32 %t0, %t0, {bytes};"
    );
    line!(
        text,
        "mov.u32 %t1, tile_{name};\nadd.u32 %t0, %t0, %t1;\ncvt.u64.u32 %{name}_shared, %t0;"
    );
    line!(text, "add.u32 %{name}_line, %{name}_line, {first};");
    line!(
        text,
        "cvt.u64.u32 %w0, %{name}_k;\nmad.lo.u64 %w0, %w0, {k_stride}, %{name};"
    );
    for index in 0..vector {
        line!(
            text,
            "add.u32 %t0, %{name}_line, {index};\nsetp.lt.u32 %{name}_in{index}, %t0, {limit};"
        );
        line!(
            text,
            "cvt.u64.u32 %w1, %t0;\nmad.lo.u64 %{name}_from{index}, %w1, {stride}, %w0;"
        );
    }
    line!(
        text,
        "mul.lo.u64 %{name}_next, {k_stride}, {};",
        tile.threads() / groups
    );
}

/// Brings this thread's part of a slice to shared memory; what lies outside the matrix is zero.
fn bring(text: &mut Text, tile: &Tile, side: &Side, from: Element, sum: Sum) {
    let Side { name, extent, .. } = *side;
    let vector = sum.vector();
    let step = tile.threads() / (extent / vector);
    for round in 0..tile.slice / step {
        line!(text, "add.u32 %t0, %{name}_k, {};", round * step);
        for index in 0..vector {
            line!(text, "setp.lt.and.u32 %is_in, %t0, %left, %{name}_in{index};");
            line!(text, "mov.{} %x{index}, {};", sum.name(), sum.zero());
            from.load(
                text,
                &format!("%x{index}"),
                &format!("%{name}_from{index}"),
                Some("%is_in"),
            );
            line!(text, "add.u64 %{name}_from{index}, %{name}_from{index}, %{name}_next;");
        }
        let to = round * step * extent * sum.bytes();
        line!(
            text,
            "st.shared.v{vector}.{} [%{name}_shared+{to}], {};",
            sum.name(),
            list("%x", 0, vector)
        );
    }
}

/// `{%x0, %x1, ...}`.
fn list(prefix: &str, first: usize, count: usize) -> String {
    let all: Vec<String> = (first..first + count).map(|index| format!("{prefix}{index}")).collect();
    format!("{{{}}}", all.join(", "))
}

/// The sums of this thread, slice by slice.
fn product(text: &mut Text, tile: &Tile, sides: &[Side; 2], from: Element, sum: Sum) {
    let ([rows, columns], [height, width]) = (tile.block, tile.thread);
    let (vector, bytes, real) = (sum.vector(), sum.bytes(), sum.name());
    let across = rows / height;
    // The thread's own first row and column in the tile.
    line!(text, "rem.u32 %t2, %thread, {across};\ndiv.u32 %t3, %thread, {across};");
    line!(text, "mul.lo.u32 %t2, %t2, {height};\nmul.lo.u32 %t3, %t3, {width};");
    for (name, own) in [('a', "%t2"), ('b', "%t3")] {
        line!(
            text,
            "mov.u32 %t0, tile_{name};\nmad.lo.u32 %t0, {own}, {bytes}, %t0;\ncvt.u64.u32 %{name}, %t0;"
        );
    }
    for index in 0..height * width {
        line!(text, "mov.{real} %sum{index}, {};", sum.zero());
    }
    line!(
        text,
        "mov.u32 %left, %k;\nsetp.eq.u32 %is_more, %left, 0;\n@%is_more bra multiplied;\nslice:"
    );
    for side in sides {
        bring(text, tile, side, from, sum);
    }
    line!(
        text,
        "bar.sync 0;\nmin.u32 %step, %left, {};\nmov.u64 %a_read, %a;\nmov.u64 %b_read, %b;",
        tile.slice
    );
    line!(text, "sub.u32 %left, %left, %step;\nelement:");
    for (prefix, name, count) in [("%l", 'a', height), ("%r", 'b', width)] {
        for first in (0..count).step_by(vector) {
            let registers = list(prefix, first, vector);
            line!(
                text,
                "ld.shared.v{vector}.{real} {registers}, [%{name}_read+{}];",
                first * bytes
            );
        }
    }
    for i in 0..height {
        for j in 0..width {
            let index = i * width + j;
            line!(text, "fma.rn.{real} %sum{index}, %l{i}, %r{j}, %sum{index};");
        }
    }
    line!(
        text,
        "add.u64 %a_read, %a_read, {};\nadd.u64 %b_read, %b_read, {};",
        rows * bytes,
        columns * bytes
    );
    line!(
        text,
        "sub.u32 %step, %step, 1;\nsetp.ne.u32 %is_more, %step, 0;\n@%is_more bra element;"
    );
    line!(
        text,
        "bar.sync 0;\nsetp.ne.u32 %is_more, %left, 0;\n@%is_more bra slice;\nmultiplied:"
    );
}

/// Scales the sums, adds C and bias, applies the activation and writes what lies inside D.
fn finish(text: &mut Text, tile: &Tile, to: Element, sum: Sum) {
    let ([height, width], real) = (tile.thread, sum.name());
    let sums = height * width;
    line!(text, "add.u32 %row, %row, %t2;\nadd.u32 %column, %column, %t3;");
    line!(
        text,
        "cvt.u64.u32 %w0, %row;\nmul.lo.u64 %w0, %w0, {};\ncvt.u64.u32 %w1, %column;",
        to.bytes()
    );
    for index in 0..sums {
        line!(text, "mul.rn.{real} %sum{index}, %sum{index}, %alpha;");
    }
    line!(
        text,
        "@!%has_c bra added;\nadd.u64 %w2, %c, %w0;\nmad.lo.u64 %w2, %w1, %c_ld, %w2;"
    );
    each(text, tile, to.bytes(), "%c_ld", |text, index, offset| {
        to.load(text, "%v", &format!("%w2+{offset}"), Some("%is_in"));
        line!(text, "@%is_in fma.rn.{real} %sum{index}, %beta, %v, %sum{index};");
    });
    line!(
        text,
        "added:\nand.b32 %t0, %flags, {};\nsetp.eq.u32 %has, %t0, 0;\n@%has bra biased;",
        flag::BIAS
    );
    line!(text, "add.u64 %w2, %bias, %w0;");
    for i in 0..height {
        line!(
            text,
            "add.u32 %t0, %row, {i};\nsetp.lt.u32 %is_in, %t0, %m;\nmov.{real} %v, {};",
            sum.zero()
        );
        to.load(text, "%v", &format!("%w2+{}", i * to.bytes()), Some("%is_in"));
        for j in 0..width {
            line!(text, "add.rn.{real} %sum{0}, %sum{0}, %v;", i * width + j);
        }
    }
    line!(text, "biased:");
    activate(text, sums, sum);
    line!(text, "add.u64 %w2, %d, %w0;\nmad.lo.u64 %w2, %w1, %d_ld, %w2;");
    each(text, tile, to.bytes(), "%d_ld", |text, index, offset| {
        to.store(text, &format!("%sum{index}"), &format!("%w2+{offset}"), Some("%is_in"));
    });
}

/// Goes through the thread's elements, with `%is_in` telling whether one lies inside D and its place in `%w2`.
fn each(text: &mut Text, tile: &Tile, bytes: usize, stride: &str, mut element: impl FnMut(&mut Text, usize, usize)) {
    let [height, width] = tile.thread;
    for j in 0..width {
        line!(text, "add.u32 %t0, %column, {j};\nsetp.lt.u32 %is_column, %t0, %n;");
        for i in 0..height {
            line!(
                text,
                "add.u32 %t0, %row, {i};\nsetp.lt.and.u32 %is_in, %t0, %m, %is_column;"
            );
            element(text, i * width + j, i * bytes);
        }
        line!(text, "add.u64 %w2, %w2, {stride};");
    }
}

fn activate(text: &mut Text, sums: usize, sum: Sum) {
    let (real, zero) = (sum.name(), sum.zero());
    line!(
        text,
        "and.b32 %t0, %flags, {};\nsetp.eq.u32 %has, %t0, 0;\n@%has bra cut;",
        flag::RELU
    );
    for index in 0..sums {
        // A comparison, not a maximum: what is not a number stays so.
        line!(
            text,
            "setp.lt.{real} %is_in, %sum{index}, {zero};\n@%is_in mov.{real} %sum{index}, {zero};"
        );
    }
    line!(text, "cut:");
    if sum == Sum::F32 {
        line!(
            text,
            "and.b32 %t0, %flags, {};\nsetp.eq.u32 %has, %t0, 0;\n@%has bra bent;",
            flag::GELU
        );
        for index in 0..sums {
            line!(text, "call (%sum{index}), gelu, (%sum{index});");
        }
        line!(text, "bent:");
    }
}
