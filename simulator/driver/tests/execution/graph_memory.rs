// SPDX-License-Identifier: Apache-2.0
//! Memory nodes of graphs: physical memory, when it is taken and given back, and who shares it.

mod nodes;

pub use nodes::*;

use partage_abi::types::*;
use partage_abi::values::*;
use partage_machine::Machine;

use crate::machine::{self, Driver, call, code, on_machine, refused};

const AUTO_FREE: u64 = 1;
on_machine! {
    a_graph_has_its_memory_from_its_allocation_to_its_free => |driver| {
        let (result, before) = (memory(driver, 64), in_use(driver));
        let (graph, address) = scratch(driver, 64 * MIB, 0xabcd, result);
        assert_eq!((in_use(driver), reserved(driver)), (before, 0), "an address costs nothing");
        let exec = instantiate(driver, graph, 0);
        assert_eq!((in_use(driver), reserved(driver)), (before, 0));
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        assert_eq!((reserved(driver), used(driver)), (64 * MIB, 64 * MIB));
        assert_eq!(in_use(driver), before + 64 * MIB);
        assert_eq!(driver.words(result, 1), [0xabcd]);
        assert_eq!(in_use(driver), before + 64 * MIB, "kept after the free");
        refused!(INVALID_VALUE: driver, cuMemFree_v2(address));
        refused!(INVALID_VALUE: driver, cuMemFreeAsync(address, CuStream::NULL));
        trim(driver);
        assert_eq!((reserved(driver), used(driver), in_use(driver)), (0, 0, before), "although it is instantiated");
        call!(driver, cuMemsetD8_v2(result, 0, 64));
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        assert_eq!((driver.words(result, 1), reserved(driver)), (vec![0xabcd], 64 * MIB));
        call!(driver, cuGraphExecDestroy(exec));
        assert_eq!((reserved(driver), used(driver)), (64 * MIB, 0), "kept after the end of the graph");
        call!(driver, cuGraphDestroy(graph));
        assert_eq!(reserved(driver), 64 * MIB);
        trim(driver);
        assert_eq!((reserved(driver), in_use(driver)), (0, before));
        assert_eq!(figure(driver, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
    }

    allocations_that_never_meet_share_their_addresses => |driver| {
        let (graph, result) = (graph(driver), memory(driver, 64));
        let (first, a) = allocate(driver, graph, &[], 64 * MIB);
        let end = free(driver, graph, &[first], a);
        let (second, b) = allocate(driver, graph, &[end], 60 * MIB);
        assert_eq!(b, a, "after the free");
        let node = fill(driver, graph, &[second], b, 7, 4);
        let node = copy(driver, graph, &[node], result, b, 4);
        let end = free(driver, graph, &[node], b);
        // Beside the others, not after them.
        let (_, c) = allocate(driver, graph, &[first], 64 * MIB);
        assert!(c.abs_diff(a) >= 64 * MIB);
        // Small ones fill what is left.
        let (_, d) = allocate(driver, graph, &[second], 4 * MIB);
        assert_eq!(d, b + 60 * MIB);
        let (_, e) = allocate(driver, graph, &[end], 512);
        assert_eq!(e, a);
        let exec = instantiate(driver, graph, 0);
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        assert_eq!((driver.words(result, 1), reserved(driver)), (vec![7], 128 * MIB));
    }

    a_thousand_launches_reserve_no_more_than_the_first => |driver| {
        let (result, before) = (memory(driver, 64), in_use(driver));
        let exec = instantiate(driver, scratch(driver, 3 * MIB + 1, 5, result).0, 0);
        let streams = [driver.stream(NON_BLOCKING), driver.stream(NON_BLOCKING)];
        for launch in 0..1000 {
            call!(driver, cuGraphLaunch(exec, streams[launch % 2]));
            assert_eq!((reserved(driver), in_use(driver)), (4 * MIB, before + 4 * MIB));
        }
        assert_eq!(driver.words(result, 1), [5]);
        trim(driver);
        assert_eq!((reserved(driver), used(driver), in_use(driver)), (0, 0, before));
        assert_eq!(figure(driver, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 4 * MIB);
    }

    graphs_in_one_stream_share_memory_and_others_do_not => |driver| {
        let (results, before) = (memory(driver, 64), in_use(driver));
        let streams: Vec<CuStream> = (0..4).map(|_| driver.stream(NON_BLOCKING)).collect();
        let made: Vec<_> = (0..4).map(|i| scratch(driver, 64 * MIB, i as u32 + 1, results + 4 * i)).collect();
        let execs: Vec<_> = made.iter().map(|&(graph, _)| instantiate(driver, graph, 0)).collect();
        let mut addresses: Vec<u64> = made.iter().map(|&(_, address)| address).collect();
        addresses.dedup();
        assert_eq!(addresses.len(), 4);
        hold(driver, streams[0], 1);
        for &exec in &execs {
            call!(driver, cuGraphLaunch(exec, streams[0]));
            assert_eq!(reserved(driver), 64 * MIB);
        }
        trim(driver);
        assert_eq!(reserved(driver), 64 * MIB, "scheduled to run");
        pass(1);
        assert_eq!(driver.words(results, 4), [1, 2, 3, 4]);
        trim(driver);
        call!(driver, cuMemsetD8_v2(results, 0, 64));
        call!(driver, cuCtxSynchronize());
        for (place, &exec) in execs.iter().enumerate() {
            hold(driver, streams[place], 2);
            call!(driver, cuGraphLaunch(exec, streams[place]));
            assert_eq!(reserved(driver), (place as u64 + 1) * 64 * MIB);
        }
        pass(2);
        assert_eq!(driver.words(results, 4), [1, 2, 3, 4]);
        // What another stream used is there again when that is over, or when an event says that it comes before.
        let (graph, _) = scratch(driver, 64 * MIB, 9, results);
        let (fresh, event) = (driver.stream(NON_BLOCKING), driver.event());
        hold(driver, streams[0], 3);
        for (place, &exec) in execs.iter().enumerate() {
            if place > 0 {
                call!(driver, cuStreamWaitEvent(streams[place], event, 0));
            }
            call!(driver, cuGraphLaunch(exec, streams[place]));
            call!(driver, cuEventRecord(event, streams[place]));
        }
        call!(driver, cuStreamWaitEvent(fresh, event, 0));
        call!(driver, cuGraphLaunch(instantiate(driver, graph, 0), fresh));
        assert_eq!(reserved(driver), 256 * MIB);
        pass(3);
        assert_eq!(driver.words(results, 4), [9, 2, 3, 4]);
        trim(driver);
        assert_eq!(in_use(driver), before);
    }

    memory_that_is_left_stays_until_it_is_freed => |driver| {
        let (before, stream) = (in_use(driver), driver.stream(NON_BLOCKING));
        let made: Vec<_> = (0..4).map(|value| lasting(driver, 16 * MIB, value)).collect();
        let execs: Vec<_> = made.iter().map(|&(graph, _)| instantiate(driver, graph, 0)).collect();
        for (place, &exec) in execs.iter().enumerate() {
            call!(driver, cuGraphLaunch(exec, stream));
            assert_eq!(reserved(driver), (place as u64 + 1) * 16 * MIB);
        }
        for (value, &(_, address)) in made.iter().enumerate() {
            assert_eq!(driver.words(address, 4), [value as u32; 4]);
        }
        trim(driver);
        assert_eq!(reserved(driver), 64 * MIB);
        refused!(INVALID_VALUE: driver, cuGraphLaunch(execs[0], stream));
        call!(driver, cuMemFree_v2(made[0].1));
        refused!(INVALID_VALUE: driver, cuMemFree_v2(made[0].1));
        call!(driver, cuGraphLaunch(execs[0], stream));
        assert_eq!(reserved(driver), 64 * MIB);
        // The memory outlives the graph; whoever frees it need not know.
        for (&exec, &(graph, _)) in execs.iter().zip(&made) {
            call!(driver, cuGraphExecDestroy(exec));
            call!(driver, cuGraphDestroy(graph));
        }
        trim(driver);
        assert_eq!((reserved(driver), used(driver)), (64 * MIB, 64 * MIB));
        assert_eq!(driver.words(made[3].1, 4), [3; 4]);
        for &(_, address) in &made[1..] {
            call!(driver, cuMemsetD32Async(address, 1, 4, stream));
            call!(driver, cuMemFreeAsync(address, stream));
            refused!(INVALID_VALUE: driver, cuMemFreeAsync(address, stream));
        }
        call!(driver, cuMemFree_v2(made[0].1));
        call!(driver, cuCtxSynchronize());
        assert_eq!(reserved(driver), 64 * MIB, "frees do not give it back");
        trim(driver);
        assert_eq!((reserved(driver), in_use(driver)), (0, before));
    }

    a_free_in_a_stream_lets_the_graph_run_again => |driver| {
        let (stream, (graph, address)) = (driver.stream(NON_BLOCKING), lasting(driver, MIB, 3));
        let (exec, log) = (instantiate(driver, graph, 0), memory(driver, 256));
        hold(driver, stream, 1);
        for _ in 0..3 {
            call!(driver, cuGraphLaunch(exec, stream));
            refused!(INVALID_VALUE: driver, cuGraphLaunch(exec, stream));
            driver.append(stream, log, 8);
            call!(driver, cuMemcpyDtoDAsync_v2(log + 64, address, 4, stream));
            call!(driver, cuMemFreeAsync(address, stream));
        }
        assert_eq!(reserved(driver), 2 * MIB);
        trim(driver);
        assert_eq!(reserved(driver), 2 * MIB);
        pass(1);
        let seen = driver.words(log, 17);
        assert_eq!(seen[16], 3, "{seen:?}");
        trim(driver);
        assert_eq!(reserved(driver), 0);
    }

    auto_free_frees_what_the_last_launch_left => |driver| {
        let (stream, (graph, address)) = (driver.stream(NON_BLOCKING), lasting(driver, 8 * MIB, 3));
        let exec = instantiate(driver, graph, AUTO_FREE);
        for _ in 0..100 {
            call!(driver, cuGraphLaunch(exec, stream));
            assert_eq!(reserved(driver), 8 * MIB);
        }
        assert_eq!(driver.words(address, 4), [3; 4], "the last one is still there");
        trim(driver);
        assert_eq!(reserved(driver), 8 * MIB);
        call!(driver, cuMemFree_v2(address));
        call!(driver, cuGraphLaunch(exec, stream));
        call!(driver, cuMemFreeAsync(address, stream));
        call!(driver, cuStreamSynchronize(stream));
        trim(driver);
        assert_eq!(reserved(driver), 0);
        refused!(INVALID_VALUE: driver, cuGraphInstantiateWithFlags(&mut { exec }, self::graph(driver), 1 | 4));
    }

    launches_and_uploads_without_room_are_refused_and_leave_nothing => |driver| {
        let (result, before) = (memory(driver, 64), in_use(driver));
        let room = 1024 * MIB - before;
        let graph = graph(driver);
        let (first, a) = allocate(driver, graph, &[], 200 * MIB);
        let (second, b) = allocate(driver, graph, &[first], 300 * MIB);
        let node = fill(driver, graph, &[second], b, 6, 4);
        let node = copy(driver, graph, &[node], result, b, 4);
        let node = free(driver, graph, &[node], a);
        free(driver, graph, &[node], b);
        let exec = instantiate(driver, graph, 0);
        let mut rest = 0;
        call!(driver, cuMemAlloc_v2(&mut rest, (room - 499 * MIB) as usize));
        for _ in 0..3 {
            refused!(OUT_OF_MEMORY: driver, cuGraphLaunch(exec, CuStream::NULL));
            refused!(OUT_OF_MEMORY: driver, cuGraphUpload(exec, CuStream::NULL));
            assert_eq!((in_use(driver), reserved(driver)), (1024 * MIB - 499 * MIB, 0));
        }
        let mut params = CudaGraphInstantiateParams { flags: 2, ..Default::default() };
        call!(driver, cuGraphExecDestroy(exec));
        let mut exec = CuGraphExec::NULL;
        refused!(OUT_OF_MEMORY: driver, cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        call!(driver, cuMemFree_v2(rest));
        call!(driver, cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        assert_eq!((reserved(driver), used(driver)), (500 * MIB, 500 * MIB), "uploaded");
        call!(driver, cuMemAlloc_v2(&mut rest, (room - 500 * MIB) as usize));
        call!(driver, cuGraphLaunch(exec, driver.stream(NON_BLOCKING)));
        assert_eq!((driver.words(result, 1), in_use(driver)), (vec![6], 1024 * MIB));
        // Idle memory of other graphs is too short each, and goes to make room.
        call!(driver, cuGraphExecDestroy(exec));
        let big = instantiate(driver, scratch(driver, 400 * MIB, 4, result).0, 0);
        call!(driver, cuGraphLaunch(big, CuStream::NULL));
        assert_eq!((driver.words(result, 1), reserved(driver)), (vec![4], 400 * MIB));
        trim(driver);
        call!(driver, cuMemFree_v2(rest));
        assert_eq!(in_use(driver), before);
    }

    pools_make_room_for_graphs => |driver| {
        let (stream, before) = (driver.stream(NON_BLOCKING), in_use(driver));
        let (mut pool, mut address, mut keep) = (CuMemoryPool::NULL, 0, u64::MAX);
        call!(driver, cuDeviceGetDefaultMemPool(&mut pool, 0));
        call!(driver, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast()));
        call!(driver, cuMemAllocAsync(&mut address, 900 * MIB as usize, stream));
        call!(driver, cuMemFreeAsync(address, stream));
        call!(driver, cuStreamSynchronize(stream));
        assert!(in_use(driver) >= before + 900 * MIB);
        let result = memory(driver, 4);
        call!(driver, cuGraphLaunch(instantiate(driver, scratch(driver, 800 * MIB, 2, result).0, 0), stream));
        assert_eq!(in_use(driver), before + 800 * MIB + 512);
    }

    with_its_last_context_a_device_gets_the_memory_of_graphs_back => |driver| {
        let before = in_use(driver);
        let (graph, address) = lasting(driver, 2 * MIB, 1);
        let exec = instantiate(driver, graph, 0);
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        call!(driver, cuCtxSynchronize());
        call!(driver, cuCtxDestroy_v2(driver.context));
        assert_eq!((reserved(driver), used(driver)), (0, 0));
        let mut context = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut context, 0, 0));
        assert_eq!(in_use(driver), before);
        refused!(INVALID_VALUE: driver, cuMemFree_v2(address));
    }

    memory_that_is_not_allocated_is_not_reached => |driver| {
        let (graph, address) = lasting(driver, 4096, 1);
        let (exec, to) = (instantiate(driver, graph, 0), memory(driver, 64));
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        call!(driver, cuMemcpyDtoD_v2(to, address, 16));
        assert_eq!(driver.words(to, 4), [1; 4]);
        call!(driver, cuMemFree_v2(address));
        // Work on it may be submitted before a launch allocates it, but here none did.
        let answer = code!(driver, cuMemcpyDtoDAsync_v2(to, address, 16, CuStream::NULL));
        assert!(matches!(answer, CuResult::SUCCESS | CuResult::ILLEGAL_ADDRESS), "{answer:?}");
        refused!(ILLEGAL_ADDRESS: driver, cuCtxSynchronize());
    }

    /// Graphs of many sizes in several streams, some joined by events: nobody ever sees another one's content.
    graphs_that_share_memory_never_disturb_each_other => |driver| {
        let mut seed = 0x5eed_u64;
        println!("seed {seed:#x}");
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (count, streams) = (12_u64, [0; 3].map(|_: u32| driver.stream(NON_BLOCKING)));
        let results = memory(driver, 4 * count as usize);
        driver.kernel("append");
        let kernels = in_use(driver);
        let (event, mut execs) = (driver.event(), Vec::new());
        for number in 0..count {
            let graph = graph(driver);
            let (mut last, value) = (Vec::new(), number as u32 + 1);
            let mut held = Vec::new();
            for _ in 0..=random(3) {
                let bytes = 4096 << random(11);
                let (node, address) = allocate(driver, graph, &last, bytes);
                let node = fill(driver, graph, &[node], address, value, bytes as usize / 4);
                held.push((address + bytes - 4, address));
                last = vec![node];
            }
            for (word, address) in held {
                let node = copy(driver, graph, &last, results + 4 * number, word, 4);
                last = vec![free(driver, graph, &[node], address)];
            }
            execs.push(instantiate(driver, graph, 0));
        }
        for round in 0..30 {
            call!(driver, cuMemsetD8_v2(results, 0, 4 * count as usize));
            call!(driver, cuCtxSynchronize());
            for exec in &execs {
                let stream = streams[random(3) as usize];
                match random(4) {
                    0 => call!(driver, cuEventRecord(event, stream)),
                    1 => call!(driver, cuStreamWaitEvent(stream, event, 0)),
                    2 => driver.spin(stream, 1),
                    _ => {}
                }
                call!(driver, cuGraphLaunch(*exec, stream));
                assert_eq!(in_use(driver), kernels + reserved(driver));
            }
            let expected: Vec<u32> = (1..=count as u32).collect();
            assert_eq!(driver.words(results, count as usize), expected, "round {round}");
            if random(3) == 0 {
                trim(driver);
                assert_eq!(reserved(driver), 0);
            }
        }
    }
}

#[test]
fn a_process_that_ends_leaves_no_memory_of_graphs() {
    let test = "graph_memory::a_process_that_ends_leaves_no_memory_of_graphs";
    if machine::role().is_some() {
        let driver = Driver::open();
        let (graph, _) = lasting(&driver, 2 * MIB, 1);
        call!(driver, cuGraphLaunch(instantiate(&driver, graph, 0), CuStream::NULL));
        call!(driver, cuCtxSynchronize());
        assert_eq!(reserved(&driver), 2 * MIB);
        return;
    }
    let folder = machine::make(1);
    machine::finish(machine::start(test, &folder.0, "body"), test);
    let machine = Machine::open(&folder.0).expect("the machine is there");
    assert_eq!(machine.used(0), 0);
}
