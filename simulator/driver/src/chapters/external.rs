// SPDX-License-Identifier: Apache-2.0
//! Memory that another interface made: a descriptor of any file that can be mapped stands for it. It costs this process
//! nothing. Arrays in such memory, and semaphores, are not built.

use std::fs::File;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::context::current;
use crate::handles::{HandleKind, Handles};
use crate::state::{Answer, code, driver, store};

/// Imported memory.
struct External {
    file: File,
    bytes: u64,
}

static EXTERNAL: Handles<External> = Handles::new(HandleKind::ExternalMemory);

pub fn cuImportExternalMemory(
    ext_mem_out: *mut CuExternalMemory,
    mem_handle_desc: *const CudaExternalMemoryHandleDesc,
) -> CuResult {
    code(driver().and_then(|_| {
        if ext_mem_out.is_null() || mem_handle_desc.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let given = unsafe { mem_handle_desc.read_unaligned() };
        match given.kind {
            CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD => {}
            CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32..=CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD => {
                return Err(CuResult::NOT_SUPPORTED);
            }
            _ => return Err(CuResult::INVALID_VALUE),
        }
        if given.size == 0 || given.flags & !(CUDA_EXTERNAL_MEMORY_DEDICATED as c_uint) != 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: this is the member that this type of handle uses.
        let descriptor = unsafe { given.handle.fd };
        check(descriptor, given.size)?;
        // SAFETY: open, and the program gives it to the driver with a successful import, which this is from here on.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let bytes = given.size;
        let handle = EXTERNAL.insert(Arc::new(External { file, bytes }));
        if handle.is_null() {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        store(ext_mem_out, CuExternalMemory(handle))
    }))
}

/// Whether so many bytes of a descriptor can be mapped. INVALID_HANDLE.
fn check(descriptor: c_int, bytes: u64) -> Answer {
    // SAFETY: asks about a number, whether it is a descriptor or not.
    let mode = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if mode < 0 || mode & libc::O_ACCMODE != libc::O_RDWR {
        return Err(CuResult::INVALID_HANDLE);
    }
    // SAFETY: open now, and by the contract of the entry point it stays so during the call.
    let theirs = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let ours = theirs.try_clone_to_owned().map_err(|_| CuResult::OPERATING_SYSTEM)?;
    let about = File::from(ours).metadata().map_err(|_| CuResult::OPERATING_SYSTEM)?;
    // Beyond the end of a file there is nothing to reach.
    if about.is_file() && about.len() >= bytes {
        Ok(())
    } else {
        Err(CuResult::INVALID_HANDLE)
    }
}

pub fn cuExternalMemoryGetMappedBuffer(
    dev_ptr: *mut CuDevicePtr,
    ext_mem: CuExternalMemory,
    buffer_desc: *const CudaExternalMemoryBufferDesc,
) -> CuResult {
    code(current().and_then(|context| {
        let memory = find(ext_mem)?;
        if dev_ptr.is_null() || buffer_desc.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: not null, and by the contract of the entry point it leads to this structure.
        let given = unsafe { buffer_desc.read_unaligned() };
        let is_inside = given
            .offset
            .checked_add(given.size)
            .is_some_and(|end| end <= memory.bytes);
        if given.size == 0 || given.flags != 0 || !is_inside {
            return Err(CuResult::INVALID_VALUE);
        }
        let mapped = crate::memory::memory()?.map_external(&context, &memory.file, given.offset, given.size)?;
        store(dev_ptr, mapped)
    }))
}

pub fn cuDestroyExternalMemory(ext_mem: CuExternalMemory) -> CuResult {
    // Buffers stay until they are freed.
    code(find(ext_mem).map(|_| drop(EXTERNAL.remove(ext_mem.0))))
}

fn find(handle: CuExternalMemory) -> Answer<Arc<External>> {
    driver()?;
    EXTERNAL.get(handle.0).ok_or(CuResult::INVALID_HANDLE)
}
