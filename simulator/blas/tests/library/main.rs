// SPDX-License-Identifier: Apache-2.0
//! The built library on the built simulated driver, against sums on the CPU. Each test runs in a child process on a
//! machine of its own.

mod answers;
mod lt;
mod machine;
mod numbers;
mod products;
mod vectors;
