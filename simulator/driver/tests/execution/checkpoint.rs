// SPDX-License-Identifier: Apache-2.0
//! Processes that are locked and unlocked, by themselves and by others.

mod away;
mod families;
mod moves;
mod table;
mod target;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use partage_abi::types::*;
use partage_machine::Spec;

use self::target::{Target, block, target};
use crate::machine::{Driver, Value, call, code, finish, make, make_of, refused, role, start, until};

const RUNNING: c_int = 0;
const LOCKED: c_int = 1;
const CHECKPOINTED: c_int = 2;
/// Long enough for a call that does not wait to return, on most days: one that should wait is seen to wait.
const MOMENT: Duration = Duration::from_millis(50);

/// Runs a body on a machine of one device; or, in a child of the body, the target that it asks for.
fn run(test: &str, body: impl FnOnce(&Driver)) {
    match role().as_deref() {
        Some("target") => target(),
        Some(_) => body(&Driver::open()),
        None => {
            let folder = make(1);
            finish(start(test, &folder.0, "body"), test);
        }
    }
}

fn state_of(driver: &Driver, pid: c_int) -> c_int {
    let mut state = -1;
    call!(driver, cuCheckpointProcessGetState(pid, &mut state));
    state
}

fn own_pid() -> c_int {
    std::process::id() as c_int
}

fn lock(driver: &Driver, pid: c_int, milliseconds: u32) -> CuResult {
    let mut args = CuCheckpointLockArgs {
        timeoutMs: milliseconds,
        reserved0: 0,
        reserved1: [0; 7],
    };
    code!(driver, cuCheckpointProcessLock(pid, &mut args))
}

/// Begins to lock a process that cannot be locked now, and then acts.
fn lock_meanwhile(driver: &Driver, pid: c_int, act: impl FnOnce()) -> CuResult {
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| lock(driver, pid, 0));
        std::thread::sleep(MOMENT);
        assert!(!locked.is_finished(), "nothing keeps it");
        act();
        locked.join().expect("it ends")
    })
}

fn checkpoint(driver: &Driver, pid: c_int) -> CuResult {
    code!(driver, cuCheckpointProcessCheckpoint(pid, std::ptr::null_mut()))
}

/// Restores a process on the devices that pairs of machine devices say, by identities of before and of now.
fn restore(driver: &Driver, pid: c_int, pairs: &[([u8; 16], [u8; 16])]) -> CuResult {
    let uuid = |bytes: [u8; 16]| CuUuid {
        bytes: bytes.map(|byte| byte as c_char),
    };
    let mut pairs: Vec<CuCheckpointGpuPair> = pairs
        .iter()
        .map(|(old, new)| CuCheckpointGpuPair {
            oldUuid: uuid(*old),
            newUuid: uuid(*new),
        })
        .collect();
    let mut args = CuCheckpointRestoreArgs {
        gpuPairs: pairs.as_mut_ptr(),
        gpuPairsCount: pairs.len() as c_uint,
        ..nothing_asked()
    };
    if pairs.is_empty() {
        args.gpuPairs = std::ptr::null_mut();
    }
    code!(driver, cuCheckpointProcessRestore(pid, &mut args))
}

fn nothing_asked() -> CuCheckpointRestoreArgs {
    CuCheckpointRestoreArgs {
        gpuPairs: std::ptr::null_mut(),
        gpuPairsCount: 0,
        padding0: 0,
        customStorageInfo_out: std::ptr::null_mut(),
        reserved: [0; 40],
    }
}

fn folder() -> PathBuf {
    std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test").into()
}

/// Runs a body in a child on a machine made as `change` says, of one device of 1 GiB unless it says otherwise.
fn run_on(test: &str, change: impl FnOnce(&mut Spec), body: impl FnOnce(&Driver)) {
    match role().as_deref() {
        Some("target") => target(),
        Some(_) => body(&Driver::open()),
        None => {
            let mut spec = Spec::new(1, "h200", Some(1 << 30));
            change(&mut spec);
            let folder = make_of(spec);
            finish(start(test, &folder.0, "body"), test);
        }
    }
}

/// Switches faults on, for all processes of the machine, and waits until this one has read them.
fn set_faults(text: &str) {
    std::fs::write(folder().join("faults"), text).expect("the folder is ours");
    // Processes look for new ones at most every 20 ms.
    std::thread::sleep(MOMENT);
}

