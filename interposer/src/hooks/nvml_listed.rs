// SPDX-License-Identifier: Apache-2.0
//! What every hook of NVML begins with.

use crate::devices::listed::{self, Shared};

/// This process's state and job. `None`: NVML shows what it shows.
pub(super) fn shared() -> Option<Shared> {
    let shared = listed::shared();
    super::init::be_reachable();
    shared
}
