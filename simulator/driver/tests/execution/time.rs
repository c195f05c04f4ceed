// SPDX-License-Identifier: Apache-2.0
//! What the sharing of time is built on: marks that the device writes into pages of other processes, kernels whose end
//! somebody else decides, and the attributes of launches.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use partage_abi::types::*;

use crate::machine::{Driver, Value, call, code, finish, make, on_machine, pointers, refused, role, start, until};

const LEGACY: CuStream = CuStream::NULL;
const NON_BLOCKING: u32 = 1;
const DISABLE_TIMING: u32 = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 3;
const PAGE: usize = 4096;
/// `CU_GRAPH_NODE_TYPE_BATCH_MEM_OP`.
const BATCH_MEM_OP: i32 = 12;
/// `CU_STREAM_MEM_OP_WRITE_VALUE_64`.
const WRITE_64: i32 = 5;

/// A page that several processes map, as words.
struct Page {
    words: &'static [AtomicU64],
}

impl Page {
    /// An anonymous file, and its first page.
    fn anonymous() -> (File, Self) {
        // SAFETY: the name is a string, and the descriptor is then ours.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(PAGE as u64).expect("room for a page");
        let page = Self::of(&file);
        (file, page)
    }

    fn of(file: &File) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of a page of the file, kept until the process ends; its words are only used as
        // atomics.
        let words = unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            std::slice::from_raw_parts(at.cast(), PAGE / 8)
        };
        Self { words }
    }

    fn word(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    /// Registers it and gives its address for the device.
    fn register(&self, driver: &Driver) -> u64 {
        let at = self.words.as_ptr().cast_mut().cast();
        call!(driver, cuMemHostRegister_v2(at, PAGE, PORTABLE_MAPPED));
        let mut address = 0;
        call!(driver, cuMemHostGetDevicePointer_v2(&mut address, at, 0));
        address
    }
}

fn write(address: u64, value: u64) -> CuStreamBatchMemOpParams {
    CuStreamBatchMemOpParams {
        writeValue: CuStreamBatchMemOpParamsWriteValue {
            operation: WRITE_64,
            address,
            value: CuStreamBatchMemOpParamsWriteValueValue { value64: value },
            flags: 0,
            alias: 0,
        },
    }
}

/// Writes marks 1 to 5 after kernels, the first of which waits for the other process's word.
fn mark(driver: &Driver) {
    let (file, page) = Page::anonymous();
    let address = page.register(driver);
    println!("page {}", file.as_raw_fd());
    let stream = driver.stream(NON_BLOCKING);
    driver.launch("spin_until", stream, &[Value::Long(address + 8), Value::Long(1)]);
    let spin = || driver.launch("spin_ns", stream, &[Value::Long(200_000)]);
    call!(driver, cuStreamWriteValue64(stream, address, 1, 0));
    spin();
    call!(driver, cuStreamWriteValue64_ptsz(stream, address, 2, 1));
    spin();
    call!(driver, cuStreamWriteValue64_v2(stream, address, 3, 0));
    spin();
    call!(driver, cuStreamWriteValue64_v2_ptsz(stream, address, 4, 0));
    spin();
    let mut batch = [write(address + 16, 7), write(address, 5)];
    call!(driver, cuStreamBatchMemOp_v2(stream, 2, batch.as_mut_ptr(), 0));
    assert_eq!(
        code!(driver, cuStreamQuery(stream)),
        CuResult::NOT_READY,
        "the kernel waits for the other process"
    );
    call!(driver, cuStreamSynchronize(stream));
    assert_eq!([page.word(0), page.word(2)], [5, 7]);
    call!(driver, cuMemHostUnregister(page.words.as_ptr().cast_mut().cast()));
    refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(stream, address, 6, 0));
    // The page stays until the other process has seen it.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("readable");
}

