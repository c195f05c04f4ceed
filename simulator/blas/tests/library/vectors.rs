// SPDX-License-Identifier: Apache-2.0
//! Vectors, and a matrix times a vector.

use std::ffi::c_void;

use crate::machine::{Blas, call, on_machine};
use crate::numbers::*;

/// The elements that an operation visits: a negative step goes from the end.
fn visited(values: &[f64], count: usize, step: i32) -> Vec<f64> {
    (0..count).map(|index| values[place(count, step, index)]).collect()
}

fn place(count: usize, step: i32, index: usize) -> usize {
    let index = if step < 0 { count - 1 - index } else { index };
    index * step.unsigned_abs() as usize
}

fn device(blas: &Blas, of: Type, values: &[f64]) -> u64 {
    blas.memory(&encode(of, values))
}

/// A function by the letter of its type.
fn named<T: Copy>(blas: &Blas, of: Type, rest: &str) -> T {
    blas.symbol(&format!("cublas{}{rest}", if of == F64 { "D" } else { "S" }))
}

type Reduce2 = unsafe extern "C" fn(*mut c_void, i32, u64, i32, u64, i32, *mut u8) -> i32;
type Reduce1 = unsafe extern "C" fn(*mut c_void, i32, u64, i32, *mut u8) -> i32;
type Scale = unsafe extern "C" fn(*mut c_void, i32, *const u8, u64, i32) -> i32;
type Add = unsafe extern "C" fn(*mut c_void, i32, *const u8, u64, i32, u64, i32) -> i32;
type MatrixVector =
    unsafe extern "C" fn(*mut c_void, i32, i32, i32, *const u8, u64, i32, u64, i32, *const u8, u64, i32) -> i32;

fn reductions(blas: &Blas, random: &mut Random, of: Type, count: usize, [dx, dy]: [i32; 2]) {
    let [x, y] = [dx, dy].map(|step| random.values(count * step.unsigned_abs() as usize + 1));
    let [ax, ay] = [&x, &y].map(|values| device(blas, of, values));
    let (vx, vy) = (visited(&x, count, dx), visited(&y, count, dy));
    let mut result = vec![0xff; bytes(of)];
    let n = count as i32;
    let dot = named::<Reduce2>(blas, of, "dot_v2");
    // SAFETY: the types are those of the public header.
    assert_eq!(unsafe { dot(blas.handle, n, ax, dx, ay, dy, result.as_mut_ptr()) }, 0);
    let expected: f64 = vx.iter().zip(&vy).map(|(x, y)| x * y).sum();
    assert_close("dot", of, count * 4, &decode(of, &result), &[expected]);
    for (name, expected) in [
        ("nrm2_v2", vx.iter().map(|x| x * x).sum::<f64>().sqrt()),
        ("asum_v2", vx.iter().map(|x| x.abs()).sum()),
    ] {
        let expected = if dx > 0 { expected } else { 0.0 };
        let function = named::<Reduce1>(blas, of, name);
        // SAFETY: as above.
        assert_eq!(unsafe { function(blas.handle, n, ax, dx, result.as_mut_ptr()) }, 0);
        assert_close(name, of, count * 4, &decode(of, &result), &[expected]);
    }
    blas.free(&[ax, ay]);
}

fn maps(blas: &Blas, random: &mut Random, of: Type, count: usize, [dx, dy]: [i32; 2]) {
    let [x, mut y] = [dx, dy].map(|step| random.values(count * step.unsigned_abs() as usize + 1));
    let [ax, ay] = [&x, &y].map(|values| device(blas, of, values));
    let alpha = encode(of, &[-0.5]);
    let n = count as i32;
    let add = named::<Add>(blas, of, "axpy_v2");
    // SAFETY: the types are those of the public header.
    assert_eq!(unsafe { add(blas.handle, n, alpha.as_ptr(), ax, dx, ay, dy) }, 0);
    for index in 0..count {
        y[place(count, dy, index)] -= 0.5 * x[place(count, dx, index)];
    }
    assert_close("axpy", of, 4, &decode(of, &blas.read(ay, y.len() * bytes(of))), &y);
    let scale = named::<Scale>(blas, of, "scal_v2");
    // SAFETY: as above.
    assert_eq!(unsafe { scale(blas.handle, n, alpha.as_ptr(), ay, dy) }, 0);
    for index in 0..if dy > 0 { count } else { 0 } {
        y[place(count, dy, index)] *= -0.5;
    }
    assert_close("scal", of, 4, &decode(of, &blas.read(ay, y.len() * bytes(of))), &y);
    blas.free(&[ax, ay]);
}

