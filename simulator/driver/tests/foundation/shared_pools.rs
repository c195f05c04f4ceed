// SPDX-License-Identifier: Apache-2.0
//! Pools that several processes use: one allocates, others open what it allocated.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, Folder, MIB, Partner, code, in_child, listen, ok, refused, role, say};
use crate::hub::{Hub, hub, receive, send};

const DONE: u8 = 0xf1;
const CHECK: u8 = 0xf2;
const FREE: u8 = 0xf3;
const RIGHT: u8 = 0xf4;
const WRONG: u8 = 0xf5;
const CONTEXT: u64 = 16 * MIB;
/// Two chunks of 16 MiB, on a device of 1 GiB.
const BYTES: u64 = 20 * MIB;
const RESERVED: u64 = 32 * MIB;
const POSIX: c_int = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn pool(cuda: &Cuda, handle_types: c_int) -> Result<CuMemoryPool, CuResult> {
    let wish = CuMemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: handle_types,
        location: CuMemLocation {
            kind: CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        },
        ..Default::default()
    };
    let mut pool = CuMemoryPool::NULL;
    match code!(cuda, cuMemPoolCreate(&mut pool, &wish)) {
        CuResult::SUCCESS => Ok(pool),
        code => Err(code),
    }
}

fn export(cuda: &Cuda, pool: CuMemoryPool) -> Result<OwnedFd, CuResult> {
    let mut given: c_int = -1;
    match code!(
        cuda,
        cuMemPoolExportToShareableHandle((&raw mut given).cast(), pool, POSIX, 0)
    ) {
        // SAFETY: the driver made it for us.
        CuResult::SUCCESS => Ok(unsafe { OwnedFd::from_raw_fd(given) }),
        code => Err(code),
    }
}

fn import(cuda: &Cuda, file: &impl AsRawFd) -> Result<CuMemoryPool, CuResult> {
    let mut pool = CuMemoryPool::NULL;
    let descriptor = file.as_raw_fd() as usize as *mut c_void;
    match code!(
        cuda,
        cuMemPoolImportFromShareableHandle(&mut pool, descriptor, POSIX, 0)
    ) {
        CuResult::SUCCESS => Ok(pool),
        code => Err(code),
    }
}

fn allocate(cuda: &Cuda, pool: CuMemoryPool, bytes: u64) -> u64 {
    let mut address = 0;
    ok!(
        cuda,
        cuMemAllocFromPoolAsync(&mut address, bytes as usize, pool, CuStream::NULL)
    );
    address
}

fn export_pointer(cuda: &Cuda, address: u64) -> Result<CuMemPoolPtrExportData, CuResult> {
    let mut data = CuMemPoolPtrExportData { reserved: [0; 64] };
    match code!(cuda, cuMemPoolExportPointer(&mut data, address)) {
        CuResult::SUCCESS => Ok(data),
        code => Err(code),
    }
}

fn import_pointer(cuda: &Cuda, pool: CuMemoryPool, mut data: CuMemPoolPtrExportData) -> Result<u64, CuResult> {
    let mut address = 0;
    match code!(cuda, cuMemPoolImportPointer(&mut address, pool, &mut data)) {
        CuResult::SUCCESS => Ok(address),
        code => Err(code),
    }
}

fn byte(cuda: &Cuda, address: u64) -> u8 {
    let mut byte = 0_u8;
    ok!(cuda, cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1));
    byte
}

fn free(cuda: &Cuda, address: u64) {
    ok!(cuda, cuMemFreeAsync(address, CuStream::NULL));
    ok!(cuda, cuCtxSynchronize());
}

