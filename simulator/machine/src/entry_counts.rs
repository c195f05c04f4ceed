// SPDX-License-Identifier: Apache-2.0
//! How often programs called entry points that the simulator has not built: counters in the file `unbuilt`, by the
//! entry point's place in its table, and a line in `unbuilt.txt` when one is called for the first time.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::SharedLayout;

/// Rows of the driver table that can be counted.
const DRIVER_ROWS: usize = 1536;
/// Rows of the NVML table that can be counted.
const NVML_ROWS: usize = 512;

/// The layout of the file `unbuilt`.
#[repr(C)]
#[derive(Debug)]
pub struct EntryCounts {
    driver: [AtomicU64; DRIVER_ROWS],
    nvml: [AtomicU64; NVML_ROWS],
}

// SAFETY: arrays of atomics; zero is "never called".
unsafe impl SharedLayout for EntryCounts {
    const MAGIC: u64 = 0x454e_5452_0000_0001;
}

/// Which of the two tables an entry point is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The driver's.
    Driver,
    /// NVML's.
    Nvml,
}

impl EntryCounts {
    fn of(&self, table: Table) -> &[AtomicU64] {
        match table {
            Table::Driver => &self.driver,
            Table::Nvml => &self.nvml,
        }
    }

    /// Counts one call of the entry point at `row`, called `symbol`.
    pub fn count(&self, folder: &Path, table: Table, row: usize, symbol: &str) {
        let Some(counter) = self.of(table).get(row) else {
            return;
        };
        if counter.fetch_add(1, Ordering::Relaxed) == 0 {
            let line = format!("{symbol} first called by pid {}\n", std::process::id());
            // A report that cannot be written must not change what the program sees.
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(folder.join("unbuilt.txt"));
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }

    /// The rows that were called and how often.
    pub fn called(&self, table: Table) -> Vec<(usize, u64)> {
        let counts = self
            .of(table)
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
