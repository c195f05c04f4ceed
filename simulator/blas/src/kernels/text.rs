// SPDX-License-Identifier: Apache-2.0
//! PTX text as it is written.

/// Text of a module.
#[derive(Default)]
pub struct Text(pub String);

/// Adds a line, as `writeln!` would.
macro_rules! line {
    ($text:expr, $($part:tt)*) => {{
        $text.0.push_str(&format!($($part)*));
        $text.0.push('\n');
    }};
}
pub(crate) use line;
