// SPDX-License-Identifier: Apache-2.0
//! Physical memory, address ranges and mappings, as caching allocators use them.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, MIB, code, in_child, ok, refused};

const BLOCK: usize = 2 << 20;

/// What memory of the first device is asked for with.
pub fn on_device() -> CuMemAllocationProp {
    let location = CuMemLocation {
        kind: CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    };
    CuMemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        location,
        ..Default::default()
    }
}

#[test]
fn a_range_grows_block_by_block_and_is_one_piece_to_copies() {
    in_child(
        "virtual_memory::a_range_grows_block_by_block_and_is_one_piece_to_copies",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let property = on_device();
            let mut granularity = 0;
            ok!(
                cuda,
                cuMemGetAllocationGranularity(&mut granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
            );
            assert_eq!(granularity, BLOCK);
            let mut base = 0;
            ok!(cuda, cuMemAddressReserve(&mut base, 64 * BLOCK, 0, 0, 0));
            let mut handles = [0; 2];
            for (place, handle) in handles.iter_mut().enumerate() {
                let at = base + (place * BLOCK) as u64;
                ok!(cuda, cuMemCreate(handle, BLOCK, &property, 0));
                ok!(cuda, cuMemMap(at, BLOCK, 0, *handle, 0));
                refused!(INVALID_VALUE: cuda, cuMemMap(at, BLOCK, 0, *handle, 0));
            }
            assert_eq!(cuda.used(), before + 4 * MIB);
            let access = CuMemAccessDesc {
                location: property.location,
                flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            ok!(cuda, cuMemSetAccess(base, 2 * BLOCK, &access, 1));
            let mut flags = 0;
            ok!(cuda, cuMemGetAccess(&mut flags, &property.location, base));
            assert_eq!(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u64);
            // Across the seam.
            let (there, mut back) = ([9_u8; 4096], [0_u8; 4096]);
            let seam = base + BLOCK as u64 - 2048;
            ok!(cuda, cuMemcpyHtoD_v2(seam, there.as_ptr().cast(), 4096));
            ok!(cuda, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), seam, 4096));
            assert_eq!(there, back);
            refused!(INVALID_VALUE: cuda, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), base + 2 * BLOCK as u64 - 1, 2));
            refused!(INVALID_VALUE: cuda, cuMemAddressFree(base, 64 * BLOCK));
            // Released handles keep their memory while it is mapped.
            handles.iter().for_each(|handle| ok!(cuda, cuMemRelease(*handle)));
            refused!(INVALID_VALUE: cuda, cuMemRelease(handles[0]));
            assert_eq!(cuda.used(), before + 4 * MIB);
            let mut again = 0;
            ok!(cuda, cuMemRetainAllocationHandle(&mut again, base as *mut c_void));
            ok!(cuda, cuMemUnmap(base, 2 * BLOCK));
            assert_eq!(cuda.used(), before + 2 * MIB, "one block is held by its handle");
            ok!(cuda, cuMemRelease(again));
            assert_eq!(cuda.used(), before);
            ok!(cuda, cuMemAddressFree(base, 64 * BLOCK));
        },
    );
}

