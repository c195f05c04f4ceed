// SPDX-License-Identifier: Apache-2.0
//! Calls that tie the process to its device: what another process or another API shares with it, no driver checkpoints.
//! Each is passed on as it is; a bit on the client's page says that it succeeded. Ties of calls that have other bodies
//! are noted there.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use partage_abi::types::*;
use partage_protocol::hold::ties;

use crate::attachment::ties::made;
use crate::real::Library;
use crate::real::call;

macro_rules! tied {
    ($($tie:ident: $symbol:ident($($arg:ident: $type:ty),*);)*) => { $(
        #[cold]
        pub fn $symbol(real: &Library, $($arg: $type),*) -> CuResult {
            made(call!(real, $symbol($($arg),*)), ties::$tie)
        }
    )* };
}

tied! {
    MANAGED_MEMORY: cuLibraryGetManaged(
        dptr: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char
    );
    IPC_EVENT_EXPORTED: cuIpcGetEventHandle(handle: *mut CuIpcEventHandle, event: CuEvent);
    IPC_EVENT_OPENED: cuIpcOpenEventHandle(event: *mut CuEvent, handle: CuIpcEventHandle);
    IPC_MEMORY_EXPORTED: cuIpcGetMemHandle(handle: *mut CuIpcMemHandle, dptr: CuDevicePtr);
    IPC_MEMORY_OPENED: cuIpcOpenMemHandle(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint);
    IPC_MEMORY_OPENED: cuIpcOpenMemHandle_v2(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint);
    DMA_BUF: cuMemGetHandleForAddressRange(
        handle: *mut c_void, dptr: CuDevicePtr, size: usize, handle_type: c_int, flags: c_ulonglong
    );
    HANDLE_EXPORTED: cuMemExportToShareableHandle(
        shareable_handle: *mut c_void, handle: CuMemGenericAllocationHandle, handle_type: c_int, flags: c_ulonglong
    );
    HANDLE_EXPORTED: cuLogicalEndpointExport(handle: *mut c_void, le_id: CuLogicalEndpointId, handle_type: c_int);
    HANDLE_IMPORTED: cuLogicalEndpointImport(le_id: CuLogicalEndpointId, handle: *const c_void, handle_type: c_int);
    SHARED_POOL: cuMemPoolExportToShareableHandle(
        handle_out: *mut c_void, pool: CuMemoryPool, handle_type: c_int, flags: c_ulonglong
    );
    MULTICAST: cuMulticastCreate(mc_handle: *mut CuMemGenericAllocationHandle, prop: *const CuMulticastObjectProp);
    EXTERNAL_MEMORY: cuImportExternalMemory(
        ext_mem_out: *mut CuExternalMemory, mem_handle_desc: *const CudaExternalMemoryHandleDesc
    );
    EXTERNAL_SEMAPHORE: cuImportExternalSemaphore(
        ext_sem_out: *mut CuExternalSemaphore, sem_handle_desc: *const CudaExternalSemaphoreHandleDesc
    );
    GRAPHICS: cuGraphicsGLRegisterBuffer(cuda_resource: *mut CuGraphicsResource, buffer: c_uint, flags: c_uint);
    GRAPHICS: cuGraphicsGLRegisterImage(
        cuda_resource: *mut CuGraphicsResource, image: c_uint, target: c_uint, flags: c_uint
    );
    GRAPHICS: cuGLRegisterBufferObject(buffer: c_uint);
    GRAPHICS: cuGraphicsEGLRegisterImage(cuda_resource: *mut CuGraphicsResource, image: *mut c_void, flags: c_uint);
    GRAPHICS: cuEGLStreamConsumerConnect(conn: *mut CuEglStreamConnection, stream: *mut c_void);
    GRAPHICS: cuEGLStreamConsumerConnectWithFlags(conn: *mut CuEglStreamConnection, stream: *mut c_void, flags: c_uint);
    GRAPHICS: cuEGLStreamProducerConnect(
        conn: *mut CuEglStreamConnection, stream: *mut c_void, width: c_int, height: c_int
    );
    GRAPHICS: cuEventCreateFromEGLSync(event: *mut CuEvent, egl_sync: *mut c_void, flags: c_uint);
    GRAPHICS: cuGraphicsVDPAURegisterVideoSurface(
        cuda_resource: *mut CuGraphicsResource, vdp_surface: u32, flags: c_uint
    );
    GRAPHICS: cuGraphicsVDPAURegisterOutputSurface(
        cuda_resource: *mut CuGraphicsResource, vdp_surface: u32, flags: c_uint
    );
}
