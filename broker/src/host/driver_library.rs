// SPDX-License-Identifier: Apache-2.0
//! Where a helper looks for a library of the driver.

use std::path::{Path, PathBuf};

use partage_protocol::driver_place;

/// What to hand to the loader, in this order; `driver_file` says where a command found the driver.
pub fn paths(library: &str, driver_file: Option<&Path>) -> Vec<PathBuf> {
    let found = driver_file
        .and_then(|file| std::fs::read(file).ok())
        .and_then(|bytes| driver_place::read(&bytes));
    let machine = std::env::var_os("PARTAGE_SIM_DIR");
    driver_place::candidates(library, machine.as_deref(), found.as_deref())
}
