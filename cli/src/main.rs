// SPDX-License-Identifier: Apache-2.0
//! partage: the command line.

fn main() {}
