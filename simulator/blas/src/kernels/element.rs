// SPDX-License-Identifier: Apache-2.0
//! The types of matrices and of sums: how PTX reads and writes them.

use super::text::{Text, line};

/// Type of an element in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// IEEE half.
    F16,
    /// The upper half of a single.
    Bf16,
    /// Single.
    F32,
    /// Double.
    F64,
}

/// Type of a sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Single, for all but doubles.
    F32,
    /// Double.
    F64,
}

impl Element {
    /// The element of a `cudaDataType`, where it is one of ours.
    pub fn of(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            14 => Self::Bf16,
            _ => return None,
        })
    }

    /// Size in memory.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// What its products are summed in.
    pub fn sum(self) -> Sum {
        if self == Self::F64 { Sum::F64 } else { Sum::F32 }
    }

    /// Reads an element into a register of the sum's type, where the predicate holds.
    pub fn load(self, text: &mut Text, to: &str, from: &str, guard: Option<&str>) {
        let only = guard.map_or(String::new(), |guard| format!("@{guard} "));
        match self {
            Self::F32 => line!(text, "{only}ld.global.f32 {to}, [{from}];"),
            Self::F64 => line!(text, "{only}ld.global.f64 {to}, [{from}];"),
            Self::F16 => line!(
                text,
                "{only}ld.global.b16 %half, [{from}];\n{only}cvt.f32.f16 {to}, %half;"
            ),
            Self::Bf16 => {
                line!(
                    text,
                    "{only}ld.global.b16 %half, [{from}];\n{only}cvt.u32.u16 %single, %half;"
                );
                line!(
                    text,
                    "{only}shl.b32 %single, %single, 16;\n{only}mov.b32 {to}, %single;"
                );
            }
        }
    }

    /// Writes a register of the sum's type, rounded to nearest, where the predicate holds.
    pub fn store(self, text: &mut Text, from: &str, to: &str, guard: Option<&str>) {
        let only = guard.map_or(String::new(), |guard| format!("@{guard} "));
        match self {
            Self::F32 => line!(text, "{only}st.global.f32 [{to}], {from};"),
            Self::F64 => line!(text, "{only}st.global.f64 [{to}], {from};"),
            Self::F16 => line!(
                text,
                "{only}cvt.rn.f16.f32 %half, {from};\n{only}st.global.b16 [{to}], %half;"
            ),
            Self::Bf16 => {
                line!(text, "call (%single), to_bf16, ({from});");
                line!(text, "cvt.u16.u32 %half, %single;\n{only}st.global.b16 [{to}], %half;");
            }
        }
    }
}

impl Sum {
    /// PTX's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Its zero.
    pub fn zero(self) -> &'static str {
        match self {
            Self::F32 => "0f00000000",
            Self::F64 => "0d0000000000000000",
        }
    }

    /// Its size.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// How many of it one access to shared memory may move.
    pub fn vector(self) -> usize {
        16 / self.bytes()
    }
}
