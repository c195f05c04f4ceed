// SPDX-License-Identifier: Apache-2.0
//! cublasLt: descriptors, the one algorithm, and the product with what follows it.

mod descriptors;

use core::ffi::{c_int, c_void};

use crate::handle::{answer, exports, state};
use crate::kernels::element::Element;
use crate::kernels::gemm::flag;
use crate::product::{Matrix, Product, Scalar, is_transposed, scale_of, types};
use crate::status::{Outcome, Status, refuse};
use descriptors::{BY_COLUMNS, FULL, MatmulDesc, MatrixLayout, Preference, read};

const MATMUL: &str = "cublasLtMatmul";

/// `cublasLtMatmulAlgo_t`: the words are the configuration by attribute, kept and told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Algorithm([u32; 16]);

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}
const _: () = assert!(size_of::<Algorithm>() == 64 && size_of::<Found>() == 96);

const ONLY: Found = Found {
    algorithm: Algorithm([0; 16]),
    workspace: 0,
    state: Status::SUCCESS,
    waves: 1.0,
    reserved: [0; 4],
};

/// What follows a product, by `cublasLtEpilogue_t`.
fn epilogue(code: u32) -> Option<u32> {
    Some(match code {
        1 => 0,
        2 => flag::RELU,
        4 => flag::BIAS,
        6 => flag::BIAS | flag::RELU,
        32 => flag::GELU,
        36 => flag::BIAS | flag::GELU,
        _ => return None,
    })
}

/// A product as its descriptors say, without addresses, alpha and beta.
fn product(desc: &MatmulDesc, layouts: &[MatrixLayout; 4]) -> Outcome<(Product, Element)> {
    let [a, b, c, d] = layouts;
    let refused = |what: String| Err(refuse(MATMUL, &what));
    let (of, compute) = (layouts.map(|layout| layout.element), desc.compute);
    let Some((types, scale)) = types(a.element, b.element, d.element, compute).filter(|_| c.element == d.element)
    else {
        return refused(format!("a product of types {of:?} with computation {compute}"));
    };
    if Element::of(desc.scale) != scale_of(compute) {
        return refused(format!("a scale of type {} with computation {compute}", desc.scale));
    }
    if layouts.iter().any(|layout| layout.order != BY_COLUMNS) {
        return refused("an order of elements other than by columns".to_owned());
    }
    if desc.fill != FULL || desc.c_operation != 0 {
        return refused("a triangle, or an operation on C,".to_owned());
    }
    let has_gelu = |bits: &u32| bits & flag::GELU != 0;
    let Some(epilogue) = epilogue(desc.epilogue).filter(|bits| types.0 != Element::F64 || !has_gelu(bits)) else {
        return refused(format!("epilogue {} for types {of:?}", desc.epilogue));
    };
    if epilogue & flag::BIAS != 0 && desc.bias_type != -1 && desc.bias_type != d.element {
        return refused(format!(
            "a bias of type {} for a result of type {}",
            desc.bias_type, d.element
        ));
    }
    let transposed = [is_transposed(desc.a_operation)?, is_transposed(desc.b_operation)?];
    let shape = |layout: &MatrixLayout, turned: bool| {
        let (rows, columns) = (layout.rows as i64, layout.columns as i64);
        if turned { (columns, rows) } else { (rows, columns) }
    };
    let ((m, k), (k_of_b, n)) = (shape(a, transposed[0]), shape(b, transposed[1]));
    let is_sound = k == k_of_b && shape(c, false) == (m, n) && shape(d, false) == (m, n);
    if !is_sound || layouts.iter().any(|layout| layout.count != d.count) {
        return Err(Status::INVALID_VALUE);
    }
    let matrix = |layout: &MatrixLayout| Matrix {
        address: 1,
        leading: layout.leading,
        batch: layout.stride,
    };
    let found = Product {
        types,
        transposed,
        sizes: [m, n, k],
        scalars: [Scalar::Value(0.0); 2],
        matrices: [matrix(a), matrix(b), matrix(c), matrix(d)],
        count: d.count.into(),
        by_pointers: false,
        epilogue,
        bias: Matrix {
            address: desc.bias,
            leading: 0,
            batch: desc.bias_stride,
        },
    };
    found.check()?;
    Ok((found, scale))
}

/// The descriptors of a call.
struct Described(MatmulDesc, [MatrixLayout; 4]);

impl Described {
    fn read(desc: *const MatmulDesc, layouts: [*const MatrixLayout; 4]) -> Outcome<Self> {
        let [a, b, c, d] = layouts;
        Ok(Self(read(desc)?, [read(a)?, read(b)?, read(c)?, read(d)?]))
    }
}

fn run(
    Described(desc, layouts): Described,
    scalars: [*const c_void; 2],
    addresses: [*const c_void; 4],
    stream: *mut c_void,
) -> Outcome<()> {
    let (mut product, scale) = product(&desc, &layouts)?;
    let on_device = match desc.pointer_mode {
        0 => false,
        1 => true,
        mode => return Err(refuse(MATMUL, &format!("pointer mode {mode}"))),
    };
    let [alpha, beta] = scalars.map(|scalar| Scalar::read(scalar, scale, on_device));
    product.scalars = [alpha?, beta?];
    for (matrix, address) in product.matrices.iter_mut().zip(addresses) {
        matrix.address = address as u64;
    }
    if product.epilogue & flag::BIAS != 0 && product.bias.address == 0 {
        return Err(Status::INVALID_VALUE);
    }
    product.run(stream)
}

