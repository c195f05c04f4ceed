// SPDX-License-Identifier: Apache-2.0
//! Names of the functions we stand in front of, as plain bytes.
//!
//! The tables' own rows hold references; the loader would relocate each of their thousands at every exec of every
//! program under us. These arrays hold none.

use core::ffi::CStr;

use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::{HOOKED, ROWS, nvml};

/// A name and at least one zero.
pub type Name = [u8; 48];

/// The name as a C string.
pub fn as_c_str(name: &Name) -> &CStr {
    CStr::from_bytes_until_nul(name).unwrap_or(c"")
}

const fn name_of(text: &[u8]) -> Name {
    let mut name = [0; 48];
    let mut i = 0;
    assert!(text.len() < name.len());
    while i < text.len() {
        name[i] = text[i];
        i += 1;
    }
    name
}

/// Names of the driver's hooked rows, in the order of `HOOKED`.
pub static DRIVER_NAMES: [Name; HOOKED.len()] = {
    let mut names = [[0; 48]; HOOKED.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = name_of(HOOKED[i].row().symbol.to_bytes());
        i += 1;
    }
    names
};

/// Their rows in the table.
pub static DRIVER_ROWS: [u16; HOOKED.len()] = {
    let mut rows = [0; HOOKED.len()];
    let mut i = 0;
    while i < rows.len() {
        rows[i] = HOOKED[i] as u16;
        i += 1;
    }
    rows
};

/// Names of NVML's hooked rows, in the order of `nvml::HOOKED`.
pub static NVML_NAMES: [Name; nvml::HOOKED.len()] = {
    let mut names = [[0; 48]; nvml::HOOKED.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = name_of(nvml::HOOKED[i].row().symbol.to_bytes());
        i += 1;
    }
    names
};

/// Their rows in the table.
pub static NVML_ROWS: [u16; nvml::HOOKED.len()] = {
    let mut rows = [0; nvml::HOOKED.len()];
    let mut i = 0;
    while i < rows.len() {
        rows[i] = nvml::HOOKED[i] as u16;
        i += 1;
    }
    rows
};

const fn is_hooked(entry: usize) -> bool {
    ROWS[PROC_ADDRESS[entry].symbol as usize].treatment.is_hooked()
}

const HOOKED_ENTRIES: usize = {
    let (mut i, mut count) = (0, 0);
    while i < PROC_ADDRESS.len() {
        count += is_hooked(i) as usize;
        i += 1;
    }
    count
};

/// Names which `cuGetProcAddress` answers with a hooked row's function, for some version and flag.
pub static ENTRY_NAMES: [Name; HOOKED_ENTRIES] = {
    let mut names = [[0; 48]; HOOKED_ENTRIES];
    let (mut i, mut to) = (0, 0);
    while i < PROC_ADDRESS.len() {
        if is_hooked(i) {
            names[to] = name_of(PROC_ADDRESS[i].name.as_bytes());
            to += 1;
        }
        i += 1;
    }
    names
};
