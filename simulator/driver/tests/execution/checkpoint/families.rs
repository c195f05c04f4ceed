// SPDX-License-Identifier: Apache-2.0
//! A process with memory of every family in two contexts on two devices, and with work of every kind.

use std::collections::BTreeMap;

use partage_abi::types::*;
use partage_abi::values::*;

use crate::graph_memory::{instantiate, lasting, scratch};
use crate::machine::{Driver, Value, call};

/// Bytes of each piece of memory: not a whole number of anything.
const BYTES: usize = (3 << 20) + 4;
/// What physical memory comes in.
const BLOCK: usize = 2 << 20;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Width and height of an array of bytes, and the levels of the one with smaller versions.
const WIDTH: usize = 300;
const HEIGHT: usize = 200;
const LEVELS: u32 = 3;

const MODULE: &str = "
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .b8 kept[65536];
.visible .entry bump(.param .u64 of)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [of];
    cvta.to.global.u64 %rd2, %rd1;
    atom.global.add.u32 %r1, [%rd2], 1;
    ret;
}
";

/// One context with everything in it.
struct Part {
    context: CuContext,
    stream: CuStream,
    events: [CuEvent; 2],
    bump: CuFunction,
    counter: u64,
    /// Instantiated: adds one to the counter.
    graph: CuGraphExec,
    /// Instantiated: has memory of its own while it runs, and writes to `result`.
    scratch: CuGraphExec,
    result: u64,
    arrays: Vec<(CuArray, usize, usize)>,
    /// Memory with an address, by what it is.
    linear: BTreeMap<&'static str, (u64, usize)>,
    /// Physical memory without an address.
    handles: Vec<u64>,
}

/// A process with all of it.
pub struct Everything<'a> {
    driver: &'a Driver,
    parts: Vec<Part>,
    rounds: u32,
}

/// What such a process sees of its objects: contents by hash, and numbers.
pub type Seen = BTreeMap<String, u64>;

/// Device memory of physical memory that others may have.
fn property(ordinal: i32, handles: c_int) -> CuMemAllocationProp {
    CuMemAllocationProp {
        kind: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handles,
        location: CuMemLocation {
            kind: CU_MEM_LOCATION_TYPE_DEVICE,
            id: ordinal,
        },
        ..CuMemAllocationProp::default()
    }
}

/// Random bytes, the same for the same number (xorshift64*).
fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl<'a> Everything<'a> {
    /// Makes all of it, on devices 0 and 1.
    pub fn make(driver: &'a Driver) -> Self {
        let parts = (0..2).map(|device| Part::make(driver, device)).collect();
        Self {
            driver,
            parts,
            rounds: 0,
        }
    }

    /// Bytes that were written to devices, each once.
    pub fn device_bytes(&self) -> u64 {
        let of = |part: &Part| {
            let is_own = |name: &str| !name.ends_with("again") && name != "of the host";
            let own = part.linear.iter().filter(|(name, _)| is_own(name));
            own.map(|(_, (_, bytes))| *bytes as u64).sum::<u64>()
        };
        self.parts.iter().map(of).sum()
    }

    /// Works with all of it: what comes out tells whether it is what it was.
    pub fn work(&mut self) {
        self.rounds += 1;
        for part in &self.parts {
            part.work(self.driver);
        }
    }

    /// What all of it is.
    pub fn seen(&self) -> Seen {
        let mut seen = Seen::new();
        for (number, part) in self.parts.iter().enumerate() {
            part.look(self.driver, |name, value| {
                seen.insert(format!("{number} {name}"), value);
            });
            // As often as it was worked with, by a kernel and by a graph.
            let counted = seen.remove(&format!("{number} counted"));
            assert_eq!(counted, Some(2 * u64::from(self.rounds)), "part {number}");
        }
        seen
    }
}

