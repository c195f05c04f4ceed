// SPDX-License-Identifier: Apache-2.0
//! `cudaDeviceProp` of CUDA 12 and 13: each field with the driver's attributes that fill it. The order and the types are
//! those of the public headers 12.9 and 13.5.

use std::ffi::{c_char, c_int, c_uint};

use partage_abi::types::CuUuid;

use crate::driver::call;
use crate::error::{Answer, Code};

/// A number of a field's type.
trait Number {
    fn of(value: c_int) -> Self;
}

impl Number for c_int {
    fn of(value: c_int) -> Self {
        value
    }
}

impl Number for c_uint {
    fn of(value: c_int) -> Self {
        value.cast_unsigned()
    }
}

impl Number for usize {
    fn of(value: c_int) -> Self {
        // A pitch of 2 GiB and more is shown as the greatest number.
        Self::try_from(value).unwrap_or(0)
    }
}

/// An attribute; 0 where the driver does not know it.
fn attribute<N: Number>(number: c_int, device: c_int) -> N {
    let mut value = 0;
    let known = call!(cuDeviceGetAttribute(&raw mut value, number, device));
    N::of(if known.is_ok() { value } else { 0 })
}

macro_rules! fill {
    ($field:expr, $device:expr,) => {};
    ($field:expr, $device:expr, [$($number:literal),*]) => {
        $field = [$(attribute($number, $device)),*]
    };
    ($field:expr, $device:expr, $number:literal) => {
        $field = attribute($number, $device)
    };
}

