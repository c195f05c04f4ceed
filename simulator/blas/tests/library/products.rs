// SPDX-License-Identifier: Apache-2.0
//! Matrix products of cublas.

use std::ffi::c_void;

use crate::machine::{Blas, call, on_machine};
use crate::numbers::*;

/// Types of A and B, of C, and of the computation with its alpha and beta.
const TYPES: [(Type, Type, i32, Type); 8] = [
    (F32, F32, 68, F32),
    (F32, F32, 77, F32),
    (F64, F64, 70, F64),
    (F16, F16, 68, F32),
    (F16, F16, 64, F16),
    (BF16, BF16, 68, F32),
    (F16, F32, 68, F32),
    (BF16, F32, 68, F32),
];

#[derive(Clone, Copy, Debug)]
struct Case {
    types: (Type, Type, i32, Type),
    operations: [i32; 2],
    sizes: [usize; 3],
    shapes: [Shape; 3],
    scalars: [f64; 2],
    count: usize,
    /// 0: `GemmEx`, 1: by strides, 2: by arrays of addresses.
    form: usize,
    on_device: bool,
}

fn case(random: &mut Random) -> Case {
    let form = random.below(3);
    let size = |random: &mut Random| {
        let most = random.one(&[3, 20, 40, 140]);
        1 + random.below(most)
    };
    let [m, n, k] = [size(random), size(random), size(random)];
    let k = if random.below(20) == 0 { 0 } else { k };
    let operations = [random.below(3) as i32, random.below(3) as i32];
    let mut shape = |turned: bool, rows: usize, columns: usize| {
        let (rows, columns) = if turned { (columns, rows) } else { (rows, columns) };
        Shape {
            rows,
            columns,
            leading: rows.max(1) + random.one(&[0, 0, 1, 5]),
        }
    };
    let shapes = [
        shape(operations[0] != 0, m, k),
        shape(operations[1] != 0, k, n),
        shape(false, m, n),
    ];
    Case {
        types: random.one(&TYPES),
        operations,
        sizes: [m, n, k],
        shapes,
        scalars: [random.one(&[1.0, 1.0, -0.5, 0.0]), random.one(&[0.0, 0.0, 1.0, 0.5])],
        count: if form == 0 { 1 } else { 1 + random.below(3) },
        form,
        on_device: random.below(3) == 0,
    }
}

/// Runs a case and gives C's memory.
fn run(blas: &Blas, case: &Case, addresses: [u64; 3], strides: [usize; 3]) {
    let (from, to, compute, scale) = case.types;
    let [m, n, k] = case.sizes.map(|size| size as i32);
    let [la, lb, lc] = case.shapes.map(|shape| shape.leading as i32);
    let [ta, tb] = case.operations;
    let host = case.scalars.map(|scalar| encode(scale, &[scalar]));
    let device = host.each_ref().map(|scalar| blas.memory(scalar));
    let mode = i32::from(case.on_device);
    assert_eq!(
        call!(blas, cublasSetPointerMode_v2(blas.handle => *mut c_void, mode => i32)),
        0
    );
    let [alpha, beta] = [0, 1].map(|index| {
        if case.on_device {
            device[index] as *const u8
        } else {
            host[index].as_ptr()
        }
    });
    let [a, b, c] = addresses;
    let [sa, sb, sc] = strides.map(|stride| stride as i64);
    let count = case.count as i32;
    let arrays = [(a, sa, from), (b, sb, from), (c, sc, to)].map(|(address, stride, of)| {
        let each = |index: usize| (address + index as u64 * stride as u64 * bytes(of) as u64).to_le_bytes();
        blas.memory(&(0..case.count).flat_map(each).collect::<Vec<u8>>())
    });
    let [aa, ba, ca] = arrays;
    let handle = blas.handle;
    let status = match case.form {
        0 => call!(blas, cublasGemmEx(
            handle => *mut c_void, ta => i32, tb => i32, m => i32, n => i32, k => i32, alpha => *const u8,
            a => u64, from => i32, la => i32, b => u64, from => i32, lb => i32, beta => *const u8,
            c => u64, to => i32, lc => i32, compute => i32, -1 => i32
        )),
        1 => call!(blas, cublasGemmStridedBatchedEx(
            handle => *mut c_void, ta => i32, tb => i32, m => i32, n => i32, k => i32, alpha => *const u8,
            a => u64, from => i32, la => i32, sa => i64, b => u64, from => i32, lb => i32, sb => i64, beta => *const u8,
            c => u64, to => i32, lc => i32, sc => i64, count => i32, compute => i32, -1 => i32
        )),
        _ => call!(blas, cublasGemmBatchedEx(
            handle => *mut c_void, ta => i32, tb => i32, m => i32, n => i32, k => i32, alpha => *const u8,
            aa => u64, from => i32, la => i32, ba => u64, from => i32, lb => i32, beta => *const u8,
            ca => u64, to => i32, lc => i32, count => i32, compute => i32, -1 => i32
        )),
    };
    assert_eq!(status, 0, "{case:?}");
    assert_eq!(call!(blas, cuCtxSynchronize()), 0, "{case:?}");
    blas.free(&arrays);
    blas.free(&device);
}

