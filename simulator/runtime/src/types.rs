// SPDX-License-Identifier: Apache-2.0
//! Structs of the runtime that the driver does not have, or has in another form.
//!
//! Field names are the header's, in our spelling. Sizes and offsets are compared with numbers read from the headers of
//! CUDA 12.9 and 13.5 (`cuda_runtime_api.h`, `driver_types.h`).

use partage_abi::types::*;

/// `dim3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Dim3 {
    /// Along x.
    pub x: c_uint,
    /// Along y.
    pub y: c_uint,
    /// Along z.
    pub z: c_uint,
}

/// `cudaLaunchConfig_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of shared memory of each block.
    pub shared_bytes: usize,
    /// Where it is launched.
    pub stream: CuStream,
    /// As the driver's.
    pub attributes: *mut CuLaunchAttribute,
    /// Their number.
    pub attribute_count: c_uint,
}

/// `cudaPointerAttributes` of CUDA 12; CUDA 13's has eight words after it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes {
    /// 0 unregistered, 1 host, 2 device, 3 managed.
    pub kind: c_int,
    /// Where it was allocated.
    pub device: c_int,
    /// The address for kernels.
    pub device_pointer: CuDevicePtr,
    /// The address for the program.
    pub host_pointer: *mut c_void,
}

/// `cudaPointerAttributes` of CUDA 13.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttributes13 {
    /// As of CUDA 12.
    pub old: PointerAttributes,
    /// Which part of its device it is close to, or -1; from 13.5 on.
    pub locality: c_int,
    /// Zero.
    pub unused: c_int,
    /// Zero.
    pub reserved: [c_long; 7],
}

/// `cudaFuncAttributes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FuncAttributes {
    /// Bytes of shared memory of a block.
    pub shared_bytes: usize,
    /// Bytes of constants.
    pub constant_bytes: usize,
    /// Bytes of local memory of a thread.
    pub local_bytes: usize,
    /// Beyond this no block can be launched.
    pub max_threads_per_block: c_int,
    /// Registers of a thread.
    pub registers: c_int,
    /// Version of the PTX.
    pub ptx_version: c_int,
    /// Version of the machine code.
    pub binary_version: c_int,
    /// Whether loads are cached in L1.
    pub cache_mode_ca: c_int,
    /// Bytes of shared memory that a launch may ask for.
    pub max_dynamic_shared_bytes: c_int,
    /// Percentage, or -1.
    pub preferred_carveout: c_int,
    /// A launch must name the size of its clusters.
    pub cluster_dim_must_be_set: c_int,
    /// Size of its clusters.
    pub required_cluster: [c_int; 3],
    /// As the driver's.
    pub cluster_policy: c_int,
    /// As the driver's.
    pub non_portable_cluster: c_int,
    /// Zero.
    pub reserved: [c_int; 17],
}

/// `cudaPitchedPtr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PitchedPtr {
    /// Its start.
    pub pointer: CuDevicePtr,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Bytes of a row that are used.
    pub width: usize,
    /// Rows of a layer.
    pub height: usize,
}

/// `cudaExtent`, and `cudaPos` as x, y and z.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Extent {
    /// Bytes, or elements of an array.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Layers.
    pub depth: usize,
}

/// `cudaMemcpy3DParms`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memcpy3d {
    /// Copied from, where it is an array.
    pub source_array: CuArray,
    /// Where in it.
    pub source_position: Extent,
    /// Copied from, where it is memory.
    pub source: PitchedPtr,
    /// Copied to, where it is an array.
    pub target_array: CuArray,
    /// Where in it.
    pub target_position: Extent,
    /// Copied to, where it is memory.
    pub target: PitchedPtr,
    /// How much.
    pub extent: Extent,
    /// `cudaMemcpyKind`.
    pub kind: c_int,
}

