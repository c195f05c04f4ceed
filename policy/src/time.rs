// SPDX-License-Identifier: Apache-2.0
//! Measured device time of jobs, and its comparison with NVML.

mod audit;
mod measured;

pub use audit::TIME_CONFIRM_NS;
pub(crate) use audit::TOLERANCE_PPM;
pub use measured::JobTime;
pub(crate) use measured::{Measured, RECENT_NS, Times};