fn pointer_file() -> PathBuf {
    PathBuf::from(std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test")).join("pointer")
}

fn exporter() {
    let cuda = Cuda::load();
    cuda.context(0);
    let pool = pool(&cuda, POSIX).expect("built");
    let address = allocate(&cuda, pool, BYTES);
    ok!(cuda, cuMemsetD8_v2(address, 7, BYTES as usize));
    ok!(cuda, cuCtxSynchronize());
    let descriptor = export(&cuda, pool).expect("it can be shared");
    let data = export_pointer(&cuda, address).expect("its pool was exported");
    std::fs::write(pointer_file(), data.reserved).expect("a file can be written");
    send(&hub(), descriptor.as_raw_fd());
    say(DONE);
    if listen() == Some(FREE) {
        free(&cuda, address);
        say(DONE);
        listen();
    }
}

fn importer() {
    let cuda = Cuda::load();
    cuda.context(0);
    let pool = import(&cuda, &receive(&hub())).expect("a pool");
    let raw = std::fs::read(pointer_file()).expect("the exporter wrote it");
    let data = CuMemPoolPtrExportData {
        reserved: raw.try_into().expect("64 bytes"),
    };
    let address = import_pointer(&cuda, pool, data).expect("it is there");
    let mut refused = 0;
    refused!(INVALID_VALUE: cuda, cuMemAllocFromPoolAsync(&mut refused, 512, pool, CuStream::NULL));
    refused!(INVALID_VALUE: cuda, cuDeviceSetMemPool(0, pool));
    // The pool's handle is not needed for what was opened.
    ok!(cuda, cuMemPoolDestroy(pool));
    say(DONE);
    while let Some(what) = listen() {
        match what {
            CHECK => {
                let is_there = byte(&cuda, address) == 7 && byte(&cuda, address + BYTES - 1) == 7;
                say(if is_there { RIGHT } else { WRONG });
            }
            FREE => {
                free(&cuda, address);
                say(DONE);
            }
            _ => unreachable!("{what}"),
        }
    }
}

fn run_role() -> bool {
    match role().as_deref() {
        Some("exporter") => exporter(),
        Some("importer") => importer(),
        Some(other) => unreachable!("{other}"),
        None => return false,
    }
    true
}

fn start(folder: &Folder, test: &str) -> (Partner, Partner) {
    let hub = Hub::new(folder.path());
    let mut exporter = folder.start(test, "exporter");
    let file = hub.get();
    exporter.hear(DONE);
    assert_eq!(folder.machine().used(0), CONTEXT + RESERVED);
    let mut importer = folder.start(test, "importer");
    hub.give(&file);
    importer.hear(DONE);
    (exporter, importer)
}

fn ask(partner: &mut Partner, what: u8) -> u8 {
    partner.tell(what);
    partner.hear_one_of([DONE, RIGHT, WRONG])
}

/// What each of two processes pays.
fn paid(folder: &Folder, partners: [&Partner; 2]) -> [u64; 2] {
    let occupants = folder.machine().occupants(0);
    let total: u64 = occupants.iter().map(|process| process.used).sum();
    assert_eq!(folder.machine().used(0), total);
    partners.map(|partner| {
        let of = occupants.iter().find(|process| process.pid == partner.child.id());
        of.map_or(0, |process| process.used)
    })
}

#[test]
fn what_a_pool_allocated_is_opened_at_no_cost() {
    if run_role() {
        return;
    }
    const TEST: &str = "shared_pools::what_a_pool_allocated_is_opened_at_no_cost";
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, TEST);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT + RESERVED, CONTEXT]);
    assert_eq!(ask(&mut importer, CHECK), RIGHT);
    // In the right order: the importer first.
    assert_eq!(ask(&mut importer, FREE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT + RESERVED, CONTEXT]);
    assert_eq!(ask(&mut exporter, FREE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT, CONTEXT]);
    exporter.finish();
    importer.finish();
    assert_eq!(folder.machine().used(0), 0);
}

#[test]
fn what_a_pool_gave_up_lives_until_its_importers_free_it() {
    if run_role() {
        return;
    }
    const TEST: &str = "shared_pools::what_a_pool_gave_up_lives_until_its_importers_free_it";
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut exporter, FREE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT, CONTEXT + RESERVED]);
    exporter.kill();
    assert_eq!(ask(&mut importer, CHECK), RIGHT);
    assert_eq!(folder.machine().used(0), CONTEXT + RESERVED);
    assert_eq!(ask(&mut importer, FREE), DONE);
    assert_eq!(folder.machine().used(0), CONTEXT);
    importer.finish();
}

