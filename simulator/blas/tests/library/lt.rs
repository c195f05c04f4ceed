// SPDX-License-Identifier: Apache-2.0
//! Products of cublasLt, with what follows them.

use std::ffi::c_void;

use crate::machine::{Blas, call, on_machine};
use crate::numbers::*;

const EPILOGUES: [u32; 6] = [1, 2, 4, 6, 32, 36];

/// A descriptor of the operation.
pub struct Operation(pub *mut c_void);

impl Operation {
    /// For a computation.
    pub fn new(blas: &Blas, compute: i32, scale: Type) -> Self {
        let mut desc = std::ptr::null_mut();
        let status = call!(blas, cublasLtMatmulDescCreate(
            &mut desc => *mut *mut c_void, compute => i32, scale => i32
        ));
        assert_eq!(status, 0);
        Self(desc)
    }

    /// Sets an attribute.
    pub fn set(&self, blas: &Blas, attribute: i32, value: &[u8]) -> i32 {
        call!(blas, cublasLtMatmulDescSetAttribute(
            self.0 => *mut c_void, attribute => i32, value.as_ptr() => *const u8, value.len() => usize
        ))
    }
}

/// A descriptor of a matrix.
pub fn layout(blas: &Blas, of: Type, shape: Shape, count: i32, stride: i64) -> *mut c_void {
    let mut layout = std::ptr::null_mut();
    let (rows, columns) = (shape.rows as u64, shape.columns as u64);
    assert_eq!(
        call!(blas, cublasLtMatrixLayoutCreate(
            &mut layout => *mut *mut c_void, of => i32, rows => u64, columns => u64, shape.leading as i64 => i64
        )),
        0
    );
    for (attribute, value) in [(5, &count.to_le_bytes()[..]), (6, &stride.to_le_bytes())] {
        assert_eq!(
            call!(blas, cublasLtMatrixLayoutSetAttribute(
                layout => *mut c_void, attribute => i32, value.as_ptr() => *const u8, value.len() => usize
            )),
            0
        );
    }
    layout
}

