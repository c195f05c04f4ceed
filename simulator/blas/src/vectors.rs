// SPDX-License-Identifier: Apache-2.0
//! Operations on vectors, and a matrix times a vector.

use core::ffi::{c_int, c_void};

use crate::driver::{Driver, Handle, Kernel, driver, with_host_word};
use crate::handle::{State, exports, state};
use crate::kernels::Kind;
use crate::kernels::element::Element;
use crate::kernels::gemm::flag;
use crate::kernels::vector::{Operation, THREADS, at};
use crate::product::{Scalar, is_transposed};
use crate::status::{Outcome, Status, of_driver, refuse};

/// The kernel's parameter block; the offsets are in [`at`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters {
    addresses: [u64; 3],
    scalars: [u64; 2],
    values: [f64; 2],
    strides: [u64; 4],
    sizes: [u32; 2],
    flags: u32,
    spare: u32,
}

const _: () = {
    assert!(core::mem::offset_of!(Parameters, addresses) == at::ADDRESSES);
    assert!(core::mem::offset_of!(Parameters, scalars) == at::SCALARS);
    assert!(core::mem::offset_of!(Parameters, values) == at::VALUES);
    assert!(core::mem::offset_of!(Parameters, strides) == at::STRIDES);
    assert!(core::mem::offset_of!(Parameters, sizes) == at::SIZES);
    assert!(size_of::<Parameters>() == at::END);
};

const F32: c_int = 0;
const F64: c_int = 1;
const HANDED: usize = 8;

/// A vector as the caller passed it: address and elements from one to the next, which may be negative.
type Vector = (*const c_void, c_int);

/// Bytes from the first element that an operation visits to the next, and the address of the first.
fn place(vector: Vector, count: i64, bytes: usize) -> (u64, u64) {
    let step = i64::from(vector.1) * bytes as i64;
    // A negative step goes through the vector from its end.
    let first = if step < 0 { (1 - count) * step } else { 0 };
    ((vector.0 as u64).wrapping_add(first as u64), step as u64)
}

fn launch(driver: &Driver, operation: Operation, element: Element, stream: usize, values: &Parameters) -> Outcome<()> {
    let kernel = Kernel {
        kind: Kind::Vectors(element),
        name: operation.name(),
    };
    let blocks = if operation.reduces() {
        1
    } else {
        values.sizes[0].div_ceil(THREADS)
    };
    driver.run(kernel, [blocks, 1, 1], THREADS, stream as Handle, values)
}

fn put(values: &mut Parameters, index: usize, scalar: Scalar) {
    let (value, address, is_half) = scalar.parts();
    (values.values[index], values.scalars[index]) = (value, address);
    if is_half {
        values.flags |= flag::HALF_SCALARS;
    }
}

/// x becomes alpha * x, y becomes alpha * x + y, or y becomes x.
fn map(
    state: State,
    operation: Operation,
    element: Element,
    n: c_int,
    alpha: Option<Scalar>,
    x: Vector,
    y: Vector,
) -> Outcome<()> {
    if n <= 0 {
        return Ok(());
    }
    let (count, bytes) = (i64::from(n), element.bytes());
    let ((x, dx), (y, dy)) = (place(x, count, bytes), place(y, count, bytes));
    let mut values = Parameters {
        addresses: [x, y, 0],
        strides: [dx, dy, 0, 0],
        sizes: [n as u32, 0],
        ..Parameters::default()
    };
    if let Some(alpha) = alpha {
        put(&mut values, 0, alpha);
    }
    launch(driver()?, operation, element, state.stream, &values)
}

/// Sums up to `result`, in device memory or, after waiting for the stream, in the host's.
fn reduce(
    state: State,
    operation: Operation,
    element: Element,
    n: c_int,
    x: Vector,
    y: Vector,
    result: *mut c_void,
) -> Outcome<()> {
    if result.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let (count, bytes) = (i64::from(n.max(0)), element.bytes());
    let ((x, dx), (y, dy)) = (place(x, count, bytes), place(y, count, bytes));
    let mut values = Parameters {
        addresses: [x, y, result as u64],
        strides: [dx, dy, 0, 0],
        sizes: [count as u32, 0],
        ..Parameters::default()
    };
    if state.on_device {
        return launch(driver()?, operation, element, state.stream, &values);
    }
    with_host_word(|driver, word| {
        values.addresses[2] = word as u64;
        launch(driver, operation, element, state.stream, &values)?;
        // SAFETY: a stream of the program's, which the driver checks.
        of_driver(unsafe { (driver.wait)(state.stream as Handle) })?;
        // SAFETY: the word is ours alone until this returns, and the kernel that wrote it has ended; the result has the
        // size of an element.
        unsafe { core::ptr::copy_nonoverlapping(word.cast::<u8>(), result.cast::<u8>(), bytes.min(HANDED)) };
        Ok(())
    })
}

