// SPDX-License-Identifier: Apache-2.0
//! Physical memory, address ranges and mappings, as caching allocators use them.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{MIB, in_child, ok, refused};

const BLOCK: usize = 2 << 20;

fn on_device() -> CuMemAllocationProp {
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
        elsewhere.location.kind = CU_MEM_LOCATION_TYPE_HOST;
        refused!(NOT_SUPPORTED: cuda, cuMemCreate(&mut handle, BLOCK, &elsewhere, 0));
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
