// SPDX-License-Identifier: Apache-2.0
//! Names of the functions that we stand in front of or call, packed: all of a library in one string, and where each
//! starts.
//!
//! The tables' own rows hold references; the loader would relocate each of their thousands at every exec of every
//! program under us. These arrays hold none.
//!
//! A function's *place* is its index here. The hooked rows come first, in the table's order.

use core::ffi::CStr;

use partage_abi::entry_points::PROC_ADDRESS;
use partage_abi::values::{CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM};
use partage_abi::{HOOKED, ROWS, Symbol, nvml};

/// The driver's `pass` rows that this library calls itself.
const CALLED: [Symbol; 37] = [
    Symbol::cuDriverGetVersion,
    Symbol::cuDeviceGetPCIBusId,
    Symbol::cuDeviceGet,
    Symbol::cuDeviceGetCount,
    Symbol::cuDeviceGetUuid,
    Symbol::cuDeviceGetUuid_v2,
    Symbol::cuDeviceGetMemPool,
    Symbol::cuDeviceGetDefaultMemPool,
    Symbol::cuDevicePrimaryCtxGetState,
    Symbol::cuCtxPushCurrent_v2,
    Symbol::cuCtxPopCurrent_v2,
    Symbol::cuCtxGetCurrent,
    Symbol::cuCtxGetDevice,
    Symbol::cuCtxGetDevice_v2,
    Symbol::cuCtxGetLimit,
    Symbol::cuCtxGetApiVersion,
    Symbol::cuMemHostGetDevicePointer_v2,
    Symbol::cuMemHostRegister_v2,
    Symbol::cuMemHostUnregister,
    Symbol::cuMemGetAllocationGranularity,
    Symbol::cuMemPoolGetAttribute,
    Symbol::cuPointerGetAttribute,
    Symbol::cuStreamGetDevice,
    Symbol::cuStreamGetCtx,
    Symbol::cuThreadExchangeStreamCaptureMode,
    Symbol::cuStreamIsCapturing,
    Symbol::cuStreamIsCapturing_ptsz,
    Symbol::cuEventCreate,
    Symbol::cuEventDestroy_v2,
    Symbol::cuEventElapsedTime,
    Symbol::cuStreamWriteValue64_v2,
    Symbol::cuStreamWriteValue64_v2_ptsz,
    Symbol::cuGraphChildGraphNodeGetGraph,
    Symbol::cuGraphMemAllocNodeGetParams,
    Symbol::cuDeviceGetGraphMemAttribute,
    Symbol::cuGraphNodeGetType,
    Symbol::cuGraphGetNodes,
];

/// The driver's functions that have a place.
pub const DRIVER_PLACES: usize = HOOKED.len() + CALLED.len();
/// NVML's functions that have a place: it calls none beside the hooked ones.
pub const NVML_PLACES: usize = nvml::HOOKED.len();

const fn driver_symbol(place: usize) -> Symbol {
    if place < HOOKED.len() {
        HOOKED[place]
    } else {
        CALLED[place - HOOKED.len()]
    }
}

const fn nvml_symbol(place: usize) -> nvml::Symbol {
    nvml::HOOKED[place]
}

/// The place of a driver's function. Does not compile for one that has none: it has to be named above.
pub const fn driver_place(symbol: Symbol) -> usize {
    let mut place = 0;
    while driver_symbol(place) as usize != symbol as usize {
        place += 1;
    }
    place
}

/// The place of a function of NVML, as [`driver_place`].
pub const fn nvml_place(symbol: nvml::Symbol) -> usize {
    let mut place = 0;
    while nvml_symbol(place) as usize != symbol as usize {
        place += 1;
    }
    place
}

/// The names of one library's functions, by place.
#[derive(Clone, Copy)]
pub struct Names {
    /// Each name with the zero behind it.
    text: &'static [u8],
    /// Where each name starts, and where the last one ends.
    starts: &'static [u16],
    /// How many are hooked rows.
    hooked: usize,
}

impl Names {
    /// How many of the first places are hooked rows.
    pub fn hooked(self) -> usize {
        self.hooked
    }

    /// The name of a place, without and with its zero.
    fn bytes(self, place: usize) -> Option<(&'static [u8], &'static [u8])> {
        let (start, end) = (*self.starts.get(place)?, *self.starts.get(place + 1)?);
        let with_zero = self.text.get(usize::from(start)..usize::from(end))?;
        let (_, name) = with_zero.split_last()?;
        Some((name, with_zero))
    }

