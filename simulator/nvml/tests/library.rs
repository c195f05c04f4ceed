// SPDX-License-Identifier: Apache-2.0
//! The simulated NVML from outside, in child processes that load the built library on a machine of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::nvml::*;
use partage_machine::timeline::{Ask, Engine, FULL, Wake, wall};
use partage_machine::{Machine, Spec};

const ROLE: &str = "PARTAGE_NVML_TEST_ROLE";

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn machine(devices: usize) -> (Folder, Machine) {
    machine_of(&Spec::new(devices, "l4", Some(1 << 30)))
}

fn machine_of(spec: &Spec) -> (Folder, Machine) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("partage-nvml-{}-{number}", std::process::id()));
    let made = Machine::create(&folder, spec).expect("a machine can be made");
    (Folder(folder), made)
}

/// Runs a test's body in a child on a machine.
fn in_child(test: &str, folder: &Path, variables: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().expect("the test's own path"));
    child
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "body");
    child
        .env_remove("PARTAGE_SIM_FAULTS")
        .env("PARTAGE_SIM_DIR", folder)
        .envs(variables.iter().copied());
    let status = child.status().expect("a child starts");
    assert!(status.success(), "{test} with {variables:?}: {status}");
}

fn is_body() -> bool {
    std::env::var_os(ROLE).is_some()
}

struct Library(libloading::Library);

impl Library {
    fn load() -> Self {
        let exe = std::env::current_exe().expect("the test's own path");
        let mut folders = exe.ancestors().skip(1).take(2);
        let path = folders.find_map(|folder| Some(folder.join("libpartage_sim_nvml.so")).filter(|path| path.exists()));
        // SAFETY: our own library, whose constructors do nothing.
        Self(unsafe { libloading::Library::new(path.expect("the library is beside the test")) }.expect("it loads"))
    }

    fn symbol<T: Copy>(&self, name: &str) -> T {
        // SAFETY: callers name the type that the table gives this symbol.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn device(&self, index: u32) -> NvmlDevice {
        let mut device = NvmlDevice::NULL;
        answers!(SUCCESS: self, nvmlDeviceGetHandleByIndex_v2(index, &mut device));
        device
    }
}

/// Asserts that a function answers a code.
macro_rules! answers {
    ($code:ident: $nvml:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $nvml.symbol::<signatures::$name>(stringify!($name));
        // SAFETY: the signature is the table's, and the arguments are right for it.
        assert_eq!(unsafe { function($($argument),*) }, NvmlReturn::$code, stringify!($name))
    }};
}
use answers;

fn text(bytes: &[c_char]) -> String {
    bytes
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8 as char)
        .collect()
}

#[test]
fn every_row_is_exported() {
    let nvml = Library::load();
    for row in ROWS {
        nvml.symbol::<unsafe extern "C" fn()>(row.name());
    }
}

#[test]
fn initialisations_are_counted() {
    let (folder, _machine) = machine(1);
    if !is_body() {
        in_child("initialisations_are_counted", &folder.0, &[]);
        return;
    }
    let nvml = Library::load();
    answers!(UNINITIALIZED: nvml, nvmlDeviceGetCount_v2(&mut 0));
    answers!(UNINITIALIZED: nvml, nvmlShutdown());
    answers!(SUCCESS: nvml, nvmlInit_v2());
    answers!(SUCCESS: nvml, nvmlInitWithFlags(0));
    answers!(SUCCESS: nvml, nvmlShutdown());
    answers!(SUCCESS: nvml, nvmlDeviceGetCount_v2(&mut 0));
    answers!(SUCCESS: nvml, nvmlShutdown());
    answers!(UNINITIALIZED: nvml, nvmlDeviceGetCount_v2(&mut 0));
    answers!(SUCCESS: nvml, nvmlInit_v2());
    answers!(NOT_SUPPORTED: nvml, nvmlDeviceGetMigMode(nvml.device(0), &mut 0, &mut 0));
}

#[test]
fn without_a_machine_the_driver_is_not_loaded() {
    if is_body() {
        let nvml = Library::load();
        answers!(DRIVER_NOT_LOADED: nvml, nvmlInit_v2());
        return;
    }
    in_child(
        "without_a_machine_the_driver_is_not_loaded",
        Path::new("/nonexistent"),
        &[],
    );
}

