// SPDX-License-Identifier: Apache-2.0
//! Allocation properties, locations, pools and handles that cross processes.

use super::*;

c_layouts! {
    struct CuIpcEventHandle = "CUipcEventHandle" {
        reserved: [c_char; 64],
    }
    struct CuIpcMemHandle = "CUipcMemHandle" {
        reserved: [c_char; 64],
    }
    struct CuMemLocation = "CUmemLocation" {
        kind = "type": c_int,
        id: c_int,
    }
    struct CuMemAllocationPropAllocFlags = "CUmemAllocationProp.allocFlags" {
        compressionType: c_uchar,
        gpuDirectRDMACapable: c_uchar,
        usage: c_ushort,
        reserved: [c_uchar; 4],
    }
    struct CuMemAllocationProp = "CUmemAllocationProp" {
        kind = "type": c_int,
        requestedHandleTypes: c_int,
        location: CuMemLocation,
        win32HandleMetaData: *mut c_void,
        allocFlags: CuMemAllocationPropAllocFlags,
    }
    struct CuMemAccessDesc = "CUmemAccessDesc" {
        location: CuMemLocation,
        flags: c_int,
    }
    struct CuMemPoolProps = "CUmemPoolProps" {
        allocType: c_int,
        handleTypes: c_int,
        location: CuMemLocation,
        win32SecurityAttributes: *mut c_void,
        maxSize: usize,
        usage: c_ushort,
        gpuDirectRDMACapable: c_uchar,
        reserved: [c_uchar; 53],
    }
    struct CuMemPoolPtrExportData = "CUmemPoolPtrExportData" {
        reserved: [c_uchar; 64],
    }
}
