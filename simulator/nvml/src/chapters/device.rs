// SPDX-License-Identifier: Apache-2.0
//! Devices: how to get at them, what they are called, what they are.

use std::ffi::CStr;

use partage_abi::nvml::*;
use partage_machine::Device;

use super::constants::INSTANCES;
use crate::state::{Answer, card_of, code, device, instance_of, is_instance, nvml, store, store_text};

// ---- handles --------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetCount(device_count: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetCount_v2(device_count)
}

pub fn nvmlDeviceGetCount_v2(device_count: *mut c_uint) -> NvmlReturn {
    code(nvml().and_then(|nvml| store(device_count, nvml.devices.len() as c_uint)))
}

pub fn nvmlDeviceGetHandleByIndex(index: c_uint, to: *mut NvmlDevice) -> NvmlReturn {
    nvmlDeviceGetHandleByIndex_v2(index, to)
}

pub fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut NvmlDevice) -> NvmlReturn {
    code(nvml().and_then(|nvml| {
        let wanted = nvml.devices.get(index as usize).map(|device| device.index);
        hand_out(to, NvmlReturn::INVALID_ARGUMENT, |device| Some(device.index) == wanted)
    }))
}

pub fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut NvmlDevice) -> NvmlReturn {
    code(text(uuid).and_then(|uuid| by_name(to, uuid)))
}

pub fn nvmlDeviceGetHandleByUUIDV(uuid: *const NvmlUUID, to: *mut NvmlDevice) -> NvmlReturn {
    /// `nvmlUUIDType_t`.
    const ASCII: c_uint = 1;
    const BINARY: c_uint = 2;
    code(nvml().and_then(|_| {
        if uuid.is_null() {
            return Err(NvmlReturn::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let uuid = unsafe { uuid.read_unaligned() };
        check_version::<NvmlUUID>(uuid.version, 1)?;
        // SAFETY: both members of the union are plain bytes; which is meant is said beside it.
        let (chars, bytes) = unsafe { (uuid.value.str, uuid.value.bytes) };
        match uuid.kind {
            ASCII => {
                let chars = chars.map(|c| c as u8);
                let given = CStr::from_bytes_until_nul(&chars).map_err(|_| NvmlReturn::INVALID_ARGUMENT)?;
                by_name(to, given.to_str().map_err(|_| NvmlReturn::INVALID_ARGUMENT)?)
            }
            BINARY => hand_out(to, NvmlReturn::NOT_FOUND, |device| device.uuid == bytes),
            _ => Err(NvmlReturn::INVALID_ARGUMENT),
        }
    }))
}

pub fn nvmlDeviceGetHandleBySerial(serial: *const c_char, to: *mut NvmlDevice) -> NvmlReturn {
    code(text(serial).and_then(|serial| hand_out(to, NvmlReturn::NOT_FOUND, |device| self::serial(device) == serial)))
}

pub fn nvmlDeviceGetHandleByPciBusId(pci_bus_id: *const c_char, to: *mut NvmlDevice) -> NvmlReturn {
    nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, to)
}

pub fn nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: *const c_char, to: *mut NvmlDevice) -> NvmlReturn {
    code(text(pci_bus_id).and_then(|given| {
        // `domain:bus:device.function` in hexadecimal, the domain with four or eight digits.
        let mut parts = given.split([':', '.']).map(|part| u32::from_str_radix(part, 16).ok());
        let address = [parts.next(), parts.next(), parts.next(), parts.next()].map(Option::flatten);
        let [Some(0), Some(bus), Some(0), Some(0)] = address else {
            return Err(NvmlReturn::NOT_FOUND);
        };
        hand_out(to, NvmlReturn::NOT_FOUND, |device| device.pci_bus == bus)
    }))
}