#[test]
fn devices_are_the_machine_s_whatever_is_visible_to_cuda() {
    if !is_body() {
        let (folder, machine) = machine(2);
        let uuid = machine.devices()[1].uuid_text();
        let variables = [("CUDA_VISIBLE_DEVICES", "0"), ("EXPECTED", uuid.as_str())];
        in_child(
            "devices_are_the_machine_s_whatever_is_visible_to_cuda",
            &folder.0,
            &variables,
        );
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let mut count = 0;
    answers!(SUCCESS: nvml, nvmlDeviceGetCount_v2(&mut count));
    assert_eq!(count, 2);
    let (device, mut uuid, mut again) = (nvml.device(1), [0; 80], NvmlDevice::NULL);
    answers!(SUCCESS: nvml, nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), 80));
    assert_eq!(text(&uuid), std::env::var("EXPECTED").expect("set by the test"));
    answers!(SUCCESS: nvml, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut again));
    assert_eq!(again, device);
    let mut pci = NvmlPciInfo::default();
    answers!(SUCCESS: nvml, nvmlDeviceGetPciInfo_v3(device, &mut pci));
    answers!(SUCCESS: nvml, nvmlDeviceGetHandleByPciBusId_v2(pci.busId.as_ptr(), &mut again));
    assert_eq!(again, device);
    answers!(SUCCESS: nvml, nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy.as_ptr(), &mut again));
    assert_eq!(again, device);
    answers!(NOT_FOUND: nvml, nvmlDeviceGetHandleByUUID(c"GPU-0".as_ptr(), &mut again));
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetHandleByIndex_v2(2, &mut again));
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetIndex(NvmlDevice(0x10 as *mut c_void), &mut 0));
    answers!(INSUFFICIENT_SIZE: nvml, nvmlDeviceGetName(device, uuid.as_mut_ptr(), 3));
}

#[test]
fn a_card_in_mig_mode_has_one_instance_and_the_other_none() {
    const TEST: &str = "a_card_in_mig_mode_has_one_instance_and_the_other_none";
    if !is_body() {
        let mut spec = Spec::new(2, "h200", Some(1 << 30));
        spec.devices[0].mig = true;
        let (folder, machine) = machine_of(&spec);
        let instance = machine.devices()[0].instance_text().expect("in MIG mode");
        assert_ne!(instance[4..], machine.devices()[0].uuid_text()[4..]);
        in_child(TEST, &folder.0, &[("EXPECTED", &instance)]);
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let (divided, whole) = (nvml.device(0), nvml.device(1));
    for (card, expected) in [(divided, 1), (whole, 0)] {
        let (mut mode, mut pending, mut is_instance) = (7, 7, 7);
        answers!(SUCCESS: nvml, nvmlDeviceGetMigMode(card, &mut mode, &mut pending));
        answers!(SUCCESS: nvml, nvmlDeviceIsMigDeviceHandle(card, &mut is_instance));
        assert_eq!((mode, pending, is_instance), (expected, expected, 0));
    }
    let (mut instance, mut uuid, mut again, mut kind) = (NvmlDevice::NULL, [0; 80], NvmlDevice::NULL, 0);
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetMigDeviceHandleByIndex(whole, 0, &mut instance));
    answers!(NOT_FOUND: nvml, nvmlDeviceGetMigDeviceHandleByIndex(divided, 1, &mut instance));
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetMigDeviceHandleByIndex(divided, 7, &mut instance));
    answers!(SUCCESS: nvml, nvmlDeviceGetMigDeviceHandleByIndex(divided, 0, &mut instance));
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetMigDeviceHandleByIndex(instance, 0, &mut again));
    answers!(SUCCESS: nvml, nvmlDeviceIsMigDeviceHandle(instance, &mut kind));
    assert_eq!(kind, 1);
    answers!(SUCCESS: nvml, nvmlDeviceGetUUID(instance, uuid.as_mut_ptr(), 80));
    assert_eq!(text(&uuid), std::env::var("EXPECTED").expect("set by the test"));
    answers!(SUCCESS: nvml, nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut again));
    assert_eq!(again, instance);
    answers!(SUCCESS: nvml, nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &mut again));
    assert_eq!(again, divided);
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetDeviceHandleFromMigDeviceHandle(whole, &mut again));
    let mut memory = NvmlMemory::default();
    answers!(SUCCESS: nvml, nvmlDeviceGetMemoryInfo(instance, &mut memory));
    assert_eq!(memory.total, 1 << 30);
    let mut rates = NvmlUtilization::default();
    answers!(NOT_SUPPORTED: nvml, nvmlDeviceGetUtilizationRates(instance, &mut rates));
    answers!(SUCCESS: nvml, nvmlDeviceGetUtilizationRates(whole, &mut rates));
}

