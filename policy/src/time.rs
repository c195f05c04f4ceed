// SPDX-License-Identifier: Apache-2.0
//! Measured device time of jobs, its comparison with NVML, and what users had of late.

mod audit;
mod measured;
mod usage;

pub use audit::TIME_CONFIRM_NS;
pub(crate) use audit::TOLERANCE_PPM;
pub use measured::JobTime;
pub(crate) use measured::{Measured, RECENT_NS, Times};
pub(crate) use usage::Usage;
pub use usage::{MOST_USERS, UserUsage};
