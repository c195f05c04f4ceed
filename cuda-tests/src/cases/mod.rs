// SPDX-License-Identifier: Apache-2.0
//! The bodies: one file per chapter.

use crate::rig::{Rig, Spec};

mod alone;
mod attachment;
mod clients;
mod commands;
mod death;
mod devices;
mod families;
mod faults;
mod gate;
mod gate_leaving;
mod graphs;
mod green_contexts;
mod guest;
mod harness;
mod launcher;
mod lazy;
mod limits;
mod marks;
mod matrix;
mod overhead;
mod ownership;
mod pools;
mod proc_address;
mod races;
mod sanitizers;
mod shares;
mod sizes;
mod storm;
mod time;
mod time_bare;
mod told;
mod views;
mod why;

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

pub use harness::parts;

/// Every case.
pub fn all() -> Vec<Case> {
    [
        matrix::cases(),
        proc_address::cases(),
        commands::cases(),
        devices::cases(),
        launcher::cases(),
        lazy::cases(),
        races::cases(),
        death::cases(),
        alone::cases(),
        attachment::cases(),
        sizes::cases(),
        families::cases(),
        views::cases(),
        overhead::cases(),
        limits::cases(),
        pools::cases(),
        graphs::cases(),
        green_contexts::cases(),
        gate::cases(),
        gate_leaving::cases(),
        marks::cases(),
        guest::cases(),
        ownership::cases(),
        clients::cases(),
        faults::cases(),
        storm::cases(),
        sanitizers::cases(),
        shares::cases(),
        why::cases(),
        time::cases(),
        time_bare::cases(),
        told::cases(),
        harness::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How many times less than the acceptance counts this run does: 1 under `scripts/test --soak`, else 10.
pub fn tenth() -> usize {
    if std::env::var_os("PARTAGE_SOAK").is_some() {
        1
    } else {
        10
    }
}

/// The run's seed: `PARTAGE_SEED`, which `scripts/test --soak` draws, or always the same.
pub fn seed() -> u64 {
    let given = std::env::var("PARTAGE_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_SEED)
}

/// What random cases begin with unless they are told otherwise: a run is the same as the one before.
const DEFAULT_SEED: u64 = 20_261_123;

/// A small generator (xorshift64*), so that a run can be repeated from its seed.
pub struct Random(u64);

impl Random {
    /// From the run's seed and a number of the caller's.
    pub fn new(stream: u64) -> Self {
        Self((seed() ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    /// Next value below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound.max(1)
    }
}
