// SPDX-License-Identifier: Apache-2.0
//! The sizes that the hardware fixes: lanes of a warp, fragments of a matrix.

/// Lanes of a warp.
pub const LANES: usize = 32;

/// Type of a multiplicand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Half.
    F16,
    /// Upper half of a single.
    Bf16,
    /// Single with 11 significant bits.
    Tf32,
    /// Signed byte.
    S8,
    /// Unsigned byte.
    U8,
    /// Double.
    F64,
}

/// Type of the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// Half, two to a register.
    F16,
    /// Single.
    F32,
    /// 32-bit integer.
    S32,
    /// Double.
    F64,
}

/// A matrix multiplication `d = a b + c` with `a` of `m` by `k` and `b` of `k` by 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows of `a` and `c`: 16, or 8 for doubles.
    pub m: usize,
    /// Columns of `a`.
    pub k: usize,
    /// Type of `a`.
    pub a: Element,
    /// Type of `b`.
    pub b: Element,
    /// Type of `c` and `d`.
    pub total: Total,
    /// Clamp integer sums.
    pub saturates: bool,
}

impl Element {
    /// Elements of one register.
    pub fn per_register(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::S8 | Self::U8 => 4,
            Self::Tf32 | Self::F64 => 1,
        }
    }
}

impl Shape {
    /// Registers of fragments a, b and c.
    pub fn registers(&self) -> [usize; 3] {
        let per_lane = |elements: usize, per_register: usize| elements / LANES / per_register;
        let total = if self.total == Total::F16 { 2 } else { 1 };
        [
            per_lane(self.m * self.k, self.a.per_register()),
            per_lane(self.k * 8, self.b.per_register()),
            per_lane(self.m * 8, total),
        ]
    }

    /// Row and column of element `index` of a lane's part of `a`. A register holds neighbours of one row; registers
    /// go down eight rows first, then to the right.
    pub fn place_a(&self, lane: usize, index: usize) -> (usize, usize) {
        let (group, thread, width) = (lane / 4, lane % 4, self.a.per_register());
        let (register, within) = (index / width, index % width);
        let down = self.m / 8;
        (
            group + register % down * 8,
            thread * width + within + register / down * 4 * width,
        )
    }

    /// Row and column of element `index` of a lane's part of `b`.
    pub fn place_b(&self, lane: usize, index: usize) -> (usize, usize) {
        let (group, thread, width) = (lane / 4, lane % 4, self.b.per_register());
        let (register, within) = (index / width, index % width);
        (thread * width + within + register * 4 * width, group)
    }

    /// Row and column of element `index` of a lane's part of `c` and `d`.
    pub fn place_c(lane: usize, index: usize) -> (usize, usize) {
        (lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2)
    }
}
