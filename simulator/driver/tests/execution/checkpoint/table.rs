// SPDX-License-Identifier: Apache-2.0
//! Every call in every state, in the situations that make a difference, at the levels that differ, by one caller and by
//! two at once.

use std::process::{Command, Stdio};

use partage_abi::types::*;
use partage_machine::{Machine, Spec};

use super::target::{LARGE, Target};
use super::*;

/// A call on a process, without anything special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Lock,
    Checkpoint,
    Restore,
    Unlock,
    State,
}

const CALLS: [Call; 5] = [Call::Lock, Call::Checkpoint, Call::Restore, Call::Unlock, Call::State];
/// Of levels that differ in anything, one each.
const LEVELS: [u32; 5] = [570, 580, 595, 610, 615];

/// What each call answers in each state, and the state after it: the same at all levels.
const TABLE: &[(c_int, [(CuResult, c_int); 5])] = {
    use CuResult as Code;
    const REFUSED: CuResult = Code::ILLEGAL_STATE;
    &[
        // Lock, Checkpoint, Restore, Unlock, GetState
        (
            RUNNING,
            [
                (Code::SUCCESS, LOCKED),
                (REFUSED, RUNNING),
                (REFUSED, RUNNING),
                (REFUSED, RUNNING),
                (Code::SUCCESS, RUNNING),
            ],
        ),
        (
            LOCKED,
            [
                (REFUSED, LOCKED),
                (Code::SUCCESS, CHECKPOINTED),
                (REFUSED, LOCKED),
                (Code::SUCCESS, RUNNING),
                (Code::SUCCESS, LOCKED),
            ],
        ),
        (
            CHECKPOINTED,
            [
                (REFUSED, CHECKPOINTED),
                (REFUSED, CHECKPOINTED),
                (Code::SUCCESS, LOCKED),
                (REFUSED, CHECKPOINTED),
                (Code::SUCCESS, CHECKPOINTED),
            ],
        ),
    ]
};

impl Call {
    fn make(self, driver: &Driver, pid: c_int) -> CuResult {
        let mut state = 0;
        match self {
            Self::Lock => lock(driver, pid, 1_000),
            Self::Checkpoint => checkpoint(driver, pid),
            Self::Restore => restore(driver, pid, &[]),
            Self::Unlock => unlock(driver, pid),
            Self::State => code!(driver, cuCheckpointProcessGetState(pid, &mut state)),
        }
    }
}

/// Brings a process into a state from whatever state it is in.
fn bring(driver: &Driver, pid: c_int, state: c_int) {
    let towards = |now: c_int| match (now, state) {
        (RUNNING, _) => Call::Lock,
        (LOCKED, RUNNING) => Call::Unlock,
        (LOCKED, _) => Call::Checkpoint,
        _ => Call::Restore,
    };
    loop {
        let now = state_of(driver, pid);
        if now == state {
            return;
        }
        assert_eq!(towards(now).make(driver, pid), CuResult::SUCCESS);
    }
}

fn level() -> u32 {
    Machine::open(&folder()).expect("the machine is there").spec().driver
}

/// Runs a body once at each of the levels.
fn at_levels(test: &str, levels: &[u32], body: impl FnOnce(&Driver)) {
    if role().is_some() {
        return run(test, body);
    }
    for level in levels {
        run_on(test, |spec| spec.driver = *level, |_| ());
    }
}

#[test]
fn every_call_answers_in_every_state_as_the_table_says() {
    const TEST: &str = "checkpoint::table::every_call_answers_in_every_state_as_the_table_says";
    at_levels(TEST, &LEVELS, |driver| {
        // Itself, and another process.
        let target = Target::start(TEST);
        for pid in [own_pid(), target.pid()] {
            for (state, answers) in TABLE {
                for (call, (answer, after)) in CALLS.into_iter().zip(answers) {
                    bring(driver, pid, *state);
                    assert_eq!(call.make(driver, pid), *answer, "{call:?} in state {state}");
                    assert_eq!(state_of(driver, pid), *after, "after {call:?} in state {state}");
                }
            }
            bring(driver, pid, RUNNING);
        }
        target.finish();
    });
}