/// y becomes alpha * op(A) * x + beta * y.
fn matrix_vector(
    handle: *mut c_void,
    element: Element,
    operation: c_int,
    [m, n]: [c_int; 2],
    alpha: *const c_void,
    (a, leading): Vector,
    x: Vector,
    beta: *const c_void,
    y: Vector,
) -> Outcome<()> {
    let state = state(handle)?;
    let turned = is_transposed(operation)?;
    if m < 0 || n < 0 || leading < m.max(1) || x.1 == 0 || y.1 == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let scalars = [alpha, beta].map(|scalar| Scalar::read(scalar, element, state.on_device));
    let [alpha, beta] = [scalars[0]?, scalars[1]?];
    if m == 0 || n == 0 {
        return Ok(());
    }
    let (bytes, column) = (
        element.bytes() as u64,
        i64::from(leading) as u64 * element.bytes() as u64,
    );
    let (rows, terms) = if turned { (n, m) } else { (m, n) };
    let (x, dx) = place(x, terms.into(), element.bytes());
    let (y, dy) = place(y, rows.into(), element.bytes());
    let [row, along] = if turned { [column, bytes] } else { [bytes, column] };
    let mut values = Parameters {
        addresses: [x, y, a as u64],
        strides: [dx, dy, row, along],
        // Alpha = 0 reads neither A nor x.
        sizes: [rows as u32, if alpha == Scalar::Value(0.0) { 0 } else { terms as u32 }],
        ..Parameters::default()
    };
    put(&mut values, 0, alpha);
    put(&mut values, 1, beta);
    launch(driver()?, Operation::MatrixVector, element, state.stream, &values)
}

const NONE: Vector = (core::ptr::null(), 0);

macro_rules! named {
    ($(
        $scale:ident, $add:ident, $copy:ident, $dot:ident, $norm:ident, $magnitudes:ident,
            $product:ident: $element:ident;
    )*) => {
        exports! {$(
            $scale(handle: *mut c_void, n: c_int, alpha: *const c_void, x: *mut c_void, dx: c_int)
                scale(handle, Element::$element, Element::$element, n, alpha, (x, dx));
            $add(
                handle: *mut c_void, n: c_int, alpha: *const c_void, x: *const c_void, dx: c_int, y: *mut c_void,
                dy: c_int
            ) add(handle, Element::$element, Element::$element, n, alpha, (x, dx), (y, dy));
            $copy(handle: *mut c_void, n: c_int, x: *const c_void, dx: c_int, y: *mut c_void, dy: c_int)
                state(handle)
                    .and_then(|state| map(state, Operation::Copy, Element::$element, n, None, (x, dx), (y, dy)));
            $dot(
                handle: *mut c_void, n: c_int, x: *const c_void, dx: c_int, y: *const c_void, dy: c_int, to: *mut c_void
            ) state(handle)
                .and_then(|state| reduce(state, Operation::Dot, Element::$element, n, (x, dx), (y, dy), to));
            $norm(handle: *mut c_void, n: c_int, x: *const c_void, dx: c_int, to: *mut c_void)
                alone(handle, Operation::Norm, Element::$element, n, (x, dx), to);
            $magnitudes(handle: *mut c_void, n: c_int, x: *const c_void, dx: c_int, to: *mut c_void)
                alone(handle, Operation::Magnitudes, Element::$element, n, (x, dx), to);
            $product(
                handle: *mut c_void, operation: c_int, m: c_int, n: c_int, alpha: *const c_void, a: *const c_void,
                lda: c_int, x: *const c_void, dx: c_int, beta: *const c_void, y: *mut c_void, dy: c_int
            ) matrix_vector(
                handle, Element::$element, operation, [m, n], alpha, (a, lda), (x, dx), beta, (y, dy)
            );
        )*}
    };
}
named! {
    partage_cublasSscal_v2, partage_cublasSaxpy_v2, partage_cublasScopy_v2, partage_cublasSdot_v2,
        partage_cublasSnrm2_v2, partage_cublasSasum_v2, partage_cublasSgemv_v2: F32;
    partage_cublasDscal_v2, partage_cublasDaxpy_v2, partage_cublasDcopy_v2, partage_cublasDdot_v2,
        partage_cublasDnrm2_v2, partage_cublasDasum_v2, partage_cublasDgemv_v2: F64;
}

