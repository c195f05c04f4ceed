// SPDX-License-Identifier: Apache-2.0
//! Copies and memory sets: content, bounds, and when the calls return.

use partage_abi::types::*;

use crate::machine::{call, on_machine, refused};

on_machine! {
    bytes_arrive_in_every_direction => |driver| {
        let bytes = 200_000;
        let (first, second) = (driver.memory(bytes), driver.memory(bytes));
        let stream = driver.stream(0);
        let from: Vec<u8> = (0..bytes).map(|index| (index * 7) as u8).collect();
        let mut to = vec![0u8; bytes];
        call!(driver, cuMemcpyHtoDAsync_v2(first, from.as_ptr().cast(), bytes, stream));
        call!(driver, cuMemcpyDtoDAsync_v2(second, first, bytes, stream));
        call!(driver, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), second, bytes, stream));
        call!(driver, cuStreamSynchronize(stream));
        assert!(from == to);
        call!(driver, cuMemcpy(second, first + 1, 100));
        call!(driver, cuMemcpy(to.as_mut_ptr() as u64, second, 100));
        assert_eq!(to[..100], from[1..101]);
    }

    pageable_memory_may_be_changed_when_the_call_returns => |driver| {
        let (memory, stream) = (driver.memory(1 << 20), driver.stream(0));
        for bytes in [64usize, 1 << 20] {
            driver.spin(stream, 5);
            let mut from = vec![1u8; bytes];
            call!(driver, cuMemcpyHtoDAsync_v2(memory, from.as_ptr().cast(), bytes, stream));
            from.fill(2);
            assert_eq!(driver.words(memory, bytes / 4), vec![0x0101_0101; bytes / 4]);
        }
    }

    bounds_are_checked => |driver| {
        let memory = driver.memory(1024);
        let mut host = [0u8; 2048];
        let host = host.as_mut_ptr().cast::<c_void>();
        refused!(INVALID_VALUE: driver, cuMemcpyHtoD_v2(memory, host, 1025));
        refused!(INVALID_VALUE: driver, cuMemcpyDtoH_v2(host, memory + 1000, 25));
        refused!(INVALID_VALUE: driver, cuMemcpyDtoD_v2(memory, 0x1000, 4));
        refused!(INVALID_VALUE: driver, cuMemcpyHtoD_v2(memory, std::ptr::null(), 4));
        refused!(INVALID_VALUE: driver, cuMemsetD8_v2(memory, 0, 1025));
        refused!(INVALID_VALUE: driver, cuMemsetD32_v2(memory + 2, 0, 1));
        refused!(INVALID_VALUE: driver, cuMemsetD32_v2(memory, 0, usize::MAX / 2));
        call!(driver, cuMemcpyHtoD_v2(memory, host, 0));
        call!(driver, cuMemcpyHtoD_v2(memory, host, 1024));
        call!(driver, cuMemcpyHtoD_v2(memory + 1024, host, 0));
    }

    sets_of_every_size_and_shape => |driver| {
        let memory = driver.memory(256);
        call!(driver, cuMemsetD8_v2(memory, 0x11, 5));
        call!(driver, cuMemsetD16_v2(memory + 8, 0x2222, 2));
        call!(driver, cuMemsetD32_v2(memory + 12, 0x3333_3333, 1));
        call!(driver, cuMemsetD2D8_v2(memory + 16, 8, 0x44, 4, 3));
        let expected = [
            0x1111_1111, 0x11, 0x2222_2222, 0x3333_3333, 0x4444_4444, 0, 0x4444_4444, 0, 0x4444_4444, 0,
        ];
        assert_eq!(driver.words(memory, 10), expected);
        refused!(INVALID_VALUE: driver, cuMemsetD2D32_v2(memory, 4, 0, 2, 2));
    }

    planes_and_volumes_keep_their_pitch => |driver| {
        let (memory, stream) = (driver.memory(4096), driver.stream(0));
        let from: Vec<u8> = (0..=255).collect();
        let copy = CudaMemcpy2d {
            srcMemoryType: 1, srcHost: from.as_ptr().cast(), srcPitch: 16, srcXInBytes: 2, srcY: 1,
            dstMemoryType: 2, dstDevice: memory, dstPitch: 64, dstXInBytes: 4, dstY: 2,
            WidthInBytes: 4, Height: 3, ..CudaMemcpy2d::default()
        };
        call!(driver, cuMemcpy2DAsync_v2(&copy, stream));
        let words = driver.words(memory, 128);
        for row in 0..3u32 {
            let first = 16 * (row + 1) + 2;
            let expected = u32::from_le_bytes([0, 1, 2, 3].map(|column| (first + column) as u8));
            assert_eq!(words[((row + 2) * 16 + 1) as usize], expected);
        }
        assert_eq!(words.iter().filter(|&&word| word != 0).count(), 3);
        let volume = CudaMemcpy3d {
            srcMemoryType: 2, srcDevice: memory, srcPitch: 64, srcHeight: 4, srcXInBytes: 4, srcY: 2,
            dstMemoryType: 2, dstDevice: memory + 2048, dstPitch: 8, dstHeight: 2,
            WidthInBytes: 4, Height: 2, Depth: 2, ..CudaMemcpy3d::default()
        };
        call!(driver, cuMemcpy3D_v2(&volume));
        assert_eq!(driver.words(memory + 2048, 8), [words[33], 0, words[49], 0, words[97], 0, words[113], 0]);
        let narrow = CudaMemcpy2d { srcPitch: 3, ..copy };
        refused!(INVALID_VALUE: driver, cuMemcpy2D_v2(&narrow));
        let beyond = CudaMemcpy2d { Height: 64, ..copy };
        refused!(INVALID_VALUE: driver, cuMemcpy2D_v2(&beyond));
        refused!(INVALID_VALUE: driver, cuMemcpy2D_v2(std::ptr::null()));
    }

    batches_copy_all_or_name_the_one_that_cannot_be => |driver| {
        let (memory, stream) = (driver.memory(64), driver.stream(0));
        call!(driver, cuMemsetD32_v2(memory, 7, 1));
        let (mut to, mut from, mut sizes) = ([memory + 16, memory + 32], [memory; 2], [4usize, 4]);
        let (mut attributes, mut index, mut failed) = ([CuMemcpyAttributes::default()], [0usize], 0usize);
        call!(driver, cuMemcpyBatchAsync(
            to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr(), 2, attributes.as_mut_ptr(), index.as_mut_ptr(), 1,
            &mut failed, stream
        ));
        let words = driver.words(memory, 16);
        assert_eq!((words[4], words[8], words[12]), (7, 7, 0));
        to[1] = memory + 62;
        refused!(INVALID_VALUE: driver, cuMemcpyBatchAsync(
            to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr(), 2, attributes.as_mut_ptr(), index.as_mut_ptr(), 1,
            &mut failed, stream
        ));
        assert_eq!(failed, 1);
    }

    copies_take_the_time_of_the_bus => |driver| {
        let bytes = 64 << 20;
        let memory = driver.memory(bytes);
        let mut host = std::ptr::null_mut();
        call!(driver, cuMemAllocHost_v2(&mut host, bytes));
        let (stream, start, end) = (driver.stream(0), driver.event(), driver.event());
        call!(driver, cuEventRecord(start, stream));
        call!(driver, cuMemcpyHtoDAsync_v2(memory, host, bytes, stream));
        call!(driver, cuEventRecord(end, stream));
        call!(driver, cuEventSynchronize(end));
        // 50 GB/s, however long copying takes on this machine.
        let expected = bytes as f32 / 50e9 * 1e3;
        let elapsed = driver.elapsed(start, end);
        assert!((expected * 0.999..expected * 1.1).contains(&elapsed), "{elapsed} ms, not {expected}");
    }

    managed_memory_takes_hints => |driver| {
        let mut address = 0;
        call!(driver, cuMemAllocManaged(&mut address, 4096, 1));
        call!(driver, cuMemPrefetchAsync(address, 4096, 0, CuStream::NULL));
        call!(driver, cuMemAdvise(address, 4096, 3, -1));
        refused!(INVALID_VALUE: driver, cuMemPrefetchAsync(address, 4097, 0, CuStream::NULL));
        refused!(INVALID_DEVICE: driver, cuMemPrefetchAsync(address, 4096, 9, CuStream::NULL));
        refused!(INVALID_VALUE: driver, cuMemAdvise(driver.memory(4), 4, 3, 0));
    }
}
