// SPDX-License-Identifier: Apache-2.0
//! Copies to, from and between arrays: content, bounds, and what they leave alone.
//!
//! `Kept` is what an array should hold, packed: row after row, slice after slice.

use partage_abi::types::*;
use partage_abi::values::*;

use crate::machine::{Driver, call, code, on_machine, refused};

const BYTES: c_int = CU_AD_FORMAT_UNSIGNED_INT8;
const WORDS: c_int = CU_AD_FORMAT_UNSIGNED_INT32;

fn create(driver: &Driver, format: c_int, channels: u32, [width, height, depth]: [usize; 3], flags: u32) -> CuArray {
    let descriptor = CudaArray3dDescriptor {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    };
    let mut array = CuArray::NULL;
    call!(driver, cuArray3DCreate_v2(&mut array, &descriptor));
    array
}

/// One end of a copy and where in it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Packed bytes of the host, rows of this many bytes and slices of this many rows.
    Host(*mut u8, usize, usize),
    /// The same of a device.
    Device(u64, usize, usize),
    Array(CuArray),
}

/// Describes a copy of a box; places and extent are x in bytes, y and z.
fn describe(to: Place, at: [usize; 3], from: Place, start: [usize; 3], extent: [usize; 3]) -> CudaMemcpy3d {
    let mut copy = CudaMemcpy3d {
        srcXInBytes: start[0],
        srcY: start[1],
        srcZ: start[2],
        dstXInBytes: at[0],
        dstY: at[1],
        dstZ: at[2],
        WidthInBytes: extent[0],
        Height: extent[1],
        Depth: extent[2],
        ..CudaMemcpy3d::default()
    };
    match from {
        Place::Host(address, pitch, rows) => {
            (copy.srcMemoryType, copy.srcHost, copy.srcPitch, copy.srcHeight) =
                (CU_MEMORYTYPE_HOST, address.cast::<c_void>().cast_const(), pitch, rows);
        }
        Place::Device(address, pitch, rows) => {
            (copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight) =
                (CU_MEMORYTYPE_DEVICE, address, pitch, rows);
        }
        Place::Array(array) => (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array),
    }
    match to {
        Place::Host(address, pitch, rows) => {
            (copy.dstMemoryType, copy.dstHost, copy.dstPitch, copy.dstHeight) =
                (CU_MEMORYTYPE_HOST, address.cast(), pitch, rows);
        }
        Place::Device(address, pitch, rows) => {
            (copy.dstMemoryType, copy.dstDevice, copy.dstPitch, copy.dstHeight) =
                (CU_MEMORYTYPE_DEVICE, address, pitch, rows);
        }
        Place::Array(array) => (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array),
    }
    copy
}

/// All bytes of an array of this extent, in bytes, rows and slices.
fn read(driver: &Driver, array: CuArray, [width, rows, slices]: [usize; 3]) -> Vec<u8> {
    let mut bytes = vec![0xee; width * rows * slices];
    let to = Place::Host(bytes.as_mut_ptr(), width, rows);
    let copy = describe(to, [0; 3], Place::Array(array), [0; 3], [width, rows, slices]);
    call!(driver, cuMemcpy3D_v2(&copy));
    bytes
}

/// Writes all bytes of an array of this extent.
fn write(driver: &Driver, array: CuArray, [width, rows, slices]: [usize; 3], bytes: &mut [u8]) {
    assert_eq!(bytes.len(), width * rows * slices);
    let from = Place::Host(bytes.as_mut_ptr(), width, rows);
    let copy = describe(Place::Array(array), [0; 3], from, [0; 3], [width, rows, slices]);
    call!(driver, cuMemcpy3D_v2(&copy));
}

/// The same numbers for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }
}

/// What is copied to and from in a random test, and what it should hold.
struct Store {
    place: Place,
    extent: [usize; 3],
    kept: Vec<u8>,
}

impl Store {
    fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.extent[1] + y) * self.extent[0] + x
    }
}