    /// The name of a place as a C string.
    pub fn c_str(self, place: usize) -> Option<&'static CStr> {
        CStr::from_bytes_with_nul(self.bytes(place)?.1).ok()
    }

    /// The place of the hooked row with that name.
    pub fn hooked_named(self, name: &[u8]) -> Option<usize> {
        (0..self.hooked).find(|place| self.bytes(*place).is_some_and(|(hooked, _)| hooked == name))
    }
}

/// Packs the names of a library: `$symbol` gives the one of each of `$places` places.
macro_rules! packed {
    ($symbol:ident, $places:expr, $hooked:expr) => {{
        const BYTES: usize = {
            let (mut place, mut bytes) = (0, 0);
            while place < $places {
                bytes += $symbol(place).row().symbol.count_bytes() + 1;
                place += 1;
            }
            bytes
        };
        const PACKED: ([u8; BYTES], [u16; $places + 1]) = {
            assert!(BYTES <= u16::MAX as usize);
            let (mut text, mut starts) = ([0; BYTES], [0; $places + 1]);
            let (mut place, mut to) = (0, 0);
            while place < $places {
                starts[place] = to as u16;
                let name = $symbol(place).row().symbol.to_bytes_with_nul();
                let mut i = 0;
                while i < name.len() {
                    text[to] = name[i];
                    i += 1;
                    to += 1;
                }
                place += 1;
            }
            starts[place] = to as u16;
            (text, starts)
        };
        static TEXT: [u8; BYTES] = PACKED.0;
        static STARTS: [u16; $places + 1] = PACKED.1;
        Names {
            text: &TEXT,
            starts: &STARTS,
            hooked: $hooked,
        }
    }};
}

/// The driver's names.
#[inline]
pub fn driver() -> Names {
    packed!(driver_symbol, DRIVER_PLACES, HOOKED.len())
}

/// NVML's names.
#[inline]
pub fn nvml() -> Names {
    packed!(nvml_symbol, NVML_PLACES, nvml::HOOKED.len())
}

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

/// Under which circumstances `cuGetProcAddress` answers a name with a hooked row's function. The name is the start of
/// the row's own.
#[derive(Clone, Copy)]
struct Meaning {
    /// First CUDA version with this ABI.
    version: u16,
    /// The place of the function.
    place: u16,
    /// Length of the name.
    length: u8,
    /// The default stream of the function is the thread's own.
    per_thread: bool,
}

static MEANINGS: [Meaning; HOOKED_ENTRIES] = {
    const NONE: Meaning = Meaning {
        version: 0,
        place: 0,
        length: 0,
        per_thread: false,
    };
    let mut meanings = [NONE; HOOKED_ENTRIES];
    let (mut i, mut to) = (0, 0);
    while i < PROC_ADDRESS.len() {
        let entry = PROC_ADDRESS[i];
        if let Some(place) = entry.symbol.slot() {
            let (name, symbol) = (entry.name.as_bytes(), entry.symbol.row().symbol.to_bytes());
            let mut at = 0;
            while at < name.len() {
                assert!(name[at] == symbol[at]);
                at += 1;
            }
            assert!(entry.version <= u16::MAX as u32);
            meanings[to] = Meaning {
                version: entry.version as u16,
                place: place as u16,
                length: name.len() as u8,
                per_thread: entry.per_thread,
            };
            to += 1;
        }
        i += 1;
    }
    meanings
};

impl Meaning {
    /// Is this a meaning of that name?
    fn is_of(self, name: &[u8]) -> bool {
        let row = driver().bytes(self.place.into()).map(|(row, _)| row);
        usize::from(self.length) == name.len() && row.is_some_and(|row| row.starts_with(name))
    }
}

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
    /// The hooked row of this place.
    Row(usize),
    /// One of ours; which ABI and stream flavour, this library cannot tell.
    Unclear,
}

/// What a driver of version `driver` (0: nobody knows) means by its answer to a request.
pub fn meant(name: &[u8], asked: u32, driver: u32, flags: u64) -> Meant {
    let of_name = || MEANINGS.iter().filter(|meaning| meaning.is_of(name));
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
            .filter(|meaning| meaning.per_thread == flavour && u32::from(meaning.version) <= version)
            .max_by_key(|meaning| meaning.version)
    };
    let plain = newest(false);
    // Where the newest ABI has no flavour of its own its plain form is meant.
    let own = newest(true).filter(|own| is_per_thread && plain.is_none_or(|plain| plain.version <= own.version));
    own.or(plain)
        .map_or(Meant::Unclear, |meaning| Meant::Row(usize::from(meaning.place)))
}
