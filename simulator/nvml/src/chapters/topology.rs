// SPDX-License-Identifier: Apache-2.0
//! Where devices are to each other and to the processors: behind one host bridge, on NUMA node 0.

use partage_abi::nvml::*;

use crate::state::{Answer, code, device, nvml, store};

/// `nvmlGpuTopologyLevel_t`.
const INTERNAL: c_int = 0;
const HOST_BRIDGE: c_int = 30;
const LEVELS: [c_int; 6] = [INTERNAL, 10, 20, HOST_BRIDGE, 40, 50];
/// `nvmlGpuP2PStatus_t`.
const PEERS_OK: c_int = 0;
const PEERS_UNSUPPORTED: c_int = 5;

pub fn nvmlDeviceGetTopologyCommonAncestor(
    device1: NvmlDevice,
    device2: NvmlDevice,
    path_info: *mut c_int,
) -> NvmlReturn {
    code(device(device1).and_then(|first| {
        let is_same = first.index == device(device2)?.index;
        store(path_info, if is_same { INTERNAL } else { HOST_BRIDGE })
    }))
}

pub fn nvmlDeviceGetTopologyNearestGpus(
    of: NvmlDevice,
    level: c_int,
    count: *mut c_uint,
    device_array: *mut NvmlDevice,
) -> NvmlReturn {
    code(device(of).and_then(|own| {
        if !LEVELS.contains(&level) {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        let place = nvml()?.place_of(own);
        let is_near = |other: usize| other != place && level == HOST_BRIDGE;
        list(is_near, count, device_array)
    }))
}

pub fn nvmlSystemGetTopologyGpuSet(
    _cpu_number: c_uint,
    count: *mut c_uint,
    device_array: *mut NvmlDevice,
) -> NvmlReturn {
    code(nvml().and_then(|_| list(|_| true, count, device_array)))
}

/// The protocol of these two lists: without an array only the number is told.
fn list(is_in: impl Fn(usize) -> bool, count: *mut c_uint, to: *mut NvmlDevice) -> Answer {
    let nvml = nvml()?;
    if count.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    let found: Vec<usize> = (0..nvml.devices.len()).filter(|&index| is_in(index)).collect();
    // SAFETY: not null, and by the contract of the entry point it leads to a count.
    let room = unsafe { count.read_unaligned() } as usize;
    store(count, found.len() as c_uint)?;
    if to.is_null() {
        return Ok(());
    }
    if room < found.len() {
        return Err(NvmlReturn::INSUFFICIENT_SIZE);
    }
    for (place, index) in found.into_iter().enumerate() {
        // SAFETY: the program says that there is room for `room` entries, and `place` is below.
        unsafe { to.add(place).write_unaligned(nvml.handle(index)) };
    }
    Ok(())
}

pub fn nvmlDeviceGetP2PStatus(
    device1: NvmlDevice,
    device2: NvmlDevice,
    p2p_index: c_int,
    p2p_status: *mut c_int,
) -> NvmlReturn {
    code(device(device1).and_then(|first| {
        let is_same = first.index == device(device2)?.index;
        match p2p_index {
            _ if is_same => Err(NvmlReturn::INVALID_ARGUMENT),
            // Reading, writing, atomics and through the bus, as `cuDeviceGetP2PAttribute` has it; there are no links.
            0 | 1 | 3 | 4 => store(p2p_status, PEERS_OK),
            2 => store(p2p_status, PEERS_UNSUPPORTED),
            _ => Err(NvmlReturn::INVALID_ARGUMENT),
        }
    }))
}

pub fn nvmlDeviceOnSameBoard(device1: NvmlDevice, device2: NvmlDevice, on_same_board: *mut c_int) -> NvmlReturn {
    code(device(device1).and_then(|first| store(on_same_board, c_int::from(first.index == device(device2)?.index))))
}

pub fn nvmlDeviceGetNumaNodeId(of: NvmlDevice, node: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|_| store(node, 0)))
}

pub fn nvmlDeviceGetMemoryAffinity(
    of: NvmlDevice,
    node_set_size: c_uint,
    node_set: *mut c_ulong,
    scope: NvmlAffinityScope,
) -> NvmlReturn {
    code(
        device(of)
            .and_then(|_| check_scope(scope))
            .and_then(|()| store_set(node_set, node_set_size, 1)),
    )
}

pub fn nvmlDeviceGetCpuAffinity(of: NvmlDevice, cpu_set_size: c_uint, cpu_set: *mut c_ulong) -> NvmlReturn {
    nvmlDeviceGetCpuAffinityWithinScope(of, cpu_set_size, cpu_set, 0)
}

pub fn nvmlDeviceGetCpuAffinityWithinScope(
    of: NvmlDevice,
    cpu_set_size: c_uint,
    cpu_set: *mut c_ulong,
    scope: NvmlAffinityScope,
) -> NvmlReturn {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    code(
        device(of)
            .and_then(|_| check_scope(scope))
            .and_then(|()| store_set(cpu_set, cpu_set_size, processors)),
    )
}

/// A node, or a socket.
fn check_scope(scope: NvmlAffinityScope) -> Answer {
    if scope <= 1 {
        Ok(())
    } else {
        Err(NvmlReturn::INVALID_ARGUMENT)
    }
}

/// Writes a set of the first `members` numbers into so many words of the program.
fn store_set(to: *mut c_ulong, words: c_uint, members: usize) -> Answer {
    if to.is_null() || words == 0 {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    for place in 0..words as usize {
        let inside = members.saturating_sub(64 * place).min(64);
        let word = if inside == 64 { c_ulong::MAX } else { (1 << inside) - 1 };
        // SAFETY: not null, and by the contract of the entry point an array of `words` words.
        unsafe { to.add(place).write_unaligned(word) };
    }
    Ok(())
}
