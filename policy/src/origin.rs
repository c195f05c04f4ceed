// SPDX-License-Identifier: Apache-2.0
//! The words behind a job's numbers.

use partage_protocol::aliases::Variable;
use serde::{Deserialize, Serialize};

/// Which words set a job's numbers on a device, for `why`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `--mem 25%`, `CUDA_DEVICE_MEMORY_LIMIT=1g`, …; empty without a limit.
    pub limit: String,
    /// Likewise; empty where the promise follows the limit, or nothing is promised.
    pub request: String,
    /// `--process-mem 4GiB`, …; empty without a limit of each process.
    #[serde(default)]
    pub process: String,
}

impl Origin {
    /// The variable of another tool that set the limit, where one did.
    #[must_use]
    pub fn alias(&self) -> Option<&str> {
        Variable::of(self.limit.split('=').next()?.as_bytes()).map(|_| self.limit.as_str())
    }
}
