// SPDX-License-Identifier: Apache-2.0
//! Order in and between streams, events and their times, host functions, words in memory, faults of kernels.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use partage_abi::types::*;

use crate::machine::{Value, call, code, on_machine, pointers, refused, until};

const LEGACY: CuStream = CuStream::NULL;
const NON_BLOCKING: u32 = 1;

/// Says in stream order that it was reached, and waits until it may go on.
struct Gate {
    reached: AtomicU32,
    open: AtomicU32,
}

impl Gate {
    fn shut() -> Box<Self> {
        Box::new(Self {
            reached: AtomicU32::new(0),
            open: AtomicU32::new(0),
        })
    }

    fn data(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst) != 0
    }

    fn open(&self) {
        self.open.store(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the tests pass a gate that outlives the stream's work.
    let gate = unsafe { &*gate.cast::<Gate>() };
    gate.reached.store(1, Ordering::SeqCst);
    while gate.open.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the stream's work.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

fn is_idle(driver: &crate::machine::Driver, stream: CuStream) -> bool {
    match code!(driver, cuStreamQuery(stream)) {
        CuResult::SUCCESS => true,
        CuResult::NOT_READY => false,
        other => panic!("cuStreamQuery: {other:?}"),
    }
}

#[test]
fn every_device_has_its_own_clock() {
    crate::machine::run_on_machine("streams::every_device_has_its_own_clock", 2, |driver| {
        // The first device's clock runs ahead of the second's, which begins when it is first used.
        let first = (driver.stream(1), driver.event());
        driver.spin(first.0, 300);
        call!(driver, cuStreamSynchronize(first.0));
        let mut context = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut context, 0, 1));
        let (second, events) = (driver.stream(1), [driver.event(), driver.event()]);
        call!(driver, cuEventRecord(events[0], second));
        call!(driver, cuCtxSetCurrent(driver.context));
        driver.spin(first.0, 20);
        call!(driver, cuEventRecord(first.1, first.0));
        call!(driver, cuCtxSetCurrent(context));
        call!(driver, cuStreamWaitEvent(second, first.1, 0));
        call!(driver, cuEventRecord(events[1], second));
        call!(driver, cuEventSynchronize(events[1]));
        let later = driver.event();
        call!(driver, cuEventRecord(later, second));
        call!(driver, cuEventSynchronize(later));
        // A time taken over from the first device's clock would lie after the later event.
        assert!(
            driver.elapsed(events[0], events[1]) >= 15.0,
            "the second device's time passes while it waits"
        );
        assert!(driver.elapsed(events[1], later) >= 0.0);
        let mut between = 0.0;
        refused!(INVALID_HANDLE: driver, cuEventElapsedTime(&mut between, first.1, events[1]));
    });
}