#[test]
fn what_a_dead_process_s_pool_allocated_lives_until_its_importers_die() {
    if run_role() {
        return;
    }
    const TEST: &str = "shared_pools::what_a_dead_process_s_pool_allocated_lives_until_its_importers_die";
    let folder = Folder::new(1);
    let (exporter, mut importer) = start(&folder, TEST);
    exporter.kill();
    assert_eq!(folder.machine().used(0), CONTEXT + RESERVED);
    assert_eq!(ask(&mut importer, CHECK), RIGHT);
    importer.kill();
    assert_eq!(folder.machine().used(0), 0);
}

#[test]
fn pools_and_pointers_that_cannot_be_shared_are_refused() {
    in_child(
        "shared_pools::pools_and_pointers_that_cannot_be_shared_are_refused",
        |cuda| {
            cuda.context(0);
            for kinds in [
                CU_MEM_HANDLE_TYPE_FABRIC,
                CU_MEM_HANDLE_TYPE_WIN32,
                POSIX | CU_MEM_HANDLE_TYPE_FABRIC,
            ] {
                assert_eq!(pool(cuda, kinds).err(), Some(CuResult::NOT_SUPPORTED));
            }
            let alone = pool(cuda, CU_MEM_HANDLE_TYPE_NONE).expect("built");
            assert_eq!(export(cuda, alone).err(), Some(CuResult::INVALID_VALUE));
            let in_it = allocate(cuda, alone, 512);
            assert_eq!(export_pointer(cuda, in_it).err(), Some(CuResult::INVALID_VALUE));
            let [first, second] = [(); 2].map(|()| pool(cuda, POSIX).expect("built"));
            let mut kinds: c_int = -1;
            let attribute = CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES;
            ok!(cuda, cuMemPoolGetAttribute(first, attribute, (&raw mut kinds).cast()));
            assert_eq!(kinds, POSIX);
            let address = allocate(cuda, first, 512);
            assert_eq!(
                export_pointer(cuda, address).err(),
                Some(CuResult::INVALID_VALUE),
                "the pool comes first"
            );
            let descriptors = [first, second].map(|pool| export(cuda, pool).expect("it can be shared"));
            let data = export_pointer(cuda, address).expect("now it can be");
            // A process can open its own pools too.
            let imported = descriptors
                .each_ref()
                .map(|descriptor| import(cuda, descriptor).expect("a pool"));
            assert_eq!(
                import_pointer(cuda, imported[1], data),
                Err(CuResult::INVALID_VALUE),
                "another pool's"
            );
            assert_eq!(
                import_pointer(cuda, first, data),
                Err(CuResult::INVALID_VALUE),
                "not imported"
            );
            let made_up = CuMemPoolPtrExportData { reserved: [9; 64] };
            assert_eq!(import_pointer(cuda, imported[0], made_up), Err(CuResult::INVALID_VALUE));
            let before = cuda.used();
            let again = import_pointer(cuda, imported[0], data).expect("it is there");
            assert_ne!(again, address);
            ok!(cuda, cuMemsetD8_v2(again, 3, 512));
            assert_eq!(byte(cuda, address + 511), 3, "the same memory");
            ok!(cuda, cuMemFree_v2(again));
            refused!(INVALID_VALUE: cuda, cuMemFree_v2(again));
            assert_eq!(cuda.used(), before);
            free(cuda, address);
            assert_eq!(
                import_pointer(cuda, imported[0], data),
                Err(CuResult::INVALID_VALUE),
                "it is gone"
            );
            let ordinary = std::fs::File::open("/proc/self/exe").expect("it is there");
            assert_eq!(import(cuda, &ordinary), Err(CuResult::INVALID_VALUE));
        },
    );
}
