// SPDX-License-Identifier: Apache-2.0
//! How much a case does, and from which random numbers.

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