#[test]
fn wrong_sizes_and_places_are_refused() {
    in_child("virtual_memory::wrong_sizes_and_places_are_refused", |cuda| {
        ok!(cuda, cuInit(0));
        let (mut handle, mut base) = (0, 0);
        let property = on_device();
        refused!(INVALID_VALUE: cuda, cuMemCreate(&mut handle, 0, &property, 0));
        refused!(INVALID_VALUE: cuda, cuMemCreate(&mut handle, BLOCK + 1, &property, 0));
        refused!(OUT_OF_MEMORY: cuda, cuMemCreate(&mut handle, 2048 * BLOCK, &property, 0));
        let mut elsewhere = property;
        elsewhere.location.id = 9;
        refused!(INVALID_DEVICE: cuda, cuMemCreate(&mut handle, BLOCK, &elsewhere, 0));
        ok!(cuda, cuMemCreate(&mut handle, BLOCK, &property, 0));
        refused!(INVALID_VALUE: cuda, cuMemMap(0x20_0000, BLOCK, 0, handle, 0));
        refused!(INVALID_VALUE: cuda, cuMemAddressReserve(&mut base, 1, 0, 0, 0));
        ok!(cuda, cuMemAddressReserve(&mut base, BLOCK, 0, 0, 0));
        refused!(INVALID_VALUE: cuda, cuMemMap(base, 2 * BLOCK, 0, handle, 0));
        refused!(INVALID_VALUE: cuda, cuMemUnmap(base, BLOCK));
        ok!(cuda, cuMemMap(base, BLOCK, 0, handle, 0));
        refused!(INVALID_VALUE: cuda, cuMemUnmap(base + 4096, BLOCK));
        cuda.context(0);
        refused!(INVALID_VALUE: cuda, cuMemFree_v2(base));
    });
}

fn on_host(kind: c_int, id: c_int) -> CuMemAllocationProp {
    CuMemAllocationProp {
        location: CuMemLocation { kind, id },
        ..on_device()
    }
}

/// Two blocks of host memory at the start of an address range of four: handle and address. Needs no context.
fn host_blocks(cuda: &Cuda) -> (u64, u64) {
    let property = on_host(CU_MEM_LOCATION_TYPE_HOST, 77);
    let (mut granularity, mut handle, mut base) = (0, 0, 0);
    let minimum = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    ok!(
        cuda,
        cuMemGetAllocationGranularity(&mut granularity, &property, minimum)
    );
    assert_eq!(granularity, BLOCK);
    ok!(cuda, cuMemCreate(&mut handle, 2 * BLOCK, &property, 0));
    ok!(cuda, cuMemAddressReserve(&mut base, 4 * BLOCK, 0, 0, 0));
    ok!(cuda, cuMemMap(base, 2 * BLOCK, 0, handle, 0));
    (handle, base)
}

fn access(kind: c_int, flags: c_int) -> CuMemAccessDesc {
    CuMemAccessDesc {
        location: CuMemLocation { kind, id: 0 },
        flags,
    }
}

/// The CPU and the device may read and write.
fn on_both() -> [CuMemAccessDesc; 2] {
    [
        access(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        access(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
    ]
}

/// Whether the CPU may read an address.
fn is_readable(address: u64) -> bool {
    // The kernel reads for us: EFAULT is what a dereference would die of.
    let mut pipe = [0; 2];
    // SAFETY: two descriptors for the array; a write from an address that need not be readable.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        libc::write(pipe[1], address as *const c_void, 1) == 1
    }
}

#[test]
fn host_memory_costs_no_device_memory_and_is_reached_from_both_sides() {
    in_child(
        "virtual_memory::host_memory_costs_no_device_memory_and_is_reached_from_both_sides",
        |cuda| {
            ok!(cuda, cuInit(0));
            let (_, base) = host_blocks(cuda);
            ok!(cuda, cuMemSetAccess(base, 2 * BLOCK, on_both().as_ptr(), 2));
            // SAFETY: two blocks of memory that the CPU was given.
            unsafe { (base as *mut u8).write_bytes(3, 2 * BLOCK) };
            cuda.context(0);
            let before = cuda.used();
            assert_eq!(before, 16 * MIB);
            let end = base + 2 * BLOCK as u64;
            let mut back = [0_u8; 64];
            ok!(cuda, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), end - 64, 64));
            assert_eq!(back, [3; 64]);
            ok!(cuda, cuMemsetD8_v2(end - 1, 4, 1));
            ok!(cuda, cuCtxSynchronize());
            // SAFETY: as above.
            assert_eq!(unsafe { ((end - 1) as *const u8).read_volatile() }, 4);
            let mut kind = 0_u32;
            let attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
            ok!(cuda, cuPointerGetAttribute((&raw mut kind).cast(), attribute, base));
            assert_eq!(kind, CU_MEMORYTYPE_HOST as u32);
            assert_eq!(cuda.used(), before);
        },
    );
}