#[test]
fn marks_reach_another_process_in_the_order_of_the_stream() {
    let test = "time::marks_reach_another_process_in_the_order_of_the_stream";
    if role().is_some() {
        return mark(&Driver::open());
    }
    let folder = make(1);
    let mut child = start(test, &folder.0, "body");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"))
        .lines()
        .map_while(Result::ok);
    let descriptor = lines.find_map(|line| line.split_once("page ").map(|(_, rest)| rest.to_owned()));
    // The rest is read, so that the child never writes to a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let path = format!("/proc/{}/fd/{}", child.id(), descriptor.expect("the child says it"));
    let page = Page::of(
        &File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("a file of our own child"),
    );
    assert_eq!(
        page.word(0),
        0,
        "nothing is marked before the kernel that waits for us ended"
    );
    page.words[1].store(1, Ordering::Release);
    let mut seen = 0;
    until("the last mark", || {
        let now = page.word(0);
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
        seen == 5
    });
    assert_eq!(page.word(2), 7, "a batch is carried out in its order");
    drop(child.stdin.take());
    finish(child, test);
}

#[test]
fn kernels_of_two_devices_wait_for_each_other() {
    crate::machine::run_on_machine("time::kernels_of_two_devices_wait_for_each_other", 2, |driver| {
        let (_file, page) = Page::anonymous();
        let address = page.register(driver);
        let mut other = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut other, 0, 1));
        let modules: Vec<CuFunction> = [driver.context, other]
            .into_iter()
            .map(|context| {
                call!(driver, cuCtxSetCurrent(context));
                driver.load("spin_until")
            })
            .collect();
        let mut streams = [CuStream::NULL; 2];
        for (stream, context) in streams.iter_mut().zip([driver.context, other]) {
            call!(driver, cuCtxSetCurrent(context));
            *stream = driver.stream(NON_BLOCKING);
        }
        const ROUNDS: u64 = 20;
        for round in 1..=ROUNDS {
            for (rank, context) in [driver.context, other].into_iter().enumerate() {
                call!(driver, cuCtxSetCurrent(context));
                let (own, peer) = (address + 8 * rank as u64, address + 8 * (1 - rank as u64));
                call!(driver, cuStreamWriteValue64_v2(streams[rank], own, round, 0));
                let parameters = [Value::Long(peer), Value::Long(round)];
                let mut list = pointers(&parameters);
                call!(
                    driver,
                    cuLaunchKernel(
                        modules[rank],
                        1,
                        1,
                        1,
                        1,
                        1,
                        1,
                        0,
                        streams[rank],
                        list.as_mut_ptr(),
                        std::ptr::null_mut()
                    )
                );
                // The first rank is ahead by a round until the second one is launched too.
                if rank == 0 {
                    refused!(NOT_READY: driver, cuStreamQuery(streams[0]));
                }
            }
        }
        for (stream, context) in streams.into_iter().zip([driver.context, other]) {
            call!(driver, cuCtxSetCurrent(context));
            call!(driver, cuStreamSynchronize(stream));
        }
        assert_eq!([page.word(0), page.word(1)], [ROUNDS; 2]);
    });
}