fn check(blas: &Blas, random: &mut Random, case: &Case) {
    let (from, to, ..) = case.types;
    let strides = case.shapes.map(|shape| shape.elements() + 3);
    let [a, b] = [strides[0], strides[1]].map(|stride| random.values(stride * case.count));
    let mut c = random.values(strides[2] * case.count);
    if case.scalars[1] == 0.0 {
        // What is not read may be anything.
        c.fill(f64::NAN);
    }
    let addresses = [(from, &a), (from, &b), (to, &c)].map(|(of, values)| blas.memory(&encode(of, values)));
    run(blas, case, addresses, strides);
    let size = c.len() * bytes(to);
    let first = blas.read(addresses[2], size);
    let turned = case.operations.map(|operation| operation != 0);
    let [sa, sb, sc] = case.shapes;
    let mut expected = Vec::new();
    for index in 0..case.count {
        let part = |values: &[f64], stride: usize| values[index * stride..(index + 1) * stride].to_vec();
        let (pa, pb, pc) = (part(&a, strides[0]), part(&b, strides[1]), part(&c, strides[2]));
        let values = [&pa[..], &pb, &pc, &pc];
        expected.extend(product(
            case.sizes,
            turned,
            [sa, sb, sc, sc],
            values,
            case.scalars,
            |_, value| value,
        ));
    }
    assert_close(
        &format!("{case:?}"),
        to,
        case.sizes[2] * 4,
        &decode(to, &first),
        &expected,
    );
    blas.write(addresses[2], &encode(to, &c));
    run(blas, case, addresses, strides);
    assert!(
        first == blas.read(addresses[2], size),
        "{case:?}: another result the second time"
    );
    blas.free(&addresses);
}

on_machine! {
    products_of_all_types_and_shapes_are_right => |blas| {
        let mut random = Random(0x5eed_b1a5);
        for _ in 0..150 {
            let case = case(&mut random);
            check(blas, &mut random, &case);
        }
    }

    products_by_name_are_right => |blas| {
        let mut random = Random(0x1234_5678);
        let shape = Shape { rows: 5, columns: 5, leading: 5 };
        for (name, of) in [("cublasSgemm_v2", F32), ("cublasDgemm_v2", F64), ("cublasHgemm", F16)] {
            let [a, b, c] = [0; 3].map(|_| random.values(25));
            let [da, db, dc] = [&a, &b, &c].map(|values| blas.memory(&encode(of, values)));
            let scalars = [2.0, 1.0];
            let [alpha, beta] = scalars.map(|scalar| encode(of, &[scalar]));
            type Call = unsafe extern "C" fn(
                *mut c_void, i32, i32, i32, i32, i32, *const u8, u64, i32, u64, i32, *const u8, u64, i32,
            ) -> i32;
            let function = blas.symbol::<Call>(name);
            // SAFETY: the types are those of the public header.
            let status = unsafe {
                function(blas.handle, 1, 0, 5, 5, 5, alpha.as_ptr(), da, 5, db, 5, beta.as_ptr(), dc, 5)
            };
            assert_eq!(status, 0, "{name}");
            let values = [&a[..], &b, &c, &c];
            let expected = product([5; 3], [true, false], [shape; 4], values, scalars, |_, value| value);
            assert_close(name, of, 20, &decode(of, &blas.read(dc, 25 * bytes(of))), &expected);
        }
    }

    products_may_be_captured_before_their_kernels_are_loaded => |blas| {
        let mut random = Random(77);
        let shape = Shape { rows: 8, columns: 8, leading: 8 };
        let [a, b] = [0; 2].map(|_| random.values(64));
        let [da, db, dc] = [&a, &b, &vec![0.0; 64]].map(|values| blas.memory(&encode(F32, values)));
        let (mut stream, mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(call!(blas, cuStreamCreate(&mut stream => *mut *mut c_void, 1 => u32)), 0);
        assert_eq!(call!(blas, cublasSetStream_v2(blas.handle => *mut c_void, stream => *mut c_void)), 0);
        assert_eq!(call!(blas, cuStreamBeginCapture_v2(stream => *mut c_void, 0 => u32)), 0);
        let [one, zero] = [1f32, 0.0];
        assert_eq!(call!(blas, cublasSgemm_v2(
            blas.handle => *mut c_void, 0 => i32, 0 => i32, 8 => i32, 8 => i32, 8 => i32, &one => *const f32,
            da => u64, 8 => i32, db => u64, 8 => i32, &zero => *const f32, dc => u64, 8 => i32
        )), 0);
        assert_eq!(call!(blas, cuStreamEndCapture(stream => *mut c_void, &mut graph => *mut *mut c_void)), 0);
        assert!(decode(F32, &blas.read(dc, 256)).iter().all(|value| *value == 0.0), "a capture does not compute");
        assert_eq!(call!(blas, cuGraphInstantiateWithFlags(
            &mut exec => *mut *mut c_void, graph => *mut c_void, 0 => u64
        )), 0);
        assert_eq!(call!(blas, cuGraphLaunch(exec => *mut c_void, stream => *mut c_void)), 0);
        let values = [&a[..], &b, &a, &a];
        let expected = product([8; 3], [false; 2], [shape; 4], values, [1.0, 0.0], |_, value| value);
        assert_close("a replay", F32, 32, &decode(F32, &blas.read(dc, 256)), &expected);
    }
}