#[test]
fn host_memory_is_reached_by_whom_it_is_said() {
    in_child("virtual_memory::host_memory_is_reached_by_whom_it_is_said", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let (handle, base) = host_blocks(cuda);
        assert!(!is_readable(base), "nobody was given access");
        ok!(cuda, cuMemSetAccess(base, 2 * BLOCK, on_both().as_ptr(), 2));
        let mut flags = 0;
        ok!(cuda, cuMemGetAccess(&mut flags, &on_both()[0].location, base));
        assert_eq!(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u64);
        let none = access(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        ok!(cuda, cuMemSetAccess(base, 2 * BLOCK, &none, 1));
        assert!(!is_readable(base));
        let reads = access(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ACCESS_FLAGS_PROT_READ);
        ok!(cuda, cuMemSetAccess(base, 2 * BLOCK, &reads, 1));
        assert!(is_readable(base));
        // The same memory at a second place, of which only a part is mapped.
        let second = base + 2 * BLOCK as u64;
        ok!(cuda, cuMemMap(second, BLOCK, 0, handle, 0));
        ok!(cuda, cuMemSetAccess(second, BLOCK, on_both().as_ptr(), 2));
        // SAFETY: both places are readable, the second one is writable.
        unsafe {
            (second as *mut u8).write_volatile(9);
            assert_eq!((base as *const u8).read_volatile(), 9);
        }
        ok!(cuda, cuMemRelease(handle));
        ok!(cuda, cuMemUnmap(base, 3 * BLOCK));
        assert!(!is_readable(base) && !is_readable(second));
        ok!(cuda, cuMemAddressFree(base, 4 * BLOCK));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn locations_that_memory_cannot_have_are_refused() {
    in_child(
        "virtual_memory::locations_that_memory_cannot_have_are_refused",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let (mut handle, mut base) = (0, 0);
            let mut create = |property: &CuMemAllocationProp| code!(cuda, cuMemCreate(&mut handle, BLOCK, property, 0));
            assert_eq!(create(&on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0)), CuResult::SUCCESS);
            assert_eq!(
                create(&on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, 9999)),
                CuResult::INVALID_VALUE
            );
            assert_eq!(
                create(&on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA, -1)),
                CuResult::INVALID_VALUE
            );
            assert_eq!(
                create(&on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)),
                CuResult::INVALID_VALUE
            );
            assert_eq!(create(&on_host(CU_MEM_LOCATION_TYPE_NONE, 0)), CuResult::INVALID_VALUE);
            let shared = CuMemAllocationProp {
                requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                ..on_host(CU_MEM_LOCATION_TYPE_HOST, 0)
            };
            assert_eq!(
                create(&shared),
                CuResult::INVALID_VALUE,
                "only memory of a node can be shared"
            );
            assert_eq!(create(&on_device()), CuResult::SUCCESS);
            assert_eq!(cuda.used(), before + BLOCK as u64);
            ok!(cuda, cuMemAddressReserve(&mut base, BLOCK, 0, 0, 0));
            ok!(cuda, cuMemMap(base, BLOCK, 0, handle, 0));
            // The CPU does not reach memory of a device.
            for (kind, code) in [
                (CU_MEM_LOCATION_TYPE_HOST, CuResult::NOT_SUPPORTED),
                (CU_MEM_LOCATION_TYPE_HOST_NUMA, CuResult::INVALID_VALUE),
            ] {
                let access = CuMemAccessDesc {
                    location: CuMemLocation { kind, id: 0 },
                    flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                };
                assert_eq!(code!(cuda, cuMemSetAccess(base, BLOCK, &access, 1)), code);
            }
        },
    );
}
