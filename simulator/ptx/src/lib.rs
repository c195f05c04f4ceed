// SPDX-License-Identifier: Apache-2.0
//! PTX without a GPU: reads PTX text, translates it once per module and runs kernels on the CPU.
//!
//! `lexer` → `parser` → `syntax` (tree) → `translate` → `execute` (handlers over the 32 lanes of a warp, warps, blocks
//! of a launch). [`Module`] and [`Kernel`] are the way in. A kernel with something that is not
//! supported is loaded and refused by name when it is launched; what is wrong or missing in the text of a module
//! refuses the whole of it, with line and column.
//!
//! Known limits: no textures and surfaces, `wmma`, `wgmma`, `tcgen05`, bulk and tensor copies, `mbarrier`, 8-bit
//! floating types, 128-bit registers, vector atomics, packed and video integer instructions (but `vshl`
//! and `vshr` of words), device-side allocation.
//! A cluster is always a single block. Approximate functions are more accurate than the hardware's. Machine code is
//! not executed: a [`Loader`] refuses it, or takes it for kernels with names and parameters that do nothing.

mod cubin;
mod error;
mod execute;
mod fatbin;
mod hasher;
mod image;
mod lexer;
mod memory;
mod module;
mod parser;
mod place;
mod syntax;
mod translate;

pub use cubin::{Cubin, CubinKernel};
pub use error::{Fault, FaultKind, ParseError, Refusal};
pub use execute::grid::{Launch, Stats};
pub use fatbin::FatbinError;
pub use image::{Image, ImageError, Loader, bytes_at, join};
pub use memory::{DeviceMemory, Region};
pub use module::{Kernel, Module};
pub use parser::check_syntax;
pub use translate::{Parameter, VariableInfo};