impl Part {
    fn make(driver: &Driver, device: c_int) -> Self {
        let mut context = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut context, 0, device));
        let text = std::ffi::CString::new(MODULE).expect("no NUL");
        let (mut module, mut bump) = (CuModule::NULL, CuFunction::NULL);
        call!(driver, cuModuleLoadData(&mut module, text.as_ptr().cast()));
        call!(driver, cuModuleGetFunction(&mut bump, module, c"bump".as_ptr()));
        let (stream, counter, result) = (driver.stream(NON_BLOCKING), driver.memory(64), driver.memory(64));
        let mut linear = Self::linear(driver, device, stream);
        let (mut variable, mut length) = (0, 0);
        call!(
            driver,
            cuModuleGetGlobal_v2(&mut variable, &mut length, module, c"kept".as_ptr())
        );
        linear.insert("variable of a module", (variable, length));
        let (handles, mapped) = Self::physical(driver, device);
        linear.extend(mapped);
        let mut part = Self {
            context,
            stream,
            events: [driver.event(), driver.event()],
            bump,
            counter,
            graph: Self::graph(driver, bump, counter),
            scratch: CuGraphExec::NULL,
            result,
            arrays: Self::arrays(driver),
            linear,
            handles,
        };
        if device == 0 {
            // The helpers make memory nodes on device 0 only.
            let (graph, kept) = lasting(driver, BYTES as u64, 5);
            call!(driver, cuGraphLaunch(instantiate(driver, graph, 0), stream));
            call!(driver, cuStreamSynchronize(stream));
            part.linear.insert("left by a graph", (kept, BYTES));
            part.scratch = instantiate(driver, scratch(driver, 4 << 20, 0xabcd, result).0, 0);
        }
        for (number, (address, bytes)) in part.linear.values().enumerate() {
            let bytes = pattern(100 * device as u64 + number as u64, *bytes);
            call!(driver, cuMemcpyHtoD_v2(*address, bytes.as_ptr().cast(), bytes.len()));
        }
        call!(driver, cuEventRecord(part.events[0], stream));
        driver.launch_in(part.bump, stream, &[Value::Long(result + 32)]);
        call!(driver, cuEventRecord(part.events[1], stream));
        call!(driver, cuCtxSynchronize());
        part
    }

    fn linear(driver: &Driver, device: c_int, stream: CuStream) -> BTreeMap<&'static str, (u64, usize)> {
        let mut linear = BTreeMap::new();
        let (mut address, mut pitch) = (0, 0);
        call!(driver, cuMemAlloc_v2(&mut address, BYTES));
        linear.insert("linear", (address, BYTES));
        call!(driver, cuMemAlloc_v2(&mut address, 4));
        linear.insert("four bytes", (address, 4));
        call!(driver, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 500, 4));
        linear.insert("pitched", (address, pitch * 500));
        call!(driver, cuMemAllocAsync(&mut address, BYTES, stream));
        linear.insert("of the default pool", (address, BYTES));
        let (mut pool, wish) = (
            CuMemoryPool::NULL,
            CuMemPoolProps {
                allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
                location: property(device, 0).location,
                ..CuMemPoolProps::default()
            },
        );
        call!(driver, cuMemPoolCreate(&mut pool, &wish));
        call!(driver, cuMemAllocFromPoolAsync(&mut address, BYTES, pool, stream));
        linear.insert("of a pool", (address, BYTES));
        let mut host = std::ptr::null_mut();
        call!(driver, cuMemHostAlloc(&mut host, BYTES, 0));
        linear.insert("of the host", (host as u64, BYTES));
        call!(driver, cuStreamSynchronize(stream));
        linear
    }

    /// Physical memory: in the device's window and in files of its own, mapped once, twice and not at all.
    fn physical(driver: &Driver, device: c_int) -> (Vec<u64>, BTreeMap<&'static str, (u64, usize)>) {
        let (mut handles, mut mapped, mut base) = (Vec::new(), BTreeMap::new(), 0);
        call!(driver, cuMemAddressReserve(&mut base, 8 * BLOCK, 0, 0, 0));
        let access = CuMemAccessDesc {
            location: property(device, 0).location,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let names = [["mapped", "mapped again"], ["mapped file", "mapped file again"]];
        for (number, kind) in [CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR]
            .into_iter()
            .enumerate()
        {
            let mut handle = 0;
            call!(driver, cuMemCreate(&mut handle, BLOCK, &property(device, kind), 0));
            handles.push(handle);
            for (place, name) in names[number].into_iter().enumerate() {
                let at = base + ((2 * number + place) * BLOCK) as u64;
                call!(driver, cuMemMap(at, BLOCK, 0, handle, 0));
                call!(driver, cuMemSetAccess(at, BLOCK, &access, 1));
                mapped.insert(name, (at, BLOCK));
            }
            // Written to, and then without an address.
            call!(driver, cuMemCreate(&mut handle, BLOCK, &property(device, kind), 0));
            let at = base + (6 * BLOCK) as u64;
            call!(driver, cuMemMap(at, BLOCK, 0, handle, 0));
            call!(driver, cuMemSetAccess(at, BLOCK, &access, 1));
            call!(driver, cuMemsetD8_v2(at, 0x40 + number as u8, BLOCK));
            call!(driver, cuCtxSynchronize());
            call!(driver, cuMemUnmap(at, BLOCK));
            handles.push(handle);
        }
        (handles, mapped)
    }

    /// An instantiated graph of one kernel.
    fn graph(driver: &Driver, bump: CuFunction, counter: u64) -> CuGraphExec {
        let (mut graph, mut node) = (CuGraph::NULL, CuGraphNode::NULL);
        call!(driver, cuGraphCreate(&mut graph, 0));
        let values = [Value::Long(counter)];
        let mut pointers = crate::machine::pointers(&values);
        let params = CudaKernelNodeParams {
            func: bump,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            kernelParams: pointers.as_mut_ptr(),
            ..CudaKernelNodeParams::default()
        };
        call!(
            driver,
            cuGraphAddKernelNode_v2(&mut node, graph, std::ptr::null(), 0, &params)
        );
        instantiate(driver, graph, 0)
    }

    fn arrays(driver: &Driver) -> Vec<(CuArray, usize, usize)> {
        let (mut flat, mut tall) = (CuArray::NULL, CuMipmappedArray::NULL);
        let described = CudaArrayDescriptor {
            Width: WIDTH,
            Height: HEIGHT,
            Format: CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 1,
        };
        call!(driver, cuArrayCreate_v2(&mut flat, &described));
        let described = CudaArray3dDescriptor {
            Width: WIDTH,
            Height: HEIGHT,
            Format: CU_AD_FORMAT_UNSIGNED_INT8,
            NumChannels: 1,
            ..CudaArray3dDescriptor::default()
        };
        call!(driver, cuMipmappedArrayCreate(&mut tall, &described, LEVELS));
        let mut arrays = vec![(flat, WIDTH, HEIGHT)];
        for level in 0..LEVELS {
            let mut array = CuArray::NULL;
            call!(driver, cuMipmappedArrayGetLevel(&mut array, tall, level));
            arrays.push((array, WIDTH >> level, HEIGHT >> level));
        }
        for (number, (array, width, height)) in arrays.iter().enumerate() {
            let bytes = pattern(50 + number as u64, width * height);
            let copy = CudaMemcpy2d {
                srcMemoryType: CU_MEMORYTYPE_HOST,
                srcHost: bytes.as_ptr().cast(),
                srcPitch: *width,
                dstMemoryType: CU_MEMORYTYPE_ARRAY,
                dstArray: *array,
                WidthInBytes: *width,
                Height: *height,
                ..CudaMemcpy2d::default()
            };
            call!(driver, cuMemcpy2D_v2(&copy));
        }
        arrays
    }

    fn work(&self, driver: &Driver) {
        call!(driver, cuCtxSetCurrent(self.context));
        driver.launch_in(self.bump, self.stream, &[Value::Long(self.counter)]);
        call!(driver, cuGraphLaunch(self.graph, self.stream));
        if !self.scratch.0.is_null() {
            call!(driver, cuMemsetD8_v2(self.result, 0, 4));
            // It returns before it is done, and the stream does not wait for the default one.
            call!(driver, cuCtxSynchronize());
            call!(driver, cuGraphLaunch(self.scratch, self.stream));
        }
        call!(driver, cuStreamSynchronize(self.stream));
        // A stream and an event more, so that the counts of places are used too.
        let (stream, event) = (driver.stream(0), driver.event());
        call!(driver, cuEventRecord(event, stream));
        call!(driver, cuEventSynchronize(event));
        call!(driver, cuEventDestroy_v2(event));
        call!(driver, cuStreamDestroy_v2(stream));
    }

    fn look(&self, driver: &Driver, mut tell: impl FnMut(&str, u64)) {
        call!(driver, cuCtxSetCurrent(self.context));
        for (name, (address, bytes)) in &self.linear {
            let mut back = vec![0_u8; *bytes];
            call!(driver, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), *address, *bytes));
            tell(name, hash(&back));
            tell(&format!("{name}, where"), *address);
            let mut id = 0_u64;
            call!(
                driver,
                cuPointerGetAttribute((&raw mut id).cast(), CU_POINTER_ATTRIBUTE_BUFFER_ID, *address)
            );
            tell(&format!("{name}, number"), id);
        }
        for (number, (array, width, height)) in self.arrays.iter().enumerate() {
            let mut back = vec![0_u8; width * height];
            let copy = CudaMemcpy2d {
                srcMemoryType: CU_MEMORYTYPE_ARRAY,
                srcArray: *array,
                dstMemoryType: CU_MEMORYTYPE_HOST,
                dstHost: back.as_mut_ptr().cast(),
                dstPitch: *width,
                WidthInBytes: *width,
                Height: *height,
                ..CudaMemcpy2d::default()
            };
            call!(driver, cuMemcpy2D_v2(&copy));
            tell(&format!("array {number}"), hash(&back));
        }
        for (number, handle) in self.handles.iter().enumerate() {
            let mut property = CuMemAllocationProp::default();
            call!(driver, cuMemGetAllocationPropertiesFromHandle(&mut property, *handle));
            tell(&format!("handle {number}"), *handle);
            tell(&format!("device of handle {number}"), property.location.id as u64);
            tell(
                &format!("content of handle {number}"),
                self.content(driver, *handle, property.location),
            );
        }
        let mut words = [0_u32; 16];
        call!(driver, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.counter, 64));
        tell("counted", words[0].into());
        call!(driver, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.result, 64));
        tell("result", words[0].into());
        tell(
            "time between events",
            driver.elapsed(self.events[0], self.events[1]).to_bits().into(),
        );
        let (mut priority, mut number) = (0, 0);
        call!(driver, cuStreamGetPriority(self.stream, &mut priority));
        call!(driver, cuStreamGetId(self.stream, &mut number));
        tell("stream", number);
        call!(driver, cuEventQuery(self.events[1]));
    }

    /// The content of physical memory, through a mapping made for that.
    fn content(&self, driver: &Driver, handle: u64, location: CuMemLocation) -> u64 {
        let (mut at, mut back) = (0, vec![0_u8; BLOCK]);
        call!(driver, cuMemAddressReserve(&mut at, BLOCK, 0, 0, 0));
        call!(driver, cuMemMap(at, BLOCK, 0, handle, 0));
        let access = CuMemAccessDesc {
            location,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        call!(driver, cuMemSetAccess(at, BLOCK, &access, 1));
        call!(driver, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), at, BLOCK));
        call!(driver, cuMemUnmap(at, BLOCK));
        call!(driver, cuMemAddressFree(at, BLOCK));
        hash(&back)
    }
}
