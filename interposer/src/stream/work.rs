// SPDX-License-Identifier: Apache-2.0
//! What a call asks of a device, as the rows of the table say it: what stands in a `gate` row's parentheses.
//!
//! Kernels, graphs, fills and copies *inside* a device occupy it and pass the gate. Copies *across* its border occupy a
//! copy engine, and pass the gate only while the broker asks for that (the regime is Turns).

use core::ffi::{c_int, c_uint};

use partage_abi::types::*;
use partage_abi::values::*;

use partage_gpu_time::length;

use crate::real::Library;
use crate::real::call;
use crate::stream::StreamName;

/// One call that gives a device work.
#[derive(Clone, Copy)]
pub struct Work {
    /// Where it runs.
    pub stream: StreamName,
    /// What it is.
    pub kind: Kind,
}

/// What the work is.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A kernel.
    Kernel {
        /// Its name among the measured units.
        unit: u64,
        /// It may begin before what is ahead of it has ended.
        overlaps: bool,
    },
    /// A graph, by its name among the measured units.
    Graph(u64),
    /// Anything else that occupies the device.
    Inside,
    /// A copy between the device and something else.
    Across,
    /// A copy of one or the other kind, as the addresses tell.
    Unified(CuDevicePtr, CuDevicePtr),
    /// Kernels on several devices that run together.
    Together(*const CudaLaunchParams, u32),
}

/// Where to look before all else.
#[derive(Clone, Copy)]
pub enum CheckFirst {
    /// The work passes the gate in every regime.
    Gate,
    /// It does only while the broker asks for that.
    Flags,
    /// That was done, and something was amiss.
    Nothing,
}

/// An operand of a `gate` row.
pub trait Gated {
    /// It may pass the gate in every regime.
    const ALWAYS: bool = true;
    /// The call as data.
    fn work(self, is_per_thread: bool) -> Work;
}

/// The call as data, and where to look first.
#[inline(always)]
pub fn read<G: Gated>(gated: G, is_per_thread: bool) -> (Work, CheckFirst) {
    (
        gated.work(is_per_thread),
        if G::ALWAYS { CheckFirst::Gate } else { CheckFirst::Flags },
    )
}

fn on(handle: CuStream, is_per_thread: bool, kind: Kind) -> Work {
    Work {
        stream: StreamName { handle, is_per_thread },
        kind,
    }
}

/// A kernel.
pub struct Kernel {
    unit: u64,
    stream: CuStream,
}

impl Kernel {
    /// With its grid, its block and its shared memory.
    #[inline(never)]
    pub fn of(function: CuFunction, shape: [c_uint; 7], stream: CuStream) -> Self {
        Self {
            unit: length::name(function.0 as u64, &shape),
            stream,
        }
    }

    /// Of the interface before CUDA 4: the function knows its block.
    pub fn shaped(function: CuFunction, width: c_int, height: c_int, stream: CuStream) -> Self {
        Self {
            unit: length::name(function.0 as u64, &[width as u32, height as u32]),
            stream,
        }
    }
}

impl Gated for Kernel {
    fn work(self, is_per_thread: bool) -> Work {
        let (unit, overlaps) = (self.unit, false);
        on(self.stream, is_per_thread, Kind::Kernel { unit, overlaps })
    }
}

/// A kernel whose launch is described in a structure.
pub struct Configured(pub *const CuLaunchConfig, pub CuFunction);

impl Gated for Configured {
    fn work(self, is_per_thread: bool) -> Work {
        if self.0.is_null() {
            return on(CuStream::NULL, is_per_thread, Kind::Inside);
        }
        // SAFETY: by the contract of the entry point a configuration; it need not be aligned.
        let config = unsafe { self.0.read_unaligned() };
        let overlaps = (0..config.numAttrs as usize).any(|index| {
            // SAFETY: by the contract so many attributes stand there.
            let attribute = unsafe { config.attrs.add(index).read_unaligned() };
            // SAFETY: the attribute's identity says which member is meant; all are plain data.
            attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                && unsafe { attribute.value.programmaticStreamSerializationAllowed } != 0
        });
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let [x, y, z] = grid;
        let shape = [
            x,
            y,
            z,
            config.blockDimX,
            config.blockDimY,
            config.blockDimZ,
            config.sharedMemBytes,
        ];
        let unit = length::name(self.1.0 as u64, &shape);
        on(config.hStream, is_per_thread, Kind::Kernel { unit, overlaps })
    }
}

/// Kernels on several devices that wait for each other.
pub struct Together(pub *mut CudaLaunchParams, pub c_uint);