/// The one algorithm, for a product that is built.
fn search(described: Described, most: c_int, to: *mut Found, count: *mut c_int) -> Outcome<()> {
    if most < 1 || to.is_null() || count.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    answer(count, 0)?;
    product(&described.0, &described.1)?;
    answer(to, ONLY)?;
    answer(count, 1)
}

/// Size of an attribute of an algorithm's configuration.
fn configured(attribute: c_int) -> Outcome<(usize, usize)> {
    match attribute {
        0..=6 => Ok((attribute as usize, 4)),
        7 | 8 => Ok((attribute as usize, 2)),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn configure(algorithm: *mut Algorithm, attribute: c_int, from: *const c_void, size: usize) -> Outcome<()> {
    let (index, wanted) = configured(attribute)?;
    if algorithm.is_null() || from.is_null() || size != wanted {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the program's algorithm and a value of the attribute's size.
    unsafe {
        let word = (&raw mut (*algorithm).0[index]).cast::<u8>();
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), word, size);
    }
    Ok(())
}

fn configuration(
    algorithm: *const Algorithm,
    attribute: c_int,
    to: *mut c_void,
    size: usize,
    written: *mut usize,
) -> Outcome<()> {
    let (index, wanted) = configured(attribute)?;
    if algorithm.is_null() || to.is_null() || size < wanted {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe {
        let word = (&raw const (*algorithm).0[index]).cast::<u8>();
        core::ptr::copy_nonoverlapping(word, to.cast::<u8>(), wanted);
    }
    if written.is_null() {
        Ok(())
    } else {
        answer(written, wanted)
    }
}

exports! {
    partage_cublasLtMatmul(
        handle: *mut c_void, desc: *const MatmulDesc, alpha: *const c_void, a: *const c_void,
        a_layout: *const MatrixLayout, b: *const c_void, b_layout: *const MatrixLayout, beta: *const c_void,
        c: *const c_void, c_layout: *const MatrixLayout, d: *mut c_void, d_layout: *const MatrixLayout,
        _algorithm: *const Algorithm, _workspace: *mut c_void, _bytes: usize, stream: *mut c_void
    ) state(handle)
        .and_then(|_| Described::read(desc, [a_layout, b_layout, c_layout, d_layout]))
        .and_then(|described| run(described, [alpha, beta], [a, b, c, d], stream));
    partage_cublasLtMatmulAlgoGetHeuristic(
        handle: *mut c_void, desc: *const MatmulDesc, a: *const MatrixLayout, b: *const MatrixLayout,
        c: *const MatrixLayout, d: *const MatrixLayout, preference: *const Preference, most: c_int, to: *mut Found,
        count: *mut c_int
    ) state(handle)
        .and_then(|_| read(preference))
        .and_then(|_| Described::read(desc, [a, b, c, d]))
        .and_then(|described| search(described, most, to, count));
    partage_cublasLtMatmulAlgoCheck(
        handle: *mut c_void, desc: *const MatmulDesc, a: *const MatrixLayout, b: *const MatrixLayout,
        c: *const MatrixLayout, d: *const MatrixLayout, algorithm: *const Algorithm, to: *mut Found
    ) state(handle)
        .and_then(|_| Described::read(desc, [a, b, c, d]))
        .and_then(|Described(desc, layouts)| product(&desc, &layouts))
        .and_then(|_| if algorithm.is_null() { Err(Status::INVALID_VALUE) } else { answer(to, ONLY) });
    partage_cublasLtMatmulAlgoInit(
        handle: *mut c_void, compute: c_int, _scale: c_int, a: c_int, b: c_int, c: c_int, d: c_int, id: c_int,
        to: *mut Algorithm
    ) state(handle).and_then(|_| match types(a, b, d, compute) {
        Some(_) if c == d && id == 0 => answer(to, ONLY.algorithm),
        Some(_) if c == d => Err(Status::INVALID_VALUE),
        _ => Err(refuse("cublasLtMatmulAlgoInit", &format!("a product of types {a}, {b} into {d}"))),
    });
    partage_cublasLtMatmulAlgoGetIds(
        handle: *mut c_void, compute: c_int, _scale: c_int, a: c_int, b: c_int, c: c_int, d: c_int, most: c_int,
        to: *mut c_int, count: *mut c_int
    ) state(handle).and_then(|_| match types(a, b, d, compute) {
        Some(_) if c == d && most > 0 => answer(to, 0).and_then(|()| answer(count, 1)),
        Some(_) if c == d => Err(Status::INVALID_VALUE),
        _ => Err(refuse("cublasLtMatmulAlgoGetIds", &format!("a product of types {a}, {b} into {d}"))),
    });
    partage_cublasLtMatmulAlgoConfigSetAttribute(
        algorithm: *mut Algorithm, attribute: c_int, from: *const c_void, size: usize
    ) configure(algorithm, attribute, from, size);
    partage_cublasLtMatmulAlgoConfigGetAttribute(
        algorithm: *const Algorithm, attribute: c_int, to: *mut c_void, size: usize, written: *mut usize
    ) configuration(algorithm, attribute, to, size, written);
}