macro_rules! properties {
    ($(#[$attribute:meta])* $name:ident { $($field:ident: $type:ty $(= $number:tt)?,)* }) => {
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl $name {
            /// The properties of a device, in the program's place for them.
            ///
            /// # Errors
            /// There is no such device.
            ///
            /// # Safety
            /// `to` is a place for such a struct.
            pub unsafe fn write(to: *mut Self, device: c_int) -> Answer {
                // SAFETY: numbers and arrays of numbers, for which all bits zero is a value.
                let mut found: Self = unsafe { std::mem::zeroed() };
                named(&mut found.name, &mut found.uuid, &mut found.total_global_mem, device)?;
                $(fill!(found.$field, device, $($number)?);)*
                // SAFETY: the caller's promise.
                unsafe { to.write(found) };
                Ok(())
            }
        }
    };
}

/// Name, UUID and memory.
fn named(name: &mut [c_char; 256], uuid: &mut [u8; 16], memory: &mut usize, device: c_int) -> Answer {
    let mut count = 0;
    call!(cuDeviceGetCount(&raw mut count))?;
    if !(0..count).contains(&device) {
        return Err(Code::INVALID_DEVICE);
    }
    call!(cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
    call!(cuDeviceGetUuid_v2(uuid.as_mut_ptr().cast::<CuUuid>(), device))?;
    call!(cuDeviceTotalMem_v2(memory, device))
}

properties! {
    /// `cudaDeviceProp` of CUDA 12, which `cudaGetDeviceProperties_v2` fills: 1,032 bytes.
    DeviceProp12 {
        name: [c_char; 256],
        uuid: [u8; 16],
        luid: [c_char; 8],
        luid_device_node_mask: c_uint,
        total_global_mem: usize,
        shared_mem_per_block: usize = 8,
        regs_per_block: c_int = 12,
        warp_size: c_int = 10,
        mem_pitch: usize = 11,
        max_threads_per_block: c_int = 1,
        max_threads_dim: [c_int; 3] = [2, 3, 4],
        max_grid_size: [c_int; 3] = [5, 6, 7],
        clock_rate: c_int = 13,
        total_const_mem: usize = 9,
        major: c_int = 75,
        minor: c_int = 76,
        texture_alignment: usize = 14,
        texture_pitch_alignment: usize = 51,
        device_overlap: c_int = 15,
        multi_processor_count: c_int = 16,
        kernel_exec_timeout_enabled: c_int = 17,
        integrated: c_int = 18,
        can_map_host_memory: c_int = 19,
        compute_mode: c_int = 20,
        max_texture1_d: c_int = 21,
        max_texture1_d_mipmap: c_int = 77,
        max_texture1_d_linear: c_int = 69,
        max_texture2_d: [c_int; 2] = [22, 23],
        max_texture2_d_mipmap: [c_int; 2] = [73, 74],
        max_texture2_d_linear: [c_int; 3] = [70, 71, 72],
        max_texture2_d_gather: [c_int; 2] = [45, 46],
        max_texture3_d: [c_int; 3] = [24, 25, 26],
        max_texture3_d_alt: [c_int; 3] = [47, 48, 49],
        max_texture_cubemap: c_int = 52,
        max_texture1_d_layered: [c_int; 2] = [42, 43],
        max_texture2_d_layered: [c_int; 3] = [27, 28, 29],
        max_texture_cubemap_layered: [c_int; 2] = [53, 54],
        max_surface1_d: c_int = 55,
        max_surface2_d: [c_int; 2] = [56, 57],
        max_surface3_d: [c_int; 3] = [58, 59, 60],
        max_surface1_d_layered: [c_int; 2] = [61, 62],
        max_surface2_d_layered: [c_int; 3] = [63, 64, 65],
        max_surface_cubemap: c_int = 66,
        max_surface_cubemap_layered: [c_int; 2] = [67, 68],
        surface_alignment: usize = 30,
        concurrent_kernels: c_int = 31,
        ecc_enabled: c_int = 32,
        pci_bus_id: c_int = 33,
        pci_device_id: c_int = 34,
        pci_domain_id: c_int = 50,
        tcc_driver: c_int = 35,
        async_engine_count: c_int = 40,
        unified_addressing: c_int = 41,
        memory_clock_rate: c_int = 36,
        memory_bus_width: c_int = 37,
        l2_cache_size: c_int = 38,
        persisting_l2_cache_max_size: c_int = 108,
        max_threads_per_multi_processor: c_int = 39,
        stream_priorities_supported: c_int = 78,
        global_l1_cache_supported: c_int = 79,
        local_l1_cache_supported: c_int = 80,
        shared_mem_per_multiprocessor: usize = 81,
        regs_per_multiprocessor: c_int = 82,
        managed_memory: c_int = 83,
        is_multi_gpu_board: c_int = 84,
        multi_gpu_board_group_id: c_int = 85,
        host_native_atomic_supported: c_int = 86,
        single_to_double_precision_perf_ratio: c_int = 87,
        pageable_memory_access: c_int = 88,
        concurrent_managed_access: c_int = 89,
        compute_preemption_supported: c_int = 90,
        can_use_host_pointer_for_registered_mem: c_int = 91,
        cooperative_launch: c_int = 95,
        cooperative_multi_device_launch: c_int = 96,
        shared_mem_per_block_optin: usize = 97,
        pageable_memory_access_uses_host_page_tables: c_int = 100,
        direct_managed_mem_access_from_host: c_int = 101,
        max_blocks_per_multi_processor: c_int = 106,
        access_policy_max_window_size: c_int = 109,
        reserved_shared_mem_per_block: usize = 111,
        host_register_supported: c_int = 99,
        sparse_cuda_array_supported: c_int = 112,
        host_register_read_only_supported: c_int = 113,
        timeline_semaphore_interop_supported: c_int = 114,
        memory_pools_supported: c_int = 115,
        gpu_direct_rdma_supported: c_int = 116,
        gpu_direct_rdma_flush_writes_options: c_uint = 117,
        gpu_direct_rdma_writes_ordering: c_int = 118,
        memory_pool_supported_handle_types: c_uint = 119,
        deferred_mapping_cuda_array_supported: c_int = 121,
        ipc_event_supported: c_int = 125,
        cluster_launch: c_int = 120,
        unified_function_pointers: c_int = 129,
        reserved: [c_int; 63],
    }
}

properties! {
    /// `cudaDeviceProp` of CUDA 13, which `cudaGetDeviceProperties` fills.
    DeviceProp13 {
        name: [c_char; 256],
        uuid: [u8; 16],
        luid: [c_char; 8],
        luid_device_node_mask: c_uint,
        total_global_mem: usize,
        shared_mem_per_block: usize = 8,
        regs_per_block: c_int = 12,
        warp_size: c_int = 10,
        mem_pitch: usize = 11,
        max_threads_per_block: c_int = 1,
        max_threads_dim: [c_int; 3] = [2, 3, 4],
        max_grid_size: [c_int; 3] = [5, 6, 7],
        total_const_mem: usize = 9,
        major: c_int = 75,
        minor: c_int = 76,
        texture_alignment: usize = 14,
        texture_pitch_alignment: usize = 51,
        multi_processor_count: c_int = 16,
        integrated: c_int = 18,
        can_map_host_memory: c_int = 19,
        max_texture1_d: c_int = 21,
        max_texture1_d_mipmap: c_int = 77,
        max_texture2_d: [c_int; 2] = [22, 23],
        max_texture2_d_mipmap: [c_int; 2] = [73, 74],
        max_texture2_d_linear: [c_int; 3] = [70, 71, 72],
        max_texture2_d_gather: [c_int; 2] = [45, 46],
        max_texture3_d: [c_int; 3] = [24, 25, 26],
        max_texture3_d_alt: [c_int; 3] = [47, 48, 49],
        max_texture_cubemap: c_int = 52,
        max_texture1_d_layered: [c_int; 2] = [42, 43],
        max_texture2_d_layered: [c_int; 3] = [27, 28, 29],
        max_texture_cubemap_layered: [c_int; 2] = [53, 54],
        max_surface1_d: c_int = 55,
        max_surface2_d: [c_int; 2] = [56, 57],
        max_surface3_d: [c_int; 3] = [58, 59, 60],
        max_surface1_d_layered: [c_int; 2] = [61, 62],
        max_surface2_d_layered: [c_int; 3] = [63, 64, 65],
        max_surface_cubemap: c_int = 66,
        max_surface_cubemap_layered: [c_int; 2] = [67, 68],
        surface_alignment: usize = 30,
        concurrent_kernels: c_int = 31,
        ecc_enabled: c_int = 32,
        pci_bus_id: c_int = 33,
        pci_device_id: c_int = 34,
        pci_domain_id: c_int = 50,
        tcc_driver: c_int = 35,
        async_engine_count: c_int = 40,
        unified_addressing: c_int = 41,
        memory_bus_width: c_int = 37,
        l2_cache_size: c_int = 38,
        persisting_l2_cache_max_size: c_int = 108,
        max_threads_per_multi_processor: c_int = 39,
        stream_priorities_supported: c_int = 78,
        global_l1_cache_supported: c_int = 79,
        local_l1_cache_supported: c_int = 80,
        shared_mem_per_multiprocessor: usize = 81,
        regs_per_multiprocessor: c_int = 82,
        managed_memory: c_int = 83,
        is_multi_gpu_board: c_int = 84,
        multi_gpu_board_group_id: c_int = 85,
        host_native_atomic_supported: c_int = 86,
        pageable_memory_access: c_int = 88,
        concurrent_managed_access: c_int = 89,
        compute_preemption_supported: c_int = 90,
        can_use_host_pointer_for_registered_mem: c_int = 91,
        cooperative_launch: c_int = 95,
        shared_mem_per_block_optin: usize = 97,
        pageable_memory_access_uses_host_page_tables: c_int = 100,
        direct_managed_mem_access_from_host: c_int = 101,
        max_blocks_per_multi_processor: c_int = 106,
        access_policy_max_window_size: c_int = 109,
        reserved_shared_mem_per_block: usize = 111,
        host_register_supported: c_int = 99,
        sparse_cuda_array_supported: c_int = 112,
        host_register_read_only_supported: c_int = 113,
        timeline_semaphore_interop_supported: c_int = 114,
        memory_pools_supported: c_int = 115,
        gpu_direct_rdma_supported: c_int = 116,
        gpu_direct_rdma_flush_writes_options: c_uint = 117,
        gpu_direct_rdma_writes_ordering: c_int = 118,
        memory_pool_supported_handle_types: c_uint = 119,
        deferred_mapping_cuda_array_supported: c_int = 121,
        ipc_event_supported: c_int = 125,
        cluster_launch: c_int = 120,
        unified_function_pointers: c_int = 129,
        device_numa_config: c_int = 130,
        device_numa_id: c_int = 131,
        mps_enabled: c_int = 133,
        host_numa_id: c_int = 134,
        gpu_pci_device_id: c_uint = 139,
        gpu_pci_subsystem_id: c_uint = 140,
        host_numa_multinode_ipc_supported: c_int = 143,
        reserved: [c_int; 56],
    }
}