fn matrix_vector(blas: &Blas, random: &mut Random, of: Type, turned: bool) {
    let [m, n] = [1 + random.below(90), 1 + random.below(90)];
    let shape = Shape {
        rows: m,
        columns: n,
        leading: m + random.below(3),
    };
    let (rows, terms) = if turned { (n, m) } else { (m, n) };
    let [dx, dy] = [0; 2].map(|_| random.one(&[1, 1, 2, -1, -3]));
    let beta = random.one(&[0.0, 1.0, -0.5]);
    let a = random.values(shape.elements());
    let x = random.values(terms * 3 + 1);
    let mut y = random.values(rows * 3 + 1);
    if beta == 0.0 {
        y.fill(f64::NAN);
    }
    let [aa, ax, ay] = [&a, &x, &y].map(|values| device(blas, of, values));
    let [alpha, given] = [2.0, beta].map(|scalar| encode(of, &[scalar]));
    let function = named::<MatrixVector>(blas, of, "gemv_v2");
    let (m, n, leading) = (m as i32, n as i32, shape.leading as i32);
    // SAFETY: the types are those of the public header.
    let status = unsafe {
        function(
            blas.handle,
            turned.into(),
            m,
            n,
            alpha.as_ptr(),
            aa,
            leading,
            ax,
            dx,
            given.as_ptr(),
            ay,
            dy,
        )
    };
    assert_eq!(status, 0);
    let vx = visited(&x, terms, dx);
    for row in 0..rows {
        let sum: f64 = (0..terms)
            .map(|index| shape.at(&a, row, index, turned) * vx[index])
            .sum();
        let at = place(rows, dy, row);
        y[at] = 2.0 * sum + if beta == 0.0 { 0.0 } else { beta * y[at] };
    }
    assert_close(
        "gemv",
        of,
        terms * 8,
        &decode(of, &blas.read(ay, y.len() * bytes(of))),
        &y,
    );
    blas.free(&[aa, ax, ay]);
}

on_machine! {
    vectors_are_right => |blas| {
        let mut random = Random(0xfeed);
        for of in [F32, F64] {
            for count in [0, 1, 63, 64, 65, 1000] {
                for steps in [[1, 1], [2, 3], [-1, 2], [-2, -1]] {
                    reductions(blas, &mut random, of, count, steps);
                    maps(blas, &mut random, of, count, steps);
                }
            }
            for round in 0..12 {
                matrix_vector(blas, &mut random, of, round % 2 == 1);
            }
        }
    }

    dots_of_halves_may_stay_on_the_device => |blas| {
        let mut random = Random(0xd07);
        for of in [F16, BF16] {
            let [x, y] = [0; 2].map(|_| random.values(300));
            let [ax, ay, to] = [&x, &y, &vec![0.0]].map(|values| device(blas, of, values));
            assert_eq!(call!(blas, cublasSetPointerMode_v2(blas.handle => *mut c_void, 1 => i32)), 0);
            assert_eq!(call!(blas, cublasDotEx(
                blas.handle => *mut c_void, 300 => i32, ax => u64, of => i32, 1 => i32, ay => u64, of => i32, 1 => i32,
                to => u64, of => i32, F32 => i32
            )), 0);
            let expected: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
            assert_close("dot", of, 1200, &decode(of, &blas.read(to, 2)), &[expected]);
        }
    }
}