on_machine! {
    one_row_arrives_in_every_direction => |driver| {
        let array = create(driver, WORDS, 1, [64, 0, 0], 0);
        let other = create(driver, CU_AD_FORMAT_FLOAT, 1, [32, 0, 0], 0);
        let memory = driver.memory(256);
        let from: Vec<u8> = (0..=255).collect();
        let mut to = vec![0u8; 256];
        call!(driver, cuMemcpyHtoA_v2(array, 0, from.as_ptr().cast(), 256));
        call!(driver, cuMemcpyAtoH_v2(to.as_mut_ptr().cast(), array, 8, 100));
        assert_eq!(to[..100], from[8..108]);
        call!(driver, cuMemcpyAtoA_v2(other, 4, array, 16, 100));
        call!(driver, cuMemcpyAtoD_v2(memory, other, 0, 128));
        assert_eq!(driver.words(memory + 4, 1), [0x1312_1110]);
        call!(driver, cuMemcpyDtoA_v2(array, 252, memory + 4, 4));
        call!(driver, cuMemcpyAtoH(to.as_mut_ptr().cast(), array, 248, 8));
        assert_eq!(to[..8], [248, 249, 250, 251, 0x10, 0x11, 0x12, 0x13]);
        call!(driver, cuMemcpyHtoA(array, 0, to.as_ptr().cast(), 8));
        let stream = driver.stream(0);
        call!(driver, cuMemcpyHtoAAsync_v2(array, 8, from.as_ptr().cast(), 8, stream));
        call!(driver, cuMemcpyAtoHAsync_v2(to.as_mut_ptr().cast(), array, 0, 20, stream));
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!(to[..20], [248, 249, 250, 251, 16, 17, 18, 19, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19]);
    }

    a_row_copy_keeps_to_the_row_and_to_whole_elements => |driver| {
        let array = create(driver, WORDS, 1, [16, 0, 0], 0);
        let plane = create(driver, WORDS, 1, [16, 4, 0], 0);
        let pairs = create(driver, WORDS, 2, [8, 0, 0], 0);
        let memory = driver.memory(64);
        let mut host = [0u8; 128];
        let host = host.as_mut_ptr().cast::<c_void>();
        let most = usize::MAX - 3;
        for target in [array, plane] {
            for (offset, bytes) in [(0, 68), (4, 64), (64, 4), (2, 4), (0, 6), (most, 4), (4, most)] {
                refused!(INVALID_VALUE: driver, cuMemcpyHtoA_v2(target, offset, host, bytes));
                refused!(INVALID_VALUE: driver, cuMemcpyAtoH_v2(host, target, offset, bytes));
                refused!(INVALID_VALUE: driver, cuMemcpyDtoA_v2(target, offset, memory, bytes));
                refused!(INVALID_VALUE: driver, cuMemcpyAtoD_v2(memory, target, offset, bytes));
                refused!(INVALID_VALUE: driver, cuMemcpyHtoAAsync_v2(target, offset, host, bytes, CuStream::NULL));
            }
            call!(driver, cuMemcpyHtoA_v2(target, 60, host, 4));
            call!(driver, cuMemcpyHtoA_v2(target, 64, host, 0));
        }
        refused!(INVALID_VALUE: driver, cuMemcpyAtoA_v2(pairs, 0, array, 0, 8));
        refused!(INVALID_VALUE: driver, cuMemcpyHtoA_v2(array, 0, std::ptr::null(), 4));
        refused!(INVALID_VALUE: driver, cuMemcpyAtoD_v2(memory + 32, array, 0, 64));
        call!(driver, cuArrayDestroy(array));
        refused!(INVALID_HANDLE: driver, cuMemcpyHtoA_v2(array, 0, host, 4));
        refused!(INVALID_HANDLE: driver, cuMemcpyAtoA_v2(plane, 0, CuArray::NULL, 0, 4));
    }

    planes_go_in_and_out_by_rows => |driver| {
        let array = create(driver, WORDS, 1, [8, 6, 0], 0);
        let mut all: Vec<u8> = (0..192).collect();
        write(driver, array, [32, 6, 1], &mut all);
        assert_eq!(read(driver, array, [32, 6, 1]), all);
        // A box of 3 elements by 2 rows, from host rows of 20 bytes.
        let part: Vec<u8> = (200..250).collect();
        let copy = CudaMemcpy2d {
            srcMemoryType: CU_MEMORYTYPE_HOST, srcHost: part.as_ptr().cast(), srcPitch: 20, srcXInBytes: 1, srcY: 1,
            dstMemoryType: CU_MEMORYTYPE_ARRAY, dstArray: array, dstXInBytes: 8, dstY: 3,
            WidthInBytes: 12, Height: 1, ..CudaMemcpy2d::default()
        };
        call!(driver, cuMemcpy2D_v2(&copy));
        all[3 * 32 + 8..3 * 32 + 20].copy_from_slice(&part[21..33]);
        assert_eq!(read(driver, array, [32, 6, 1]), all);
        // And inside the array itself, then to pitched device memory.
        let inside = CudaMemcpy2d {
            srcMemoryType: CU_MEMORYTYPE_ARRAY, srcArray: array, srcXInBytes: 4, srcY: 2,
            dstXInBytes: 16, dstY: 0, WidthInBytes: 16, Height: 2, ..copy
        };
        call!(driver, cuMemcpy2DUnaligned_v2(&inside));
        for row in 0..2 {
            all.copy_within((row + 2) * 32 + 4..(row + 2) * 32 + 20, row * 32 + 16);
        }
        assert_eq!(read(driver, array, [32, 6, 1]), all);
        let (memory, stream) = (driver.memory(6 * 64), driver.stream(0));
        let out = CudaMemcpy2d {
            srcXInBytes: 0, srcY: 0, dstMemoryType: CU_MEMORYTYPE_DEVICE, dstDevice: memory, dstPitch: 64,
            dstXInBytes: 0, dstY: 0, WidthInBytes: 32, Height: 6, ..inside
        };
        call!(driver, cuMemcpy2DAsync_v2(&out, stream));
        for (row, words) in driver.words(memory, 96).chunks(16).enumerate() {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!((&bytes[..32], &bytes[32..]), (&all[row * 32..][..32], &[0; 32][..]));
        }
        // The first ABI describes the same copy.
        let narrow = CudaMemcpy2dV1 {
            srcMemoryType: CU_MEMORYTYPE_HOST, srcHost: part.as_ptr().cast(), srcPitch: 32,
            dstMemoryType: CU_MEMORYTYPE_ARRAY, dstArray: array, dstY: 5, WidthInBytes: 32, Height: 1,
            ..CudaMemcpy2dV1::default()
        };
        call!(driver, cuMemcpy2D(&narrow));
        all[160..].copy_from_slice(&part[..32]);
        assert_eq!(read(driver, array, [32, 6, 1]), all);
    }

    boxes_outside_are_refused => |driver| {
        let volume = create(driver, WORDS, 1, [4, 3, 2], 0);
        let other = create(driver, CU_AD_FORMAT_UNSIGNED_INT16, 1, [8, 3, 2], 0);
        let video = create(driver, CU_AD_FORMAT_NV12, 3, [16, 16, 0], 0);
        let mut host = [0u8; 4096];
        let host = Place::Host(host.as_mut_ptr(), 0, 0);
        let array = Place::Array(volume);
        for (place, extent) in [
            ([0, 0, 0], [20, 3, 2]),
            ([0, 0, 0], [16, 4, 2]),
            ([0, 0, 0], [16, 3, 3]),
            ([4, 0, 0], [16, 1, 1]),
            ([0, 1, 0], [4, 3, 1]),
            ([0, 0, 1], [4, 1, 2]),
            ([16, 0, 0], [4, 1, 1]),
            ([0, 3, 0], [4, 1, 1]),
            ([0, 0, 2], [4, 1, 1]),
            ([2, 0, 0], [4, 1, 1]),
            ([0, 0, 0], [6, 1, 1]),
            ([0, usize::MAX, 0], [4, 1, 1]),
            ([0, 0, usize::MAX], [4, 1, 2]),
            ([usize::MAX - 3, 0, 0], [4, 1, 1]),
        ] {
            refused!(INVALID_VALUE: driver, cuMemcpy3D_v2(&describe(array, place, host, [0; 3], extent)));
            let out = describe(host, [0; 3], array, place, extent);
            refused!(INVALID_VALUE: driver, cuMemcpy3DAsync_v2(&out, CuStream::NULL));
        }
        let good = describe(array, [0; 3], host, [0; 3], [16, 3, 2]);
        call!(driver, cuMemcpy3D_v2(&good));
        refused!(INVALID_VALUE: driver, cuMemcpy3D_v2(&CudaMemcpy3d { dstLOD: 1, ..good }));
        refused!(INVALID_VALUE: driver, cuMemcpy3D_v2(&CudaMemcpy3d { srcLOD: 1, ..good }));
        let differing = describe(array, [0; 3], Place::Array(other), [0; 3], [16, 3, 2]);
        refused!(INVALID_VALUE: driver, cuMemcpy3D_v2(&differing));
        let whole = describe(Place::Array(video), [0; 3], host, [0; 3], [16, 16, 1]);
        refused!(NOT_SUPPORTED: driver, cuMemcpy3D_v2(&whole));
        let none = describe(Place::Array(CuArray::NULL), [0; 3], host, [0; 3], [16, 3, 2]);
        refused!(INVALID_HANDLE: driver, cuMemcpy3D_v2(&none));
    }

    random_boxes_between_arrays_host_and_device_land_where_a_model_says => |driver| {
        let seed = std::env::var("PARTAGE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20261121);
        println!("PARTAGE_SEED={seed}");
        let mut random = Random(seed);
        let layered = CUDA_ARRAY3D_LAYERED;
        // Elements of 8 bytes each, so that every pair can be copied.
        let shapes = [
            (WORDS, 2, [40, 0, 0], 0),
            (CU_AD_FORMAT_HALF, 4, [17, 13, 0], 0),
            (WORDS, 2, [9, 8, 7], 0),
            (CU_AD_FORMAT_FLOAT, 2, [19, 0, 5], layered),
            (CU_AD_FORMAT_UNORM_INT16X4, 4, [8, 9, 6], layered),
            (WORDS, 2, [10, 10, 6], CUDA_ARRAY3D_CUBEMAP),
            (WORDS, 2, [5, 5, 12], CUDA_ARRAY3D_CUBEMAP | layered),
        ];
        let mut stores: Vec<Store> = shapes
            .iter()
            .map(|&(format, channels, extents, flags)| {
                let extent = [extents[0] * 8, extents[1].max(1), extents[2].max(1)];
                let place = Place::Array(create(driver, format, channels, extents, flags));
                Store { place, extent, kept: vec![0; extent.iter().product()] }
            })
            .collect();
        let extent = [160, 12, 12];
        let bytes: usize = extent.iter().product();
        let mut host: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        let place = Place::Host(host.as_mut_ptr(), extent[0], extent[1]);
        stores.push(Store { place, extent, kept: host.clone() });
        let place = Place::Device(driver.memory(bytes), extent[0], extent[1]);
        stores.push(Store { place, extent, kept: vec![0; bytes] });
        for step in 0..600 {
            let (to, from) = (random.below(stores.len()), random.below(stores.len()));
            if to == from {
                continue;
            }
            let most = [0, 1, 2].map(|axis| stores[to].extent[axis].min(stores[from].extent[axis]));
            let extent = [8 * (1 + random.below(most[0] / 8)), 1 + random.below(most[1]), 1 + random.below(most[2])];
            let mut choose = |store: &Store| {
                let room = [0, 1, 2].map(|axis| store.extent[axis] - extent[axis]);
                [8 * random.below(room[0] / 8 + 1), random.below(room[1] + 1), random.below(room[2] + 1)]
            };
            let (at, start) = (choose(&stores[to]), choose(&stores[from]));
            let copy = describe(stores[to].place, at, stores[from].place, start, extent);
            match step % 3 {
                0 => call!(driver, cuMemcpy3D_v2(&copy)),
                1 => call!(driver, cuMemcpy3DAsync_v2(&copy, CuStream::NULL)),
                _ => call!(driver, cuMemcpy3D_v2_ptds(&copy)),
            }
            call!(driver, cuCtxSynchronize());
            for z in 0..extent[2] {
                for y in 0..extent[1] {
                    let source = stores[from].at([start[0], start[1] + y, start[2] + z]);
                    let row = stores[from].kept[source..source + extent[0]].to_vec();
                    let target = stores[to].at([at[0], at[1] + y, at[2] + z]);
                    stores[to].kept[target..target + extent[0]].copy_from_slice(&row);
                }
            }
            let held = match stores[to].place {
                Place::Array(array) => read(driver, array, stores[to].extent),
                // SAFETY: the vector behind the address lives to the end of the test, and no copy is under way.
                Place::Host(address, ..) => unsafe { std::slice::from_raw_parts(address, bytes) }.to_vec(),
                Place::Device(address, ..) => {
                    driver.words(address, bytes / 4).iter().flat_map(|word| word.to_le_bytes()).collect()
                }
            };
            assert!(held == stores[to].kept, "step {step} with PARTAGE_SEED={seed}: {copy:?}");
        }
    }

    levels_planes_and_blocks_are_apart => |driver| {
        let descriptor = CudaArray3dDescriptor {
            Width: 16, Height: 8, Depth: 3, Format: BYTES, NumChannels: 1, Flags: CUDA_ARRAY3D_LAYERED,
        };
        let mut mipmapped = CuMipmappedArray::NULL;
        call!(driver, cuMipmappedArrayCreate(&mut mipmapped, &descriptor, 9));
        let video = create(driver, CU_AD_FORMAT_NV12, 3, [16, 8, 0], 0);
        let mut parts = Vec::new();
        for level in 0..5u32 {
            let mut part = CuArray::NULL;
            call!(driver, cuMipmappedArrayGetLevel(&mut part, mipmapped, level));
            parts.push((part, [16 >> level, (8 >> level).max(1), 3]));
        }
        for (plane, extent) in [[16, 8, 1], [16, 4, 1]].into_iter().enumerate() {
            let mut part = CuArray::NULL;
            call!(driver, cuArrayGetPlane(&mut part, video, plane as u32));
            parts.push((part, extent));
        }
        // 9 x 6 elements are 3 x 2 blocks of 8 bytes.
        parts.push((create(driver, CU_AD_FORMAT_BC1_UNORM, 4, [9, 6, 0], 0), [24, 2, 1]));
        let contents: Vec<Vec<u8>> = parts
            .iter()
            .enumerate()
            .map(|(number, (_, extent))| vec![number as u8 + 1; extent.iter().product()])
            .collect();
        for (&(part, extent), content) in parts.iter().zip(&contents) {
            assert!(read(driver, part, extent).iter().all(|&byte| byte == 0), "nobody wrote there yet");
            write(driver, part, extent, &mut content.clone());
        }
        for (&(part, extent), content) in parts.iter().zip(&contents) {
            assert_eq!(&read(driver, part, extent), content);
            let mut byte = [0u8; 64];
            let over = [extent[0], extent[1] + 1, 1];
            let copy = describe(Place::Host(byte.as_mut_ptr(), 0, 0), [0; 3], Place::Array(part), [0; 3], over);
            refused!(INVALID_VALUE: driver, cuMemcpy3D_v2(&copy));
        }
    }

    a_destroyed_array_leaves_nothing_behind => |driver| {
        let extent = [4096, 300, 1];
        let array = create(driver, BYTES, 1, [4096, 300, 0], 0);
        write(driver, array, extent, &mut vec![0x5a; 4096 * 300]);
        call!(driver, cuArrayDestroy(array));
        let again = create(driver, BYTES, 1, [4096, 300, 0], 0);
        assert!(read(driver, again, extent).iter().all(|&byte| byte == 0));
    }

    graphs_and_captures_copy_arrays => |driver| {
        let array = create(driver, WORDS, 1, [4, 4, 4], 0);
        let memory = driver.memory(256);
        let mut all: Vec<u8> = (0..=255).collect();
        write(driver, array, [16, 4, 4], &mut all);
        let (mut graph, mut node, mut exec) = (CuGraph::NULL, CuGraphNode::NULL, CuGraphExec::NULL);
        call!(driver, cuGraphCreate(&mut graph, 0));
        let to = Place::Device(memory, 8, 2);
        let params = describe(to, [0; 3], Place::Array(array), [4, 1, 2], [8, 2, 2]);
        call!(driver, cuGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, &params, driver.context));
        let mut told = CudaMemcpy3d::default();
        call!(driver, cuGraphMemcpyNodeGetParams(node, &mut told));
        assert_eq!((told.srcMemoryType, told.srcArray), (CU_MEMORYTYPE_ARRAY, array));
        assert_eq!([told.srcXInBytes, told.srcY, told.srcZ], [4, 1, 2]);
        assert_eq!([told.WidthInBytes, told.Height, told.Depth], [8, 2, 2]);
        call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        call!(driver, cuGraphLaunch(exec, CuStream::NULL));
        let expected: Vec<u32> = [(2, 1), (2, 2), (3, 1), (3, 2)]
            .iter()
            .flat_map(|&(z, y)| [4, 8].map(|x| z * 64 + y * 16 + x))
            .map(|first| u32::from_le_bytes([0, 1, 2, 3].map(|byte| (first + byte) as u8)))
            .collect();
        assert_eq!(driver.words(memory, 8), expected);
        let beyond = CudaMemcpy3d { srcZ: 3, ..params };
        refused!(INVALID_VALUE: driver, cuGraphMemcpyNodeSetParams(node, &beyond));

        let stream = driver.stream(CU_STREAM_NON_BLOCKING);
        let row = create(driver, BYTES, 1, [16, 0, 0], 0);
        let (mut captured, mut second) = (CuGraph::NULL, CuGraphExec::NULL);
        call!(driver, cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        call!(driver, cuMemcpyHtoAAsync_v2(row, 0, all.as_ptr().cast(), 16, stream));
        call!(driver, cuStreamEndCapture(stream, &mut captured));
        assert_eq!(read(driver, row, [16, 1, 1]), [0; 16]);
        call!(driver, cuGraphInstantiateWithFlags(&mut second, captured, 0));
        call!(driver, cuGraphLaunch(second, stream));
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!(read(driver, row, [16, 1, 1]), all[..16]);
        // A graph that outlives its array finds nothing there.
        call!(driver, cuArrayDestroy(row));
        call!(driver, cuGraphLaunch(second, stream));
        assert_eq!(code!(driver, cuStreamSynchronize(stream)), CuResult::ILLEGAL_ADDRESS);
    }

    batches_count_elements_where_an_array_takes_part => |driver| {
        let array = create(driver, WORDS, 2, [6, 5, 0], 0);
        let memory = driver.memory(64);
        let stream = driver.stream(0);
        let mut all: Vec<u8> = (0..240).collect();
        write(driver, array, [48, 5, 1], &mut all);
        let pointer = |ptr| CuMemcpy3DOperand {
            kind: CU_MEMCPY_OPERAND_TYPE_POINTER,
            op: CuMemcpy3DOperandOp { ptr: CuMemcpy3DOperandOpPtr { ptr, ..Default::default() } },
        };
        let in_array = |x, y| CuMemcpy3DOperand {
            kind: CU_MEMCPY_OPERAND_TYPE_ARRAY,
            op: CuMemcpy3DOperandOp { array: CuMemcpy3DOperandOpArray { array, offset: CuOffset3D { x, y, z: 0 } } },
        };
        let mut op = CudaMemcpy3dBatchOp {
            src: in_array(3, 1),
            dst: pointer(memory),
            extent: CuExtent3D { width: 2, height: 3, depth: 1 },
            srcAccessOrder: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            flags: 0,
        };
        call!(driver, cuMemcpy3DBatchAsync_v2(1, &mut op, 0, stream));
        let held: Vec<u8> = driver.words(memory, 12).iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected: Vec<u8> = (1..4).flat_map(|row| all[row * 48 + 24..][..16].to_vec()).collect();
        assert_eq!(held, expected);
        op.src = in_array(5, 1);
        refused!(INVALID_VALUE: driver, cuMemcpy3DBatchAsync_v2(1, &mut op, 0, stream));
        (op.src, op.dst) = (pointer(memory), in_array(0, 0));
        call!(driver, cuMemcpy3DWithAttributesAsync(&mut op, 0, stream));
        for row in 0..3 {
            all[row * 48..][..16].copy_from_slice(&expected[row * 16..][..16]);
        }
        call!(driver, cuStreamSynchronize(stream));
        assert_eq!(read(driver, array, [48, 5, 1]), all);
    }
}
