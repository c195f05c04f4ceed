// SPDX-License-Identifier: Apache-2.0
//! `cuGetProcAddress` under Partage gives what the driver alone gives, our hook of exactly that entry point at most.

use super::Case;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "proc_address::same_symbol_status_and_code_as_without",
        same_as_without,
    )]
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
