// SPDX-License-Identifier: Apache-2.0
//! `cuGetProcAddress` under Partage gives what the driver alone gives, or our hook of exactly that entry point.

use std::collections::HashSet;

use partage_abi::{ROWS, symbol_index};

use super::Case;
use super::matrix::sees_two_gib;
use crate::client::Client;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    let why = "faults are the simulator's";
    vec![
        Case::new("proc_address::same_symbol_status_and_code_as_without", same_as_without),
        Case::new("proc_address::inner_entry_points_get_the_hook_of_their_row", inner_rows).simulated(why),
        Case::new(
            "proc_address::the_limit_holds_where_no_answer_is_an_export",
            inner_limit,
        )
        .simulated(why),
        Case::new("proc_address::an_entry_point_that_nobody_can_place_is_named", unplaced).simulated(why),
        Case::new(
            "proc_address::strict_refuses_an_entry_point_that_nobody_can_place",
            unplaced_strict,
        )
        .simulated(why),
    ]
}

/// A driver whose `cuGetProcAddress` answers with functions that it does not export.
const INNER: &str = "inner:*";
/// And one that is newer than the table: which ABI is meant nobody can tell.
const NEWER: &str = "inner:*;version:99000";

fn client_with(rig: &Rig, options: &[&str], via: &str, faults: &str) -> Client {
    let mut command = rig.run(options, &crate::artefacts::client(), &[via]);
    command.env("PARTAGE_SIM_FAULTS", faults);
    Client::start(command)
}

/// Names with several versions first: those are where peers break.
const NAMES: &[&str] = &[
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemFree",
    "cuMemGetInfo",
    "cuDeviceTotalMem",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags",
    "cuGetProcAddress",
    "cuInit",
    "cuMemcpyHtoD",
    "cuMemcpyDtoHAsync",
    "cuMemcpy2D",
    "cuMemcpy3D",
    "cuMemsetD8",
    "cuMemsetD32Async",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchCooperativeKernel",
    "cuGraphLaunch",
    "cuGraphInstantiate",
    "cuGraphAddKernelNode",
    "cuGraphKernelNodeGetParams",
    "cuGraphExecUpdate",
    "cuStreamBeginCapture",
    "cuStreamGetCaptureInfo",
    "cuStreamSynchronize",
    "cuStreamWaitValue32",
    "cuEventRecord",
    "cuEventElapsedTime",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemCreate",
    "cuMemPrefetchAsync",
    "cuMemAdvise",
    "cuArrayCreate",
    "cuTexRefSetAddress",
    "cuIpcOpenMemHandle",
    "cuLinkCreate",
    "cuModuleGetGlobal",
    "cuGLCtxCreate",
    "cuNoSuchName",
    "",
];
const VERSIONS: &[u32] = &[
    11030, 11040, 11080, 12000, 12030, 12040, 12080, 12090, 13000, 13010, 13020, 13030, 13040, 13050,
];
/// Default, legacy stream, per-thread default stream, and one the driver refuses.
const FLAGS: &[u32] = &[0, 1, 2, 4];

fn same_as_without(rig: &Rig) {
    let mut under = rig.client(&["-m", "2GiB"]);
    let mut bare = rig.bare_client("dlopen");
    for client in [&mut under, &mut bare] {
        client.expect("init 0", "init 0");
    }
    let mut asked = 0;
    let mut hooked = 0;
    for api in ["1", "2"] {
        for version in VERSIONS {
            for flags in FLAGS {
                for name in NAMES.iter().filter(|name| !name.is_empty()) {
                    let line = format!("getproc {name} {version} {flags} {api}");
                    let (with, without) = (under.say(&line), bare.say(&line));
                    assert_eq!(with, without, "{line}");
                    asked += 1;
                    hooked += usize::from(with.contains("cuMemAlloc_v2"));
                }
            }
        }
    }
    rig.note(format!("{asked} look-ups compared, {} names", NAMES.len()));
    assert!(hooked > 0, "the comparison saw a hooked name");
}

fn inner_rows(rig: &Rig) {
    let mut inner = client_with(rig, &["-m", "2GiB"], "dlopen", INNER);
    let mut plain = rig.client(&["-m", "2GiB"]);
    for client in [&mut inner, &mut plain] {
        client.expect("init 0", "init 0");
    }
    let mut hooked = HashSet::new();
    for (version, flags) in VERSIONS
        .iter()
        .flat_map(|version| FLAGS.iter().map(move |flags| (version, flags)))
    {
        for name in NAMES.iter().filter(|name| !name.is_empty()) {
            for api in ["1", "2"] {
                let line = format!("getproc {name} {version} {flags} {api}");
                let (with, without) = (inner.say(&line), plain.say(&line));
                let symbol = without.split_whitespace().nth(3).unwrap_or_default();
                let row = symbol_index(symbol.as_bytes()).map(|index| &ROWS[index]);
                if row.is_some_and(|row| row.treatment.is_hooked()) {
                    assert_eq!(with, without, "{line}");
                    hooked.insert(symbol.to_owned());
                } else if row.is_some() {
                    assert!(with.ends_with(" 0"), "no export, and none of ours: {line}: {with}");
                }
            }
        }
    }
    rig.note(format!("{} hooked functions behind inner entry points", hooked.len()));
    for symbol in [
        "cuMemAlloc_v2",
        "cuLaunchKernel_ptsz",
        "cuCtxCreate_v2",
        "cuGetProcAddress_v2",
    ] {
        assert!(hooked.contains(symbol), "{symbol} was asked for");
    }
}

fn inner_limit(rig: &Rig) {
    for via in ["gpa1", "gpa2", "cudart"] {
        sees_two_gib(&mut client_with(rig, &["-m", "2GiB"], via, INNER));
    }
}

/// What a program of a CUDA that nobody here knows asks for.
const UNPLACED: &str = "getproc cuMemAlloc 99000 0 2";

fn unplaced(rig: &Rig) {
    let mut client = client_with(rig, &["-m", "2GiB", "--name", "newer"], "dlopen", NEWER);
    client.ready();
    let answer = client.say(UNPLACED);
    assert!(answer.starts_with("getproc 0 0 ") && answer.ends_with(" 0"), "{answer}");
    let notes = || {
        rig.jobs()
            .iter()
            .map(|job| job["notes"].to_string())
            .collect::<String>()
    };
    rig.eventually(crate::client::PATIENCE, "noted in ps", || {
        notes().contains("of CUDA 99000")
    });
    client.wait_for_stderr("no limit reaches its calls, and others may follow that are not named");
    // What was asked for as the table knows it has its hook all the same.
    client.expect("getproc cuMemAlloc 12000 0 2", "getproc 0 0 cuMemAlloc_v2 1");
    sees_two_gib(&mut client_with(rig, &["-m", "2GiB"], "gpa2", NEWER));
}

fn unplaced_strict(rig: &Rig) {
    let mut client = client_with(rig, &["-m", "2GiB", "--strict"], "dlopen", NEWER);
    client.expect("init 0", "init 0");
    client.expect(UNPLACED, "getproc 500 1 null 0");
    client.expect("getproc cuMemAlloc 12000 0 2", "getproc 0 0 cuMemAlloc_v2 1");
}
