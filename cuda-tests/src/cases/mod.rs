// SPDX-License-Identifier: Apache-2.0
//! The bodies: one file per chapter.

use std::panic::AssertUnwindSafe;
use std::sync::RwLock;

use crate::rig::{Driver, Rig, Spec};

mod clients;
mod commands;
mod death;
mod devices;
mod families;
mod faults;
mod gate;
mod graphs;
mod guest;
mod launcher;
mod limits;
mod marks;
mod matrix;
mod overhead;
mod ownership;
mod pools;
mod proc_address;
mod races;
mod shares;
mod sizes;
mod storm;
mod time;
mod time_bare;
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

/// Every case.
pub fn all() -> Vec<Case> {
    [
        matrix::cases(),
        proc_address::cases(),
        commands::cases(),
        devices::cases(),
        launcher::cases(),
        races::cases(),
        death::cases(),
        sizes::cases(),
        families::cases(),
        views::cases(),
        overhead::cases(),
        limits::cases(),
        pools::cases(),
        graphs::cases(),
        gate::cases(),
        marks::cases(),
        guest::cases(),
        ownership::cases(),
        clients::cases(),
        faults::cases(),
        storm::cases(),
        shares::cases(),
        why::cases(),
        time::cases(),
        time_bare::cases(),
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

/// The run's seed: `PARTAGE_SEED`, or drawn once from the clock and printed with every failure.
pub fn seed() -> u64 {
    use std::sync::OnceLock;
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        std::env::var("PARTAGE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| {
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(1, |d| d.as_nanos() as u64)
            })
    })
}

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

/// Runs the cases as a test program (the arguments are libtest's).
pub fn main() -> std::process::ExitCode {
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Each case is several processes; more than two at a time only adds noise on a small machine.
    arguments.test_threads.get_or_insert(2);
    let driver = Driver::chosen();
    let trials = all()
        .into_iter()
        .map(|case| {
            let skip = case.simulated_only.filter(|_| driver == Driver::Real);
            if let Some(why) = skip {
                println!("SKIPPED: {}: {why}", case.name);
            }
            libtest_mimic::Trial::test(case.name, move || run(&case)).with_ignored_flag(skip.is_some())
        })
        .collect();
    println!("seed {} (repeat with PARTAGE_SEED={})", seed(), seed());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Held by every case that runs: alone by those that want this machine for themselves.
static TURN: RwLock<()> = RwLock::new(());

fn run(case: &Case) -> Result<(), libtest_mimic::Failed> {
    // A case that panics is caught below, so that nothing is poisoned.
    let (_alone, _beside) = match case.is_alone {
        true => (TURN.write().ok(), None),
        false => (None, TURN.read().ok()),
    };
    std::panic::catch_unwind(AssertUnwindSafe(|| (case.body)(&Rig::new(case.spec)))).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "panicked".into());
        format!(
            "{text}\nrepeat: PARTAGE_SEED={} cargo test -p partage-tests --test cases -- --exact {}",
            seed(),
            case.name
        )
        .into()
    })
}
