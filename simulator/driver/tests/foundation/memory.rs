// SPDX-License-Identifier: Apache-2.0
//! Linear, managed and host memory in one process: codes, exact totals, and addresses that the CPU cannot read.

use std::ffi::c_void;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{MIB, code, in_child, ok, refused};

#[test]
fn sizes_at_the_edges_get_the_right_codes_and_nothing_drifts() {
    in_child(
        "memory::sizes_at_the_edges_get_the_right_codes_and_nothing_drifts",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let rest = 1024 * MIB - before;
            assert_eq!(cuda.allocate(0), Err(CuResult::INVALID_VALUE));
            refused!(INVALID_VALUE: cuda, cuMemAlloc_v2(std::ptr::null_mut(), 1));
            for huge in [1 << 63, u64::MAX, u64::MAX - 511, 1 << 40, rest + 1] {
                assert_eq!(cuda.allocate(huge), Err(CuResult::OUT_OF_MEMORY), "{huge:#x}");
                assert_eq!(cuda.used(), before);
            }
            let all = cuda.allocate(rest).expect("exactly what is left");
            assert_eq!(cuda.used(), 1024 * MIB);
            assert_eq!(cuda.allocate(1), Err(CuResult::OUT_OF_MEMORY));
            ok!(cuda, cuMemFree_v2(all));
            let small = cuda.allocate(1).expect("room");
            assert_eq!(cuda.used(), before + 512, "costs are multiples of 512");
            ok!(cuda, cuMemFree_v2(small));
            assert_eq!(cuda.used(), before);
        },
    );
}

#[test]
fn only_what_is_allocated_can_be_freed() {
    in_child("memory::only_what_is_allocated_can_be_freed", |cuda| {
        cuda.context(0);
        ok!(cuda, cuMemFree_v2(0));
        let address = cuda.allocate(MIB).expect("room");
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(address + 512));
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(0x1234));
        refused!(INVALID_VALUE: cuda, cuMemFreeHost(address as *mut c_void));
        ok!(cuda, cuMemFree_v2(address));
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(address));
        let mut host = std::ptr::null_mut();
        ok!(cuda, cuMemHostAlloc(&mut host, 4096, 0));
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(host as u64));
        ok!(cuda, cuMemFreeHost(host));
        refused!(INVALID_VALUE: cuda, cuMemFreeHost(host));
    });
}

#[test]
fn the_cpu_cannot_read_device_memory() {
    in_child("memory::the_cpu_cannot_read_device_memory", |cuda| {
        cuda.context(0);
        let address = cuda.allocate(MIB).expect("room");
        // The kernel reads for us: EFAULT is what a dereference would die of.
        let mut pipe = [0; 2];
        // SAFETY: two descriptors for the array; a write from an address that need not be readable.
        let written = unsafe {
            libc::pipe(pipe.as_mut_ptr());
            libc::write(pipe[1], address as *const c_void, 1)
        };
        assert_eq!(
            (written, std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::EFAULT))
        );
        // The driver reads it all the same.
        let (mut there, mut back) = ([7_u8; 64], [0_u8; 64]);
        ok!(cuda, cuMemcpyHtoD_v2(address + 100, there.as_mut_ptr().cast(), 64));
        ok!(cuda, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address + 100, 64));
        assert_eq!(there, back);
    });
}

#[test]
fn freed_memory_comes_back_clean() {
    in_child("memory::freed_memory_comes_back_clean", |cuda| {
        cuda.context(0);
        let secret = vec![0x5a_u8; 3 * MIB as usize];
        let address = cuda.allocate(secret.len() as u64).expect("room");
        ok!(cuda, cuMemcpyHtoD_v2(address, secret.as_ptr().cast(), secret.len()));
        ok!(cuda, cuMemFree_v2(address));
        assert_eq!(cuda.allocate(secret.len() as u64), Ok(address), "the same place");
        let mut read = vec![1_u8; secret.len()];
        ok!(cuda, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), address, read.len()));
        assert!(read.iter().all(|&byte| byte == 0));
    });
}

