// SPDX-License-Identifier: Apache-2.0
//! What every hook of NVML begins with.

use crate::devices::listed::{self, Listed, Shared};

/// This process's state and job. `None`: NVML shows what it shows.
///
/// A client gets our thread here, whether it ever comes to CUDA or not: nobody else lets go of the broker's pages when
/// its job is saved. A forked child begins anew with its own first call, and the thread outlives `nvmlShutdown`.
pub(super) fn shared() -> Option<Shared> {
    let shared = listed::shared();
    super::init::be_reachable();
    if let Some((state, Listed::Job(_))) = shared {
        super::init::start_thread(state);
    }
    shared
}