/// `cudaKernelNodeParams`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode {
    /// The program's name of the kernel.
    pub function: *const c_void,
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of shared memory of each block.
    pub shared_bytes: c_uint,
    /// The arguments, one pointer each.
    pub arguments: *mut *mut c_void,
    /// The arguments in one piece.
    pub extra: *mut *mut c_void,
}

/// `cudaMemsetParams`.
pub type MemsetNode = CudaMemsetNodeParams;

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_headers_12_9_and_13_5() {
        assert_eq!(size_of::<Dim3>(), 12);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(size_of::<CuLaunchAttribute>(), 72);
        assert_eq!(size_of::<PointerAttributes>(), 24);
        assert_eq!(size_of::<PointerAttributes13>(), 88);
        assert_eq!(size_of::<FuncAttributes>(), 144);
        assert_eq!(size_of::<Memcpy3d>(), 160);
        assert_eq!(size_of::<PitchedPtr>(), 32);
        assert_eq!(size_of::<Extent>(), 24);
        assert_eq!(size_of::<KernelNode>(), 56);
        assert_eq!(size_of::<MemsetNode>(), 40);
        // What the runtime has in the driver's form.
        assert_eq!(size_of::<CudaHostNodeParams>(), 16);
        assert_eq!(size_of::<CuGraphNodeParams>(), 256);
        assert_eq!(size_of::<CuMemPoolProps>(), 88);
        assert_eq!(size_of::<CuMemLocation>(), 8);
        assert_eq!(size_of::<CuIpcMemHandle>(), 64);
        assert_eq!(size_of::<CuIpcEventHandle>(), 64);
        assert_eq!(size_of::<CuGraphEdgeData>(), 8);
    }

    /// A struct's bytes and its fields' offsets, in the order of the header, of a list that a C compiler made.
    fn listed(list: &str, name: &str, but: &[&str]) -> Vec<usize> {
        let mut lines = list.lines().skip_while(|line| !line.starts_with(&format!("{name} ")));
        let number = |line: &str| line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        let bytes = lines.next().and_then(number).expect("listed");
        let fields = lines.take_while(|line| line.starts_with(' '));
        let fields = fields.filter(|line| !but.iter().any(|name| line.trim().starts_with(name)));
        std::iter::once(bytes).chain(fields.filter_map(number)).collect()
    }

    /// As [`listed`], of a struct here.
    macro_rules! ours {
        ($type:ty: $($($field:ident).+),*) => {
            [size_of::<$type>(), $(offset_of!($type, $($field).+)),*]
        };
    }

    #[test]
    fn offsets_are_those_of_the_headers_12_9_and_13_5() {
        let twelve = include_str!("../tests/layouts/12.9.79.txt");
        let thirteen = include_str!("../tests/layouts/13.5.37.txt");
        let name = "cudaPointerAttributes";
        let found = ours!(PointerAttributes: kind, device, device_pointer, host_pointer);
        assert_eq!(listed(twelve, name, &[]), found);
        let found = ours!(PointerAttributes13: old.kind, old.device, old.device_pointer, old.host_pointer, locality,
            reserved);
        assert_eq!(listed(thirteen, name, &[]), found);
        let launch = ours!(LaunchConfig: grid, block, shared_bytes, stream, attributes, attribute_count);
        let function = ours!(FuncAttributes: shared_bytes, constant_bytes, local_bytes, max_threads_per_block,
            registers, ptx_version, binary_version, cache_mode_ca, max_dynamic_shared_bytes, preferred_carveout,
            cluster_dim_must_be_set, required_cluster, cluster_policy, non_portable_cluster);
        // Of one array here. What 13 has put in the place of a reserve is zero, as 12 has it.
        let but = [
            "requiredClusterHeight",
            "requiredClusterDepth",
            "deviceNode",
            "sharedMemoryMode",
            "reserved",
        ];
        for list in [twelve, thirteen] {
            assert_eq!(listed(list, "cudaLaunchConfig_st", &[]), launch);
            assert_eq!(listed(list, "cudaFuncAttributes", &but), function);
        }
    }
}
