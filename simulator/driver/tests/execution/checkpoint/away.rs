// SPDX-License-Identifier: Apache-2.0
//! Processes that leave their devices and come back, and what their calls do meanwhile.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use partage_abi::types::*;
use partage_machine::{Machine, Spec};

use super::families::Everything;
use super::target::{LARGE, Target};
use super::*;
use crate::machine::until;

/// What the machine's books say of each device: bytes, and who holds them.
pub type Books = Vec<(u64, Vec<u32>)>;

pub fn books() -> Books {
    // Nothing of it stays mapped in this process.
    let machine = Machine::open(&folder()).expect("the machine is there");
    let of = |device: usize| {
        let occupants = machine.occupants(device);
        let pids = occupants.iter().map(|occupant| occupant.pid).collect();
        (machine.used(device), pids)
    };
    (0..machine.devices().len()).map(of).collect()
}

/// What of the machine, and of what keeps CRIU away, a process has open or mapped.
fn traces(pid: c_int) -> Vec<String> {
    let folder = folder().to_string_lossy().into_owned();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("readable");
    let mapped = maps.lines().filter(|line| line.contains(&folder)).map(str::to_owned);
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("readable").flatten();
    let open = open.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()));
    mapped
        .chain(open.filter(|name| name.contains(&folder) || name.contains("landlock")))
        .collect()
}

/// A line of `/proc/self/status` that is a number.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("readable");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("it is there");
    let number = line
        .trim_start_matches(':')
        .split_whitespace()
        .next()
        .expect("a number");
    number.parse().expect("a number")
}

/// Descriptors, threads, and bytes of memory of its own.
fn footprint() -> (usize, u64, u64) {
    let descriptors = fs::read_dir("/proc/self/fd").expect("readable").count();
    (descriptors, status("Threads"), status("RssAnon") << 10)
}

/// Whether the kernel knows rulesets, which CRIU refuses.
fn has_landlock() -> bool {
    const VERSION: c_int = 1;
    // SAFETY: asks for a number only.
    unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            VERSION,
        ) >= 1
    }
}

fn rounds() -> u32 {
    if std::env::var_os("PARTAGE_SOAK").is_some() {
        100
    } else {
        10
    }
}

pub fn leaves(driver: &Driver, pid: c_int) {
    assert_eq!(lock(driver, pid, 0), CuResult::SUCCESS);
    assert_eq!(checkpoint(driver, pid), CuResult::SUCCESS);
    assert_eq!(state_of(driver, pid), CHECKPOINTED);
}

pub fn comes_back(driver: &Driver, pid: c_int, pairs: &[([u8; 16], [u8; 16])]) {
    assert_eq!(restore(driver, pid, pairs), CuResult::SUCCESS);
    assert_eq!(state_of(driver, pid), LOCKED);
    assert_eq!(unlock(driver, pid), CuResult::SUCCESS);
    assert_eq!(state_of(driver, pid), RUNNING);
}

#[test]
fn a_process_that_comes_back_is_what_it_was_and_costs_no_more() {
    const TEST: &str = "checkpoint::away::a_process_that_comes_back_is_what_it_was_and_costs_no_more";
    const NOISE: u64 = 16 << 20;
    run_on(
        TEST,
        |spec| *spec = Spec::new(2, "h200", Some(1 << 30)),
        |driver| {
            let here = own_pid();
            let mut all = Everything::make(driver);
            all.work();
            let before = all.seen();
            let is_sealed = || traces(here).iter().any(|trace| trace.contains("landlock"));
            if has_landlock() {
                assert!(is_sealed(), "nothing keeps CRIU from it");
            } else {
                println!("not looked for: this kernel has no Landlock");
            }
            let (mut known, mut held) = (None, books());
            for round in 0..rounds() {
                let alone = status("RssAnon") << 10;
                leaves(driver, here);
                assert_eq!(traces(here), Vec::<String>::new(), "round {round}");
                assert_eq!(books(), [(0, vec![]), (0, vec![])]);
                let taken = (status("RssAnon") << 10).saturating_sub(alone);
                assert!(taken + NOISE >= all.device_bytes(), "{taken} of {}", all.device_bytes());
                comes_back(driver, here, &[]);
                assert_eq!(books(), held);
                all.work();
                assert_eq!(all.seen(), before, "round {round}");
                // What is used for the first time in the first round stays.
                let (descriptors, threads, bytes) = footprint();
                let (first_descriptors, first_threads, first_bytes) =
                    *known.get_or_insert((descriptors, threads, bytes));
                assert_eq!(descriptors, first_descriptors, "round {round}");
                assert!(
                    threads <= first_threads + 4,
                    "{threads} threads, {first_threads} before"
                );
                assert!(bytes <= first_bytes + NOISE, "{bytes} bytes, {first_bytes} before");
                held = books();
            }
        },
    );
}

