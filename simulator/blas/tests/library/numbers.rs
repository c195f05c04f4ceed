// SPDX-License-Identifier: Apache-2.0
//! Numbers of the four types, and sums on the CPU.

/// A `cudaDataType`.
pub type Type = i32;
pub const F32: Type = 0;
pub const F64: Type = 1;
pub const F16: Type = 2;
pub const BF16: Type = 14;

/// Random numbers, the same in each run.
pub struct Random(pub u64);

impl Random {
    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % limit as u64) as usize
    }

    /// One of several.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Multiples of an eighth between -2 and 2, which every type holds exactly.
    pub fn values(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.below(33) as f64 / 8.0 - 2.0).collect()
    }
}

/// Bytes of an element.
pub fn bytes(of: Type) -> usize {
    match of {
        F64 => 8,
        F32 => 4,
        _ => 2,
    }
}

/// Numbers that the type holds exactly, as it does.
pub fn encode(of: Type, values: &[f64]) -> Vec<u8> {
    let one = |value: &f64| match of {
        F64 => value.to_le_bytes().to_vec(),
        F32 => (*value as f32).to_le_bytes().to_vec(),
        BF16 => (*value as f32).to_le_bytes()[2..].to_vec(),
        _ => {
            let word = (*value as f32).to_bits();
            let sign = (word >> 16 & 0x8000) as u16;
            let size = match word & 0x7fff_ffff {
                0 => 0,
                nan if nan > 0x7f80_0000 => 0x7e00,
                size => ((size >> 13) - (112 << 10)) as u16,
            };
            (sign | size).to_le_bytes().to_vec()
        }
    };
    values.iter().flat_map(one).collect()
}

/// What the bytes are.
pub fn decode(of: Type, from: &[u8]) -> Vec<f64> {
    let one = |at: &[u8]| match of {
        F64 => f64::from_le_bytes(at.try_into().expect("eight")),
        F32 => f64::from(f32::from_le_bytes(at.try_into().expect("four"))),
        BF16 => f64::from(f32::from_le_bytes([0, 0, at[0], at[1]])),
        _ => {
            let word = u16::from_le_bytes([at[0], at[1]]);
            let (exponent, fraction) = (i32::from(word >> 10 & 31), f64::from(word & 0x3ff));
            let size = match exponent {
                0 => fraction * 2f64.powi(-24),
                31 => f64::NAN,
                _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
            };
            if word >> 15 == 1 { -size } else { size }
        }
    };
    from.chunks(bytes(of)).map(one).collect()
}

/// How far a result of so many terms may be off.
pub fn tolerance(of: Type, terms: usize, value: f64) -> f64 {
    let sum = 4.0 * (terms + 2) as f64;
    match of {
        F64 => 1e-15 * sum,
        F32 => 1e-7 * sum,
        F16 => value.abs() / 2000.0 + 1e-7 * sum,
        _ => value.abs() / 255.0 + 1e-7 * sum,
    }
}

/// Asserts that numbers are those expected. Where the expected one is not a number, neither is the other.
pub fn assert_close(what: &str, of: Type, terms: usize, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= tolerance(of, terms, *expected);
        assert!(
            is_close || found.is_nan() && expected.is_nan(),
            "{what}: {index} is {found}, not {expected}"
        );
    }
}

/// A matrix of some columns in memory, `leading` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub rows: usize,
    pub columns: usize,
    pub leading: usize,
}

impl Shape {
    /// Elements that it occupies, with what lies between its columns.
    pub fn elements(self) -> usize {
        self.leading * self.columns
    }

    /// Element of the matrix, or of its transpose.
    pub fn at(self, values: &[f64], row: usize, column: usize, turned: bool) -> f64 {
        let (row, column) = if turned { (column, row) } else { (row, column) };
        values[row + column * self.leading]
    }
}

/// D's memory after a product: what lies between its columns is what it was.
pub fn product(
    sizes: [usize; 3],
    turned: [bool; 2],
    shapes: [Shape; 4],
    values: [&[f64]; 4],
    [alpha, beta]: [f64; 2],
    then: impl Fn(usize, f64) -> f64,
) -> Vec<f64> {
    let ([m, n, k], [a, b, c, d]) = (sizes, shapes);
    let mut result = values[3].to_vec();
    for column in 0..n {
        for row in 0..m {
            let term = |index| a.at(values[0], row, index, turned[0]) * b.at(values[1], index, column, turned[1]);
            let mut value = if alpha == 0.0 {
                0.0
            } else {
                alpha * (0..k).map(term).sum::<f64>()
            };
            if beta != 0.0 {
                value += beta * c.at(values[2], row, column, false);
            }
            result[row + column * d.leading] = then(row, value);
        }
    }
    result
}