#[test]
fn of_two_callers_at_once_one_is_served_and_the_other_answered_after_it() {
    const TEST: &str = "checkpoint::table::of_two_callers_at_once_one_is_served_and_the_other_answered_after_it";
    at_levels(TEST, &[580, 595], |driver| {
        let target = Target::start(TEST);
        let pid = target.pid();
        let next = |state: c_int, call: Call| {
            let row = TABLE.iter().find(|(from, _)| *from == state).expect("a state").1;
            row[CALLS.iter().position(|known| *known == call).expect("a call")]
        };
        for (state, _) in TABLE {
            for first in CALLS {
                for second in CALLS {
                    bring(driver, pid, *state);
                    let answers = std::thread::scope(|scope| {
                        let one = scope.spawn(|| first.make(driver, pid));
                        let other = scope.spawn(|| second.make(driver, pid));
                        [one, other].map(|caller| caller.join().expect("it is answered"))
                    });
                    // As if one came after the other, in either order.
                    let order = |a: Call, b: Call| {
                        let (answer, between) = next(*state, a);
                        let (later, after) = next(between, b);
                        (answer, later, after)
                    };
                    let (a, b, after) = order(first, second);
                    let (d, c, other_after) = order(second, first);
                    let now = state_of(driver, pid);
                    let is_one = (answers, now) == ([a, b], after) || (answers, now) == ([c, d], other_after);
                    assert!(is_one, "{first:?} and {second:?} in {state}: {answers:?}, then {now}");
                }
            }
        }
        bring(driver, pid, RUNNING);
        target.finish();
    });
}

#[test]
fn who_is_gone_and_who_has_no_driver_are_told_apart_by_every_call() {
    const TEST: &str = "checkpoint::table::who_is_gone_and_who_has_no_driver_are_told_apart_by_every_call";
    at_levels(TEST, &[580], |driver| {
        let mut other = Command::new("/bin/cat");
        let mut other = other.stdin(Stdio::piped()).spawn().expect("cat starts");
        let pid = other.id() as c_int;
        for call in CALLS {
            assert_eq!(call.make(driver, pid), CuResult::NOT_INITIALIZED, "{call:?}");
        }
        other.kill().expect("our own child");
        other.wait().expect("our own child");
        let mut target = Target::start(TEST);
        let gone = target.pid();
        bring(driver, gone, CHECKPOINTED);
        target.signal(libc::SIGKILL);
        target.child.wait().expect("our own child");
        for pid in [pid, gone, -1] {
            for call in CALLS {
                assert_eq!(call.make(driver, pid), CuResult::OPERATING_SYSTEM, "{call:?}");
            }
        }
    });
}

#[test]
fn managed_memory_cannot_be_taken_along() {
    const TEST: &str = "checkpoint::table::managed_memory_cannot_be_taken_along";
    at_levels(TEST, &[580, 595], |driver| {
        const GLOBAL: c_uint = 1;
        let (here, mut managed) = (own_pid(), 0);
        call!(driver, cuMemAllocManaged(&mut managed, 4096, GLOBAL));
        let refuses = || {
            bring(driver, here, LOCKED);
            assert_eq!(checkpoint(driver, here), CuResult::NOT_SUPPORTED);
            assert_eq!(state_of(driver, here), LOCKED);
            assert_eq!(unlock(driver, here), CuResult::SUCCESS);
        };
        refuses();
        call!(driver, cuMemsetD8_v2(managed, 1, 4096));
        call!(driver, cuCtxSynchronize());
        // One level has a fault that costs the contexts.
        set_faults("spoils");
        refuses();
        let after = code!(driver, cuCtxSynchronize());
        let expected = if level() == 595 {
            CuResult::LAUNCH_FAILED
        } else {
            CuResult::SUCCESS
        };
        assert_eq!(after, expected);
    });
}

#[test]
fn imported_memory_keeps_a_process_from_coming_back() {
    const TEST: &str = "checkpoint::table::imported_memory_keeps_a_process_from_coming_back";
    at_levels(TEST, &[580], |driver| {
        let target = Target::start(TEST);
        let pid = target.pid();
        set_faults("imports");
        bring(driver, pid, CHECKPOINTED);
        for _ in 0..2 {
            assert_eq!(restore(driver, pid, &[]), CuResult::INVALID_VALUE);
            assert_eq!(unlock(driver, pid), CuResult::ILLEGAL_STATE);
            assert_eq!(state_of(driver, pid), CHECKPOINTED);
        }
        set_faults("");
        bring(driver, pid, RUNNING);
        target.finish();
        // Memory that was made here and imported again counts too, and its maker alone does not.
        let (here, mut given, mut made, mut handle) = (own_pid(), -1 as c_int, 0, 0);
        let property = CuMemAllocationProp {
            kind: 1,
            requestedHandleTypes: 1,
            location: CuMemLocation { kind: 1, id: 0 },
            ..CuMemAllocationProp::default()
        };
        call!(driver, cuMemCreate(&mut made, 2 << 20, &property, 0));
        call!(
            driver,
            cuMemExportToShareableHandle((&raw mut given).cast(), made, 1, 0)
        );
        let before = Machine::open(&folder()).expect("it is there").used(0);
        bring(driver, here, CHECKPOINTED);
        bring(driver, here, RUNNING);
        assert_eq!(
            Machine::open(&folder()).expect("it is there").used(0),
            before,
            "it pays as before"
        );
        call!(
            driver,
            cuMemExportToShareableHandle((&raw mut given).cast(), made, 1, 0)
        );
        call!(
            driver,
            cuMemImportFromShareableHandle(&mut handle, given as usize as *mut c_void, 1)
        );
        bring(driver, here, CHECKPOINTED);
        assert_eq!(restore(driver, here, &[]), CuResult::INVALID_VALUE);
        assert_eq!(state_of(driver, here), CHECKPOINTED);
    });
}