fn unlock(driver: &Driver, pid: c_int) -> CuResult {
    code!(driver, cuCheckpointProcessUnlock(pid, std::ptr::null_mut()))
}

#[test]
fn calls_that_change_a_device_wait_while_the_process_is_locked() {
    run(
        "checkpoint::calls_that_change_a_device_wait_while_the_process_is_locked",
        |driver| {
            let (stream, here) = (driver.stream(0), own_pid());
            assert_eq!(state_of(driver, here), RUNNING);
            assert_eq!(unlock(driver, here), CuResult::ILLEGAL_STATE);
            assert_eq!(lock(driver, here, 1_000), CuResult::SUCCESS);
            assert_eq!(state_of(driver, here), LOCKED);
            assert_eq!(lock(driver, here, 1_000), CuResult::ILLEGAL_STATE);
            // What waits for work returns, and what only asks.
            call!(driver, cuCtxSynchronize());
            call!(driver, cuStreamSynchronize(stream));
            call!(driver, cuStreamQuery(stream));
            let (mut free, mut total) = (0, 0);
            call!(driver, cuMemGetInfo_v2(&mut free, &mut total));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    call!(driver, cuCtxSetCurrent(driver.context));
                    let mut address = 0;
                    call!(driver, cuMemAlloc_v2(&mut address, 4096));
                    is_over.store(true, Ordering::SeqCst);
                });
                std::thread::sleep(MOMENT);
                assert!(!is_over.load(Ordering::SeqCst), "an allocation while locked");
                let mut now = 0;
                call!(driver, cuMemGetInfo_v2(&mut now, &mut total));
                assert_eq!(now, free);
                assert_eq!(unlock(driver, here), CuResult::SUCCESS);
            });
            assert!(is_over.into_inner());
            assert_eq!(state_of(driver, here), RUNNING);
        },
    );
}

#[test]
fn a_lock_waits_for_all_work_or_leaves_the_process_as_it_was() {
    run(
        "checkpoint::a_lock_waits_for_all_work_or_leaves_the_process_as_it_was",
        |driver| {
            let here = own_pid();
            let (stream, event) = (driver.stream(1), driver.event());
            let gate = AtomicBool::new(false);
            block(driver, stream, &gate);
            driver.spin(stream, 5);
            call!(driver, cuEventRecord(event, stream));
            assert_eq!(lock(driver, here, 50), CuResult::NOT_READY);
            assert_eq!(state_of(driver, here), RUNNING);
            // Nothing is held up by the attempt.
            let mut address = 0;
            call!(driver, cuMemAlloc_v2(&mut address, 4096));
            let locked = lock_meanwhile(driver, here, || gate.store(true, Ordering::Release));
            assert_eq!(locked, CuResult::SUCCESS);
            call!(driver, cuEventQuery(event));
            assert_eq!(unlock(driver, here), CuResult::SUCCESS);
        },
    );
}

#[test]
fn who_is_gone_and_who_has_no_driver_are_told_apart() {
    run(
        "checkpoint::who_is_gone_and_who_has_no_driver_are_told_apart",
        |driver| {
            let mut state = 0;
            let mut other = Command::new("/bin/cat");
            let mut other = other.stdin(Stdio::piped()).spawn().expect("cat starts");
            let pid = other.id() as c_int;
            refused!(NOT_INITIALIZED: driver, cuCheckpointProcessGetState(pid, &mut state));
            assert_eq!(lock(driver, pid, 0), CuResult::NOT_INITIALIZED);
            other.kill().expect("our own child");
            let is_zombie =
                || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z"));
            until("a zombie", is_zombie);
            refused!(NOT_INITIALIZED: driver, cuCheckpointProcessGetState(pid, &mut state));
            other.wait().expect("our own child");
            assert_eq!(lock(driver, pid, 0), CuResult::OPERATING_SYSTEM);
            assert_eq!(unlock(driver, pid), CuResult::OPERATING_SYSTEM);
            for nobody in [0, -1, c_int::MAX] {
                refused!(OPERATING_SYSTEM: driver, cuCheckpointProcessGetState(nobody, &mut state));
            }
            // A copy of this process has no driver.
            // SAFETY: the child waits for the signal that ends it.
            let copy = unsafe { libc::fork() };
            if copy == 0 {
                loop {
                    // SAFETY: as above.
                    unsafe { libc::pause() };
                }
            }
            refused!(NOT_INITIALIZED: driver, cuCheckpointProcessGetState(copy, &mut state));
            // SAFETY: our own child.
            unsafe {
                libc::kill(copy, libc::SIGKILL);
                libc::waitpid(copy, std::ptr::null_mut(), 0);
            }
        },
    );
}