#[test]
fn a_restore_without_room_poisons_the_process() {
    const TEST: &str = "checkpoint::away::a_restore_without_room_poisons_the_process";
    if role().is_some() {
        return run(TEST, |driver| {
            let (here, mut address) = (own_pid(), 0);
            call!(driver, cuMemAlloc_v2(&mut address, LARGE));
            let mut other = Target::start(TEST);
            // With the fault it only fails, and goes on when there is room.
            set_faults("heals");
            leaves(driver, here);
            other.tell("take");
            let full = books();
            assert_eq!(restore(driver, here, &[]), CuResult::OUT_OF_MEMORY);
            assert_eq!(books(), full);
            other.tell("give");
            comes_back(driver, here, &[]);
            set_faults("");
            leaves(driver, here);
            other.tell("take");
            assert_eq!(restore(driver, here, &[]), CuResult::OUT_OF_MEMORY);
            let is_kept = books()[0].1.contains(&(here as u32));
            let level = Machine::open(&folder()).expect("it is there").spec().driver;
            assert_eq!(is_kept, level == 595, "what it got so far");
            other.tell("give");
            for _ in 0..2 {
                assert_eq!(restore(driver, here, &[]), CuResult::OPERATING_SYSTEM);
                assert_eq!(unlock(driver, here), CuResult::ILLEGAL_STATE);
                assert_eq!(checkpoint(driver, here), CuResult::ILLEGAL_STATE);
                assert_eq!(state_of(driver, here), CHECKPOINTED);
            }
            other.finish();
        });
    }
    for level in [580, 595] {
        run_on(TEST, |spec| spec.driver = level, |_| ());
    }
}

#[test]
fn a_synchronise_that_is_the_first_call_ends_a_checkpointed_process() {
    const TEST: &str = "checkpoint::away::a_synchronise_that_is_the_first_call_ends_a_checkpointed_process";
    if role().is_some() {
        return run(TEST, |driver| {
            let level = Machine::open(&folder()).expect("it is there").spec().driver;
            let is_deadly = [580, 595].contains(&level);
            let waits = |target: &mut Target, asks: &[&str]| {
                let pid = target.pid();
                leaves(driver, pid);
                asks.iter().for_each(|line| target.tell(line));
                target.say("sync");
                std::thread::sleep(MOMENT);
                assert_eq!(state_of(driver, pid), CHECKPOINTED, "level {level}: it lives");
                comes_back(driver, pid, &[]);
                target.hear("done");
            };
            let mut target = Target::start(TEST);
            // While it is only locked it returns; as a later call it waits.
            assert_eq!(lock(driver, target.pid(), 0), CuResult::SUCCESS);
            target.tell("sync");
            assert_eq!(unlock(driver, target.pid()), CuResult::SUCCESS);
            waits(&mut target, &["query"]);
            if is_deadly {
                set_faults("spared");
            }
            waits(&mut target, &[]);
            set_faults("");
            if is_deadly {
                leaves(driver, target.pid());
                target.say("sync");
                let status = target.child.wait().expect("our own child");
                assert_eq!(status.signal(), Some(libc::SIGSEGV));
                assert_eq!(state_of_gone(driver, target.pid()), CuResult::OPERATING_SYSTEM);
            } else {
                target.finish();
            }
        });
    }
    for level in [570, 580, 595, 610] {
        run_on(TEST, |spec| spec.driver = level, |_| ());
    }
}

