// SPDX-License-Identifier: Apache-2.0
//! PTX without a GPU: reads PTX text, translates it once per module and runs kernels on the CPU.
//!
//! `lexer` → `parser` → `syntax` (tree) → `translate` → `execute` (handlers over the 32 lanes of a warp, warps, blocks
//! of a launch). [`Module`] and [`Kernel`] are the way in. What is not supported is refused when a module is loaded,
//! with line and column.

mod error;
mod execute;
mod lexer;
mod memory;
mod module;
mod parser;
mod syntax;
mod translate;

pub use error::{Fault, FaultKind, ParseError, Refusal};
pub use execute::grid::{Launch, Stats};
pub use memory::{DeviceMemory, Region};
pub use module::{Kernel, Module};
pub use translate::{Parameter, VariableInfo};
