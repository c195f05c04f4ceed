// SPDX-License-Identifier: Apache-2.0
//! The simulated `libnvidia-ml.so.1`: what the simulated machine's devices are, hold and do, read from the same
//! files that the simulated driver writes.
//!
//! Built as the driver is: [`entry`] exports every row of the NVML table, [`chapters`] holds the bodies, and what has
//! none answers NOT_SUPPORTED from [`unbuilt`] and is counted. As the real one, it ignores `CUDA_VISIBLE_DEVICES`.

mod chapters;
mod entry;
mod state;
mod unbuilt;