#[test]
fn arguments_that_say_nothing_sensible_are_refused() {
    run(
        "checkpoint::arguments_that_say_nothing_sensible_are_refused",
        |driver| {
            let here = own_pid();
            refused!(INVALID_VALUE: driver, cuCheckpointProcessGetState(here, std::ptr::null_mut()));
            refused!(INVALID_VALUE: driver, cuCheckpointProcessGetRestoreThreadId(here, std::ptr::null_mut()));
            let mut args = CuCheckpointLockArgs {
                timeoutMs: 1,
                reserved0: 0,
                reserved1: [0, 0, 0, 0, 0, 0, 1],
            };
            refused!(INVALID_VALUE: driver, cuCheckpointProcessLock(here, &mut args));
            let mut args = CuCheckpointUnlockArgs { reserved: [1; 8] };
            refused!(INVALID_VALUE: driver, cuCheckpointProcessUnlock(here, &mut args));
            assert_eq!(state_of(driver, here), RUNNING);
        },
    );
}

#[test]
fn the_thread_that_serves_bears_the_name_that_callers_look_for() {
    run(
        "checkpoint::the_thread_that_serves_bears_the_name_that_callers_look_for",
        |driver| {
            let mut thread = 0;
            call!(driver, cuCheckpointProcessGetRestoreThreadId(own_pid(), &mut thread));
            let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).expect("it is there");
            let digits = name.trim_end().strip_prefix("cuda").expect("its name");
            assert!(
                digits.len() == 11 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{name}"
            );
            let sockets = std::fs::read_to_string("/proc/net/unix").expect("readable");
            assert!(
                sockets
                    .lines()
                    .any(|line| line.ends_with(&format!("@{}", name.trim_end()))),
                "{sockets}"
            );
        },
    );
}

#[test]
fn a_stopped_target_answers_when_it_goes_on() {
    let test = "checkpoint::a_stopped_target_answers_when_it_goes_on";
    run(test, |driver| {
        let target = Target::start(test);
        partage_machine::process::stop(target.child.id());
        let pid = target.pid();
        let locked = lock_meanwhile(driver, pid, || target.signal(libc::SIGCONT));
        assert_eq!(locked, CuResult::SUCCESS);
        assert_eq!(state_of(driver, pid), LOCKED);
        assert_eq!(unlock(driver, pid), CuResult::SUCCESS);
        target.finish();
    });
}

#[test]
fn one_operation_is_served_at_a_time_and_outlives_its_caller() {
    let test = "checkpoint::one_operation_is_served_at_a_time_and_outlives_its_caller";
    run(test, |driver| {
        let mut target = Target::start(test);
        let pid = target.pid();
        target.tell("block");
        // A caller of its own, which is killed while it waits.
        // SAFETY: the child makes system calls only, through a driver that needs none of this process's threads: it
        // asks, and is killed.
        let caller = unsafe { libc::fork() };
        if caller == 0 {
            let _ = lock(driver, pid, 0);
            // SAFETY: ends this copy.
            unsafe { libc::_exit(0) };
        }
        std::thread::sleep(MOMENT);
        // SAFETY: our own child.
        unsafe {
            libc::kill(caller, libc::SIGKILL);
            libc::waitpid(caller, std::ptr::null_mut(), 0);
        }
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| state_of(driver, pid));
            std::thread::sleep(MOMENT);
            assert!(!seen.is_finished(), "an operation is under way");
            target.tell("pass");
            assert_eq!(seen.join().expect("it is told"), LOCKED);
        });
        assert_eq!(unlock(driver, pid), CuResult::SUCCESS);
        target.finish();
    });
}

#[test]
fn a_target_that_dies_during_a_call_is_gone() {
    let test = "checkpoint::a_target_that_dies_during_a_call_is_gone";
    run(test, |driver| {
        let mut target = Target::start(test);
        let pid = target.pid();
        target.tell("block");
        let locked = lock_meanwhile(driver, pid, || target.signal(libc::SIGKILL));
        assert_eq!(locked, CuResult::OPERATING_SYSTEM);
        target.child.wait().expect("our own child");
        assert_eq!(lock(driver, pid, 0), CuResult::OPERATING_SYSTEM);
    });
}