fn scale(handle: *mut c_void, element: Element, of: Element, n: c_int, alpha: *const c_void, x: Vector) -> Outcome<()> {
    let state = state(handle)?;
    let alpha = Scalar::read(alpha, of, state.on_device)?;
    if x.1 <= 0 {
        // As the library: a vector is not scaled backwards.
        return Ok(());
    }
    map(state, Operation::Scale, element, n, Some(alpha), x, NONE)
}

fn add(
    handle: *mut c_void,
    element: Element,
    of: Element,
    n: c_int,
    alpha: *const c_void,
    x: Vector,
    y: Vector,
) -> Outcome<()> {
    let state = state(handle)?;
    let alpha = Scalar::read(alpha, of, state.on_device)?;
    map(state, Operation::Add, element, n, Some(alpha), x, y)
}

/// A reduction of one vector, which is zero where its step is none.
fn alone(
    handle: *mut c_void,
    operation: Operation,
    element: Element,
    n: c_int,
    x: Vector,
    to: *mut c_void,
) -> Outcome<()> {
    let n = if x.1 <= 0 { 0 } else { n };
    reduce(state(handle)?, operation, element, n, x, NONE, to)
}

/// The element of a call whose arguments give the types, of which all must be the same, and computed in `sum`.
fn element_of(function: &str, types: &[c_int], sum: c_int) -> Outcome<Element> {
    let found = Element::of(types[0]).filter(|element| {
        let wanted = if *element == Element::F64 { F64 } else { F32 };
        types.iter().all(|other| *other == types[0]) && sum == wanted
    });
    found.ok_or_else(|| refuse(function, &format!("types {types:?} computed in {sum}")))
}

/// The type of alpha: that of the vectors, or of the computation.
fn scalar_of(function: &str, code: c_int, element: Element) -> Outcome<Element> {
    let found =
        Element::of(code).filter(|scalar| *scalar == element || *scalar == Element::F32 && element != Element::F64);
    // In device memory a scalar is a half, a single or a double.
    let built = found.filter(|scalar| *scalar != Element::Bf16);
    built.ok_or_else(|| refuse(function, &format!("a scalar of type {code}")))
}

exports! {
    partage_cublasScalEx(
        handle: *mut c_void, n: c_int, alpha: *const c_void, at: c_int, x: *mut c_void, xt: c_int, dx: c_int, sum: c_int
    ) element_of("cublasScalEx", &[xt], sum).and_then(|element| {
        scale(handle, element, scalar_of("cublasScalEx", at, element)?, n, alpha, (x, dx))
    });
    partage_cublasAxpyEx(
        handle: *mut c_void, n: c_int, alpha: *const c_void, at: c_int, x: *const c_void, xt: c_int, dx: c_int,
        y: *mut c_void, yt: c_int, dy: c_int, sum: c_int
    ) element_of("cublasAxpyEx", &[xt, yt], sum).and_then(|element| {
        add(handle, element, scalar_of("cublasAxpyEx", at, element)?, n, alpha, (x, dx), (y, dy))
    });
    partage_cublasDotEx(
        handle: *mut c_void, n: c_int, x: *const c_void, xt: c_int, dx: c_int, y: *const c_void, yt: c_int, dy: c_int,
        to: *mut c_void, tt: c_int, sum: c_int
    ) element_of("cublasDotEx", &[xt, yt, tt], sum).and_then(|element| {
        reduce(state(handle)?, Operation::Dot, element, n, (x, dx), (y, dy), to)
    });
    partage_cublasDotcEx(
        handle: *mut c_void, n: c_int, x: *const c_void, xt: c_int, dx: c_int, y: *const c_void, yt: c_int, dy: c_int,
        to: *mut c_void, tt: c_int, sum: c_int
    ) element_of("cublasDotcEx", &[xt, yt, tt], sum).and_then(|element| {
        reduce(state(handle)?, Operation::Dot, element, n, (x, dx), (y, dy), to)
    });
    partage_cublasNrm2Ex(
        handle: *mut c_void, n: c_int, x: *const c_void, xt: c_int, dx: c_int, to: *mut c_void, tt: c_int, sum: c_int
    ) element_of("cublasNrm2Ex", &[xt, tt], sum).and_then(|element| {
        alone(handle, Operation::Norm, element, n, (x, dx), to)
    });
}