fn state_of_gone(driver: &Driver, pid: c_int) -> CuResult {
    let mut state = 0;
    code!(driver, cuCheckpointProcessGetState(pid, &mut state))
}

#[test]
fn calls_that_need_a_device_wait_until_it_is_back() {
    const TEST: &str = "checkpoint::away::calls_that_need_a_device_wait_until_it_is_back";
    run(TEST, |driver| {
        let (here, is_over) = (own_pid(), AtomicU64::new(0));
        leaves(driver, here);
        // What needs no machine answers.
        let mut count = 0;
        call!(driver, cuDeviceGetCount(&mut count));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                call!(driver, cuCtxSetCurrent(driver.context));
                let (mut free, mut total) = (0, 0);
                call!(driver, cuMemGetInfo_v2(&mut free, &mut total));
                is_over.fetch_add(1, Ordering::SeqCst);
            });
            scope.spawn(|| {
                call!(driver, cuCtxSetCurrent(driver.context));
                let mut address = 0;
                call!(driver, cuMemAlloc_v2(&mut address, 4096));
                is_over.fetch_add(1, Ordering::SeqCst);
            });
            std::thread::sleep(MOMENT);
            assert_eq!(is_over.load(Ordering::SeqCst), 0);
            assert_eq!(restore(driver, here, &[]), CuResult::SUCCESS);
            until("the one that only asks is answered", || {
                is_over.load(Ordering::SeqCst) == 1
            });
            assert_eq!(unlock(driver, here), CuResult::SUCCESS);
        });
        assert_eq!(is_over.into_inner(), 2);
    });
}

#[test]
fn faults_stop_and_end_processes_in_the_middle_of_each_call() {
    const TEST: &str = "checkpoint::away::faults_stop_and_end_processes_in_the_middle_of_each_call";
    run(TEST, |driver| {
        type Call = (&'static str, fn(&Driver, c_int) -> CuResult);
        let calls: [Call; 4] = [
            ("lock", |driver, pid| lock(driver, pid, 0)),
            ("checkpoint", checkpoint),
            ("restore", |driver, pid| restore(driver, pid, &[])),
            ("unlock", unlock),
        ];
        let target = Target::start(TEST);
        for (name, call) in calls {
            set_faults(&format!("stands:{name}"));
            let pid = target.pid();
            std::thread::scope(|scope| {
                let answer = scope.spawn(move || call(driver, pid));
                std::thread::sleep(MOMENT);
                assert!(!answer.is_finished(), "{name} stands");
                set_faults("");
                assert_eq!(answer.join().expect("it ends"), CuResult::SUCCESS, "{name}");
            });
        }
        assert_eq!(state_of(driver, target.pid()), RUNNING);
        target.finish();
        let used = books();
        for (number, (name, _)) in calls.iter().enumerate() {
            let mut target = Target::start(TEST);
            let pid = target.pid();
            calls[..number]
                .iter()
                .for_each(|(_, call)| assert_eq!(call(driver, pid), CuResult::SUCCESS));
            set_faults(&format!("dies:{name}:1"));
            assert_eq!(calls[number].1(driver, pid), CuResult::OPERATING_SYSTEM, "{name}");
            let status = target.child.wait().expect("our own child");
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{name}");
            assert_eq!(books(), used, "{name}: what it held is free");
            set_faults("");
        }
    });
}

#[test]
fn a_process_that_left_may_be_shown_for_a_second_more() {
    const TEST: &str = "checkpoint::away::a_process_that_left_may_be_shown_for_a_second_more";
    run(TEST, |driver| {
        let target = Target::start(TEST);
        let (pid, held) = (target.pid(), books());
        set_faults("late");
        leaves(driver, pid);
        let (bytes, pids) = &books()[0];
        assert!(*bytes < held[0].0, "its memory is free at once");
        assert!(pids.contains(&(pid as u32)), "and it is shown");
        until("it is shown no more", || !books()[0].1.contains(&(pid as u32)));
        comes_back(driver, pid, &[]);
        assert_eq!(books(), held);
        target.finish();
    });
}