#[test]
fn memory_and_processes_are_what_the_machine_s_table_says() {
    if !is_body() {
        let (folder, machine) = machine(1);
        // This process holds memory; the child looks at it.
        let seat = machine.take_seat().expect("a seat");
        machine.open_context(seat, 0).expect("room");
        machine.reserve(seat, 0, 12_345).expect("room");
        let (used, pid) = (machine.used(0).to_string(), std::process::id().to_string());
        let variables = [("EXPECTED", used.as_str()), ("HOLDER", pid.as_str())];
        in_child(
            "memory_and_processes_are_what_the_machine_s_table_says",
            &folder.0,
            &variables,
        );
        machine.leave_seat(seat);
        return;
    }
    let number = |name| {
        std::env::var(name)
            .expect("set by the test")
            .parse::<u64>()
            .expect("a number")
    };
    let (used, pid) = (number("EXPECTED"), number("HOLDER") as u32);
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let device = nvml.device(0);
    let mut first = NvmlMemory::default();
    answers!(SUCCESS: nvml, nvmlDeviceGetMemoryInfo(device, &mut first));
    assert_eq!((first.total, first.used, first.free), (1 << 30, used, (1 << 30) - used));
    let mut second = NvmlMemoryV2::default();
    answers!(ARGUMENT_VERSION_MISMATCH: nvml, nvmlDeviceGetMemoryInfo_v2(device, &mut second));
    second.version = size_of::<NvmlMemoryV2>() as u32 | 2 << 24;
    answers!(SUCCESS: nvml, nvmlDeviceGetMemoryInfo_v2(device, &mut second));
    assert_eq!((second.used, second.reserved), (used, 0));
    let mut count = 0;
    let none = std::ptr::null_mut();
    answers!(INSUFFICIENT_SIZE: nvml, nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, none));
    assert_eq!(count, 1);
    let mut list = [NvmlProcessInfo::default(); 4];
    count = 4;
    answers!(SUCCESS: nvml, nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, list.as_mut_ptr()));
    assert_eq!((count, list[0].pid, list[0].usedGpuMemory), (1, pid, used));
    answers!(SUCCESS: nvml, nvmlDeviceGetGraphicsRunningProcesses_v3(device, &mut count, list.as_mut_ptr()));
    assert_eq!(count, 0);
    let mut rates = NvmlUtilization { gpu: 9, memory: 9 };
    answers!(SUCCESS: nvml, nvmlDeviceGetUtilizationRates(device, &mut rates));
    assert_eq!((rates.gpu, rates.memory), (0, 0), "nobody works");
}

#[test]
fn a_busy_device_shows_for_how_long_and_for_whom() {
    const TEST: &str = "a_busy_device_shows_for_how_long_and_for_whom";
    /// NVML looks at windows that are so long, of the machine's clock.
    const WINDOW: u64 = 250_000_000;
    if !is_body() {
        let (folder, _machine) = machine(1);
        in_child(TEST, &folder.0, &[]);
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let machine = Machine::from_environment().expect("named").expect("there");
    let timeline = std::sync::Arc::new(machine.timeline().expect("its timelines open"));
    let seat = timeline.join(0, 1).expect("a place");
    let (device, pid) = (nvml.device(0), std::process::id());
    // Works for so long, early in a window and alone in it; gives what NVML shows in the same window.
    let shown = |need_ns: u64| {
        loop {
            while !(WINDOW / 100..WINDOW / 10).contains(&(wall() % WINDOW)) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let window = wall() / WINDOW;
            let ask = Ask {
                engine: Engine::Compute,
                need_ns: Some(need_ns),
                demand: u32::try_from(FULL).expect("a small number"),
                priority: 0,
            };
            let pending = seat.begin(ask, None);
            seat.finish(pending, None);
            seat.woken(Wake::End);
            let mut rates = NvmlUtilization { gpu: 0, memory: 9 };
            answers!(SUCCESS: nvml, nvmlDeviceGetUtilizationRates(device, &mut rates));
            let (mut samples, mut count) = ([NvmlProcessUtilizationSample::default(); 4], 4);
            answers!(SUCCESS: nvml, nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &mut count, 0));
            // What went before fades in the next window and is gone in the one after it.
            let is_whole = wall() / WINDOW == window;
            while wall() / WINDOW < window + 2 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if is_whole {
                assert_eq!((count, samples[0].pid, rates.memory), (1, pid, 0));
                return (rates.gpu, samples[0].smUtil);
            }
        }
    };
    for percent in [20, 40, 60] {
        let percent_shown = u32::try_from(percent).expect("a percentage");
        assert_eq!(shown(WINDOW / 100 * percent), (percent_shown, percent_shown));
    }
    let (mut rates, mut count) = (NvmlUtilization { gpu: 9, memory: 9 }, 0);
    answers!(SUCCESS: nvml, nvmlDeviceGetUtilizationRates(device, &mut rates));
    assert_eq!((rates.gpu, rates.memory), (0, 0), "it is over");
    answers!(NOT_FOUND: nvml, nvmlDeviceGetProcessUtilization(device, std::ptr::null_mut(), &mut count, 0));
}

