// SPDX-License-Identifier: Apache-2.0
//! The traffic over all NVLinks of a device: a field value with a scope, which nvml-wrapper 0.13 cannot ask (it leaves
//! the scope 0, which is the first link alone).

use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use partage_abi::nvml::{NvmlDevice, NvmlFieldValue, NvmlReturn, NvmlValue, c_int, c_uint};

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`: KiB since the driver was loaded.
const SENT: c_uint = 138;
const RECEIVED: c_uint = 139;
/// All links together.
const ALL_LINKS: c_uint = c_uint::MAX;
const KIB: u64 = 1024;

type GetFieldValues = unsafe extern "C" fn(NvmlDevice, c_int, *mut NvmlFieldValue) -> NvmlReturn;

/// NVML's function, which stays loaded for the process's life.
#[derive(Clone, Copy)]
pub(super) struct NvLink(GetFieldValues);

impl NvLink {
    /// The function of the library that is loaded from there already.
    pub(super) fn of(path: &Path) -> Option<Self> {
        // SAFETY: the library is loaded, so nothing of it is run by this.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        // SAFETY: the vendor's header declares the function so.
        let function: Symbol<GetFieldValues> = unsafe { library.get(b"nvmlDeviceGetFieldValues\0") }.ok()?;
        let function = *function;
        // As nvml-wrapper's own handle of it: never closed.
        std::mem::forget(library);
        Some(Self(function))
    }

    /// What a device sent and received, in bytes.
    pub(super) fn traffic(self, device: &Device<'static>) -> Result<(u64, u64), NvmlError> {
        let mut values = [SENT, RECEIVED].map(|field| NvmlFieldValue {
            fieldId: field,
            scopeId: ALL_LINKS,
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: NvmlReturn::NOT_SUPPORTED,
            value: NvmlValue { ullVal: 0 },
        });
        // SAFETY: the handle is used for the call alone, while the device is there.
        let handle = NvmlDevice(unsafe { device.handle() }.cast());
        // SAFETY: the function is NVML's of the library that the handle is of, and there is room for two values.
        let code = unsafe { (self.0)(handle, 2, values.as_mut_ptr()) };
        let answered =
            code == NvmlReturn::SUCCESS && values.iter().all(|value| value.nvmlReturn == NvmlReturn::SUCCESS);
        if !answered {
            return Err(NvmlError::NotSupported);
        }
        // SAFETY: NVML wrote each value as its type says, and every type's bytes are part of these eight, which were 0.
        let [sent, received] = values.map(|value| unsafe { value.value.ullVal }.saturating_mul(KIB));
        Ok((sent, received))
    }
}
