// SPDX-License-Identifier: Apache-2.0
//! Types of the driver API: integers where the vendor has enumerations, newtypes for handles, `repr(C)` structs.
//!
//! Structs and unions keep the vendor's field names, so that the manual can be read beside them; a field whose name is
//! a Rust keyword is renamed (`type` is `kind`, `fn` is `function`). Every one is plain data: all bits zero is a
//! value, and [`Default`] gives it. Sizes are bytes unless a field says otherwise.

mod array;
mod checkpoint;
mod context;
mod copy;
mod external;
mod fabric;
mod graph;
mod handles;
mod interop;
mod launch;
pub(crate) mod layout;
mod memory;
mod result;
mod stream;

pub use array::*;
pub use checkpoint::*;
pub use context::*;
pub use copy::*;
pub use external::*;
pub use fabric::*;
pub use graph::*;
pub use handles::*;
pub use interop::*;
pub use launch::*;
pub use layout::{Field, Layout};
pub use memory::*;
pub use result::*;
pub use stream::*;

pub use core::ffi::{
    c_char, c_int, c_long, c_longlong, c_schar, c_short, c_uchar, c_uint, c_ulong, c_ulonglong, c_ushort, c_void,
};

use layout::{c_layouts, handles};

/// Layout of every struct and union, for the tests that compare them with `cuda.h`.
pub const LAYOUTS: &[&[Layout]] = &[
    array::LAYOUTS,
    checkpoint::LAYOUTS,
    context::LAYOUTS,
    copy::LAYOUTS,
    external::LAYOUTS,
    fabric::LAYOUTS,
    graph::LAYOUTS,
    interop::LAYOUTS,
    launch::LAYOUTS,
    memory::LAYOUTS,
    stream::LAYOUTS,
];