on_machine! {
    kernels_of_a_stream_run_in_order => |driver| {
        let (stream, log) = (driver.stream(0), driver.memory(256));
        for value in 0..40 {
            driver.append(stream, log, value);
        }
        assert_eq!(driver.log(log), (0..40).collect::<Vec<_>>());
    }

    parameters_are_copied_at_the_launch => |driver| {
        let (stream, log) = (driver.stream(0), driver.memory(256));
        driver.spin(stream, 5);
        let mut parameters = [Value::Long(log), Value::Word(7)];
        let kernel = driver.kernel("append");
        let mut list = pointers(&parameters);
        call!(driver, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, list.as_mut_ptr(), std::ptr::null_mut()));
        parameters[1] = Value::Word(8);
        assert_eq!(driver.log(log), [7], "{parameters:?}");
    }

    parameters_may_come_in_one_buffer => |driver| {
        let log = driver.memory(256);
        let mut buffer = [0u8; 12];
        buffer[..8].copy_from_slice(&log.to_ne_bytes());
        buffer[8..].copy_from_slice(&5u32.to_ne_bytes());
        let mut size = buffer.len();
        let launch = |size: *mut usize| {
            let mut extra: [*mut c_void; 5] = [
                std::ptr::without_provenance_mut(1),
                buffer.as_ptr().cast_mut().cast(),
                std::ptr::without_provenance_mut(2),
                size.cast(),
                std::ptr::null_mut(),
            ];
            code!(driver, cuLaunchKernel(
                driver.kernel("append"), 1, 1, 1, 1, 1, 1, 0, LEGACY, std::ptr::null_mut(), extra.as_mut_ptr()
            ))
        };
        assert_eq!(launch(&mut size), CuResult::SUCCESS);
        assert_eq!(driver.log(log), [5]);
        size = 8;
        assert_eq!(launch(&mut size), CuResult::INVALID_VALUE, "too short for the kernel");
    }

    launches_that_cannot_be_are_refused_with_the_drivers_codes => |driver| {
        let kernel = driver.kernel("append");
        let parameters = [Value::Long(0), Value::Word(0)];
        let mut list = pointers(&parameters);
        let none = std::ptr::null_mut();
        let mut launch = |function, grid: [u32; 3], block: [u32; 3], shared, stream| {
            let [x, y, z] = grid;
            let [bx, by, bz] = block;
            code!(driver, cuLaunchKernel(function, x, y, z, bx, by, bz, shared, stream, list.as_mut_ptr(), none))
        };
        let one = [1; 3];
        assert_eq!(launch(CuFunction::NULL, one, one, 0, LEGACY), CuResult::INVALID_HANDLE);
        let made_up = std::ptr::without_provenance_mut(0x1234);
        assert_eq!(launch(CuFunction(made_up), one, one, 0, LEGACY), CuResult::INVALID_HANDLE);
        assert_eq!(launch(kernel, one, one, 0, CuStream(made_up)), CuResult::INVALID_HANDLE);
        for (grid, block) in [([0, 1, 1], one), ([1, 65_536, 1], one), (one, [1, 0, 1]), (one, [1, 1, 65])] {
            assert_eq!(launch(kernel, grid, block, 0, LEGACY), CuResult::INVALID_VALUE, "{grid:?} {block:?}");
        }
        assert_eq!(launch(kernel, one, [32, 33, 1], 0, LEGACY), CuResult::INVALID_VALUE);
        assert_eq!(launch(kernel, one, one, 1 << 20, LEGACY), CuResult::INVALID_VALUE);
        refused!(INVALID_VALUE: driver, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, LEGACY, none, none));
        call!(driver, cuCtxSynchronize());
    }

    legacy_stream_waits_for_blocking_streams_and_they_for_it => |driver| {
        let (first, second, free) = (driver.stream(0), driver.stream(0), driver.stream(NON_BLOCKING));
        let gate = Gate::shut();
        let log = driver.memory(256);
        call!(driver, cuCtxSynchronize());
        call!(driver, cuLaunchHostFunc(first, Some(pass), gate.data()));
        driver.append(LEGACY, log, 2);
        driver.append(second, log, 3);
        driver.append(free, log, 1);
        call!(driver, cuStreamSynchronize(free));
        until("the gate", || gate.is_reached());
        assert!(!is_idle(driver, second) && !is_idle(driver, LEGACY));
        gate.open();
        assert_eq!(driver.log(log), [1, 2, 3]);
    }

    stream_behind_a_blocked_one_of_the_same_kind_runs => |driver| {
        let (blocked, other) = (driver.stream(0), driver.stream(0));
        let gate = Gate::shut();
        let log = driver.memory(256);
        call!(driver, cuCtxSynchronize());
        call!(driver, cuLaunchHostFunc(blocked, Some(pass), gate.data()));
        driver.append(other, log, 1);
        call!(driver, cuStreamSynchronize(other));
        assert!(!is_idle(driver, blocked));
        gate.open();
        assert_eq!(driver.log(log), [1]);
    }

    per_thread_default_streams_are_apart => |driver| {
        let gate = Gate::shut();
        let log = driver.memory(256);
        call!(driver, cuCtxSynchronize());
        call!(driver, cuLaunchHostFunc_ptsz(CuStream::NULL, Some(pass), gate.data()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                call!(driver, cuCtxSetCurrent(driver.context));
                let parameters = [Value::Long(log), Value::Word(1)];
                let mut list = pointers(&parameters);
                call!(driver, cuLaunchKernel_ptsz(
                    driver.kernel("append"), 1, 1, 1, 1, 1, 1, 0, CuStream::NULL, list.as_mut_ptr(),
                    std::ptr::null_mut()
                ));
                call!(driver, cuStreamSynchronize_ptsz(CuStream::NULL));
            });
        });
        assert!(!is_idle(driver, CuStream(std::ptr::without_provenance_mut(2))));
        gate.open();
        assert_eq!(driver.log(log), [1]);
    }

    event_makes_one_stream_wait_for_another => |driver| {
        let (first, second) = (driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING));
        let (gate, event, log) = (Gate::shut(), driver.event(), driver.memory(256));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuLaunchHostFunc(first, Some(pass), gate.data()));
        driver.append(first, log, 1);
        call!(driver, cuEventRecord(event, first));
        call!(driver, cuStreamWaitEvent(second, event, 0));
        driver.append(second, log, 2);
        refused!(NOT_READY: driver, cuEventQuery(event));
        refused!(NOT_READY: driver, cuStreamQuery(second));
        gate.open();
        call!(driver, cuEventSynchronize(event));
        assert_eq!(driver.log(log), [1, 2]);
    }

    events_measure_device_time => |driver| {
        let stream = driver.stream(0);
        let events = [driver.event(), driver.event(), driver.event()];
        let gate = Gate::shut();
        // Until everything is handed in: no event is reached before what follows it is known.
        call!(driver, cuLaunchHostFunc(stream, Some(pass), gate.data()));
        // The device is at work when the first event is reached, and not on its way out of a pause.
        driver.spin(stream, 10);
        call!(driver, cuEventRecord(events[0], stream));
        driver.spin(stream, 30);
        call!(driver, cuEventRecord(events[1], stream));
        for _ in 0..50 {
            driver.launch("spin_ns", stream, &[Value::Long(100_000)]);
        }
        call!(driver, cuEventRecord(events[2], stream));
        gate.open();
        call!(driver, cuEventSynchronize(events[2]));
        // The device clock is exact however busy the machine is.
        let (one, many) = (driver.elapsed(events[0], events[1]), driver.elapsed(events[1], events[2]));
        assert!((30.0..31.0).contains(&one), "{one}");
        assert!((5.0..5.5).contains(&many), "{many}");
    }

    streams_overlap_on_the_device => |driver| {
        let streams: Vec<CuStream> = (0..4).map(|_| driver.stream(NON_BLOCKING)).collect();
        let (start, end) = (driver.event(), driver.event());
        let gate = Gate::shut();
        call!(driver, cuLaunchHostFunc(streams[0], Some(pass), gate.data()));
        call!(driver, cuEventRecord(start, streams[0]));
        for &stream in &streams {
            call!(driver, cuStreamWaitEvent(stream, start, 0));
            driver.spin(stream, 40);
        }
        for &stream in &streams[1..] {
            let done = driver.event();
            call!(driver, cuEventRecord(done, stream));
            call!(driver, cuStreamWaitEvent(streams[0], done, 0));
        }
        call!(driver, cuEventRecord(end, streams[0]));
        gate.open();
        call!(driver, cuEventSynchronize(end));
        let elapsed = driver.elapsed(start, end);
        assert!((40.0..80.0).contains(&elapsed), "four small kernels at once took {elapsed} ms");
    }

    events_refuse_times_that_they_do_not_have => |driver| {
        let (stream, gate) = (driver.stream(0), Gate::shut());
        let (timed, untimed, never) = (driver.event(), {
            let mut event = CuEvent::NULL;
            call!(driver, cuEventCreate(&mut event, 2));
            event
        }, driver.event());
        let mut milliseconds = 0.0;
        call!(driver, cuEventQuery(never));
        call!(driver, cuEventSynchronize(never));
        call!(driver, cuEventRecord(timed, stream));
        call!(driver, cuEventRecord(untimed, stream));
        call!(driver, cuStreamSynchronize(stream));
        refused!(INVALID_HANDLE: driver, cuEventElapsedTime(&mut milliseconds, timed, untimed));
        refused!(INVALID_HANDLE: driver, cuEventElapsedTime(&mut milliseconds, timed, never));
        refused!(INVALID_VALUE: driver, cuEventElapsedTime(std::ptr::null_mut(), timed, timed));
        call!(driver, cuLaunchHostFunc(stream, Some(pass), gate.data()));
        call!(driver, cuEventRecord(never, stream));
        refused!(NOT_READY: driver, cuEventElapsedTime(&mut milliseconds, timed, never));
        gate.open();
        call!(driver, cuEventDestroy_v2(never));
        refused!(INVALID_HANDLE: driver, cuEventQuery(never));
        refused!(INVALID_VALUE: driver, cuEventCreate(&mut CuEvent::NULL.clone(), 64));
        call!(driver, cuCtxSynchronize());
    }

    host_functions_run_in_order_and_may_not_call_the_driver => |driver| {
        static CODE: AtomicU32 = AtomicU32::new(u32::MAX);
        static QUERY: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C" fn ask(query: *mut c_void) {
            // SAFETY: the address of `cuStreamQuery`, passed below.
            let query: partage_abi::driver::signatures::cuStreamQuery = unsafe { std::mem::transmute(query) };
            // SAFETY: any stream may be asked about.
            CODE.store(unsafe { query(CuStream(std::ptr::without_provenance_mut(1))) }.0 as u32, Ordering::SeqCst);
        }
        let stream = driver.stream(0);
        let counter = AtomicU32::new(0);
        for _ in 0..10 {
            call!(driver, cuLaunchHostFunc(stream, Some(count), std::ptr::from_ref(&counter).cast_mut().cast()));
        }
        let query = driver.symbol::<partage_abi::driver::signatures::cuStreamQuery>("cuStreamQuery");
        call!(driver, cuLaunchHostFunc(stream, Some(ask), query as *mut c_void));
        refused!(INVALID_VALUE: driver, cuLaunchHostFunc(stream, None, std::ptr::null_mut()));
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!(counter.load(Ordering::SeqCst), 10);
        assert_eq!(CODE.load(Ordering::SeqCst), CuResult::NOT_PERMITTED.0 as u32);
        assert_eq!(QUERY.load(Ordering::SeqCst), 0);
    }

    callback_learns_the_fault_that_a_function_is_spared => |driver| {
        static TOLD: AtomicU32 = AtomicU32::new(u32::MAX);
        unsafe extern "C" fn tell(_: CuStream, code: CuResult, _: *mut c_void) {
            TOLD.store(code.0 as u32, Ordering::SeqCst);
        }
        let stream = driver.stream(0);
        let (counter, gate) = (AtomicU32::new(0), Gate::shut());
        call!(driver, cuLaunchHostFunc(stream, Some(pass), gate.data()));
        driver.launch("illegal_write", stream, &[]);
        call!(driver, cuStreamAddCallback(stream, Some(tell), std::ptr::null_mut(), 0));
        call!(driver, cuLaunchHostFunc(stream, Some(count), std::ptr::from_ref(&counter).cast_mut().cast()));
        gate.open();
        refused!(ILLEGAL_ADDRESS: driver, cuStreamSynchronize(stream));
        assert_eq!(TOLD.load(Ordering::SeqCst), CuResult::ILLEGAL_ADDRESS.0 as u32);
        assert_eq!(counter.load(Ordering::SeqCst), 0);
    }

    fault_of_a_kernel_sticks_to_its_context => |driver| {
        let (log, before) = (driver.memory(256), driver.event());
        call!(driver, cuEventRecord(before, LEGACY));
        call!(driver, cuCtxSynchronize());
        driver.launch("illegal_write", LEGACY, &[]);
        refused!(ILLEGAL_ADDRESS: driver, cuCtxSynchronize());
        refused!(ILLEGAL_ADDRESS: driver, cuStreamQuery(LEGACY));
        refused!(ILLEGAL_ADDRESS: driver, cuEventQuery(before));
        refused!(ILLEGAL_ADDRESS: driver, cuMemsetD8_v2(log, 0, 4));
        let mut address = 0;
        refused!(ILLEGAL_ADDRESS: driver, cuMemAlloc_v2(&mut address, 4));
        call!(driver, cuCtxDestroy_v2(driver.context));
        let mut context = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut context, 0, 0));
        call!(driver, cuMemAlloc_v2(&mut address, 4));
    }

    words_in_memory_hold_a_stream_back => |driver| {
        let (stream, log, word) = (driver.stream(NON_BLOCKING), driver.memory(256), driver.memory(8));
        let other = driver.stream(NON_BLOCKING);
        call!(driver, cuCtxSynchronize());
        call!(driver, cuStreamWaitValue32_v2(stream, word, 3, 0));
        driver.append(stream, log, 2);
        driver.append(other, log, 1);
        call!(driver, cuStreamWriteValue32_v2(other, word, 2, 0));
        call!(driver, cuStreamSynchronize(other));
        assert!(!is_idle(driver, stream));
        call!(driver, cuStreamWriteValue64_v2(other, word, 3, 0));
        assert_eq!(driver.log(log), [1, 2]);
        refused!(INVALID_VALUE: driver, cuStreamWaitValue32_v2(stream, word + 2, 0, 0));
        refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(stream, 0x1000, 0, 0));
        let mut batch = [
            CuStreamBatchMemOpParams { writeValue: CuStreamBatchMemOpParamsWriteValue {
                operation: 2, address: word, value: CuStreamBatchMemOpParamsWriteValueValue { value: 9 },
                flags: 0, alias: 0,
            } },
            CuStreamBatchMemOpParams { waitValue: CuStreamBatchMemOpParamsWaitValue {
                operation: 1, address: word, value: CuStreamBatchMemOpParamsWaitValueValue { value: 9 },
                flags: 1, alias: 0,
            } },
        ];
        call!(driver, cuStreamBatchMemOp_v2(stream, 2, batch.as_mut_ptr(), 0));
        assert_eq!(driver.words(word, 2), [9, 0]);
    }

    streams_tell_what_they_are => |driver| {
        let mut stream = CuStream::NULL;
        call!(driver, cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, -100));
        let (mut flags, mut priority, mut context, mut device, mut id) = (0, 0, CuContext::NULL, -1, 0);
        call!(driver, cuStreamGetFlags(stream, &mut flags));
        call!(driver, cuStreamGetPriority(stream, &mut priority));
        call!(driver, cuStreamGetCtx(stream, &mut context));
        call!(driver, cuStreamGetDevice(stream, &mut device));
        call!(driver, cuStreamGetId(stream, &mut id));
        let mut range = (0, 0);
        call!(driver, cuCtxGetStreamPriorityRange(&mut range.0, &mut range.1));
        assert_eq!((flags, priority, context, device), (NON_BLOCKING, range.1, driver.context, 0));
        let mut other = 0;
        call!(driver, cuStreamGetId(LEGACY, &mut other));
        assert_ne!(id, other);
        refused!(INVALID_VALUE: driver, cuStreamCreate(&mut stream.clone(), 8));
        call!(driver, cuStreamDestroy_v2(stream));
        refused!(INVALID_HANDLE: driver, cuStreamQuery(stream));
        refused!(INVALID_HANDLE: driver, cuStreamDestroy_v2(stream));
    }

    destroying_a_context_ends_what_waits_in_it => |driver| {
        let (stream, word) = (driver.stream(0), driver.memory(8));
        call!(driver, cuStreamWaitValue32_v2(stream, word, 1, 0));
        driver.spin(stream, 1);
        call!(driver, cuCtxDestroy_v2(driver.context));
        refused!(CONTEXT_IS_DESTROYED: driver, cuStreamQuery(stream));
    }

    process_ends_while_work_is_under_way => |driver| {
        // The parent waits for this process: an end that waited for the work would be an hour late.
        let (stream, word) = (driver.stream(1), driver.memory(8));
        driver.spin(driver.stream(1), 3_600_000);
        call!(driver, cuStreamWaitValue32_v2(stream, word, 1, 0));
    }

    workers_leave_signals_to_the_programs_threads => |driver| {
        driver.spin(LEGACY, 1);
        call!(driver, cuCtxSynchronize());
        let mut workers = 0;
        for task in std::fs::read_dir("/proc/self/task").expect("our own threads") {
            let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap_or_default();
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("Name:") != Some("cuda-sim") {
                continue;
            }
            workers += 1;
            let blocked = u64::from_str_radix(field("SigBlk:").expect("a mask"), 16).expect("hexadecimal");
            // All of the standard signals but the two that cannot be blocked (9 and 19).
            assert_eq!(blocked & 0x7fff_ffff, 0x7fff_ffff & !(1 << 8 | 1 << 18));
        }
        assert!(workers > 0);
    }

    many_streams_and_events_in_random_order_keep_every_dependency => |driver| {
        let seed: u64 = std::env::var("PARTAGE_SEED").map_or(20261123, |given| given.parse().expect("a number"));
        println!("seed {seed}: replay with PARTAGE_SEED={seed}");
        let mut state = seed | 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let streams: Vec<CuStream> =
            (0..6).map(|index| if index == 0 { LEGACY } else { driver.stream(index as u32 % 2) }).collect();
        let log = driver.memory(4096 * 4);
        call!(driver, cuCtxSynchronize());
        // What each operation must come after: the last of its stream, what the legacy stream implies, and events.
        let mut last: Vec<Vec<u32>> = vec![Vec::new(); streams.len()];
        let mut before: Vec<Vec<u32>> = Vec::new();
        let mut events: Vec<(CuEvent, Vec<u32>)> = Vec::new();
        for value in 0..600u32 {
            let at = random(streams.len() as u64) as usize;
            let is_blocking = |stream: usize| stream != 0 && stream.is_multiple_of(2);
            let mut ahead = last[at].clone();
            for (other, ops) in last.iter().enumerate() {
                if at == 0 && is_blocking(other) || other == 0 && is_blocking(at) {
                    ahead.extend(ops);
                }
            }
            if !events.is_empty() && random(3) == 0 {
                let (event, ops) = &events[random(events.len() as u64) as usize];
                call!(driver, cuStreamWaitEvent(streams[at], *event, 0));
                ahead.extend(ops);
            }
            driver.append(streams[at], log, value);
            before.push(ahead);
            last[at] = vec![value];
            if random(4) == 0 {
                let event = driver.event();
                call!(driver, cuEventRecord(event, streams[at]));
                events.push((event, vec![value]));
            }
        }
        let words = driver.words(log, 601);
        let mut place = vec![usize::MAX; 600];
        words[1..].iter().enumerate().for_each(|(index, &value)| place[value as usize] = index);
        for (value, ahead) in before.iter().enumerate() {
            for &earlier in ahead {
                assert!(place[earlier as usize] < place[value], "{earlier} before {value}; seed {seed}");
            }
        }
    }
}