/// The card of this UUID, or the instance.
fn by_name(to: *mut NvmlDevice, uuid: &str) -> Answer {
    if !uuid.starts_with("MIG-") {
        return hand_out(to, NvmlReturn::NOT_FOUND, |device| device.uuid_text() == uuid);
    }
    let is_it = |device: &Device| device.instance_text().as_deref() == Some(uuid);
    let mut card = NvmlDevice::NULL;
    hand_out(&raw mut card, NvmlReturn::NOT_FOUND, is_it)?;
    store(to, instance_of(card))
}

pub fn nvmlDeviceGetMigDeviceHandleByIndex(of: NvmlDevice, index: c_uint, mig_device: *mut NvmlDevice) -> NvmlReturn {
    code(device(of).and_then(|device| match (device.instance, index) {
        (Some(_), 0) if !is_instance(of) => store(mig_device, instance_of(of)),
        (Some(_), 1..INSTANCES) => Err(NvmlReturn::NOT_FOUND),
        _ => Err(NvmlReturn::INVALID_ARGUMENT),
    }))
}

pub fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(of: NvmlDevice, to: *mut NvmlDevice) -> NvmlReturn {
    code(device(of).and_then(|_| match is_instance(of) {
        true => store(to, card_of(of)),
        false => Err(NvmlReturn::INVALID_ARGUMENT),
    }))
}

fn hand_out(to: *mut NvmlDevice, otherwise: NvmlReturn, is_it: impl Fn(&Device) -> bool) -> Answer {
    let nvml = nvml()?;
    if to.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    let handle = nvml.handle(nvml.devices.iter().position(is_it).ok_or(otherwise)?);
    // A lost device cannot be got at.
    device(handle)?;
    store(to, handle)
}

fn text<'a>(given: *const c_char) -> Answer<&'a str> {
    nvml()?;
    if given.is_null() {
        return Err(NvmlReturn::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and a C string by the contract of the entry point; it outlives the call.
    unsafe { CStr::from_ptr(given) }
        .to_str()
        .map_err(|_| NvmlReturn::INVALID_ARGUMENT)
}

/// Structures say their size and version: ARGUMENT_VERSION_MISMATCH when it is not the one that this function takes.
pub(crate) fn check_version<T>(given: c_uint, version: c_uint) -> Answer {
    let expected = size_of::<T>() as c_uint | version << 24;
    if given == expected {
        Ok(())
    } else {
        Err(NvmlReturn::ARGUMENT_VERSION_MISMATCH)
    }
}

// ---- names ----------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetName(of: NvmlDevice, name: *mut c_char, length: c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store_text(name, length, &device.profile.name)))
}

pub fn nvmlDeviceGetUUID(of: NvmlDevice, uuid: *mut c_char, length: c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let instance = device.instance_text().filter(|_| is_instance(of));
        store_text(uuid, length, &instance.unwrap_or_else(|| device.uuid_text()))
    }))
}

pub fn nvmlDeviceGetSerial(of: NvmlDevice, to: *mut c_char, length: c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store_text(to, length, &serial(device))))
}

pub fn nvmlDeviceGetIndex(of: NvmlDevice, index: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(index, nvml()?.place_of(device) as c_uint)))
}

pub fn nvmlDeviceGetMinorNumber(of: NvmlDevice, minor_number: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(minor_number, device.index as c_uint)))
}

pub fn nvmlDeviceGetModuleId(of: NvmlDevice, module_id: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetIndex(of, module_id)
}

pub fn nvmlDeviceGetBoardId(of: NvmlDevice, board_id: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(board_id, device.pci_bus << 8)))
}

pub fn nvmlDeviceGetMultiGpuBoard(of: NvmlDevice, multi_gpu_bool: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|_| store(multi_gpu_bool, 0)))
}

fn serial(device: &Device) -> String {
    let number = u32::from_be_bytes([device.uuid[0], device.uuid[1], device.uuid[2], device.uuid[3]]);
    format!("165{number:010}")
}

// ---- the bus --------------------------------------------------------------------------------------------------

// Each version fills the structure of its own time and not a byte more: the program's may be as short as that.