impl Gated for Together {
    fn work(self, is_per_thread: bool) -> Work {
        // SAFETY: by the contract of the entry point null or so many parameters.
        let first = unsafe { self.0.as_ref() }.filter(|_| self.1 > 0);
        let stream = first.map_or(CuStream::NULL, |params| params.hStream);
        let count = if first.is_some() { self.1 } else { 0 };
        on(stream, is_per_thread, Kind::Together(self.0, count))
    }
}

/// A graph: one unit, whatever it holds.
pub struct Graph(pub CuGraphExec, pub CuStream);

impl Gated for Graph {
    fn work(self, is_per_thread: bool) -> Work {
        on(self.1, is_per_thread, Kind::Graph(graph_name(self.0)))
    }
}

/// The name of an executable graph among the measured units.
pub fn graph_name(exec: CuGraphExec) -> u64 {
    length::name(exec.0 as u64, &[])
}

/// A fill, or a copy inside a device or between devices.
pub struct Inside(pub CuStream);

impl Gated for Inside {
    fn work(self, is_per_thread: bool) -> Work {
        on(self.0, is_per_thread, Kind::Inside)
    }
}

/// A copy between a device and the host.
pub struct Across(pub CuStream);

impl Gated for Across {
    const ALWAYS: bool = false;
    fn work(self, is_per_thread: bool) -> Work {
        on(self.0, is_per_thread, Kind::Across)
    }
}

/// A copy between two addresses of which the driver knows what they are.
pub struct Unified(pub CuDevicePtr, pub CuDevicePtr, pub CuStream);

impl Gated for Unified {
    fn work(self, is_per_thread: bool) -> Work {
        on(self.2, is_per_thread, Kind::Unified(self.0, self.1))
    }
}

/// A copy in two or three dimensions.
pub struct Shaped {
    ends: [End; 2],
    stream: CuStream,
}

/// The type of memory at one end, and its address.
type End = (c_int, CuDevicePtr);

impl Shaped {
    /// Reads what the two ends are.
    #[inline(never)]
    pub fn of(copy: *const impl Ends, stream: CuStream) -> Self {
        // SAFETY: by the contract of the entry points null or a description.
        let ends = unsafe { copy.as_ref() }.map_or([(CU_MEMORYTYPE_HOST, 0); 2], Ends::ends);
        Self { ends, stream }
    }
}

impl Gated for Shaped {
    fn work(self, is_per_thread: bool) -> Work {
        let [(from, source), (to, destination)] = self.ends;
        let is_host = |kind| kind == CU_MEMORYTYPE_HOST;
        let is_unified = |kind| kind == CU_MEMORYTYPE_UNIFIED;
        let kind = if is_host(from) || is_host(to) {
            Kind::Across
        } else if is_unified(from) || is_unified(to) {
            // An end whose kind is known stands for itself.
            let address = |kind, own, other| if is_unified(kind) { own } else { other };
            Kind::Unified(address(to, destination, source), address(from, source, destination))
        } else {
            Kind::Inside
        };
        on(self.stream, is_per_thread, kind)
    }
}

/// A description of a copy that says what memory its ends are.
pub trait Ends {
    /// Source and destination.
    fn ends(&self) -> [End; 2];
}

macro_rules! ends {
    ($($copy:ident),*) => { $(
        impl Ends for $copy {
            fn ends(&self) -> [End; 2] {
                [
                    (self.srcMemoryType, self.srcDevice as CuDevicePtr),
                    (self.dstMemoryType, self.dstDevice as CuDevicePtr),
                ]
            }
        }
    )* };
}
ends!(
    CudaMemcpy2dV1,
    CudaMemcpy2d,
    CudaMemcpy3dV1,
    CudaMemcpy3d,
    CudaMemcpy3dPeer
);

impl Kind {
    /// What is timed, and whether it may begin before what is ahead of it has ended.
    pub fn unit(self) -> (Option<u64>, bool) {
        match self {
            Self::Kernel { unit, overlaps } => (Some(unit), overlaps),
            Self::Graph(unit) => (Some(unit), false),
            _ => (None, false),
        }
    }

    /// Does the work occupy the device itself? Asks the driver where only it knows.
    pub fn is_inside(self, real: &Library) -> bool {
        match self {
            Self::Kernel { .. } | Self::Graph(_) | Self::Inside | Self::Together(..) => true,
            Self::Across => false,
            Self::Unified(to, from) => is_device_memory(real, to) && is_device_memory(real, from),
        }
    }
}

/// Managed memory counts as the device's; memory of the host that no driver knows is none.
fn is_device_memory(real: &Library, address: CuDevicePtr) -> bool {
    let mut kind: c_uint = 0;
    let result = call!(
        real,
        cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    );
    result.is_success() && kind == CU_MEMORYTYPE_DEVICE as c_uint
}