on_machine! {
    marks_between_kernels_take_no_device_time => |driver| {
        let (_file, page) = Page::anonymous();
        let address = page.register(driver);
        let (stream, events) = (driver.stream(0), [driver.event(), driver.event()]);
        // While the first one runs, everything else is handed in.
        driver.spin(stream, 100);
        call!(driver, cuEventRecord(events[0], stream));
        for value in 1..=50 {
            driver.launch("spin_ns", stream, &[Value::Long(100_000)]);
            call!(driver, cuStreamWriteValue64_v2(stream, address, value, 0));
        }
        call!(driver, cuEventRecord(events[1], stream));
        call!(driver, cuEventSynchronize(events[1]));
        let elapsed = driver.elapsed(events[0], events[1]);
        assert!((5.0..5.01).contains(&elapsed), "{elapsed}");
        assert_eq!(page.word(0), 50);
    }

    marks_in_a_captured_stream_become_nodes => |driver| {
        let (_file, page) = Page::anonymous();
        let (address, stream) = (page.register(driver), driver.stream(NON_BLOCKING));
        call!(driver, cuStreamBeginCapture_v2(stream, 0));
        driver.launch("spin_ns", stream, &[Value::Long(1000)]);
        call!(driver, cuStreamWriteValue64_v2(stream, address, 9, 0));
        let mut batch = [write(address + 8, 1)];
        call!(driver, cuStreamBatchMemOp_v2(stream, 1, batch.as_mut_ptr(), 0));
        let mut graph = CuGraph::NULL;
        call!(driver, cuStreamEndCapture(stream, &mut graph));
        let (mut nodes, mut count) = ([CuGraphNode::NULL; 3], 3);
        call!(driver, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
        let kinds = nodes.map(|node| {
            let mut kind = -1;
            call!(driver, cuGraphNodeGetType(node, &mut kind));
            kind
        });
        assert_eq!((count, kinds), (3, [0, BATCH_MEM_OP, BATCH_MEM_OP]));
        assert_eq!(page.word(0), 0, "captured, not written");
        let mut exec = CuGraphExec::NULL;
        call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        call!(driver, cuGraphLaunch(exec, stream));
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!([page.word(0), page.word(1)], [9, 1]);
    }

    marks_where_no_device_reaches_are_refused => |driver| {
        let (_file, page) = Page::anonymous();
        let at = page.words.as_ptr() as u64;
        refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(LEGACY, at, 1, 0));
        let address = page.register(driver);
        refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(LEGACY, address + 4, 1, 0));
        refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(LEGACY, address + PAGE as u64, 1, 0));
        refused!(INVALID_VALUE: driver, cuStreamWriteValue64_v2(LEGACY, address, 1, 2));
        let start = page.words.as_ptr().cast_mut().cast();
        refused!(HOST_MEMORY_ALREADY_REGISTERED: driver, cuMemHostRegister_v2(start, 8, PORTABLE_MAPPED));
        assert_eq!(page.word(0), 0);
    }

    endless_kernel_ends_with_its_context => |driver| {
        let memory = driver.memory(8);
        let (first, second) = (driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING));
        driver.launch("spin_for_ever", first, &[]);
        driver.launch("spin_until", second, &[Value::Long(memory), Value::Long(1)]);
        // It holds up nothing but its stream: the other one's kernel ends when its word is written.
        call!(driver, cuStreamWriteValue64_v2(driver.stream(NON_BLOCKING), memory, 1, 0));
        call!(driver, cuStreamSynchronize(second));
        refused!(NOT_READY: driver, cuStreamQuery(first));
        call!(driver, cuCtxDestroy_v2(driver.context));
    }

    kernel_that_waits_where_nothing_is_faults => |driver| {
        driver.launch("spin_until", LEGACY, &[Value::Long(16), Value::Long(1)]);
        refused!(ILLEGAL_ADDRESS: driver, cuCtxSynchronize());
    }

    launch_records_the_events_of_its_attributes => |driver| {
        let (stream, other) = (driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING));
        let memory = driver.memory(8);
        let event = |flags| {
            let mut event = CuEvent::NULL;
            call!(driver, cuEventCreate(&mut event, flags));
            event
        };
        let (programmatic, completion) = (event(DISABLE_TIMING), event(DISABLE_TIMING));
        let with_events = |programmatic: CuEvent, completion: CuEvent, flags: i32| {
            let programmatic = CuLaunchAttributeValueProgrammaticEvent {
                event: programmatic,
                flags,
                triggerAtBlockStart: 0,
            };
            let completion = CuLaunchAttributeValueLaunchCompletionEvent { event: completion, flags };
            [
                attribute(6, CuLaunchAttributeValue { programmaticStreamSerializationAllowed: 1 }),
                attribute(7, CuLaunchAttributeValue { programmaticEvent: programmatic }),
                attribute(8, CuLaunchAttributeValue { priority: -3 }),
                attribute(12, CuLaunchAttributeValue { launchCompletionEvent: completion }),
            ]
        };
        let parameters = [Value::Long(memory), Value::Long(1)];
        let launch = |attributes: &mut [CuLaunchAttribute]| {
            launch_with(driver, "spin_until", stream, &parameters, attributes)
        };
        assert_eq!(launch(&mut with_events(event(0), completion, 0)), CuResult::INVALID_VALUE, "measures time");
        assert_eq!(launch(&mut with_events(programmatic, completion, 1)), CuResult::INVALID_VALUE, "flags");
        assert_eq!(launch(&mut with_events(CuEvent::NULL, completion, 0)), CuResult::INVALID_HANDLE);
        call!(driver, cuStreamQuery(stream));
        assert_eq!(launch(&mut with_events(programmatic, completion, 0)), CuResult::SUCCESS);
        refused!(NOT_READY: driver, cuEventQuery(programmatic));
        call!(driver, cuStreamWaitEvent(other, programmatic, 0));
        refused!(NOT_READY: driver, cuStreamQuery(other));
        call!(driver, cuStreamWriteValue64_v2(driver.stream(NON_BLOCKING), memory, 1, 0));
        call!(driver, cuStreamSynchronize(other));
        call!(driver, cuEventSynchronize(completion));
        // In a captured stream the events are captured too.
        call!(driver, cuStreamBeginCapture_v2(stream, 0));
        assert_eq!(launch(&mut with_events(programmatic, completion, 0)), CuResult::SUCCESS);
        call!(driver, cuStreamWaitEvent(other, programmatic, 0));
        let mut state = 0;
        call!(driver, cuStreamIsCapturing(other, &mut state));
        assert_eq!(state, 1);
        call!(driver, cuStreamWaitEvent(stream, completion, 0));
        let mut graph = CuGraph::NULL;
        call!(driver, cuStreamEndCapture(stream, &mut graph));
        let (mut node, mut count) = (CuGraphNode::NULL, 1);
        call!(driver, cuGraphGetNodes(graph, &mut node, &mut count));
        let mut value = CuLaunchAttributeValue::default();
        call!(driver, cuGraphKernelNodeGetAttribute(node, 8, &mut value));
        // SAFETY: the attribute asked for is the priority.
        assert_eq!(unsafe { value.priority }, -3);
    }

    launch_attributes_that_are_not_built_say_so => |driver| {
        let updatable = CuLaunchAttributeValueDeviceUpdatableKernelNode { deviceUpdatable: 1, ..Default::default() };
        let mut list = [attribute(13, CuLaunchAttributeValue { deviceUpdatableKernelNode: updatable })];
        let parameters = [Value::Long(1)];
        assert_eq!(launch_with(driver, "spin_ns", LEGACY, &parameters, &mut list), CuResult::NOT_SUPPORTED);
        list[0] = attribute(99, CuLaunchAttributeValue::default());
        assert_eq!(launch_with(driver, "spin_ns", LEGACY, &parameters, &mut list), CuResult::INVALID_VALUE);
        refused!(NOT_SUPPORTED: driver, cuLaunchCooperativeKernelMultiDevice(std::ptr::null_mut(), 1, 0));
        let mut is_multi_device = -1;
        call!(driver, cuDeviceGetAttribute(&mut is_multi_device, 96, 0));
        assert_eq!(is_multi_device, 0, "and a program that asks first is told");
    }

    first_forms_of_launches_run_in_order => |driver| {
        let (function, log) = (driver.kernel("append"), driver.memory(256));
        call!(driver, cuFuncSetBlockShape(function, 1, 1, 1));
        call!(driver, cuParamSetSize(function, 12));
        call!(driver, cuParamSetv(function, 0, std::ptr::from_ref(&log).cast_mut().cast(), 8));
        call!(driver, cuParamSeti(function, 8, 1));
        call!(driver, cuLaunch(function));
        call!(driver, cuParamSeti(function, 8, 2));
        call!(driver, cuLaunchGrid(function, 1, 1));
        call!(driver, cuParamSeti(function, 8, 3));
        call!(driver, cuLaunchGridAsync(function, 1, 1, driver.stream(0)));
        assert_eq!(driver.log(log), [1, 2, 3]);
        refused!(INVALID_VALUE: driver, cuLaunchGrid(function, 0, 1));
    }
}

fn attribute(id: i32, value: CuLaunchAttributeValue) -> CuLaunchAttribute {
    CuLaunchAttribute {
        id,
        value,
        ..CuLaunchAttribute::default()
    }
}

fn launch_with(
    driver: &Driver,
    name: &str,
    stream: CuStream,
    parameters: &[Value],
    attributes: &mut [CuLaunchAttribute],
) -> CuResult {
    let config = CuLaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    };
    let mut list = pointers(parameters);
    code!(
        driver,
        cuLaunchKernelEx(&config, driver.kernel(name), list.as_mut_ptr(), std::ptr::null_mut())
    )
}
