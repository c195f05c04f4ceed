// SPDX-License-Identifier: Apache-2.0
//! partaged: the per-node broker.

fn main() {}
