// SPDX-License-Identifier: Apache-2.0
//! The bodies: one file per chapter.

mod alone;
mod case;
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

pub use case::Case;
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
