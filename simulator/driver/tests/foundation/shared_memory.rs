// SPDX-License-Identifier: Apache-2.0
//! Memory that several processes hold through descriptors: who pays for it, and that it lives as long as anybody.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, Folder, MIB, Partner, code, in_child, listen, ok, refused, role, say};
use crate::hub::{Hub, hub, receive, send};
use crate::virtual_memory::on_device;

const DONE: u8 = 0xf1;
const GO: u8 = 0xf2;
const CHECK: u8 = 0xf3;
const RIGHT: u8 = 0xf4;
const WRONG: u8 = 0xf5;
const BLOCK: usize = 64 << 20;
const CONTEXT: u64 = 16 * MIB;
/// A word that lies in the last page.
const LAST: u64 = BLOCK as u64 - 4;

fn shareable() -> CuMemAllocationProp {
    CuMemAllocationProp {
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ..on_device()
    }
}

/// Maps memory and makes it usable.
fn map(cuda: &Cuda, handle: CuMemGenericAllocationHandle) -> u64 {
    let mut base = 0;
    ok!(cuda, cuMemAddressReserve(&mut base, BLOCK, 0, 0, 0));
    ok!(cuda, cuMemMap(base, BLOCK, 0, handle, 0));
    let access = CuMemAccessDesc {
        location: on_device().location,
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    ok!(cuda, cuMemSetAccess(base, BLOCK, &access, 1));
    base
}

fn export(cuda: &Cuda, handle: CuMemGenericAllocationHandle) -> OwnedFd {
    let mut given: c_int = -1;
    ok!(
        cuda,
        cuMemExportToShareableHandle(
            (&raw mut given).cast(),
            handle,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            0
        )
    );
    // SAFETY: the driver made it for us.
    unsafe { OwnedFd::from_raw_fd(given) }
}

fn import(cuda: &Cuda, file: &impl AsRawFd) -> Result<CuMemGenericAllocationHandle, CuResult> {
    let mut handle = 0;
    let descriptor = file.as_raw_fd() as usize as *mut c_void;
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    match code!(cuda, cuMemImportFromShareableHandle(&mut handle, descriptor, kind)) {
        CuResult::SUCCESS => Ok(handle),
        code => Err(code),
    }
}

fn word(cuda: &Cuda, address: u64) -> u32 {
    let mut word = 0_u32;
    ok!(cuda, cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4));
    word
}

/// Makes memory, fills it with 7 and sends its descriptor; lets go of it when told.
fn exporter() {
    let cuda = Cuda::load();
    cuda.context(0);
    let mut handle = 0;
    ok!(cuda, cuMemCreate(&mut handle, BLOCK, &shareable(), 0));
    let base = map(&cuda, handle);
    ok!(cuda, cuMemsetD32_v2(base, 7, BLOCK / 4));
    ok!(cuda, cuCtxSynchronize());
    let descriptor = export(&cuda, handle);
    send(&hub(), descriptor.as_raw_fd());
    drop(descriptor);
    say(DONE);
    if listen().is_none() {
        return;
    }
    ok!(cuda, cuMemRelease(handle));
    ok!(cuda, cuMemUnmap(base, BLOCK));
    say(DONE);
    listen();
}

