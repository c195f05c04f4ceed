// SPDX-License-Identifier: Apache-2.0
//! Matrix products: what both libraries ask for, its checks, and the launch.

use core::ffi::{c_int, c_void};

use crate::driver::{Handle, Kernel, driver};
use crate::kernels::Kind;
use crate::kernels::element::Element;
use crate::kernels::gemm::{TILES, Tile, at, flag};
use crate::status::{Outcome, Status};

/// The kernel's parameter block; the offsets are in [`at`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters {
    addresses: [u64; 5],
    scalars: [u64; 2],
    values: [f64; 2],
    strides: [u64; 4],
    columns: [u64; 2],
    batch: [u64; 5],
    sizes: [u32; 3],
    flags: u32,
    first: u32,
    tiles: u32,
}

const _: () = {
    assert!(core::mem::offset_of!(Parameters, addresses) == at::ADDRESSES);
    assert!(core::mem::offset_of!(Parameters, scalars) == at::SCALARS);
    assert!(core::mem::offset_of!(Parameters, values) == at::VALUES);
    assert!(core::mem::offset_of!(Parameters, strides) == at::STRIDES);
    assert!(core::mem::offset_of!(Parameters, columns) == at::COLUMNS);
    assert!(core::mem::offset_of!(Parameters, batch) == at::BATCH);
    assert!(core::mem::offset_of!(Parameters, sizes) == at::SIZES);
    assert!(core::mem::offset_of!(Parameters, flags) == at::FLAGS);
    assert!(core::mem::offset_of!(Parameters, first) == at::FIRST);
    assert!(core::mem::offset_of!(Parameters, tiles) == at::TILES);
    assert!(size_of::<Parameters>() == at::END);
};

/// Alpha or beta.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A value of the host.
    Value(f64),
    /// An address of the device, of a half where the flag holds.
    Device(u64, bool),
}

impl Scalar {
    /// What is behind a pointer of the program's, in a scale type.
    pub fn read(from: *const c_void, scale: Element, on_device: bool) -> Outcome<Self> {
        if from.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        if on_device {
            return Ok(Self::Device(from as u64, scale == Element::F16));
        }
        // SAFETY: the program passes a scalar of the host in this type.
        Ok(Self::Value(unsafe {
            match scale {
                Element::F32 => f64::from(from.cast::<f32>().read_unaligned()),
                Element::F64 => from.cast::<f64>().read_unaligned(),
                Element::F16 => half(from.cast::<u16>().read_unaligned()),
                Element::Bf16 => f64::from(f32::from_bits(u32::from(from.cast::<u16>().read_unaligned()) << 16)),
            }
        }))
    }

    /// Value and address for a parameter block, and whether it is of a half.
    pub fn parts(self) -> (f64, u64, bool) {
        match self {
            Self::Value(value) => (value, 0, false),
            Self::Device(address, half) => (0.0, address, half),
        }
    }
}

