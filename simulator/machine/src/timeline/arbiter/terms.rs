// SPDX-License-Identifier: Apache-2.0
//! What is asked of a device and what it says: engines, settings, requests, and what each context used.

/// Engines of a device: the multiprocessors, and one copy engine for each direction.
pub const ENGINES: usize = 3;
/// Parts of an engine: the demand of a request that fills it, and work units served in one nanosecond.
pub const FULL: u64 = 1024;
/// Contexts that are remembered after their end.
pub const REMEMBERED: usize = 128;
/// Longest request, in nanoseconds: about 200 days, so that work units fit 64 bits.
pub const LONGEST: u64 = u64::MAX / FULL / 2;

/// An engine of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Engine {
    /// The multiprocessors: kernels, memsets and copies inside a device.
    Compute = 0,
    /// The copy engine from host to device.
    Upload = 1,
    /// The copy engine from device to host.
    Download = 2,
}

/// How a device shares its engines; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Longest uninterrupted turn of a context while others wait.
    pub slice_ns: u64,
    /// Time lost when an engine passes from one context to another.
    pub switch_tax_ns: u64,
    /// Longest stall for a request that was announced to follow (wall time).
    pub transit_limit_ns: u64,
    /// Longest stall for effects that take longer than the service (wall time).
    pub effects_limit_ns: u64,
    /// Longest stall for threads that are to run (wall time); 0: none.
    pub wake_limit_ns: u64,
}

impl Settings {
    const DEFAULT: Self = Self {
        slice_ns: 2_000_000,
        switch_tax_ns: 20_000,
        transit_limit_ns: 20_000_000,
        effects_limit_ns: 2_000_000_000,
        wake_limit_ns: 20_000_000,
    };
    /// The clock stalls for effects only: what a kernel does to memory takes longer to compute than the kernel may
    /// take.
    pub const KEEPS_PACE: Self = Self {
        transit_limit_ns: 0,
        wake_limit_ns: 0,
        ..Self::DEFAULT
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A run of a program in a process, named so that neither a reused pid nor an `exec` is taken for it, nor a process of
/// another PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Owner {
    /// Process id.
    pub pid: u64,
    /// Start time of the process, in clock ticks since boot.
    pub start: u64,
    /// Where its stack starts.
    pub stack: u64,
    /// Its PID namespace.
    pub namespace: u64,
    /// Its ticket in the machine, see [`ProcessId`](crate::process::ProcessId).
    pub ticket: u64,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Which engine serves it.
    pub engine: Engine,
    /// Service needed in nanoseconds; `None` if only known when the effects are done.
    pub need_ns: Option<u64>,
    /// The part of the engine it fills, of [`FULL`].
    pub demand: u32,
    /// Priority inside the context; the lower number goes first, as in CUDA.
    pub priority: i32,
}

/// When a request was served, in device time (nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// Handed in.
    pub queued: u64,
    /// First served.
    pub started: u64,
    /// Had all it needed, and its effects were done.
    pub ended: u64,
}

/// What one seat used and wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatTruth {
    /// The process.
    pub owner: Owner,
    /// The context's number within the process.
    pub context: u64,
    /// Nanoseconds of device time each engine worked for it since it joined.
    pub busy_ns: [u64; ENGINES],
    /// Requests on each engine that are not complete.
    pub queued: [u32; ENGINES],
    /// Device time at which it was last served by the multiprocessors.
    pub last_slice: u64,
    /// Part of the last window that the multiprocessors worked for it, of 1000.
    pub compute_permille: u32,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTruth {
    /// Device time now.
    pub clock: u64,
    /// Nanoseconds of device time each engine worked since the machine was made.
    pub busy_ns: [u64; ENGINES],
    /// Nanoseconds of device time lost to switching.
    pub switching_ns: [u64; ENGINES],
    /// How often each engine passed from one context to another.
    pub handovers: [u64; ENGINES],
    /// Part of the last window that each engine worked, of 1000.
    pub busy_permille: [u32; ENGINES],
    /// The contexts of all processes.
    pub seats: Vec<SeatTruth>,
    /// The last [`REMEMBERED`] contexts that ended after work, the latest first.
    pub departed: Vec<Departed>,
}

/// What a context had used when it ended, by its own word or with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Departed {
    /// The process.
    pub owner: Owner,
    /// The context's number within the process.
    pub context: u64,
    /// Nanoseconds of device time each engine worked for it.
    pub busy_ns: [u64; ENGINES],
    /// Device time at which it ended.
    pub clock: u64,
}

impl DeviceTruth {
    /// Nanoseconds of device time that each engine neither worked nor switched since the machine was made.
    pub fn idle_ns(&self) -> [u64; ENGINES] {
        std::array::from_fn(|engine| {
            let worked = self.busy_ns[engine] + self.switching_ns[engine];
            self.clock.saturating_sub(worked)
        })
    }

    /// Nanoseconds of device time each engine worked for a process, over its contexts, also those that ended as far as
    /// they are remembered.
    pub fn busy_of(&self, pid: u32) -> [u64; ENGINES] {
        self.busy_where(|owner| owner.pid == u64::from(pid))
    }

    /// The same for all processes of a PID namespace: each of two containers has a process 1.
    pub fn busy_in(&self, namespace: u64) -> [u64; ENGINES] {
        self.busy_where(|owner| owner.namespace == namespace)
    }

    fn busy_where(&self, is_meant: impl Fn(&Owner) -> bool) -> [u64; ENGINES] {
        let living = self.seats.iter().map(|seat| (seat.owner, seat.busy_ns));
        let ended = self.departed.iter().map(|seat| (seat.owner, seat.busy_ns));
        let own = living.chain(ended).filter(|(owner, _)| is_meant(owner));
        own.fold([0; ENGINES], |sum, (_, busy)| {
            std::array::from_fn(|engine| sum[engine] + busy[engine])
        })
    }
}