/// Imports memory that ends with 7 or more, counts its first word up, and says at each question whether the memory is
/// still there.
fn importer() {
    let cuda = Cuda::load();
    cuda.context(0);
    let file = receive(&hub());
    let Ok(handle) = import(&cuda, &file) else {
        say(WRONG);
        return;
    };
    drop(file);
    let base = map(&cuda, handle);
    // The mapping alone is enough from here on.
    ok!(cuda, cuMemRelease(handle));
    ok!(cuda, cuMemsetD32_v2(base, word(&cuda, base) + 1, 1));
    ok!(cuda, cuCtxSynchronize());
    say(DONE);
    while listen() == Some(CHECK) {
        let is_there = word(&cuda, base) > 7 && word(&cuda, base + LAST) == 7;
        say(if is_there { RIGHT } else { WRONG });
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

/// What each of these processes pays.
fn paid<const N: usize>(folder: &Folder, partners: [&Partner; N]) -> [u64; N] {
    let occupants = folder.machine().occupants(0);
    let total: u64 = occupants.iter().map(|process| process.used).sum();
    assert_eq!(folder.machine().used(0), total, "nobody else pays anything");
    partners.map(|partner| {
        let of = occupants.iter().find(|process| process.pid == partner.child.id());
        of.map_or(0, |process| process.used)
    })
}

fn is_intact(partner: &mut Partner) -> bool {
    partner.tell(CHECK);
    partner.hear_one_of([RIGHT, WRONG]) == RIGHT
}

#[test]
fn one_living_holder_pays_for_shared_memory() {
    if run_role() {
        return;
    }
    const TEST: &str = "shared_memory::one_living_holder_pays_for_shared_memory";
    const BYTES: u64 = BLOCK as u64;
    let folder = Folder::new(1);
    let hub = Hub::new(folder.path());
    let mut exporter = folder.start(TEST, "exporter");
    let file = hub.get();
    exporter.hear(DONE);
    let start = || {
        let mut importer = folder.start(TEST, "importer");
        hub.give(&file);
        importer.hear(DONE);
        importer
    };
    assert_eq!(paid(&folder, [&exporter]), [CONTEXT + BYTES]);
    let mut first = start();
    let mut second = start();
    assert_eq!(
        paid(&folder, [&exporter, &first, &second]),
        [CONTEXT + BYTES, CONTEXT, CONTEXT]
    );
    exporter.tell(GO);
    exporter.hear(DONE);
    // Its memory is released and unmapped, and lives on at the cost of one of the others.
    assert_eq!(
        paid(&folder, [&exporter, &first, &second]),
        [CONTEXT, CONTEXT + BYTES, CONTEXT]
    );
    assert!(is_intact(&mut first) && is_intact(&mut second));
    exporter.kill();
    let third = start();
    first.kill();
    assert_eq!(paid(&folder, [&second, &third]), [CONTEXT + BYTES, CONTEXT]);
    assert!(is_intact(&mut second));
    second.kill();
    assert_eq!(paid(&folder, [&third]), [CONTEXT + BYTES]);
    third.finish();
    assert_eq!(folder.machine().used(0), 0);
}

#[test]
fn memory_outlives_its_exporter_in_a_descriptor_on_its_way() {
    if run_role() {
        return;
    }
    const TEST: &str = "shared_memory::memory_outlives_its_exporter_in_a_descriptor_on_its_way";
    let folder = Folder::new(1);
    let hub = Hub::new(folder.path());
    let mut exporter = folder.start(TEST, "exporter");
    let file = hub.get();
    exporter.hear(DONE);
    exporter.kill();
    assert_eq!(folder.machine().used(0), 0, "nobody holds it");
    // While the device is full it cannot come back.
    let machine = folder.machine();
    let seat = machine.take_seat().expect("a seat");
    machine.reserve(seat, 0, 960 * MIB).expect("room");
    let mut refused = folder.start(TEST, "importer");
    hub.give(&file);
    refused.hear(WRONG);
    refused.finish();
    machine.release(seat, 0, 960 * MIB);
    assert_eq!(machine.used(0), 0);
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut importer = folder.start(TEST, "importer");
        hub.give(&file);
        importer.hear(DONE);
        importer
    });
    assert_eq!(
        paid(&folder, [&first, &second]),
        [CONTEXT + BLOCK as u64, CONTEXT],
        "once, by the first"
    );
    assert!(is_intact(&mut first) && is_intact(&mut second));
    first.finish();
    assert_eq!(paid(&folder, [&second]), [CONTEXT + BLOCK as u64]);
    second.kill();
    machine.leave_seat(seat);
    assert_eq!(machine.used(0), 0);
}

#[test]
fn processes_killed_while_they_share_leave_nothing() {
    const TEST: &str = "shared_memory::processes_killed_while_they_share_leave_nothing";
    match role().as_deref() {
        Some("maker") => {
            let cuda = Cuda::load();
            cuda.context(0);
            let hub = hub();
            say(DONE);
            loop {
                let mut handle = 0;
                ok!(cuda, cuMemCreate(&mut handle, 2 << 20, &shareable(), 0));
                let descriptor = export(&cuda, handle);
                send(&hub, descriptor.as_raw_fd());
                ok!(cuda, cuMemRelease(handle));
            }
        }
        Some(_) => {
            let cuda = Cuda::load();
            cuda.context(0);
            let hub = hub();
            say(DONE);
            loop {
                // Whether its maker still holds it or not.
                let handle = import(&cuda, &receive(&hub)).expect("room");
                ok!(cuda, cuMemRelease(handle));
            }
        }
        None => {}
    }
    let folder = Folder::new(1);
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("hub")).expect("a socket");
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = seed;
    for _ in 0..20 {
        let mut maker = folder.start(TEST, "maker");
        let (from, _) = listener.accept().expect("the maker");
        maker.hear(DONE);
        let mut taker = folder.start(TEST, "taker");
        let (to, _) = listener.accept().expect("the taker");
        taker.hear(DONE);
        // A place in the loops that differs every time.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let machine = folder.machine();
        for _ in 0..random >> 26 {
            send(&to, receive(&from).as_raw_fd());
            assert!(machine.used(0) <= 2 * CONTEXT + 2 * 2 * MIB);
        }
        if random & 1 << 20 == 0 {
            maker.kill();
            assert!(machine.used(0) <= CONTEXT + 2 * MIB);
            taker.kill();
        } else {
            taker.kill();
            assert!(machine.used(0) <= CONTEXT + 2 * MIB);
            maker.kill();
        }
        assert_eq!(machine.used(0), 0);
    }
}

