// SPDX-License-Identifier: Apache-2.0
//! Where something stands in a text.

/// Line and column of a token, both counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}
