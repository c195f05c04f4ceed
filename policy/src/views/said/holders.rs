// SPDX-License-Identifier: Apache-2.0
//! Who holds what, in documents.

use std::fmt;

use partage_protocol::admin::Holder;
use partage_protocol::terms::ratio;

use crate::holding::{Holding, Who};

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => job.fmt(out),
            Self::Process(pid) => write!(out, "pid {pid}"),
            Self::Host => out.write_str("the host"),
            Self::Hidden => out.write_str("processes not visible"),
        }
    }
}

impl Holding {
    /// As callers get it.
    pub(crate) fn view(&self) -> Holder {
        Holder {
            who: self.who.to_string(),
            gpu: self.gpu,
            bytes: self.bytes,
            compute: self.ppm.map(ratio),
        }
    }
}