#[test]
fn arguments_are_taken_as_the_level_knows_them() {
    const TEST: &str = "checkpoint::table::arguments_are_taken_as_the_level_knows_them";
    at_levels(TEST, &LEVELS, |driver| {
        let (here, level) = (own_pid(), level());
        let uuid = Machine::open(&folder()).expect("it is there").devices()[0].uuid;
        bring(driver, here, LOCKED);
        let mut storage = std::ptr::null_mut();
        let custom = if level < 615 {
            CuResult::INVALID_VALUE
        } else {
            CuResult::NOT_SUPPORTED
        };
        let mut args = CuCheckpointCheckpointArgs {
            customStorageInfo_out: &mut storage,
            reserved: [0; 56],
        };
        assert_eq!(code!(driver, cuCheckpointProcessCheckpoint(here, &mut args)), custom);
        args.customStorageInfo_out = std::ptr::null_mut();
        args.reserved[55] = 1;
        refused!(INVALID_VALUE: driver, cuCheckpointProcessCheckpoint(here, &mut args));
        args.reserved[55] = 0;
        call!(driver, cuCheckpointProcessCheckpoint(here, &mut args));
        let mut args = CuCheckpointRestoreArgs {
            customStorageInfo_out: &mut storage,
            ..nothing_asked()
        };
        assert_eq!(code!(driver, cuCheckpointProcessRestore(here, &mut args)), custom);
        for args in [
            CuCheckpointRestoreArgs {
                padding0: 1,
                ..nothing_asked()
            },
            CuCheckpointRestoreArgs {
                reserved: [1; 40],
                ..nothing_asked()
            },
            CuCheckpointRestoreArgs {
                gpuPairsCount: 1,
                ..nothing_asked()
            },
        ] {
            refused!(INVALID_VALUE: driver, cuCheckpointProcessRestore(here, &mut { args }));
            assert_eq!(state_of(driver, here), CHECKPOINTED);
        }
        // Pairs are known from 580 on.
        let paired = restore(driver, here, &[(uuid, uuid)]);
        let expected = if level < 580 {
            CuResult::INVALID_VALUE
        } else {
            CuResult::SUCCESS
        };
        assert_eq!(paired, expected);
        bring(driver, here, RUNNING);
        let none = CuCheckpointOperationHandle::NULL;
        let complete = code!(driver, cuCheckpointOperationComplete(none));
        let expected = if level < 615 {
            CuResult::NOT_SUPPORTED
        } else {
            CuResult::INVALID_HANDLE
        };
        assert_eq!(complete, expected);
    });
}

#[test]
fn operations_take_as_long_as_the_machine_says() {
    const TEST: &str = "checkpoint::table::operations_take_as_long_as_the_machine_says";
    let slow = |spec: &mut Spec| spec.checkpoint_time = 0.5;
    run_on(TEST, slow, |driver| {
        let (here, mut address) = (own_pid(), 0);
        call!(driver, cuMemAlloc_v2(&mut address, LARGE / 4));
        call!(driver, cuMemsetD8_v2(address, 1, LARGE / 4));
        call!(driver, cuCtxSynchronize());
        let begun = std::time::Instant::now();
        bring(driver, here, CHECKPOINTED);
        // Half of half a second, and of what the bytes take.
        assert!(begun.elapsed() >= Duration::from_millis(250 + 65));
        bring(driver, here, RUNNING);
        assert!(begun.elapsed() >= Duration::from_millis(315 + 200 + 32));
    });
}
