// SPDX-License-Identifier: Apache-2.0
//! Devices: how many, what they are, how they are called, and which reach each other's memory.

use std::ffi::CStr;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::state::{Answer, code, driver, store};

pub fn cuDeviceGetCount(count: *mut c_int) -> CuResult {
    code(driver().and_then(|driver| store(count, driver.visible.len() as c_int)))
}

pub fn cuDeviceGet(device: *mut CuDevice, ordinal: c_int) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(ordinal)?;
        store(device, ordinal)
    }))
}

pub fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| write_text(name, len, &driver.device(dev)?.profile.name)))
}

pub fn cuDeviceGetUuid(uuid: *mut CuUuid, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let bytes = driver.device(dev)?.uuid.map(|byte| byte as c_char);
        store(uuid, CuUuid { bytes })
    }))
}

pub fn cuDeviceGetUuid_v2(uuid: *mut CuUuid, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(dev)?;
        let bytes = device.instance.unwrap_or(device.uuid).map(|byte| byte as c_char);
        store(uuid, CuUuid { bytes })
    }))
}

pub fn cuDeviceTotalMem(bytes: *mut c_uint, dev: CuDevice) -> CuResult {
    // The first ABI has 32 bits: what does not fit is cut to the most that does.
    code(driver().and_then(|driver| store(bytes, driver.device(dev)?.memory.min(u64::from(c_uint::MAX)) as c_uint)))
}

pub fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| store(bytes, driver.device(dev)?.memory as usize)))
}

pub fn cuDeviceGetAttribute(value: *mut c_int, attrib: c_int, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(dev)?;
        store(value, device.attribute(attrib).ok_or(CuResult::INVALID_VALUE)?)
    }))
}

pub fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(dev)?;
        store(
            major,
            device
                .attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
                .unwrap_or(0),
        )?;
        store(
            minor,
            device
                .attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
                .unwrap_or(0),
        )
    }))
}

pub fn cuDeviceGetProperties(prop: *mut CuDevprop, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let device = driver.device(dev)?;
        let attribute = |number| device.attribute(number).unwrap_or(0);
        let properties = CuDevprop {
            maxThreadsPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            maxThreadsDim: [
                attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
            ],
            maxGridSize: [
                attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
            ],
            sharedMemPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            totalConstantMemory: attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
            SIMDWidth: attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
            memPitch: attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
            regsPerBlock: attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
            clockRate: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
            textureAlign: attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
        };
        store(prop, properties)
    }))
}

pub fn cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        let text = pci_text(driver.device(dev)?.pci_bus);
        write_text(pci_bus_id, len, &text)
    }))
}

pub fn cuDeviceGetByPCIBusId(dev: *mut CuDevice, pci_bus_id: *const c_char) -> CuResult {
    code(driver().and_then(|driver| {
        if pci_bus_id.is_null() || dev.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and a C string by the contract of the entry point.
        let text = unsafe { CStr::from_ptr(pci_bus_id) };
        let bus = text.to_str().ok().and_then(pci_bus).ok_or(CuResult::INVALID_VALUE)?;
        let found = driver.visible.iter().position(|&index| driver.at(index).pci_bus == bus);
        store(dev, found.ok_or(CuResult::INVALID_DEVICE)? as CuDevice)
    }))
}

pub fn cuDeviceGetExecAffinitySupport(value: *mut c_int, kind: c_int, dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        // Limiting a context's multiprocessors needs MPS, which is not simulated.
        if kind == CU_EXEC_AFFINITY_TYPE_SM_COUNT {
            store(value, 0)
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }))
}

pub fn cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CuDevice, peer_dev: CuDevice) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(dev)?;
        driver.device(peer_dev)?;
        store(can_access_peer, c_int::from(dev != peer_dev))
    }))
}

pub fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attrib: c_int,
    src_device: CuDevice,
    dst_device: CuDevice,
) -> CuResult {
    code(driver().and_then(|driver| {
        driver.device(src_device)?;
        driver.device(dst_device)?;
        if src_device == dst_device {
            return Err(CuResult::INVALID_DEVICE);
        }
        match attrib {
            1 => store(value, 0),     // PERFORMANCE_RANK: all links are equal
            2 => store(value, 1),     // ACCESS_SUPPORTED
            3 => store(value, 1),     // NATIVE_ATOMIC_SUPPORTED
            4 | 5 => store(value, 0), // arrays, and atomics that work in part only
            _ => Err(CuResult::INVALID_VALUE),
        }
    }))
}

/// `0000:19:00.0`.
fn pci_text(bus: u32) -> String {
    format!("0000:{bus:02x}:00.0")
}

/// The bus of `[domain:]bus:device[.function]`, all hexadecimal, of the one domain, device and function there is.
fn pci_bus(text: &str) -> Option<u32> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = address.rsplit(':').map(|part| u32::from_str_radix(part, 16).ok());
    let (device, bus, domain) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    let is_rest_zero = device == 0 && domain == 0 && u32::from_str_radix(function, 16) == Ok(0);
    (is_rest_zero && parts.next().is_none()).then_some(bus)
}

/// Writes a C string into `len` bytes of the program, cut to fit and always ended.
fn write_text(to: *mut c_char, len: c_int, text: &str) -> Answer {
    let room = usize::try_from(len)
        .ok()
        .filter(|room| *room > 0)
        .ok_or(CuResult::INVALID_VALUE)?;
    if to.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    // SAFETY: by the contract of the entry point `to` leads to `len` bytes; we write at most that many.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_read_in_all_their_forms() {
        for text in ["0000:19:00.0", "19:00.0", "19:0", "00000000:19:00.0", "0:19:0"] {
            assert_eq!(pci_bus(text), Some(0x19), "{text}");
        }
        for text in [
            "",
            "19",
            "0000:19:01.0",
            "0001:19:00.0",
            "0000:19:00.1",
            "x:19:0",
            "0:0:19:0",
        ] {
            assert_eq!(pci_bus(text), None, "{text}");
        }
    }
}