#[test]
fn pitched_rows_are_aligned_and_cost_what_they_take() {
    in_child("memory::pitched_rows_are_aligned_and_cost_what_they_take", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let (mut address, mut pitch) = (0, 0);
        ok!(cuda, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 10, 4));
        assert_eq!((pitch, cuda.used() - before), (1024, 10240));
        for (width, height, element) in [(0, 1, 4), (1, 0, 4), (1, 1, 3)] {
            refused!(INVALID_VALUE: cuda, cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, element));
        }
        refused!(OUT_OF_MEMORY: cuda, cuMemAllocPitch_v2(&mut address, &mut pitch, usize::MAX, 2, 4));
    });
}

#[test]
fn managed_and_host_memory_is_ordinary_memory() {
    in_child("memory::managed_and_host_memory_is_ordinary_memory", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let mut managed = 0;
        ok!(cuda, cuMemAllocManaged(&mut managed, 8192, CU_MEM_ATTACH_GLOBAL));
        refused!(INVALID_VALUE: cuda, cuMemAllocManaged(&mut managed, 8192, CU_MEM_ATTACH_SINGLE));
        let mut host = std::ptr::null_mut();
        ok!(cuda, cuMemAllocHost_v2(&mut host, 8192));
        assert_eq!(cuda.used(), before, "neither costs device memory");
        for at in [managed as *mut u8, host.cast()] {
            // SAFETY: 8192 bytes of ordinary memory each.
            unsafe {
                at.write_bytes(3, 8192);
                assert_eq!(at.add(8191).read(), 3);
            }
        }
        let (mut flags, mut device) = (0, 0);
        ok!(cuda, cuMemHostGetFlags(&mut flags, host));
        assert_eq!(flags, CU_MEMHOSTALLOC_DEVICEMAP);
        ok!(cuda, cuMemHostGetDevicePointer_v2(&mut device, host, 0));
        assert_eq!(device, host as u64);
        let mut own = vec![0_u8; 8192];
        let own = own.as_mut_ptr().cast();
        refused!(INVALID_VALUE: cuda, cuMemHostGetDevicePointer_v2(&mut device, own, 0));
        ok!(cuda, cuMemHostRegister_v2(own, 8192, 0));
        refused!(HOST_MEMORY_ALREADY_REGISTERED: cuda, cuMemHostRegister_v2(own, 100, 0));
        ok!(cuda, cuMemHostGetDevicePointer_v2(&mut device, own, 0));
        ok!(cuda, cuMemHostUnregister(own));
        refused!(HOST_MEMORY_NOT_REGISTERED: cuda, cuMemHostUnregister(own));
        ok!(cuda, cuMemFree_v2(managed));
        ok!(cuda, cuMemFreeHost(host));
    });
}

#[test]
fn the_driver_knows_what_an_address_is() {
    in_child("memory::the_driver_knows_what_an_address_is", |cuda| {
        let context = cuda.context(0);
        let address = cuda.allocate(1000).expect("room");
        let word = |attribute, at| {
            let mut value = 0_u32;
            let code = code!(cuda, cuPointerGetAttribute((&raw mut value).cast(), attribute, at));
            (code == CuResult::SUCCESS).then_some(value)
        };
        let long = |attribute, at| {
            let mut value = 0_u64;
            let code = code!(cuda, cuPointerGetAttribute((&raw mut value).cast(), attribute, at));
            (code == CuResult::SUCCESS).then_some(value)
        };
        let inside = address + 999;
        assert_eq!(
            word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            Some(CU_MEMORYTYPE_DEVICE as u32)
        );
        assert_eq!(word(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), Some(0));
        assert_eq!(long(CU_POINTER_ATTRIBUTE_CONTEXT, inside), Some(context.0 as u64));
        assert_eq!(long(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), Some(address));
        assert_eq!(long(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), Some(1000));
        assert_eq!(long(CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), None);
        assert_eq!(
            word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1000),
            None,
            "one past the end"
        );
        let (mut base, mut size) = (0, 0);
        ok!(cuda, cuMemGetAddressRange_v2(&mut base, &mut size, inside));
        assert_eq!((base, size), (address, 1000));
        refused!(NOT_FOUND: cuda, cuMemGetAddressRange_v2(&mut base, &mut size, 0x10));
        // Asked for several, an unknown address is no error: its attributes are empty.
        let (mut kind, mut ordinal) = (9_u32, 9_i32);
        let mut wanted = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
        let mut to = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
        ok!(
            cuda,
            cuPointerGetAttributes(2, wanted.as_mut_ptr(), to.as_mut_ptr(), 0x10)
        );
        assert_eq!((kind, ordinal), (0, -2));
    });
}
