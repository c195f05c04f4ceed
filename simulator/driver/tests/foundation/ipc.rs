// SPDX-License-Identifier: Apache-2.0
//! Legacy handles: linear memory that one process allocates and others open.

use std::path::PathBuf;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::child::{Cuda, Folder, MIB, Partner, code, in_child, listen, ok, refused, role, say};

const DONE: u8 = 0xf1;
const OPEN: u8 = 0xf2;
const CLOSE: u8 = 0xf3;
const CHECK: u8 = 0xf4;
const RIGHT: u8 = 0xf5;
const WRONG: u8 = 0xf6;
const FREE: u8 = 0xf7;
const FILL: u8 = 0xf8;
const GONE: u8 = 0xf9;
const CONTEXT: u64 = 16 * MIB;
const BYTES: u64 = 100 * MIB + 1000;
/// With the rounding to 512.
const COST: u64 = 100 * MIB + 1024;
/// Where the handle points: somewhere inside.
const INSIDE: u64 = 5000;

fn handle_file() -> PathBuf {
    PathBuf::from(std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test")).join("handle")
}

fn export(cuda: &Cuda, address: u64) -> Result<CuIpcMemHandle, CuResult> {
    let mut handle = CuIpcMemHandle { reserved: [0; 64] };
    match code!(cuda, cuIpcGetMemHandle(&mut handle, address)) {
        CuResult::SUCCESS => Ok(handle),
        code => Err(code),
    }
}

fn open(cuda: &Cuda, handle: CuIpcMemHandle) -> Result<u64, CuResult> {
    let mut address = 0;
    let flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    match code!(cuda, cuIpcOpenMemHandle_v2(&mut address, handle, flags)) {
        CuResult::SUCCESS => Ok(address),
        code => Err(code),
    }
}

/// Allocates, leaves a handle in a file, and frees or allocates as it is told.
fn exporter() {
    let cuda = Cuda::load();
    cuda.context(0);
    // Not at the start of a page.
    cuda.allocate(512).expect("room");
    let address = cuda.allocate(BYTES).expect("room");
    let small = cuda.allocate(1000).expect("room");
    ok!(cuda, cuMemsetD8_v2(address, 7, BYTES as usize));
    ok!(cuda, cuCtxSynchronize());
    ok!(cuda, cuMemsetD8_v2(small, 9, 1000));
    ok!(cuda, cuCtxSynchronize());
    let handles = [export(&cuda, address + INSIDE), export(&cuda, small)].map(|handle| handle.expect("linear memory"));
    let raw: Vec<u8> = handles
        .iter()
        .flat_map(|handle| handle.reserved)
        .map(|byte| byte as u8)
        .collect();
    std::fs::write(handle_file(), raw).expect("a file can be written");
    assert_eq!(open(&cuda, handles[0]), Err(CuResult::INVALID_CONTEXT), "its own");
    say(DONE);
    while let Some(what) = listen() {
        match what {
            FREE => ok!(cuda, cuMemFree_v2(address)),
            // As much as there is, all of it written.
            FILL => {
                let rest = 1024 * MIB - cuda.used();
                let filler = cuda.allocate(rest).expect("exactly");
                ok!(cuda, cuMemsetD8_v2(filler, 1, rest as usize));
                ok!(cuda, cuCtxSynchronize());
                ok!(cuda, cuMemFree_v2(filler));
            }
            _ => unreachable!("{what}"),
        }
        say(DONE);
    }
}

/// Opens, checks and closes as it is told.
fn importer() {
    let cuda = Cuda::load();
    let context = cuda.context(0);
    let raw = std::fs::read(handle_file()).expect("the exporter wrote it");
    let handle = |place: usize| {
        let mut handle = CuIpcMemHandle { reserved: [0; 64] };
        for (to, from) in handle.reserved.iter_mut().zip(&raw[64 * place..]) {
            *to = *from as c_char;
        }
        handle
    };
    let mut opened = [0; 2];
    let byte = |address: u64| {
        let mut byte = 0_u8;
        ok!(cuda, cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1));
        byte
    };
    say(DONE);
    while let Some(what) = listen() {
        match what {
            OPEN => match (open(&cuda, handle(0)), open(&cuda, handle(1))) {
                (Ok(large), Ok(small)) => {
                    opened = [large, small];
                    // Counted, at the same address.
                    assert_eq!(open(&cuda, handle(0)), Ok(large));
                    let (mut base, mut size) = (0, 0);
                    ok!(cuda, cuMemGetAddressRange_v2(&mut base, &mut size, large + 700));
                    assert_eq!((base, size), (large, BYTES as usize), "the whole allocation");
                    refused!(INVALID_VALUE: cuda, cuMemFree_v2(large));
                    assert_eq!(
                        export(&cuda, large).err(),
                        Some(CuResult::INVALID_VALUE),
                        "not its own to export"
                    );
                    say(DONE);
                }
                (Err(CuResult::MAP_FAILED), _) => say(GONE),
                other => panic!("{other:?}"),
            },
            CHECK => {
                let [large, small] = opened;
                let is_there = byte(large) == 7 && byte(large + BYTES - 1) == 7 && byte(small + 999) == 9;
                say(if is_there { RIGHT } else { WRONG });
            }
            CLOSE => {
                ok!(cuda, cuIpcCloseMemHandle(opened[0]));
                assert_eq!(byte(opened[0]), 7, "opened twice");
                ok!(cuda, cuIpcCloseMemHandle(opened[0]));
                refused!(INVALID_VALUE: cuda, cuIpcCloseMemHandle(opened[0]));
                ok!(cuda, cuIpcCloseMemHandle(opened[1]));
                say(DONE);
            }
            // What a context has open ends with it.
            FREE => {
                ok!(cuda, cuCtxDestroy_v2(context));
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

/// Tells a partner what to do, and gives its answer.
fn ask(partner: &mut Partner, what: u8) -> u8 {
    partner.tell(what);
    partner.hear_one_of([DONE, RIGHT, WRONG, GONE])
}

fn start(folder: &Folder, test: &str) -> (Partner, Partner) {
    let [exporter, importer] = ["exporter", "importer"].map(|role| {
        let mut partner = folder.start(test, role);
        partner.hear(DONE);
        partner
    });
    (exporter, importer)
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
fn opened_memory_is_the_exporter_s_and_costs_the_importer_nothing() {
    if run_role() {
        return;
    }
    const TEST: &str = "ipc::opened_memory_is_the_exporter_s_and_costs_the_importer_nothing";
    const OWN: u64 = CONTEXT + COST + 1024 + 512;
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut importer, OPEN), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [OWN, CONTEXT]);
    assert_eq!(ask(&mut importer, CHECK), RIGHT);
    assert_eq!(ask(&mut importer, CLOSE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [OWN, CONTEXT]);
    // Again, and closed by the end of the context.
    assert_eq!(ask(&mut importer, OPEN), DONE);
    assert_eq!(ask(&mut importer, FREE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [OWN, 0]);
    importer.finish();
    assert_eq!(ask(&mut exporter, FREE), DONE);
    assert_eq!(ask(&mut exporter, FILL), DONE, "all of it is usable again");
    exporter.finish();
    assert_eq!(folder.machine().used(0), 0);
}

#[test]
fn memory_freed_by_its_exporter_lives_until_it_is_closed() {
    if run_role() {
        return;
    }
    const TEST: &str = "ipc::memory_freed_by_its_exporter_lives_until_it_is_closed";
    const SMALL: u64 = 1024 + 512;
    let folder = Folder::new(1);
    let (mut exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut importer, OPEN), DONE);
    assert_eq!(ask(&mut exporter, FREE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT + SMALL, CONTEXT + COST]);
    assert_eq!(ask(&mut exporter, FILL), DONE);
    assert_eq!(ask(&mut importer, CHECK), RIGHT, "nobody else got it");
    let mut late = folder.start(TEST, "importer");
    late.hear(DONE);
    assert_eq!(ask(&mut late, OPEN), GONE, "the handle is stale");
    late.finish();
    assert_eq!(ask(&mut importer, CLOSE), DONE);
    assert_eq!(paid(&folder, [&exporter, &importer]), [CONTEXT + SMALL, CONTEXT]);
    assert_eq!(ask(&mut exporter, FILL), DONE);
    exporter.finish();
    importer.finish();
}

#[test]
fn memory_of_a_dead_exporter_lives_until_it_is_closed() {
    if run_role() {
        return;
    }
    const TEST: &str = "ipc::memory_of_a_dead_exporter_lives_until_it_is_closed";
    let folder = Folder::new(1);
    let (exporter, mut importer) = start(&folder, TEST);
    assert_eq!(ask(&mut importer, OPEN), DONE);
    exporter.kill();
    let used = || folder.machine().used(0);
    assert_eq!(used(), CONTEXT + COST + 1024);
    assert_eq!(ask(&mut importer, CHECK), RIGHT);
    let mut late = folder.start(TEST, "importer");
    late.hear(DONE);
    assert_eq!(ask(&mut late, OPEN), GONE, "there is nobody to ask for it");
    late.finish();
    assert_eq!(used(), CONTEXT + COST + 1024);
    assert_eq!(ask(&mut importer, CLOSE), DONE);
    assert_eq!(used(), CONTEXT);
    importer.finish();
}

#[test]
fn only_linear_memory_has_legacy_handles() {
    in_child("ipc::only_linear_memory_has_legacy_handles", |cuda| {
        cuda.context(0);
        let (mut managed, mut host) = (0, std::ptr::null_mut());
        ok!(cuda, cuMemAllocManaged(&mut managed, 8192, CU_MEM_ATTACH_GLOBAL));
        ok!(cuda, cuMemAllocHost_v2(&mut host, 8192));
        let mut pooled = 0;
        ok!(cuda, cuMemAllocAsync(&mut pooled, 8192, CuStream::NULL));
        let freed = cuda.allocate(MIB).expect("room");
        export(cuda, freed).expect("linear");
        ok!(cuda, cuMemFree_v2(freed));
        for address in [managed, host as u64, pooled, freed, 0, 0x1234] {
            assert_eq!(
                export(cuda, address).err(),
                Some(CuResult::INVALID_VALUE),
                "{address:#x}"
            );
        }
        let made_up = CuIpcMemHandle { reserved: [3; 64] };
        assert_eq!(open(cuda, made_up), Err(CuResult::INVALID_HANDLE));
        refused!(INVALID_VALUE: cuda, cuIpcCloseMemHandle(managed));
        let mut address = 0;
        refused!(INVALID_VALUE: cuda, cuIpcOpenMemHandle(&mut address, made_up, 2));
    });
}