#[test]
fn a_copy_of_a_target_that_dies_keeps_no_caller_waiting() {
    let test = "checkpoint::a_copy_of_a_target_that_dies_keeps_no_caller_waiting";
    run(test, |driver| {
        let mut target = Target::start(test);
        let pid = target.pid();
        target.tell("block");
        let mut copy: c_int = 0;
        let locked = lock_meanwhile(driver, pid, || {
            copy = target.fork();
            target.signal(libc::SIGKILL);
        });
        assert_eq!(locked, CuResult::OPERATING_SYSTEM);
        // SAFETY: the copy that the target made, which is still there: it had the connection all the time.
        assert_eq!(unsafe { libc::kill(copy, libc::SIGKILL) }, 0);
        target.child.wait().expect("our own child");
    });
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on_and_is_served_no_more() {
    let test = "checkpoint::a_program_that_closes_all_descriptors_goes_on_and_is_served_no_more";
    run(test, |driver| {
        let mut target = Target::start(test);
        let pid = target.pid();
        target.tell("close");
        assert_eq!(lock(driver, pid, 0), CuResult::OPERATING_SYSTEM);
        until("its thread has ended", || {
            lock(driver, pid, 0) == CuResult::NOT_INITIALIZED
        });
        target.tell("block");
        target.tell("pass");
        target.finish();
    });
}

#[test]
fn another_user_is_refused_unless_it_is_root() {
    let test = "checkpoint::another_user_is_refused_unless_it_is_root";
    run(test, |driver| {
        // SAFETY: no memory involved.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        let pid = own_pid();
        // SAFETY: the child becomes another user, asks, and ends.
        let caller = unsafe { libc::fork() };
        if caller == 0 {
            // SAFETY: as above.
            unsafe {
                libc::setresuid(65_534, 65_534, 65_534);
                libc::_exit(i32::from(lock(driver, pid, 0) != CuResult::OPERATING_SYSTEM));
            }
        }
        let mut status = -1;
        // SAFETY: our own child.
        unsafe { libc::waitpid(caller, &mut status, 0) };
        assert_eq!((status, state_of(driver, pid)), (0, RUNNING));
    });
}

#[test]
fn a_driver_before_570_has_no_such_functions() {
    let test = "checkpoint::a_driver_before_570_has_no_such_functions";
    if role().is_some() {
        let (driver, mut state) = (Driver::open(), 0);
        refused!(NOT_SUPPORTED: driver, cuCheckpointProcessGetState(own_pid(), &mut state));
        assert_eq!(lock(&driver, own_pid(), 0), CuResult::NOT_SUPPORTED);
        return;
    }
    let mut spec = Spec::new(1, "h200", Some(1 << 30));
    spec.driver = 550;
    let folder = make_of(spec);
    finish(start(test, &folder.0, "body"), test);
}

#[test]
fn nothing_moves_while_a_busy_process_is_locked() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 50;
    run("checkpoint::nothing_moves_while_a_busy_process_is_locked", |driver| {
        let (here, calls, is_over) = (own_pid(), AtomicU64::new(0), AtomicBool::new(false));
        let count = || calls.fetch_add(1, Ordering::SeqCst);
        let busy = |number: usize| {
            call!(driver, cuCtxSetCurrent(driver.context));
            let (stream, log) = (driver.stream(1), driver.memory(4096));
            while !is_over.load(Ordering::SeqCst) {
                let mut address = 0;
                call!(driver, cuMemAlloc_v2(&mut address, 4096));
                count();
                driver.launch("spin_ns", stream, &[Value::Long(20_000)]);
                count();
                call!(driver, cuMemsetD8Async(log, number as u8, 4096, stream));
                count();
                call!(driver, cuStreamSynchronize(stream));
                call!(driver, cuMemFree_v2(address));
                count();
            }
        };
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || busy(number));
            }
            let mut last = 0;
            for _ in 0..ROUNDS {
                until("the threads work", || calls.load(Ordering::SeqCst) > last);
                assert_eq!(lock(driver, here, 0), CuResult::SUCCESS);
                // A thread may have left the driver and not counted yet.
                std::thread::sleep(Duration::from_millis(2));
                let before = calls.load(Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                last = calls.load(Ordering::SeqCst);
                assert!(last - before <= THREADS as u64, "{before} calls became {last}");
                assert_eq!(unlock(driver, here), CuResult::SUCCESS);
            }
            is_over.store(true, Ordering::SeqCst);
        });
    });
}
