// SPDX-License-Identifier: Apache-2.0
//! The kernels, as PTX text that is made when one of its kind is first needed.

pub mod element;
pub mod gemm;
mod text;
pub mod vector;

use element::{Element, Sum};
use text::{Text, line};

/// A module: all kernels that share types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Matrix products of one type into another.
    Product(Element, Element),
    /// Operations on vectors of a type.
    Vectors(Element),
}

/// `gelu`: x/2 * (1 + tanh(√(2/π) * (x + 0.044715 x³))), where tanh u = 1 - 2 / (exp 2u + 1).
const GELU: &str = "
.func (.reg .f32 %y) gelu(.reg .f32 %x)
{
.reg .f32 %u;
mul.rn.f32 %u, %x, %x;
fma.rn.f32 %u, %u, 0f3D372713, 0f3F800000;
mul.rn.f32 %u, %u, %x;
mul.rn.f32 %u, %u, 0f40135761;
ex2.approx.f32 %u, %u;
add.rn.f32 %u, %u, 0f3F800000;
div.rn.f32 %u, 0f40000000, %u;
sub.rn.f32 %u, 0f40000000, %u;
mul.rn.f32 %u, %u, %x;
mul.rn.f32 %y, %u, 0f3F000000;
ret;
}
";

/// `to_bf16`: rounds to the nearest, ties to even, by integers: devices before sm_80 have no instruction for it.
const TO_BF16: &str = "
.func (.reg .b32 %y) to_bf16(.reg .f32 %x)
{
.reg .pred %is_nan;
.reg .b32 %u, %v;
mov.b32 %u, %x;
shr.u32 %v, %u, 16;
and.b32 %v, %v, 1;
add.u32 %v, %v, %u;
add.u32 %v, %v, 32767;
shr.u32 %y, %v, 16;
setp.nan.f32 %is_nan, %x, %x;
@%is_nan mov.u32 %y, 32767;
ret;
}
";

/// Text of a module.
pub fn module(kind: Kind) -> String {
    let (sum, to) = match kind {
        Kind::Product(from, to) => (from.sum(), to),
        Kind::Vectors(element) => (element.sum(), element),
    };
    let mut text = Text::default();
    line!(text, ".version 7.8\n.target sm_75\n.address_size 64");
    if to == Element::Bf16 {
        text.0.push_str(TO_BF16);
    }
    match kind {
        Kind::Product(from, to) => {
            if sum == Sum::F32 {
                text.0.push_str(GELU);
            }
            for tile in &gemm::TILES {
                gemm::kernel(&mut text, tile, from, to, sum);
            }
        }
        Kind::Vectors(element) => {
            for operation in vector::Operation::ALL {
                vector::kernel(&mut text, operation, element);
            }
        }
    }
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_every_module_can_be_run() {
        use Element::*;
        let products = [
            (F32, F32),
            (F64, F64),
            (F16, F16),
            (F16, F32),
            (Bf16, Bf16),
            (Bf16, F32),
        ];
        let kinds = products.map(|(from, to)| Kind::Product(from, to)).into_iter();
        for kind in kinds.chain([F16, Bf16, F32, F64].map(Kind::Vectors)) {
            let text = module(kind);
            let module = partage_ptx::Module::from_ptx(&text).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            for kernel in module.kernels() {
                assert!(kernel.refusal().is_none(), "{kind:?}: {:?}", kernel.refusal());
            }
        }
    }
}
