// SPDX-License-Identifier: Apache-2.0
//! What a case is: its name, its machine, its body.

use crate::rig::{Rig, Spec};

/// One test.
pub struct Case {
    /// `chapter::sentence`.
    pub name: &'static str,
    /// Its machine.
    pub spec: Spec,
    /// Runs on the simulated driver only, and why.
    pub simulated_only: Option<&'static str>,
    /// Runs while no other case does: it holds device time against promises, and who else wants the processors of this
    /// machine can only disturb.
    pub is_alone: bool,
    /// The body; it panics when the promise does not hold.
    pub body: fn(&Rig),
}

impl Case {
    /// A case on the default machine that runs on either driver.
    pub const fn new(name: &'static str, body: fn(&Rig)) -> Self {
        Self {
            name,
            spec: Spec::DEFAULT,
            simulated_only: None,
            is_alone: false,
            body,
        }
    }

    /// Needs the simulated driver.
    #[must_use]
    pub const fn simulated(mut self, why: &'static str) -> Self {
        self.simulated_only = Some(why);
        self
    }

    /// The simulated devices wait for no client, as real ones.
    #[must_use]
    pub const fn keeping_pace(mut self) -> Self {
        self.spec.keeps_pace = true;
        self
    }

    /// Wants this machine for itself.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }
}
