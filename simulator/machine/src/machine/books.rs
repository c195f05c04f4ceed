// SPDX-License-Identifier: Apache-2.0
//! What a machine's tables say to who looks at them once: nothing of the machine's folder stays mapped in between. A
//! process that is checkpointed has nothing of it mapped, and NVML may be loaded in any process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Device;
use super::device::settings;
use crate::entry_counts::{EntryCounts, Table};
use crate::faults::Faults;
use crate::seats::{self, Dead, Occupant, Seats};
use crate::shared::Shared;
use crate::timeline::{DeviceTruth, Timeline};

/// The tables of a machine, opened for each question. Every question fails with the operating system's error when the
/// machine is gone.
#[derive(Debug)]
pub struct Books {
    folder: PathBuf,
    faults: Arc<Faults>,
}

impl Books {
    pub(super) fn of(folder: &Path, faults: Arc<Faults>) -> Self {
        Self {
            folder: folder.to_owned(),
            faults,
        }
    }

    /// Where the machine is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Faults that are switched on.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    fn seats(&self) -> io::Result<Shared<Seats>> {
        Shared::open(&self.folder.join(SEATS), |_| ())
    }

    /// Bytes of a device that living processes hold, exactly.
    pub fn used(&self, device: usize) -> io::Result<u64> {
        Ok(seats::used(&self.seats()?, device, dead(&self.faults)))
    }

    /// The living processes that use a device.
    pub fn occupants(&self, device: usize) -> io::Result<Vec<Occupant>> {
        Ok(seats::occupants(&self.seats()?, device, dead(&self.faults)))
    }

    /// What every process used of a device, after dropping those that are gone.
    pub fn truth(&self, device: &Device) -> io::Result<DeviceTruth> {
        let timeline = Timeline::open_only(&self.folder, device.index, settings(device))?;
        Ok(timeline.truth(0))
    }

    /// Counts a call of an entry point that is not built.
    pub fn count_unbuilt(&self, table: Table, row: usize, symbol: &str) -> io::Result<()> {
        let counts: Shared<EntryCounts> = Shared::open(&self.folder.join(UNBUILT), |_| ())?;
        counts.count(&self.folder, table, row, symbol);
        Ok(())
    }
}

/// The table of processes.
pub(super) const SEATS: &str = "seats";
/// The table of calls that are not built.
pub(super) const UNBUILT: &str = "unbuilt";

/// What becomes of what dead processes held.
pub(super) fn dead(faults: &Faults) -> Dead {
    if faults.is_lingering() {
        Dead::Linger
    } else {
        Dead::Leave
    }
}
