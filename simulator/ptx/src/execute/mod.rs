// SPDX-License-Identifier: Apache-2.0
//! The interpreter: handlers by family, warps, and the blocks of a launch.

pub mod atomic;
pub mod bytes;
pub mod code;
pub mod collective;
pub mod compare;
pub mod convert;
pub mod float;
pub mod float_types;
pub mod grid;
pub mod integer;
pub mod lanes;
pub mod matrix;
pub mod memory;
pub mod number;
pub mod print;
pub mod shape;
pub mod spaces;
pub mod warp;