pub fn nvmlDeviceGetPciInfo(of: NvmlDevice, pci: *mut NvmlPciInfoV1) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let info = NvmlPciInfoV1 {
            busId: bus_id(device),
            domain: 0,
            bus: device.pci_bus,
            device: 0,
            pciDeviceId: device.profile.pci_device,
        };
        store(pci, info)
    }))
}

pub fn nvmlDeviceGetPciInfo_v2(of: NvmlDevice, pci: *mut NvmlPciInfoV2) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let info = NvmlPciInfoV2 {
            busId: bus_id(device),
            domain: 0,
            bus: device.pci_bus,
            device: 0,
            pciDeviceId: device.profile.pci_device,
            pciSubSystemId: device.profile.pci_subsystem,
            reserved: [0; 4],
        };
        store(pci, info)
    }))
}

pub fn nvmlDeviceGetPciInfo_v3(of: NvmlDevice, pci: *mut NvmlPciInfo) -> NvmlReturn {
    code(device(of).and_then(|device| {
        let info = NvmlPciInfo {
            busIdLegacy: bus_id(device),
            domain: 0,
            bus: device.pci_bus,
            device: 0,
            pciDeviceId: device.profile.pci_device,
            pciSubSystemId: device.profile.pci_subsystem,
            busId: characters(&format!("00000000:{:02X}:00.0", device.pci_bus)),
        };
        store(pci, info)
    }))
}

/// The address with a domain of four digits.
fn bus_id(device: &Device) -> [c_char; 16] {
    characters(&format!("0000:{:02X}:00.0", device.pci_bus))
}

pub fn nvmlDeviceGetMaxPcieLinkGeneration(of: NvmlDevice, max_link_gen: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(max_link_gen, device.profile.nvml.pcie_generation)))
}

pub fn nvmlDeviceGetGpuMaxPcieLinkGeneration(of: NvmlDevice, max_link_gen_device: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetMaxPcieLinkGeneration(of, max_link_gen_device)
}

pub fn nvmlDeviceGetCurrPcieLinkGeneration(of: NvmlDevice, curr_link_gen: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetMaxPcieLinkGeneration(of, curr_link_gen)
}

pub fn nvmlDeviceGetMaxPcieLinkWidth(of: NvmlDevice, max_link_width: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(max_link_width, device.profile.nvml.pcie_width)))
}

pub fn nvmlDeviceGetCurrPcieLinkWidth(of: NvmlDevice, curr_link_width: *mut c_uint) -> NvmlReturn {
    nvmlDeviceGetMaxPcieLinkWidth(of, curr_link_width)
}

fn characters<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    // The last place stays zero: a C string ends.
    for (to, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte as c_char;
    }
    array
}

// ---- the model ------------------------------------------------------------------------------------------------

pub fn nvmlDeviceGetBrand(of: NvmlDevice, kind: *mut c_int) -> NvmlReturn {
    code(device(of).and_then(|device| store(kind, device.profile.nvml.brand as c_int)))
}

pub fn nvmlDeviceGetArchitecture(of: NvmlDevice, arch: *mut NvmlDeviceArchitecture) -> NvmlReturn {
    code(device(of).and_then(|device| store(arch, device.profile.nvml.architecture)))
}

pub fn nvmlDeviceGetCudaComputeCapability(of: NvmlDevice, major: *mut c_int, minor: *mut c_int) -> NvmlReturn {
    code(device(of).and_then(|device| {
        store(major, device.attribute(75).unwrap_or(0))?;
        store(minor, device.attribute(76).unwrap_or(0))
    }))
}

pub fn nvmlDeviceGetNumGpuCores(of: NvmlDevice, num_cores: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(num_cores, device.profile.nvml.cores)))
}

pub fn nvmlDeviceGetMemoryBusWidth(of: NvmlDevice, bus_width: *mut c_uint) -> NvmlReturn {
    code(device(of).and_then(|device| store(bus_width, device.attribute(37).unwrap_or(0) as c_uint)))
}
