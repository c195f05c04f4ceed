// SPDX-License-Identifier: Apache-2.0
//! Checks and generators that cargo commands cannot do.

fn main() {}
