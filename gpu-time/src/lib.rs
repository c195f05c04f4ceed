// SPDX-License-Identifier: Apache-2.0
//! GPU time: the device time that each client's work takes. Pure code; the interposer supplies events and marks, the
//! broker the shared pages, and the scheduler gets one number per client and sample, [`DeviceTime`].
//!
//! ```text
//!   client (interposer)                     broker (dispatcher)                      scheduler
//!   ─────────────────────────               ─────────────────────────                ─────────────────────────
//!   launch ── length of the unit? ─► marks ─► lanes: begun, ended, what ─► estimator ─► split ─► charge
//!     ▲         ▲ (`length`)                  they were given             DeviceTime      ▲        │
//!     │         │ events, now and then                                                    │        ▼
//!     │         └── is the sample exclusive? ◄── gate flags ◄── who has work ─► samples ──┘   lag, budget
//!     │                                                                                            │
//!     └── gate, depth (`depth`) ◄───────────────────────────────── commands ◄──────────────────────┘
//! ```
//! The loop closes: charges move the gates, gates decide who runs alone, and lengths are best measured alone. It is
//! stable, because a unit's length does not depend on which jobs have slices meanwhile.
//!
//! | rule | formula | module |
//! |---|---|---|
//! | length of a unit | mean of its timings alone; beside others the shortest recent one, if most agree | [`length`] |
//! | device time of what retired | k · Σ lengths; k = wall / Σ lengths in exclusive windows | [`estimator`] |
//! | charge of a client | device time of what retired; an even split of the sample where unknown | [`split`] |
//! | work in flight | Σ lengths ≤ depth | [`depth`] |
#![no_std]

pub mod depth;
pub mod estimator;
pub mod length;
pub mod split;

pub use estimator::GpuTimeEstimator;

/// What a client's retired work took of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTime {
    /// Nanoseconds, cumulative since the client is known.
    pub ns: u64,
    /// The lengths of some of what retired of late are not known: samples say more.
    pub is_estimate: bool,
}

impl DeviceTime {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        ns: 0,
        is_estimate: true,
    };
}
