// SPDX-License-Identifier: Apache-2.0
//! Memory that another interface made, for which a descriptor of ordinary shared memory stands.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, code, in_child, ok, refused};

const BYTES: u64 = 3 << 20;

fn memory() -> File {
    // SAFETY: makes a descriptor that is ours.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"external".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(BYTES).expect("it can grow");
    file
}

fn describe(descriptor: c_int, size: u64) -> CudaExternalMemoryHandleDesc {
    CudaExternalMemoryHandleDesc {
        kind: CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        handle: CudaExternalMemoryHandleDescHandle { fd: descriptor },
        size,
        ..Default::default()
    }
}

fn import(cuda: &Cuda, description: &CudaExternalMemoryHandleDesc) -> Result<CuExternalMemory, CuResult> {
    let mut memory = CuExternalMemory::NULL;
    match code!(cuda, cuImportExternalMemory(&mut memory, description)) {
        CuResult::SUCCESS => Ok(memory),
        code => Err(code),
    }
}

fn buffer(cuda: &Cuda, memory: CuExternalMemory, offset: u64, size: u64) -> Result<u64, CuResult> {
    let description = CudaExternalMemoryBufferDesc {
        offset,
        size,
        ..Default::default()
    };
    let mut address = 0;
    match code!(
        cuda,
        cuExternalMemoryGetMappedBuffer(&mut address, memory, &description)
    ) {
        CuResult::SUCCESS => Ok(address),
        code => Err(code),
    }
}

#[test]
fn buffers_show_the_memory_of_others_and_cost_nothing() {
    in_child("external::buffers_show_the_memory_of_others_and_cost_nothing", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let (file, offset) = (memory(), 4096 + 512);
        file.write_all_at(&[5; 64], offset).expect("it is there");
        let given = file.try_clone().expect("another descriptor").into_raw_fd();
        let memory = import(cuda, &describe(given, BYTES)).expect("memory");
        let at = buffer(cuda, memory, offset, BYTES - offset).expect("inside");
        let mut read = [0_u8; 64];
        ok!(cuda, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), at, 64));
        assert_eq!(read, [5; 64]);
        ok!(cuda, cuMemsetD8_v2(at, 6, (BYTES - offset) as usize));
        ok!(cuda, cuCtxSynchronize());
        file.read_exact_at(&mut read, BYTES - 64).expect("it is there");
        assert_eq!(read, [6; 64]);
        // Two buffers of the same part are the same memory.
        let whole = buffer(cuda, memory, 0, BYTES).expect("inside");
        ok!(cuda, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), whole + offset - 32, 64));
        assert_eq!((read[31], read[32]), (0, 6));
        assert_eq!(cuda.used(), before);
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(at + 512));
        ok!(cuda, cuDestroyExternalMemory(memory));
        // SAFETY: asks about a number.
        let flags = unsafe { libc::fcntl(given, libc::F_GETFD) };
        assert_eq!(flags, -1, "it was the driver's to close");
        refused!(INVALID_HANDLE: cuda, cuDestroyExternalMemory(memory));
        assert_eq!(buffer(cuda, memory, 0, 1).err(), Some(CuResult::INVALID_HANDLE));
        // Buffers outlive it.
        ok!(cuda, cuMemsetD8_v2(whole, 7, 1));
        ok!(cuda, cuCtxSynchronize());
        for address in [at, whole] {
            ok!(cuda, cuMemFree_v2(address));
            refused!(INVALID_VALUE: cuda, cuMemFree_v2(address));
        }
        file.read_exact_at(&mut read[..1], 0).expect("it is there");
        assert_eq!(read[0], 7);
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn what_cannot_be_imported_is_refused_and_stays_the_program_s() {
    in_child(
        "external::what_cannot_be_imported_is_refused_and_stays_the_program_s",
        |cuda| {
            cuda.context(0);
            let file = memory();
            let descriptor = file.as_raw_fd();
            let read_only = File::open("/proc/self/exe").expect("it is there");
            let (mut pipe, unsigned) = ([0; 2], |kind| CudaExternalMemoryHandleDesc {
                kind,
                ..describe(descriptor, BYTES)
            });
            // SAFETY: two descriptors for the array.
            assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
            for (description, code) in [
                (describe(descriptor, BYTES + 1), CuResult::INVALID_HANDLE),
                (describe(-1, BYTES), CuResult::INVALID_HANDLE),
                (describe(read_only.as_raw_fd(), 4096), CuResult::INVALID_HANDLE),
                (describe(pipe[0], 4096), CuResult::INVALID_HANDLE),
                (describe(descriptor, 0), CuResult::INVALID_VALUE),
                (
                    unsigned(CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32),
                    CuResult::NOT_SUPPORTED,
                ),
                (
                    unsigned(CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD),
                    CuResult::NOT_SUPPORTED,
                ),
                (unsigned(99), CuResult::INVALID_VALUE),
            ] {
                assert_eq!(import(cuda, &description).err(), Some(code));
            }
            assert_eq!(file.metadata().expect("still open").len(), BYTES);
            let memory = import(cuda, &describe(file.into_raw_fd(), BYTES)).expect("memory");
            for (offset, size) in [(0, 0), (0, BYTES + 1), (BYTES, 1), (u64::MAX, 2)] {
                assert_eq!(buffer(cuda, memory, offset, size), Err(CuResult::INVALID_VALUE));
            }
        },
    );
}
