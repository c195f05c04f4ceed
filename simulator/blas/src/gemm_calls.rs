// SPDX-License-Identifier: Apache-2.0
//! The matrix products of cublas: `cublasSgemm` and the like, batches, and the forms that name their types.

use core::ffi::{c_int, c_longlong, c_void};

use crate::handle::{exports, state};
use crate::product::{Matrix, Product, Scalar, is_transposed, types};
use crate::status::{Outcome, refuse};

const F16: c_int = 2;
const F32: c_int = 0;
const F64: c_int = 1;
const SUM_16: c_int = 64;
const SUM_32: c_int = 68;
const SUM_64: c_int = 70;

/// Pointers, leading dimension and distance in a batch, as the caller passed them.
type Operand = (*const c_void, i64, i64);

/// A call, with the types that it names or that its name does.
struct Call {
    name: &'static str,
    /// Types of A, B, C, and of the computation.
    types: [c_int; 4],
    operations: [c_int; 2],
    sizes: [i64; 3],
    scalars: [*const c_void; 2],
    operands: [Operand; 3],
    count: i64,
    by_pointers: bool,
}

impl Call {
    fn run(&self, handle: *mut c_void) -> Outcome<()> {
        let state = state(handle)?;
        let [a_type, b_type, c_type, compute] = self.types;
        let Some((types, scale)) = types(a_type, b_type, c_type, compute) else {
            let what = format!("a product of types {a_type}, {b_type} into {c_type} with computation {compute}");
            return Err(refuse(self.name.trim_start_matches("partage_"), &what));
        };
        let [a, b, c] = self.operands.map(|(address, leading, batch)| Matrix {
            address: address as u64,
            leading,
            batch,
        });
        let transposed = [is_transposed(self.operations[0])?, is_transposed(self.operations[1])?];
        let scalar = |index: usize| Scalar::read(self.scalars[index], scale, state.on_device);
        let product = Product {
            types,
            transposed,
            sizes: self.sizes,
            scalars: [scalar(0)?, scalar(1)?],
            matrices: [a, b, c, c],
            count: self.count,
            by_pointers: self.by_pointers,
            epilogue: 0,
            bias: Matrix::default(),
        };
        product.run(state.stream as *mut c_void)
    }
}

/// Products whose name gives the type: plain, in a batch by strides, and by arrays of addresses.
macro_rules! named {
    ($($plain:ident, $strided:ident, $array:ident: $type:expr, $sum:expr;)*) => { exports! {$(
        $plain(
            handle: *mut c_void, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *mut c_void, ldc: c_int
        ) Call {
            name: stringify!($plain),
            types: [$type, $type, $type, $sum],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), 0), (b, ldb.into(), 0), (c, ldc.into(), 0)],
            count: 1,
            by_pointers: false,
        }.run(handle);
        $strided(
            handle: *mut c_void, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, sa: c_longlong, b: *const c_void, ldb: c_int, sb: c_longlong,
            beta: *const c_void, c: *mut c_void, ldc: c_int, sc: c_longlong, count: c_int
        ) Call {
            name: stringify!($strided),
            types: [$type, $type, $type, $sum],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), sa), (b, ldb.into(), sb), (c, ldc.into(), sc)],
            count: count.into(),
            by_pointers: false,
        }.run(handle);
        $array(
            handle: *mut c_void, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
            a: *const c_void, lda: c_int, b: *const c_void, ldb: c_int, beta: *const c_void, c: *const c_void,
            ldc: c_int, count: c_int
        ) Call {
            name: stringify!($array),
            types: [$type, $type, $type, $sum],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), 0), (b, ldb.into(), 0), (c, ldc.into(), 0)],
            count: count.into(),
            by_pointers: true,
        }.run(handle);
    )*} };
}
named! {
    partage_cublasHgemm, partage_cublasHgemmStridedBatched, partage_cublasHgemmBatched: F16, SUM_16;
    partage_cublasSgemm_v2, partage_cublasSgemmStridedBatched, partage_cublasSgemmBatched: F32, SUM_32;
    partage_cublasDgemm_v2, partage_cublasDgemmStridedBatched, partage_cublasDgemmBatched: F64, SUM_64;
}

/// Products whose arguments give the types, with sizes of 32 and of 64 bits.
macro_rules! typed {
    ($($plain:ident, $strided:ident, $array:ident: $size:ty;)*) => { exports! {$(
        $plain(
            handle: *mut c_void, ta: c_int, tb: c_int, m: $size, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, at: c_int, lda: $size, b: *const c_void, bt: c_int, ldb: $size, beta: *const c_void,
            c: *mut c_void, ct: c_int, ldc: $size, compute: c_int, _algorithm: c_int
        ) Call {
            name: stringify!($plain),
            types: [at, bt, ct, compute],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), 0), (b, ldb.into(), 0), (c, ldc.into(), 0)],
            count: 1,
            by_pointers: false,
        }.run(handle);
        $strided(
            handle: *mut c_void, ta: c_int, tb: c_int, m: $size, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, at: c_int, lda: $size, sa: c_longlong, b: *const c_void, bt: c_int, ldb: $size,
            sb: c_longlong, beta: *const c_void, c: *mut c_void, ct: c_int, ldc: $size, sc: c_longlong,
            count: $size, compute: c_int, _algorithm: c_int
        ) Call {
            name: stringify!($strided),
            types: [at, bt, ct, compute],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), sa), (b, ldb.into(), sb), (c, ldc.into(), sc)],
            count: count.into(),
            by_pointers: false,
        }.run(handle);
        $array(
            handle: *mut c_void, ta: c_int, tb: c_int, m: $size, n: $size, k: $size, alpha: *const c_void,
            a: *const c_void, at: c_int, lda: $size, b: *const c_void, bt: c_int, ldb: $size, beta: *const c_void,
            c: *const c_void, ct: c_int, ldc: $size, count: $size, compute: c_int, _algorithm: c_int
        ) Call {
            name: stringify!($array),
            types: [at, bt, ct, compute],
            operations: [ta, tb],
            sizes: [m.into(), n.into(), k.into()],
            scalars: [alpha, beta],
            operands: [(a, lda.into(), 0), (b, ldb.into(), 0), (c, ldc.into(), 0)],
            count: count.into(),
            by_pointers: true,
        }.run(handle);
    )*} };
}
typed! {
    partage_cublasGemmEx, partage_cublasGemmStridedBatchedEx, partage_cublasGemmBatchedEx: c_int;
    partage_cublasGemmEx_64, partage_cublasGemmStridedBatchedEx_64, partage_cublasGemmBatchedEx_64: i64;
}

exports! {
    partage_cublasSgemmEx(
        handle: *mut c_void, ta: c_int, tb: c_int, m: c_int, n: c_int, k: c_int, alpha: *const c_void,
        a: *const c_void, at: c_int, lda: c_int, b: *const c_void, bt: c_int, ldb: c_int, beta: *const c_void,
        c: *mut c_void, ct: c_int, ldc: c_int
    ) Call {
        name: "cublasSgemmEx",
        types: [at, bt, ct, SUM_32],
        operations: [ta, tb],
        sizes: [m.into(), n.into(), k.into()],
        scalars: [alpha, beta],
        operands: [(a, lda.into(), 0), (b, ldb.into(), 0), (c, ldc.into(), 0)],
        count: 1,
        by_pointers: false,
    }.run(handle);
}
