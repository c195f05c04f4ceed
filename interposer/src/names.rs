// SPDX-License-Identifier: Apache-2.0
//! Names of the functions we stand in front of, as plain bytes.
//!
//! The tables' own rows hold references; the loader would relocate each of their thousands at every exec of every
//! program under us. These arrays hold none.

use core::ffi::CStr;

use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::values::{CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
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

/// What an entry of that place in [`ENTRY_NAMES`] means.
#[derive(Clone, Copy)]
struct Meaning {
    /// First CUDA version with this ABI.
    version: u32,
    /// Its position among the driver's hooked rows.
    position: u16,
    /// The default stream of the function is the thread's own.
    per_thread: bool,
}

static MEANINGS: [Meaning; HOOKED_ENTRIES] = {
    const NONE: Meaning = Meaning {
        version: 0,
        position: 0,
        per_thread: false,
    };
    let mut meanings = [NONE; HOOKED_ENTRIES];
    let (mut i, mut to) = (0, 0);
    while i < PROC_ADDRESS.len() {
        let entry = PROC_ADDRESS[i];
        if let Some(position) = entry.symbol.slot() {
            meanings[to] = Meaning {
                version: entry.version,
                position: position as u16,
                per_thread: entry.per_thread,
            };
            to += 1;
        }
        i += 1;
    }
    meanings
};

/// The newest CUDA version whose functions the table names: one of a newer version may take other arguments.
const NEWEST: u32 = {
    let (mut i, mut newest) = (0, 0);
    while i < PROC_ADDRESS.len() {
        if PROC_ADDRESS[i].version > newest {
            newest = PROC_ADDRESS[i].version;
        }
        i += 1;
    }
    newest
};

/// What a request of `cuGetProcAddress` means, by its arguments alone.
pub enum Meant {
    /// No function that we stand in front of.
    NotOurs,
    /// The hooked row of this position.
    Row(usize),
    /// One of ours; which ABI and stream flavour, this library cannot tell.
    Unclear,
}

/// What a driver of version `driver` (0: nobody knows) means by its answer to a request.
pub fn meant(name: &[u8], asked: u32, driver: u32, flags: u64) -> Meant {
    let of_name = || {
        let entries = ENTRY_NAMES.iter().zip(&MEANINGS);
        entries.filter(|(entry, _)| as_c_str(entry).to_bytes() == name)
    };
    if of_name().next().is_none() {
        return Meant::NotOurs;
    }
    let version = asked.min(driver);
    let is_plain = flags <= CU_GET_PROC_ADDRESS_LEGACY_STREAM as u64;
    let is_per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as u64;
    if version > NEWEST || !is_plain && !is_per_thread {
        return Meant::Unclear;
    }
    let newest = |flavour| {
        of_name()
            .map(|(_, meaning)| meaning)
            .filter(|meaning| meaning.per_thread == flavour && meaning.version <= version)
            .max_by_key(|meaning| meaning.version)
    };
    let plain = newest(false);
    // Where the newest ABI has no flavour of its own its plain form is meant.
    let own = newest(true).filter(|own| is_per_thread && plain.is_none_or(|plain| plain.version <= own.version));
    own.or(plain)
        .map_or(Meant::Unclear, |meaning| Meant::Row(usize::from(meaning.position)))
}