#[test]
fn a_device_that_fell_off_the_bus_is_lost() {
    if !is_body() {
        let (folder, _machine) = machine(2);
        in_child(
            "a_device_that_fell_off_the_bus_is_lost",
            &folder.0,
            &[("PARTAGE_SIM_FAULTS", "lost:0")],
        );
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    answers!(GPU_IS_LOST: nvml, nvmlDeviceGetHandleByIndex_v2(0, &mut NvmlDevice::default()));
    let mut index = 9;
    answers!(SUCCESS: nvml, nvmlDeviceGetIndex(nvml.device(1), &mut index));
    assert_eq!(index, 1);
}

#[test]
fn a_process_that_cannot_die_stays_in_the_list() {
    const TEST: &str = "a_process_that_cannot_die_stays_in_the_list";
    if !is_body() {
        let (folder, _machine) = machine(1);
        in_child(TEST, &folder.0, &[("ACT", "die")]);
        in_child(TEST, &folder.0, &[("ACT", "1"), ("PARTAGE_SIM_FAULTS", "linger")]);
        in_child(TEST, &folder.0, &[("ACT", "0")]);
        return;
    }
    let act = std::env::var("ACT").expect("set by the test");
    let Ok(expected) = act.parse::<u32>() else {
        let machine = Machine::from_environment().expect("named").expect("there");
        let seat = machine.take_seat().expect("a seat");
        machine.open_context(seat, 0).expect("room");
        return;
    };
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let (mut list, mut count) = ([NvmlProcessInfo::default(); 4], 4);
    answers!(SUCCESS: nvml, nvmlDeviceGetComputeRunningProcesses_v3(nvml.device(0), &mut count, list.as_mut_ptr()));
    assert_eq!(count, expected);
    let mut memory = NvmlMemory::default();
    answers!(SUCCESS: nvml, nvmlDeviceGetMemoryInfo(nvml.device(0), &mut memory));
    assert_eq!(memory.used, list[0].usedGpuMemory);
    assert_eq!(memory.used > 0, expected > 0);
}

#[test]
fn a_stuck_call_never_returns() {
    const TEST: &str = "a_stuck_call_never_returns";
    if !is_body() {
        let (folder, _machine) = machine(1);
        in_child(
            TEST,
            &folder.0,
            &[("PARTAGE_SIM_FAULTS", "stuck:nvmlDeviceGetMemoryInfo:2")],
        );
        return;
    }
    let nvml: &'static Library = Box::leak(Box::new(Library::load()));
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let (says, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for round in 0..2 {
            says.send(round).expect("heard");
            answers!(SUCCESS: nvml, nvmlDeviceGetMemoryInfo(nvml.device(0), &mut NvmlMemory::default()));
        }
        says.send(2).expect("heard");
    });
    assert_eq!(said.recv(), Ok(0));
    assert_eq!(said.recv(), Ok(1));
    // Others go on meanwhile; the end of the process is the end of the call.
    for _ in 0..1000 {
        answers!(SUCCESS: nvml, nvmlDeviceGetCount_v2(&mut 0));
    }
    assert_eq!(said.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
}

#[test]
fn each_version_of_a_structure_is_filled_and_nothing_behind_it() {
    const TEST: &str = "each_version_of_a_structure_is_filled_and_nothing_behind_it";
    if !is_body() {
        let (folder, _machine) = machine(1);
        in_child(TEST, &folder.0, &[]);
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let device = nvml.device(0);
    let mut newest = NvmlPciInfo::default();
    answers!(SUCCESS: nvml, nvmlDeviceGetPciInfo_v3(device, &mut newest));
    // A program of the second version's time has 52 bytes, as hashcat does, one of the first version's 32.
    let mut room = [0xa5_u8; 80];
    answers!(SUCCESS: nvml, nvmlDeviceGetPciInfo_v2(device, room.as_mut_ptr().cast()));
    assert!(room[52..].iter().all(|byte| *byte == 0xa5), "{room:x?}");
    // SAFETY: the function has filled this structure; it may lie anywhere.
    let second = unsafe { room.as_ptr().cast::<NvmlPciInfoV2>().read_unaligned() };
    assert_eq!(text(&second.busId), text(&newest.busIdLegacy));
    assert_eq!((second.bus, second.pciSubSystemId), (newest.bus, newest.pciSubSystemId));
    room = [0xa5; 80];
    answers!(SUCCESS: nvml, nvmlDeviceGetPciInfo(device, room.as_mut_ptr().cast()));
    assert!(room[32..].iter().all(|byte| *byte == 0xa5), "{room:x?}");
    assert_eq!(room[28..32], newest.pciDeviceId.to_ne_bytes());
}

#[test]
fn what_never_changes_is_answered() {
    const TEST: &str = "what_never_changes_is_answered";
    if !is_body() {
        let folder = machine_of(&Spec::new(2, "h200", Some(1 << 30))).0;
        in_child(TEST, &folder.0, &[]);
        assert!(
            !folder.0.join("unbuilt.txt").exists(),
            "something was called that is not built"
        );
        return;
    }
    let nvml = Library::load();
    answers!(SUCCESS: nvml, nvmlInit_v2());
    let (first, second) = (nvml.device(0), nvml.device(1));
    let (mut current, mut pending) = (9, 9);
    answers!(SUCCESS: nvml, nvmlDeviceGetMigMode(first, &mut current, &mut pending));
    assert_eq!((current, pending), (0, 0));
    let mut vbios = [0; 32];
    answers!(SUCCESS: nvml, nvmlDeviceGetVbiosVersion(first, vbios.as_mut_ptr(), 32));
    assert_eq!(text(&vbios), "96.00.A5.00.01");
    let (mut shutdown, mut slowdown) = (0, 0);
    answers!(SUCCESS: nvml, nvmlDeviceGetTemperatureThreshold(first, 0, &mut shutdown));
    answers!(SUCCESS: nvml, nvmlDeviceGetTemperatureThreshold(first, 1, &mut slowdown));
    assert!(0 < slowdown && slowdown < shutdown, "{slowdown} {shutdown}");
    answers!(INVALID_ARGUMENT: nvml, nvmlDeviceGetTemperatureThreshold(first, 99, &mut slowdown));
    let (mut before, mut after) = (0, 0);
    answers!(SUCCESS: nvml, nvmlDeviceGetTotalEnergyConsumption(first, &mut before));
    answers!(SUCCESS: nvml, nvmlDeviceGetTotalEnergyConsumption(first, &mut after));
    assert!(before <= after);
    let mut level = -1;
    answers!(SUCCESS: nvml, nvmlDeviceGetTopologyCommonAncestor(first, second, &mut level));
    assert_eq!(level, 30);
    answers!(SUCCESS: nvml, nvmlDeviceGetTopologyCommonAncestor(first, first, &mut level));
    assert_eq!(level, 0);
    let (mut count, mut near) = (2, [NvmlDevice::NULL; 2]);
    answers!(SUCCESS: nvml, nvmlDeviceGetTopologyNearestGpus(first, 30, &mut count, near.as_mut_ptr()));
    assert_eq!((count, near[0]), (1, second));
    count = 2;
    answers!(SUCCESS: nvml, nvmlSystemGetTopologyGpuSet(0, &mut count, near.as_mut_ptr()));
    assert_eq!((count, near), (2, [first, second]));
    let mut node = 9;
    answers!(SUCCESS: nvml, nvmlDeviceGetNumaNodeId(first, &mut node));
    let mut set: c_ulong = 0;
    answers!(SUCCESS: nvml, nvmlDeviceGetMemoryAffinity(first, 1, &mut set, 0));
    assert_eq!((node, set), (0, 1));
    // SAFETY: plain numbers; zero is a value of each.
    let mut values: [NvmlFieldValue; 3] = unsafe { std::mem::zeroed() };
    for (value, id) in values.iter_mut().zip([83, 186, 309]) {
        value.fieldId = id;
    }
    answers!(SUCCESS: nvml, nvmlDeviceGetFieldValues(first, 3, values.as_mut_ptr()));
    let codes = values.each_ref().map(|value| value.nvmlReturn);
    assert_eq!(
        codes,
        [NvmlReturn::SUCCESS, NvmlReturn::SUCCESS, NvmlReturn::NOT_SUPPORTED]
    );
    let mut power = 0;
    answers!(SUCCESS: nvml, nvmlDeviceGetPowerUsage(first, &mut power));
    // SAFETY: the type says which member was written.
    assert_eq!((values[1].valueType, unsafe { values[1].value.uiVal }), (1, power));
}