/// The algorithms that are offered, and the answer.
pub fn heuristic(blas: &Blas, operation: &Operation, layouts: [*mut c_void; 4]) -> (i32, i32) {
    let [a, b, c, d] = layouts;
    let (mut preference, mut count) = (std::ptr::null_mut(), -1);
    assert_eq!(
        call!(blas, cublasLtMatmulPreferenceCreate(&mut preference => *mut *mut c_void)),
        0
    );
    let most = (1u64 << 20).to_le_bytes();
    assert_eq!(
        call!(blas, cublasLtMatmulPreferenceSetAttribute(
            preference => *mut c_void, 1 => i32, most.as_ptr() => *const u8, 8 => usize
        )),
        0
    );
    let mut found = [0u64; 12 * 3];
    let status = call!(blas, cublasLtMatmulAlgoGetHeuristic(
        blas.handle => *mut c_void, operation.0 => *mut c_void, a => *mut c_void, b => *mut c_void, c => *mut c_void,
        d => *mut c_void, preference => *mut c_void, 3 => i32, found.as_mut_ptr() => *mut u64, &mut count => *mut i32
    ));
    assert_eq!(
        call!(blas, cublasLtMatmulPreferenceDestroy(preference => *mut c_void)),
        0
    );
    (status, count)
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

fn follow(epilogue: u32, value: f64, bias: f64) -> f64 {
    let value = if epilogue & 4 != 0 { value + bias } else { value };
    match epilogue & !4 {
        2 => value.max(0.0),
        32 => gelu(value),
        _ => value,
    }
}

/// Some matrix of so many rows and columns, or the transpose of one.
fn some_shape(random: &mut Random, turned: bool, rows: usize, columns: usize) -> Shape {
    let (rows, columns) = if turned { (columns, rows) } else { (rows, columns) };
    let leading = rows + random.below(4);
    Shape { rows, columns, leading }
}

/// Multiplies and waits, with alpha and beta in the host's memory or the device's.
fn multiply(blas: &Blas, operation: &Operation, addresses: [u64; 4], layouts: [*mut c_void; 4], scalars: [Vec<u8>; 2]) {
    let device = scalars.each_ref().map(|scalar| blas.memory(scalar));
    for on_device in [false, true] {
        assert_eq!(operation.set(blas, 2, &i32::from(on_device).to_le_bytes()), 0);
        let [alpha, beta] = if on_device {
            device.map(|address| address as *const u8)
        } else {
            scalars.each_ref().map(|scalar| scalar.as_ptr())
        };
        let ([a, b, c, d], [la, lb, lc, ld]) = (addresses, layouts);
        let status = call!(blas, cublasLtMatmul(
            blas.handle => *mut c_void, operation.0 => *mut c_void, alpha => *const u8, a => u64, la => *mut c_void,
            b => u64, lb => *mut c_void, beta => *const u8, c => u64, lc => *mut c_void, d => u64, ld => *mut c_void,
            std::ptr::null() => *const u64, 0 => u64, 0 => usize, std::ptr::null_mut() => *mut c_void
        ));
        assert_eq!(status, 0);
    }
    assert_eq!(call!(blas, cuCtxSynchronize()), 0);
    blas.free(&device);
}

fn check(blas: &Blas, random: &mut Random, of: Type, epilogue: u32) {
    let [m, n, k] = [0; 3].map(|_| 1 + random.below(70));
    let turned = [random.below(2) == 1, random.below(2) == 1];
    let shapes = [(turned[0], m, k), (turned[1], k, n), (false, m, n), (false, m, n)]
        .map(|(turned, rows, columns)| some_shape(random, turned, rows, columns));
    let count = 1 + random.below(2);
    let values = shapes.map(|shape| random.values(shape.elements() * count));
    let bias = random.values(m);
    // A small factor keeps the argument of the activation where it bends.
    let scalars = [0.25, random.one(&[0.0, 1.0])];
    let scale = if of == F64 { F64 } else { F32 };
    let operation = Operation::new(blas, if of == F64 { 70 } else { 68 }, scale);
    let addresses = values.each_ref().map(|values| blas.memory(&encode(of, values)));
    let at_bias = blas.memory(&encode(of, &bias));
    for (attribute, value) in [(3, u32::from(turned[0])), (4, u32::from(turned[1])), (7, epilogue)] {
        assert_eq!(operation.set(blas, attribute, &value.to_le_bytes()), 0);
    }
    assert_eq!(operation.set(blas, 8, &at_bias.to_le_bytes()), 0);
    let layouts = shapes.map(|shape| layout(blas, of, shape, count as i32, shape.elements() as i64));
    assert_eq!(heuristic(blas, &operation, layouts), (0, 1));
    multiply(
        blas,
        &operation,
        addresses,
        layouts,
        scalars.map(|scalar| encode(scale, &[scalar])),
    );
    let mut expected = Vec::new();
    for index in 0..count {
        let part = |which: usize| {
            let size = shapes[which].elements();
            &values[which][index * size..(index + 1) * size]
        };
        let parts = [part(0), part(1), part(2), part(3)];
        let then = |row: usize, value: f64| follow(epilogue, value, bias[row]);
        expected.extend(product([m, n, k], turned, shapes, parts, scalars, then));
    }
    let found = decode(of, &blas.read(addresses[3], values[3].len() * bytes(of)));
    let what = format!("type {of}, epilogue {epilogue}, {m} {n} {k}");
    assert_close(&what, of, k * 4 + 20, &found, &expected);
    for layout in layouts {
        assert_eq!(call!(blas, cublasLtMatrixLayoutDestroy(layout => *mut c_void)), 0);
    }
    assert_eq!(call!(blas, cublasLtMatmulDescDestroy(operation.0 => *mut c_void)), 0);
    blas.free(&addresses);
    blas.free(&[at_bias]);
}

on_machine! {
    what_follows_a_product_is_right => |blas| {
        let mut random = Random(0x17);
        for of in [F32, F16, BF16, F64] {
            for epilogue in EPILOGUES.into_iter().filter(|epilogue| of != F64 || epilogue & 32 == 0) {
                for _ in 0..3 {
                    check(blas, &mut random, of, epilogue);
                }
            }
        }
    }

    descriptors_tell_what_they_were_given => |blas| {
        let operation = Operation::new(blas, 68, F32);
        let get = |attribute: i32, size: usize| {
            let (mut value, mut written) = (0u64, 0usize);
            let status = call!(blas, cublasLtMatmulDescGetAttribute(
                operation.0 => *mut c_void, attribute => i32, &mut value => *mut u64, size => usize,
                &mut written => *mut usize
            ));
            (status, value, written)
        };
        assert_eq!(get(7, 4), (0, 1, 4));
        assert_eq!(operation.set(blas, 7, &36u32.to_le_bytes()), 0);
        assert_eq!(get(7, 8), (0, 36, 4));
        assert_eq!(get(8, 0), (0, 0, 8), "the size alone");
        assert_eq!(get(8, 4).0, 7, "too small");
        assert_eq!(operation.set(blas, 7, &36u64.to_le_bytes()), 7, "too large");
        assert_eq!(operation.set(blas, 17, &1u64.to_le_bytes()), 15, "a scale for 8-bit types");
        let shape = Shape { rows: 2, columns: 3, leading: 4 };
        let layout = layout(blas, F16, shape, 1, 0);
        assert_eq!(call!(blas, cublasLtMatmulDescDestroy(layout => *mut c_void)), 7, "another kind");
        let mut own = [0u64; 8];
        let memory = own.as_mut_ptr();
        assert_eq!(call!(blas, cublasLtMatrixLayoutInit_internal(
            memory => *mut u64, 64 => usize, F32 => i32, 5 => u64, 6 => u64, 7 => i64
        )), 0);
        let mut rows = 0u64;
        assert_eq!(call!(blas, cublasLtMatrixLayoutGetAttribute(
            memory => *mut u64, 2 => i32, &mut rows => *mut u64, 8 => usize, std::ptr::null_mut() => *mut usize
        )), 0);
        assert_eq!(rows, 5);
    }
}
