// SPDX-License-Identifier: Apache-2.0
//! What a program wrote.

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