#[test]
fn what_cannot_be_shared_is_refused() {
    in_child("shared_memory::what_cannot_be_shared_is_refused", |cuda| {
        cuda.context(0);
        let before = cuda.used();
        let (mut handle, mut given) = (0, -1_i32);
        for kinds in [
            CU_MEM_HANDLE_TYPE_WIN32,
            CU_MEM_HANDLE_TYPE_FABRIC,
            CU_MEM_HANDLE_TYPE_FABRIC | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ] {
            let asked = CuMemAllocationProp {
                requestedHandleTypes: kinds,
                ..on_device()
            };
            refused!(NOT_SUPPORTED: cuda, cuMemCreate(&mut handle, BLOCK, &asked, 0));
        }
        ok!(cuda, cuMemCreate(&mut handle, BLOCK, &on_device(), 0));
        let to = (&raw mut given).cast();
        let posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        refused!(INVALID_VALUE: cuda, cuMemExportToShareableHandle(to, handle, posix, 0));
        ok!(cuda, cuMemRelease(handle));
        ok!(cuda, cuMemCreate(&mut handle, BLOCK, &shareable(), 0));
        refused!(NOT_SUPPORTED: cuda, cuMemExportToShareableHandle(to, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
        refused!(INVALID_VALUE: cuda, cuMemExportToShareableHandle(to, handle, posix, 1));
        refused!(INVALID_VALUE: cuda, cuMemExportToShareableHandle(to, 0, posix, 0));
        assert_eq!(given, -1);
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let ordinary = std::fs::File::open("/proc/self/exe").expect("it is there");
        assert_eq!(import(cuda, &null), Err(CuResult::INVALID_VALUE));
        assert_eq!(import(cuda, &ordinary), Err(CuResult::INVALID_VALUE));
        let closed = null.into_raw_fd();
        // SAFETY: ours, and used no more.
        unsafe { libc::close(closed) };
        assert_eq!(import(cuda, &closed), Err(CuResult::INVALID_VALUE));
        ok!(cuda, cuMemRelease(handle));
        assert_eq!(cuda.used(), before);
    });
}

#[test]
fn a_process_can_import_what_it_exported_and_pays_once() {
    in_child(
        "shared_memory::a_process_can_import_what_it_exported_and_pays_once",
        |cuda| {
            cuda.context(0);
            let before = cuda.used();
            let mut handle = 0;
            ok!(cuda, cuMemCreate(&mut handle, BLOCK, &shareable(), 0));
            let descriptor = export(cuda, handle);
            let again = import(cuda, &descriptor).expect("it is there");
            let mut properties = CuMemAllocationProp::default();
            ok!(cuda, cuMemGetAllocationPropertiesFromHandle(&mut properties, again));
            assert_eq!(
                (properties.kind, properties.location.kind, properties.location.id),
                (CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0)
            );
            let places = [map(cuda, handle), map(cuda, again)];
            ok!(cuda, cuMemsetD32_v2(places[0], 5, BLOCK / 4));
            ok!(cuda, cuCtxSynchronize());
            assert_eq!(word(cuda, places[1] + LAST), 5, "the same memory");
            assert_eq!(cuda.used(), before + BLOCK as u64);
            ok!(cuda, cuMemRelease(handle));
            ok!(cuda, cuMemUnmap(places[0], BLOCK));
            assert_eq!(cuda.used(), before + BLOCK as u64, "the imported handle keeps it");
            ok!(cuda, cuMemUnmap(places[1], BLOCK));
            ok!(cuda, cuMemRelease(again));
            assert_eq!(cuda.used(), before);
            // The descriptor still leads to it.
            let back = import(cuda, &descriptor).expect("room");
            assert_eq!(word(cuda, map(cuda, back)), 5);
            assert_eq!(cuda.used(), before + BLOCK as u64);
        },
    );
}