/// The value of an IEEE half.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// True for a transposed operand; an operation that is none is refused. The adjoint of a real matrix is its transpose.
pub fn is_transposed(operation: c_int) -> Outcome<bool> {
    match operation {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// A matrix of a product.
#[derive(Clone, Copy, Debug, Default)]
pub struct Matrix {
    /// Its address, or that of an array of addresses.
    pub address: u64,
    /// Elements from a column to the next.
    pub leading: i64,
    /// Elements from one of a batch to the next.
    pub batch: i64,
}

/// A product, or a batch of them.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Type of A and B, and of C and D.
    pub types: (Element, Element),
    /// Whether A and B are transposed.
    pub transposed: [bool; 2],
    /// m, n, k.
    pub sizes: [i64; 3],
    /// Alpha, beta.
    pub scalars: [Scalar; 2],
    /// A, B, C, D.
    pub matrices: [Matrix; 4],
    /// Products.
    pub count: i64,
    /// True where the addresses are those of arrays.
    pub by_pointers: bool,
    /// Bits of [`flag`] for what follows the product.
    pub epilogue: u32,
    /// The bias of each row.
    pub bias: Matrix,
}

impl Product {
    /// What the library checks before it works.
    pub fn check(&self) -> Outcome<()> {
        let [m, n, k] = self.sizes;
        let [a, b, c, d] = self.matrices;
        let [a_turned, b_turned] = self.transposed;
        let rows = [if a_turned { k } else { m }, if b_turned { n } else { k }, m, m];
        let fits = [a, b, c, d]
            .iter()
            .zip(rows)
            .all(|(matrix, rows)| matrix.leading >= rows.max(1));
        let reads_c = self.scalars[1] != Scalar::Value(0.0);
        let sizes = [m, n, k, self.count];
        let is_sound = sizes.iter().all(|size| (0..=i64::from(i32::MAX)).contains(size)) && fits;
        if !is_sound || reads_c && c.address == 0 && m * n > 0 {
            return Err(Status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Checks and launches it.
    pub fn run(&self, stream: Handle) -> Outcome<()> {
        self.check()?;
        let [m, n, _] = self.sizes;
        if m == 0 || n == 0 || self.count == 0 {
            return Ok(());
        }
        let tile = self.tile();
        let (down, across) = (m.div_euclid_up(tile.block[0]), n.div_euclid_up(tile.block[1]));
        let blocks = u32::try_from(down * across).map_err(|_| Status::NOT_SUPPORTED)?;
        let mut parameters = self.parameters(down as u32);
        let kernel = Kernel {
            kind: Kind::Product(self.types.0, self.types.1),
            name: tile.name,
        };
        let driver = driver()?;
        // A grid has at most 65535 layers.
        for first in (0..self.count).step_by(0xffff) {
            parameters.first = first as u32;
            let layers = (self.count - first).min(0xffff) as u32;
            driver.run(kernel, [blocks, 1, layers], tile.threads() as u32, stream, &parameters)?;
        }
        Ok(())
    }

    /// The division of work that leaves fewest threads idle.
    fn tile(&self) -> &'static Tile {
        let [m, n, _] = self.sizes;
        let cost = |tile: &Tile| m.div_euclid_up(tile.block[0]) * n.div_euclid_up(tile.block[1]) * tile.area();
        let [large, small] = &TILES;
        // An element costs half as much again in the small one.
        if cost(large) * 2 <= cost(small) * 3 {
            large
        } else {
            small
        }
    }

    fn parameters(&self, tiles: u32) -> Parameters {
        let [a, b, c, d] = self.matrices;
        let [from, to] = [self.types.0.bytes() as u64, self.types.1.bytes() as u64];
        let turned = |leading: i64, turned: bool| {
            let leading = leading as u64 * from;
            if turned { [leading, from] } else { [from, leading] }
        };
        let ([am, ak], [bk, bn]) = (
            turned(a.leading, self.transposed[0]),
            turned(b.leading, self.transposed[1]),
        );
        let [(alpha, alpha_at, is_half), (beta, beta_at, _)] = self.scalars.map(Scalar::parts);
        let mut flags = self.epilogue;
        if self.by_pointers {
            flags |= flag::POINTERS;
        }
        if is_half {
            flags |= flag::HALF_SCALARS;
        }
        let [m, n, k] = self.sizes.map(|size| size as u32);
        // Alpha = 0 reads neither A nor B.
        let k = if self.scalars[0] == Scalar::Value(0.0) { 0 } else { k };
        let bytes = |matrix: Matrix, size: u64| (matrix.batch as u64).wrapping_mul(size);
        Parameters {
            addresses: [a.address, b.address, c.address, d.address, self.bias.address],
            scalars: [alpha_at, beta_at],
            values: [alpha, beta],
            strides: [am, ak, bk, bn],
            columns: [c.leading as u64 * to, d.leading as u64 * to],
            batch: [
                bytes(a, from),
                bytes(b, from),
                bytes(c, to),
                bytes(d, to),
                bytes(self.bias, to),
            ],
            sizes: [m, n, k],
            flags,
            first: 0,
            tiles,
        }
    }
}

impl Tile {
    /// Elements that a block computes.
    fn area(&self) -> i64 {
        (self.block[0] * self.block[1]) as i64
    }
}

/// Division that rounds up.
trait DivideUp {
    /// How many blocks of a size cover this many.
    fn div_euclid_up(self, size: usize) -> i64;
}

impl DivideUp for i64 {
    fn div_euclid_up(self, size: usize) -> i64 {
        (self + size as i64 - 1) / size as i64
    }
}

/// The types that a computation of cublas asks for: those of the operands, and that of alpha and beta. `None` is one
/// that is not built.
pub fn types(a: c_int, b: c_int, c: c_int, compute: c_int) -> Option<((Element, Element), Element)> {
    let (a, b, c) = (Element::of(a)?, Element::of(b)?, Element::of(c)?);
    let scale = scale_of(compute)?;
    let fits = match scale {
        Element::F64 => (a, c) == (Element::F64, Element::F64),
        Element::F16 => (a, c) == (Element::F16, Element::F16),
        _ => a != Element::F64 && (c == a || c == Element::F32),
    };
    (a == b && fits).then_some(((a, c), scale))
}

/// Type of alpha and beta in a computation: `cublasComputeType_t`, or the `cudaDataType` that older programs pass. Sums
/// of halves are in single precision, and so are those that may be in TF32 or in halves.
pub fn scale_of(compute: c_int) -> Option<Element> {
    Some(match compute {
        64 | 65 | 2 => Element::F16,
        68 | 69 | 74 | 75 | 77 | 78 | 0 => Element::F32,
        70 | 71 | 79 | 1 => Element::F64,
        _ => return None,
    })
}
