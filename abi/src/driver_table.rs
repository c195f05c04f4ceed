// SPDX-License-Identifier: Apache-2.0
//! The table of the CUDA driver API: one row per exported function, with what Partage does to a call beside its
//! signature.
//!
//! `[treatment] symbol(arguments);` answers a `CuResult`; a doc line above a row is its note, printed in
//! `docs/driver-api.md`. Treatments are defined in [`Treatment`](crate::Treatment). Rows stand in the chapters of the
//! vendor's manual, all ABI versions of a function together: the unsuffixed name is the oldest, `_v2`… are later,
//! `_ptsz` and `_ptds` those whose default stream is per thread. Names and argument order are those of `cuda.h` 13.5
//! and of the symbols that older drivers export; `cargo test -p partage-abi` compares them with the header.
//!
//! Rules that tests hold: a `charge` row's first argument receives the address; every flavour of one function has one
//! treatment; expressions in a treatment name arguments of their own row.
//!
//! `cudbg*`, the debugger's exports, have no row and must stay untouched: some of them are variables.

#[doc(hidden)]
#[macro_export]
macro_rules! driver_chapters {
    (($($then:tt)*) $($with:tt)*) => { $($then)*! { $($with)*
    "Initialization" {
        [track] cuInit(flags: c_uint);
    }
    "Version management" {
        [pass] cuDriverGetVersion(driver_version: *mut c_int);
    }
    "Error handling" {
        [pass] cuGetErrorString(error: CuResult, str: *mut *const c_char);
        [pass] cuGetErrorName(error: CuResult, str: *mut *const c_char);
    }
    "Driver entry point access" {
        [resolve] cuGetProcAddress(symbol: *const c_char, address: *mut *mut c_void, cuda_version: c_int, flags: u64);
        [resolve] cuGetProcAddress_v2(
            symbol: *const c_char, address: *mut *mut c_void, cuda_version: c_int, flags: u64,
            symbol_status: *mut c_int,
        );
        /// never copied or wrapped: the vendor checks these addresses
        [pass] cuGetExportTable(pp_export_table: *mut *const c_void, export_table_id: *const CuUuid);
    }
    "Device management" {
        /// the driver itself masks devices, at cuInit
        [pass] cuDeviceGet(device: *mut CuDevice, ordinal: c_int);
        /// the driver itself masks devices, at cuInit
        [pass] cuDeviceGetCount(count: *mut c_int);
        [pass] cuDeviceGetName(name: *mut c_char, len: c_int, dev: CuDevice);
        [pass] cuDeviceGetUuid(uuid: *mut CuUuid, dev: CuDevice);
        [pass] cuDeviceGetUuid_v2(uuid: *mut CuUuid, dev: CuDevice);
        [pass] cuDeviceGetLuid(luid: *mut c_char, device_node_mask: *mut c_uint, dev: CuDevice);
        /// the job's limit, not the device's size
        [answer] cuDeviceTotalMem(bytes: *mut c_uint, dev: CuDevice);
        /// the job's limit, not the device's size
        [answer] cuDeviceTotalMem_v2(bytes: *mut usize, dev: CuDevice);
        [pass] cuDeviceGetTexture1DLinearMaxWidth(
            max_width_in_elements: *mut usize, format: c_int, num_channels: c_uint, dev: CuDevice,
        );
        [pass] cuDeviceGetAttribute(value: *mut c_int, attrib: c_int, dev: CuDevice);
        [pass] cuDeviceGetHostAtomicCapabilities(
            capabilities: *mut c_uint, operations: *const c_int, count: c_uint, dev: CuDevice,
        );
        [pass] cuDeviceGetNvSciSyncAttributes(nv_sci_sync_attr_list: *mut c_void, dev: CuDevice, flags: c_int);
        /// later allocations are charged to another pool
        [track] cuDeviceSetMemPool(dev: CuDevice, pool: CuMemoryPool);
        [pass] cuDeviceGetMemPool(pool: *mut CuMemoryPool, dev: CuDevice);
        [pass] cuDeviceGetDefaultMemPool(pool_out: *mut CuMemoryPool, dev: CuDevice);
        [pass] cuDeviceGetExecAffinitySupport(value: *mut c_int, kind: c_int, dev: CuDevice);
        [pass] cuFlushGPUDirectRDMAWrites(target: c_int, scope: c_int);
        [pass] cuDeviceGetProperties(prop: *mut CuDevprop, dev: CuDevice);
        [pass] cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CuDevice);
    }
    "Primary context management" {
        /// as cuCtxCreate where it makes the context
        [track] cuDevicePrimaryCtxRetain(ctx: *mut CuContext, dev: CuDevice);
        [track] cuDevicePrimaryCtxRelease(dev: CuDevice);
        [track] cuDevicePrimaryCtxRelease_v2(dev: CuDevice);
        [pass] cuDevicePrimaryCtxSetFlags(dev: CuDevice, flags: c_uint);
        [pass] cuDevicePrimaryCtxSetFlags_v2(dev: CuDevice, flags: c_uint);
        [pass] cuDevicePrimaryCtxGetState(dev: CuDevice, flags: *mut c_uint, active: *mut c_int);
        [track] cuDevicePrimaryCtxReset(dev: CuDevice);
        [track] cuDevicePrimaryCtxReset_v2(dev: CuDevice);
    }
    "Context management" {
        /// announced before and measured after, undone where it does not fit
        [track] cuCtxCreate(ctx: *mut CuContext, flags: c_uint, dev: CuDevice);
        /// announced before and measured after, undone where it does not fit
        [track] cuCtxCreate_v2(ctx: *mut CuContext, flags: c_uint, dev: CuDevice);
        /// announced before and measured after, undone where it does not fit
        [track] cuCtxCreate_v3(
            ctx: *mut CuContext, params_array: *mut CuExecAffinityParam, num_params: c_int, flags: c_uint,
            dev: CuDevice,
        );
        /// announced before and measured after, undone where it does not fit
        [track] cuCtxCreate_v4(
            ctx: *mut CuContext, ctx_create_params: *mut CuCtxCreateParams, flags: c_uint, dev: CuDevice,
        );
        [track] cuCtxDestroy(ctx: CuContext);
        [track] cuCtxDestroy_v2(ctx: CuContext);
        [pass] cuCtxPushCurrent(ctx: CuContext);
        [pass] cuCtxPushCurrent_v2(ctx: CuContext);
        [pass] cuCtxPopCurrent(ctx: *mut CuContext);
        [pass] cuCtxPopCurrent_v2(ctx: *mut CuContext);
        [pass] cuCtxSetCurrent(ctx: CuContext);
        [pass] cuCtxGetCurrent(ctx: *mut CuContext);
        [pass] cuCtxGetDevice(device: *mut CuDevice);
        [pass] cuCtxGetDevice_v2(device: *mut CuDevice, ctx: CuContext);
        [pass] cuCtxGetFlags(flags: *mut c_uint);
        [pass] cuCtxSetFlags(flags: c_uint);
        [pass] cuCtxGetId(ctx: CuContext, ctx_id: *mut c_ulonglong);
        /// pools may have shrunk
        [track] cuCtxSynchronize();
        /// pools may have shrunk
        [track] cuCtxSynchronize_v2(ctx: CuContext);
        /// stacks and heaps: what they take is measured; undone if it takes the job beyond its limit
        [track] cuCtxSetLimit(limit: c_int, value: usize);
        [pass] cuCtxGetLimit(pvalue: *mut usize, limit: c_int);
        [pass] cuCtxGetCacheConfig(pconfig: *mut c_int);
        [pass] cuCtxSetCacheConfig(config: c_int);
        [pass] cuCtxGetApiVersion(ctx: CuContext, version: *mut c_uint);
        [pass] cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int);
        [pass] cuCtxResetPersistingL2Cache();
        [pass] cuCtxGetExecAffinity(exec_affinity: *mut CuExecAffinityParam, kind: c_int);
        [pass] cuCtxRecordEvent(ctx: CuContext, event: CuEvent);
        [pass] cuCtxWaitEvent(ctx: CuContext, event: CuEvent);
        [pass] cuCtxAttach(ctx: *mut CuContext, flags: c_uint);
        [track] cuCtxDetach(ctx: CuContext);
        [pass] cuCtxGetSharedMemConfig(config: *mut c_int);
        [pass] cuCtxSetSharedMemConfig(config: c_int);
    }
    "Green contexts" {
        /// retains the primary context: announced before and measured after, undone where it does not fit
        [track] cuGreenCtxCreate(ctx: *mut CuGreenCtx, desc: CuDevResourceDesc, dev: CuDevice, flags: c_uint);
        /// may end the primary context, and what was allocated in it
        [track] cuGreenCtxDestroy(ctx: CuGreenCtx);
        /// takes what the green context took already; measured all the same
        [track] cuCtxFromGreenCtx(context: *mut CuContext, ctx: CuGreenCtx);
        [pass] cuDeviceGetDevResource(device: CuDevice, resource: *mut CuDevResource, kind: c_int);
        [pass] cuCtxGetDevResource(ctx: CuContext, resource: *mut CuDevResource, kind: c_int);
        [pass] cuGreenCtxGetDevResource(ctx: CuGreenCtx, resource: *mut CuDevResource, kind: c_int);
        [pass] cuDevSmResourceSplitByCount(
            result: *mut CuDevResource, nb_groups: *mut c_uint, input: *const CuDevResource,
            remainder: *mut CuDevResource, flags: c_uint, min_count: c_uint,
        );
        [pass] cuDevSmResourceSplit(
            result: *mut CuDevResource, nb_groups: c_uint, input: *const CuDevResource, remainder: *mut CuDevResource,
            flags: c_uint, group_params: *mut CuDevSmResourceGroupParams,
        );
        [pass] cuDevResourceGenerateDesc(
            desc: *mut CuDevResourceDesc, resources: *mut CuDevResource, nb_resources: c_uint,
        );
        [pass] cuGreenCtxRecordEvent(ctx: CuGreenCtx, event: CuEvent);
        [pass] cuGreenCtxWaitEvent(ctx: CuGreenCtx, event: CuEvent);
        [pass] cuStreamGetGreenCtx(stream: CuStream, ctx: *mut CuGreenCtx);
        [pass] cuGreenCtxStreamCreate(stream: *mut CuStream, green_ctx: CuGreenCtx, flags: c_uint, priority: c_int);
        [pass] cuGreenCtxGetId(green_ctx: CuGreenCtx, green_ctx_id: *mut c_ulonglong);
        [pass] cuStreamGetDevResource(stream: CuStream, resource: *mut CuDevResource, kind: c_int);
        [pass] cuStreamGetDevResource_ptsz(stream: CuStream, resource: *mut CuDevResource, kind: c_int);
    }
    "Module management" {
        /// what code and globals take is measured; undone if it takes the job beyond its limit
        [track] cuModuleLoad(module: *mut CuModule, fname: *const c_char);
        /// what code and globals take is measured; undone if it takes the job beyond its limit
        [track] cuModuleLoadData(module: *mut CuModule, image: *const c_void);
        /// what code and globals take is measured; undone if it takes the job beyond its limit
        [track] cuModuleLoadDataEx(
            module: *mut CuModule, image: *const c_void, num_options: c_uint, options: *mut c_int,
            option_values: *mut *mut c_void,
        );
        /// what code and globals take is measured; undone if it takes the job beyond its limit
        [track] cuModuleLoadFatBinary(module: *mut CuModule, fat_cubin: *const c_void);
        /// what it frees is measured
        [track] cuModuleUnload(module: CuModule);
        [pass] cuModuleGetLoadingMode(mode: *mut c_int);
        [pass] cuModuleGetFunction(function: *mut CuFunction, module: CuModule, name: *const c_char);
        [pass] cuModuleGetFunctionCount(count: *mut c_uint, module: CuModule);
        [pass] cuModuleEnumerateFunctions(functions: *mut CuFunction, num_functions: c_uint, module: CuModule);
        [pass] cuModuleGetGlobal(dptr: *mut CuDevicePtrV1, bytes: *mut c_uint, module: CuModule, name: *const c_char);
        [pass] cuModuleGetGlobal_v2(dptr: *mut CuDevicePtr, bytes: *mut usize, module: CuModule, name: *const c_char);
        [pass] cuLinkCreate(
            num_options: c_uint, options: *mut c_int, option_values: *mut *mut c_void, state_out: *mut CuLinkState,
        );
        [pass] cuLinkCreate_v2(
            num_options: c_uint, options: *mut c_int, option_values: *mut *mut c_void, state_out: *mut CuLinkState,
        );
        [pass] cuLinkAddData(
            state: CuLinkState, kind: c_int, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint,
            options: *mut c_int, option_values: *mut *mut c_void,
        );
        [pass] cuLinkAddData_v2(
            state: CuLinkState, kind: c_int, data: *mut c_void, size: usize, name: *const c_char, num_options: c_uint,
            options: *mut c_int, option_values: *mut *mut c_void,
        );
        [pass] cuLinkAddFile(
            state: CuLinkState, kind: c_int, path: *const c_char, num_options: c_uint, options: *mut c_int,
            option_values: *mut *mut c_void,
        );
        [pass] cuLinkAddFile_v2(
            state: CuLinkState, kind: c_int, path: *const c_char, num_options: c_uint, options: *mut c_int,
            option_values: *mut *mut c_void,
        );
        /// links on the host
        [pass] cuLinkComplete(state: CuLinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
        [pass] cuLinkDestroy(state: CuLinkState);
        [pass] cuModuleGetTexRef(tex_ref: *mut CuTexref, module: CuModule, name: *const c_char);
        [pass] cuModuleGetSurfRef(surf_ref: *mut CuSurfref, module: CuModule, name: *const c_char);
    }
    "Library management" {
        /// what code and globals take is measured; undone if it takes the job beyond its limit; nothing without a
        /// context
        [track] cuLibraryLoadData(
            library: *mut CuLibrary, code: *const c_void, jit_options: *mut c_int, jit_options_values: *mut *mut c_void,
            num_jit_options: c_uint, library_options: *mut c_int, library_option_values: *mut *mut c_void,
            num_library_options: c_uint,
        );
        /// what code and globals take is measured; undone if it takes the job beyond its limit; nothing without a
        /// context
        [track] cuLibraryLoadFromFile(
            library: *mut CuLibrary, file_name: *const c_char, jit_options: *mut c_int,
            jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_int,
            library_option_values: *mut *mut c_void, num_library_options: c_uint,
        );
        /// what it frees is measured
        [track] cuLibraryUnload(library: CuLibrary);
        [pass] cuLibraryGetKernel(kernel: *mut CuKernel, library: CuLibrary, name: *const c_char);
        [pass] cuLibraryGetKernelCount(count: *mut c_uint, lib: CuLibrary);
        [pass] cuLibraryEnumerateKernels(kernels: *mut CuKernel, num_kernels: c_uint, lib: CuLibrary);
        [pass] cuLibraryGetModule(module: *mut CuModule, library: CuLibrary);
        [pass] cuKernelGetFunction(func: *mut CuFunction, kernel: CuKernel);
        [pass] cuKernelGetLibrary(lib: *mut CuLibrary, kernel: CuKernel);
        [pass] cuLibraryGetGlobal(dptr: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char);
        /// managed memory ties the process to its device
        [track] cuLibraryGetManaged(dptr: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char);
        [pass] cuLibraryGetUnifiedFunction(fptr: *mut *mut c_void, library: CuLibrary, symbol: *const c_char);
        [pass] cuKernelGetAttribute(value: *mut c_int, attrib: c_int, kernel: CuKernel, dev: CuDevice);
        [pass] cuKernelSetAttribute(attrib: c_int, val: c_int, kernel: CuKernel, dev: CuDevice);
        [pass] cuKernelSetCacheConfig(kernel: CuKernel, config: c_int, dev: CuDevice);
        [pass] cuKernelGetName(name: *mut *const c_char, function: CuKernel);
        [pass] cuKernelGetParamInfo(
            kernel: CuKernel, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
        );
        [pass] cuKernelGetParamCount(kernel: CuKernel, param_count: *mut usize);
    }
    "Execution control" {
        [pass] cuFuncGetAttribute(value: *mut c_int, attrib: c_int, function: CuFunction);
        [pass] cuFuncSetAttribute(function: CuFunction, attrib: c_int, value: c_int);
        [pass] cuFuncSetCacheConfig(function: CuFunction, config: c_int);
        [pass] cuFuncGetModule(module: *mut CuModule, function: CuFunction);
        [pass] cuFuncGetName(name: *mut *const c_char, function: CuFunction);
        [pass] cuFuncGetParamInfo(
            func: CuFunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
        );
        [pass] cuFuncGetParamCount(func: CuFunction, param_count: *mut usize);
        [pass] cuFuncIsLoaded(state: *mut c_int, function: CuFunction);
        [pass] cuFuncLoad(function: CuFunction);
        [gate(launch Kernel::of(
            f, [grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes], stream,
        ))] cuLaunchKernel(
            f: CuFunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CuStream,
            kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
        );
        [gate(launch Kernel::of(
            f, [grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes], stream,
        ))] cuLaunchKernel_ptsz(
            f: CuFunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CuStream,
            kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
        );
        [gate(launch Configured(config, f))] cuLaunchKernelEx(
            config: *const CuLaunchConfig, f: CuFunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
        );
        [gate(launch Configured(config, f))] cuLaunchKernelEx_ptsz(
            config: *const CuLaunchConfig, f: CuFunction, kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
        );
        [gate(Kernel::of(
            f, [grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes], stream,
        ))] cuLaunchCooperativeKernel(
            f: CuFunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CuStream,
            kernel_params: *mut *mut c_void,
        );
        [gate(Kernel::of(
            f, [grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes], stream,
        ))] cuLaunchCooperativeKernel_ptsz(
            f: CuFunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
            block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CuStream,
            kernel_params: *mut *mut c_void,
        );
        [settle(stream)] cuLaunchHostFunc(stream: CuStream, function: CuHostFn, user_data: *mut c_void);
        [settle(stream)] cuLaunchHostFunc_ptsz(stream: CuStream, function: CuHostFn, user_data: *mut c_void);
        [settle(stream)] cuLaunchHostFunc_v2(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void, sync_mode: c_uint
        );
        [settle(stream)] cuLaunchHostFunc_v2_ptsz(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void, sync_mode: c_uint,
        );
        [pass] cuFuncSetBlockShape(function: CuFunction, x: c_int, y: c_int, z: c_int);
        [pass] cuFuncSetSharedSize(function: CuFunction, bytes: c_uint);
        [pass] cuParamSetSize(function: CuFunction, numbytes: c_uint);
        [pass] cuParamSeti(function: CuFunction, offset: c_int, value: c_uint);
        [pass] cuParamSetf(function: CuFunction, offset: c_int, value: f32);
        [pass] cuParamSetv(function: CuFunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint);
        [gate(Kernel::shaped(f, 1, 1, CuStream::NULL))] cuLaunch(f: CuFunction);
        [gate(Kernel::shaped(f, grid_width, grid_height, CuStream::NULL))] cuLaunchGrid(
            f: CuFunction, grid_width: c_int, grid_height: c_int,
        );
        [gate(Kernel::shaped(f, grid_width, grid_height, stream))] cuLaunchGridAsync(
            f: CuFunction, grid_width: c_int, grid_height: c_int, stream: CuStream,
        );
        [gate(Together(launch_params_list, num_devices))] cuLaunchCooperativeKernelMultiDevice(
            launch_params_list: *mut CudaLaunchParams, num_devices: c_uint, flags: c_uint,
        );
        [pass] cuParamSetTexRef(function: CuFunction, texunit: c_int, tex_ref: CuTexref);
        [pass] cuFuncSetSharedMemConfig(function: CuFunction, config: c_int);
    }
    "Occupancy" {
        [pass] cuOccupancyMaxActiveBlocksPerMultiprocessor(
            num_blocks: *mut c_int, func: CuFunction, block_size: c_int, dynamic_s_mem_size: usize,
        );
        [pass] cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            num_blocks: *mut c_int, func: CuFunction, block_size: c_int, dynamic_s_mem_size: usize, flags: c_uint,
        );
        [pass] cuOccupancyMaxPotentialBlockSize(
            min_grid_size: *mut c_int, block_size: *mut c_int, func: CuFunction,
            block_size_to_dynamic_s_mem_size: CuOccupancyB2DSize, dynamic_s_mem_size: usize, block_size_limit: c_int,
        );
        [pass] cuOccupancyMaxPotentialBlockSizeWithFlags(
            min_grid_size: *mut c_int, block_size: *mut c_int, func: CuFunction,
            block_size_to_dynamic_s_mem_size: CuOccupancyB2DSize, dynamic_s_mem_size: usize, block_size_limit: c_int,
            flags: c_uint,
        );
        [pass] cuOccupancyAvailableDynamicSMemPerBlock(
            dynamic_smem_size: *mut usize, func: CuFunction, num_blocks: c_int, block_size: c_int,
        );
        [pass] cuOccupancyMaxPotentialClusterSize(
            cluster_size: *mut c_int, func: CuFunction, config: *const CuLaunchConfig,
        );
        [pass] cuOccupancyMaxActiveClusters(num_clusters: *mut c_int, func: CuFunction, config: *const CuLaunchConfig);
    }
    "Memory management" {
        /// the job's limit, not the device's size
        [answer] cuMemGetInfo(free: *mut c_uint, total: *mut c_uint);
        /// the job's limit, not the device's size
        [answer] cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        [charge(bytes)] cuMemAlloc(dptr: *mut CuDevicePtrV1, bytes: c_uint);
        [charge(bytes)] cuMemAlloc_v2(dptr: *mut CuDevicePtr, bytes: usize);
        /// charged by the pitch that the driver returned, known only after the call
        [answer] cuMemAllocPitch(
            dptr: *mut CuDevicePtrV1, pitch: *mut c_uint, width_in_bytes: c_uint, height: c_uint,
            element_size_bytes: c_uint,
        );
        /// charged by the pitch that the driver returned, known only after the call
        [answer] cuMemAllocPitch_v2(
            dptr: *mut CuDevicePtr, pitch: *mut usize, width_in_bytes: usize, height: usize, element_size_bytes: c_uint,
        );
        [refund(dptr)] cuMemFree(dptr: CuDevicePtrV1);
        [refund(dptr)] cuMemFree_v2(dptr: CuDevicePtr);
        [pass] cuMemGetAddressRange(pbase: *mut CuDevicePtrV1, psize: *mut c_uint, dptr: CuDevicePtrV1);
        [pass] cuMemGetAddressRange_v2(pbase: *mut CuDevicePtr, psize: *mut usize, dptr: CuDevicePtr);
        /// memory of the host
        [pass] cuMemAllocHost(host: *mut *mut c_void, bytes: c_uint);
        /// memory of the host
        [pass] cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize);
        [pass] cuMemFreeHost(p: *mut c_void);
        /// memory of the host
        [pass] cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint);
        [pass] cuMemHostGetDevicePointer(dptr: *mut CuDevicePtrV1, p: *mut c_void, flags: c_uint);
        [pass] cuMemHostGetDevicePointer_v2(dptr: *mut CuDevicePtr, p: *mut c_void, flags: c_uint);
        [pass] cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void);
        /// charged in full to the current device, wherever it is resident
        [answer] cuMemAllocManaged(dptr: *mut CuDevicePtr, bytes: usize, flags: c_uint);
        [pass] cuDeviceRegisterAsyncNotification(
            device: CuDevice, callback_func: CuAsyncCallback, user_data: *mut c_void,
            callback: *mut CuAsyncCallbackHandle,
        );
        [pass] cuDeviceUnregisterAsyncNotification(device: CuDevice, callback: CuAsyncCallbackHandle);
        [pass] cuDeviceGetByPCIBusId(dev: *mut CuDevice, pci_bus_id: *const c_char);
        [pass] cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CuDevice);
        /// ties the process to its device
        [track] cuIpcGetEventHandle(handle: *mut CuIpcEventHandle, event: CuEvent);
        /// ties the process to its device
        [track] cuIpcOpenEventHandle(event: *mut CuEvent, handle: CuIpcEventHandle);
        /// ties the process to its device
        [track] cuIpcGetMemHandle(handle: *mut CuIpcMemHandle, dptr: CuDevicePtr);
        /// maps memory that the exporting process is charged for; ties the process to its device
        [track] cuIpcOpenMemHandle(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint);
        /// maps memory that the exporting process is charged for; ties the process to its device
        [track] cuIpcOpenMemHandle_v2(dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint);
        /// gives back addresses, no memory
        [pass] cuIpcCloseMemHandle(dptr: CuDevicePtr);
        /// memory of the host
        [pass] cuMemHostRegister(p: *mut c_void, bytes: usize, flags: c_uint);
        /// memory of the host
        [pass] cuMemHostRegister_v2(p: *mut c_void, bytes: usize, flags: c_uint);
        [pass] cuMemHostUnregister(p: *mut c_void);
        [gate(Unified(dst, src, CuStream::NULL))] cuMemcpy(dst: CuDevicePtr, src: CuDevicePtr, byte_count: usize);
        [gate(Unified(dst, src, CuStream::NULL))] cuMemcpy_ptds(dst: CuDevicePtr, src: CuDevicePtr, byte_count: usize);
        [gate(Inside(CuStream::NULL))] cuMemcpyPeer(
            dst_device: CuDevicePtr, dst_context: CuContext, src_device: CuDevicePtr, src_context: CuContext,
            byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyPeer_ptds(
            dst_device: CuDevicePtr, dst_context: CuContext, src_device: CuDevicePtr, src_context: CuContext,
            byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoD(
            dst_device: CuDevicePtrV1, src_host: *const c_void, byte_count: c_uint,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoD_v2(
            dst_device: CuDevicePtr, src_host: *const c_void, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoD_v2_ptds(
            dst_device: CuDevicePtr, src_host: *const c_void, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyDtoH(
            dst_host: *mut c_void, src_device: CuDevicePtrV1, byte_count: c_uint,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyDtoH_v2(
            dst_host: *mut c_void, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyDtoH_v2_ptds(
            dst_host: *mut c_void, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoD(
            dst_device: CuDevicePtrV1, src_device: CuDevicePtrV1, byte_count: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoD_v2(
            dst_device: CuDevicePtr, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoD_v2_ptds(
            dst_device: CuDevicePtr, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoA(
            dst_array: CuArray, dst_offset: c_uint, src_device: CuDevicePtrV1, byte_count: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoA_v2(
            dst_array: CuArray, dst_offset: usize, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyDtoA_v2_ptds(
            dst_array: CuArray, dst_offset: usize, src_device: CuDevicePtr, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoD(
            dst_device: CuDevicePtrV1, src_array: CuArray, src_offset: c_uint, byte_count: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoD_v2(
            dst_device: CuDevicePtr, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoD_v2_ptds(
            dst_device: CuDevicePtr, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoA(
            dst_array: CuArray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoA_v2(
            dst_array: CuArray, dst_offset: usize, src_host: *const c_void, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyHtoA_v2_ptds(
            dst_array: CuArray, dst_offset: usize, src_host: *const c_void, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyAtoH(
            dst_host: *mut c_void, src_array: CuArray, src_offset: c_uint, byte_count: c_uint,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyAtoH_v2(
            dst_host: *mut c_void, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Across(CuStream::NULL))] cuMemcpyAtoH_v2_ptds(
            dst_host: *mut c_void, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoA(
            dst_array: CuArray, dst_offset: c_uint, src_array: CuArray, src_offset: c_uint, byte_count: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoA_v2(
            dst_array: CuArray, dst_offset: usize, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemcpyAtoA_v2_ptds(
            dst_array: CuArray, dst_offset: usize, src_array: CuArray, src_offset: usize, byte_count: usize,
        );
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2D(copy: *const CudaMemcpy2dV1);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2D_v2(copy: *const CudaMemcpy2d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2D_v2_ptds(copy: *const CudaMemcpy2d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2DUnaligned(copy: *const CudaMemcpy2dV1);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2DUnaligned_v2(copy: *const CudaMemcpy2d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy2DUnaligned_v2_ptds(copy: *const CudaMemcpy2d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy3D(copy: *const CudaMemcpy3dV1);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy3D_v2(copy: *const CudaMemcpy3d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy3D_v2_ptds(copy: *const CudaMemcpy3d);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy3DPeer(copy: *const CudaMemcpy3dPeer);
        [gate(Shaped::of(copy, CuStream::NULL))] cuMemcpy3DPeer_ptds(copy: *const CudaMemcpy3dPeer);
        [gate(Unified(dst, src, stream))] cuMemcpyAsync(
            dst: CuDevicePtr, src: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Unified(dst, src, stream))] cuMemcpyAsync_ptsz(
            dst: CuDevicePtr, src: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemcpyPeerAsync(
            dst_device: CuDevicePtr, dst_context: CuContext, src_device: CuDevicePtr, src_context: CuContext,
            byte_count: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemcpyPeerAsync_ptsz(
            dst_device: CuDevicePtr, dst_context: CuContext, src_device: CuDevicePtr, src_context: CuContext,
            byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoDAsync(
            dst_device: CuDevicePtrV1, src_host: *const c_void, byte_count: c_uint, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoDAsync_v2(
            dst_device: CuDevicePtr, src_host: *const c_void, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoDAsync_v2_ptsz(
            dst_device: CuDevicePtr, src_host: *const c_void, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyDtoHAsync(
            dst_host: *mut c_void, src_device: CuDevicePtrV1, byte_count: c_uint, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyDtoHAsync_v2(
            dst_host: *mut c_void, src_device: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyDtoHAsync_v2_ptsz(
            dst_host: *mut c_void, src_device: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemcpyDtoDAsync(
            dst_device: CuDevicePtrV1, src_device: CuDevicePtrV1, byte_count: c_uint, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemcpyDtoDAsync_v2(
            dst_device: CuDevicePtr, src_device: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemcpyDtoDAsync_v2_ptsz(
            dst_device: CuDevicePtr, src_device: CuDevicePtr, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoAAsync(
            dst_array: CuArray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoAAsync_v2(
            dst_array: CuArray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyHtoAAsync_v2_ptsz(
            dst_array: CuArray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyAtoHAsync(
            dst_host: *mut c_void, src_array: CuArray, src_offset: c_uint, byte_count: c_uint, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyAtoHAsync_v2(
            dst_host: *mut c_void, src_array: CuArray, src_offset: usize, byte_count: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyAtoHAsync_v2_ptsz(
            dst_host: *mut c_void, src_array: CuArray, src_offset: usize, byte_count: usize, stream: CuStream,
        );
        [gate(Shaped::of(copy, stream))] cuMemcpy2DAsync(copy: *const CudaMemcpy2dV1, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy2DAsync_v2(copy: *const CudaMemcpy2d, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy2DAsync_v2_ptsz(copy: *const CudaMemcpy2d, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy3DAsync(copy: *const CudaMemcpy3dV1, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy3DAsync_v2(copy: *const CudaMemcpy3d, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy3DAsync_v2_ptsz(copy: *const CudaMemcpy3d, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy3DPeerAsync(copy: *const CudaMemcpy3dPeer, stream: CuStream);
        [gate(Shaped::of(copy, stream))] cuMemcpy3DPeerAsync_ptsz(copy: *const CudaMemcpy3dPeer, stream: CuStream);
        [gate(Across(stream))] cuMemcpyBatchAsync(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyBatchAsync_ptsz(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyBatchAsync_v2(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpyBatchAsync_v2_ptsz(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DBatchAsync(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DBatchAsync_ptsz(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DBatchAsync_v2(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DBatchAsync_v2_ptsz(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Unified(dst, src, stream))] cuMemcpyWithAttributesAsync(
            dst: CuDevicePtr, src: CuDevicePtr, size: usize, attr: *mut CuMemcpyAttributes, stream: CuStream,
        );
        [gate(Unified(dst, src, stream))] cuMemcpyWithAttributesAsync_ptsz(
            dst: CuDevicePtr, src: CuDevicePtr, size: usize, attr: *mut CuMemcpyAttributes, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DWithAttributesAsync(
            op: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Across(stream))] cuMemcpy3DWithAttributesAsync_ptsz(
            op: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD8(dst_device: CuDevicePtrV1, uc: c_uchar, n: c_uint);
        [gate(Inside(CuStream::NULL))] cuMemsetD8_v2(dst_device: CuDevicePtr, uc: c_uchar, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD8_v2_ptds(dst_device: CuDevicePtr, uc: c_uchar, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD16(dst_device: CuDevicePtrV1, us: c_ushort, n: c_uint);
        [gate(Inside(CuStream::NULL))] cuMemsetD16_v2(dst_device: CuDevicePtr, us: c_ushort, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD16_v2_ptds(dst_device: CuDevicePtr, us: c_ushort, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD32(dst_device: CuDevicePtrV1, ui: c_uint, n: c_uint);
        [gate(Inside(CuStream::NULL))] cuMemsetD32_v2(dst_device: CuDevicePtr, ui: c_uint, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD32_v2_ptds(dst_device: CuDevicePtr, ui: c_uint, n: usize);
        [gate(Inside(CuStream::NULL))] cuMemsetD2D8(
            dst_device: CuDevicePtrV1, dst_pitch: c_uint, uc: c_uchar, width: c_uint, height: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D8_v2(
            dst_device: CuDevicePtr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D8_v2_ptds(
            dst_device: CuDevicePtr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D16(
            dst_device: CuDevicePtrV1, dst_pitch: c_uint, us: c_ushort, width: c_uint, height: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D16_v2(
            dst_device: CuDevicePtr, dst_pitch: usize, us: c_ushort, width: usize, height: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D16_v2_ptds(
            dst_device: CuDevicePtr, dst_pitch: usize, us: c_ushort, width: usize, height: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D32(
            dst_device: CuDevicePtrV1, dst_pitch: c_uint, ui: c_uint, width: c_uint, height: c_uint,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D32_v2(
            dst_device: CuDevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize,
        );
        [gate(Inside(CuStream::NULL))] cuMemsetD2D32_v2_ptds(
            dst_device: CuDevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize,
        );
        [gate(Inside(stream))] cuMemsetD8Async(dst_device: CuDevicePtr, uc: c_uchar, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD8Async_ptsz(dst_device: CuDevicePtr, uc: c_uchar, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD16Async(dst_device: CuDevicePtr, us: c_ushort, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD16Async_ptsz(dst_device: CuDevicePtr, us: c_ushort, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD32Async(dst_device: CuDevicePtr, ui: c_uint, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD32Async_ptsz(dst_device: CuDevicePtr, ui: c_uint, n: usize, stream: CuStream);
        [gate(Inside(stream))] cuMemsetD2D8Async(
            dst_device: CuDevicePtr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemsetD2D8Async_ptsz(
            dst_device: CuDevicePtr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemsetD2D16Async(
            dst_device: CuDevicePtr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemsetD2D16Async_ptsz(
            dst_device: CuDevicePtr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemsetD2D32Async(
            dst_device: CuDevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemsetD2D32Async_ptsz(
            dst_device: CuDevicePtr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, stream: CuStream,
        );
        /// charged by format and extents; sparse and deferred ones cost nothing themselves
        [track] cuArrayCreate(handle: *mut CuArray, allocate_array: *const CudaArrayDescriptorV1);
        /// charged by format and extents; sparse and deferred ones cost nothing themselves
        [track] cuArrayCreate_v2(handle: *mut CuArray, allocate_array: *const CudaArrayDescriptor);
        [pass] cuArrayGetDescriptor(array_descriptor: *mut CudaArrayDescriptorV1, array: CuArray);
        [pass] cuArrayGetDescriptor_v2(array_descriptor: *mut CudaArrayDescriptor, array: CuArray);
        [pass] cuArrayGetSparseProperties(sparse_properties: *mut CudaArraySparseProperties, array: CuArray);
        [pass] cuMipmappedArrayGetSparseProperties(
            sparse_properties: *mut CudaArraySparseProperties, mipmap: CuMipmappedArray,
        );
        [pass] cuArrayGetMemoryRequirements(
            memory_requirements: *mut CudaArrayMemoryRequirements, array: CuArray, device: CuDevice,
        );
        [pass] cuMipmappedArrayGetMemoryRequirements(
            memory_requirements: *mut CudaArrayMemoryRequirements, mipmap: CuMipmappedArray, device: CuDevice,
        );
        [pass] cuArrayGetPlane(plane_array: *mut CuArray, array: CuArray, plane_idx: c_uint);
        /// refunded by handle
        [track] cuArrayDestroy(array: CuArray);
        /// charged by format and extents; sparse and deferred ones cost nothing themselves
        [track] cuArray3DCreate(handle: *mut CuArray, allocate_array: *const CudaArray3dDescriptorV1);
        /// charged by format and extents; sparse and deferred ones cost nothing themselves
        [track] cuArray3DCreate_v2(handle: *mut CuArray, allocate_array: *const CudaArray3dDescriptor);
        [pass] cuArray3DGetDescriptor(array_descriptor: *mut CudaArray3dDescriptorV1, array: CuArray);
        [pass] cuArray3DGetDescriptor_v2(array_descriptor: *mut CudaArray3dDescriptor, array: CuArray);
        /// charged by format and extents of all levels, which are no allocations of their own
        [track] cuMipmappedArrayCreate(
            handle: *mut CuMipmappedArray, mipmapped_array_desc: *const CudaArray3dDescriptor,
            num_mipmap_levels: c_uint,
        );
        [pass] cuMipmappedArrayGetLevel(level_array: *mut CuArray, mipmapped_array: CuMipmappedArray, level: c_uint);
        /// refunded by handle
        [track] cuMipmappedArrayDestroy(mipmapped_array: CuMipmappedArray);
        /// a dma-buf ties the process to its device
        [track] cuMemGetHandleForAddressRange(
            handle: *mut c_void, dptr: CuDevicePtr, size: usize, handle_type: c_int, flags: c_ulonglong,
        );
        [pass] cuMemBatchDecompressAsync(
            params_array: *mut CuMemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize,
            stream: CuStream,
        );
        [pass] cuMemBatchDecompressAsync_ptsz(
            params_array: *mut CuMemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize,
            stream: CuStream,
        );
        [pass] cuMemGetLocationInfo(
            ptr: CuDevicePtr, size: usize, summary_granularity: usize, sampling_granularity: usize,
            location_out: *mut CuMemLocation,
        );
    }
    "Virtual memory management" {
        /// addresses cost nothing
        [pass] cuMemAddressReserve(
            ptr: *mut CuDevicePtr, size: usize, alignment: usize, addr: CuDevicePtr, flags: c_ulonglong,
        );
        [pass] cuMemAddressFree(ptr: CuDevicePtr, size: usize);
        /// charged to the device that the properties name; memory on the host side is not device memory
        [track] cuMemCreate(
            handle: *mut CuMemGenericAllocationHandle, size: usize, prop: *const CuMemAllocationProp,
            flags: c_ulonglong,
        );
        /// refunded when no handle and no mapping is left
        [track] cuMemRelease(handle: CuMemGenericAllocationHandle);
        /// a mapping keeps its memory charged
        [track] cuMemMap(
            ptr: CuDevicePtr, size: usize, offset: usize, handle: CuMemGenericAllocationHandle, flags: c_ulonglong,
        );
        /// tiles are not followed: memory that only they keep is found by the broker's measurement
        [pass] cuMemMapArrayAsync(map_info_list: *mut CuArrayMapInfo, count: c_uint, stream: CuStream);
        /// tiles are not followed: memory that only they keep is found by the broker's measurement
        [pass] cuMemMapArrayAsync_ptsz(map_info_list: *mut CuArrayMapInfo, count: c_uint, stream: CuStream);
        /// refunded when no handle and no mapping is left; one call may end several mappings
        [track] cuMemUnmap(ptr: CuDevicePtr, size: usize);
        [pass] cuMemSetAccess(ptr: CuDevicePtr, size: usize, desc: *const CuMemAccessDesc, count: usize);
        [pass] cuMemGetAccess(flags: *mut c_ulonglong, location: *const CuMemLocation, ptr: CuDevicePtr);
        /// ties the process to its device
        [track] cuMemExportToShareableHandle(
            shareable_handle: *mut c_void, handle: CuMemGenericAllocationHandle, handle_type: c_int, flags: c_ulonglong,
        );
        /// costs nothing: the exporting process is charged; a handle of our own is held once more
        [track] cuMemImportFromShareableHandle(
            handle: *mut CuMemGenericAllocationHandle, os_handle: *mut c_void, sh_handle_type: c_int,
        );
        [pass] cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const CuMemAllocationProp, option: c_int);
        [pass] cuMemGetAllocationPropertiesFromHandle(
            prop: *mut CuMemAllocationProp, handle: CuMemGenericAllocationHandle,
        );
        /// one hold more on memory that is charged
        [track] cuMemRetainAllocationHandle(handle: *mut CuMemGenericAllocationHandle, addr: *mut c_void);
    }
    "Stream ordered memory allocator" {
        /// refunded at the next synchronisation: memory of a pool as far as the pool shrinks, other memory in full
        [track] cuMemFreeAsync(dptr: CuDevicePtr, stream: CuStream);
        /// refunded at the next synchronisation: memory of a pool as far as the pool shrinks, other memory in full
        [track] cuMemFreeAsync_ptsz(dptr: CuDevicePtr, stream: CuStream);
        /// charged by what its pool reserves of the device; nothing while captured
        [answer] cuMemAllocAsync(dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream);
        /// charged by what its pool reserves of the device; nothing while captured
        [answer] cuMemAllocAsync_ptsz(dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream);
        /// refunded by what the pool shrank
        [track] cuMemPoolTrimTo(pool: CuMemoryPool, min_bytes_to_keep: usize);
        /// its release threshold decides when it shrinks
        [track] cuMemPoolSetAttribute(pool: CuMemoryPool, attr: c_int, value: *mut c_void);
        [pass] cuMemPoolGetAttribute(pool: CuMemoryPool, attr: c_int, value: *mut c_void);
        [pass] cuMemPoolSetAccess(pool: CuMemoryPool, map: *const CuMemAccessDesc, count: usize);
        [pass] cuMemPoolGetAccess(flags: *mut c_int, mem_pool: CuMemoryPool, location: *mut CuMemLocation);
        /// charged when it grows; pools of host memory never
        [track] cuMemPoolCreate(pool: *mut CuMemoryPool, pool_props: *const CuMemPoolProps);
        /// refunded, but for allocations that outlive it
        [track] cuMemPoolDestroy(pool: CuMemoryPool);
        [pass] cuMemGetDefaultMemPool(pool_out: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int);
        [pass] cuMemGetMemPool(pool: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int);
        /// later allocations are charged to another pool
        [track] cuMemSetMemPool(location: *mut CuMemLocation, kind: c_int, pool: CuMemoryPool);
        /// charged by what its pool reserves of the device; nothing while captured
        [answer] cuMemAllocFromPoolAsync(dptr: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream);
        /// charged by what its pool reserves of the device; nothing while captured
        [answer] cuMemAllocFromPoolAsync_ptsz(
            dptr: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream
        );
        /// a shared pool ties the process to its device
        [track] cuMemPoolExportToShareableHandle(
            handle_out: *mut c_void, pool: CuMemoryPool, handle_type: c_int, flags: c_ulonglong,
        );
        /// not charged: the exporting process is
        [track] cuMemPoolImportFromShareableHandle(
            pool_out: *mut CuMemoryPool, handle: *mut c_void, handle_type: c_int, flags: c_ulonglong,
        );
        [pass] cuMemPoolExportPointer(share_data_out: *mut CuMemPoolPtrExportData, ptr: CuDevicePtr);
        /// not charged: the exporting process is
        [pass] cuMemPoolImportPointer(
            ptr_out: *mut CuDevicePtr, pool: CuMemoryPool, share_data: *mut CuMemPoolPtrExportData,
        );
    }
    "Multicast object management" {
        /// reserves multicast resources, no device memory of its own; ties the process to its device
        [track] cuMulticastCreate(mc_handle: *mut CuMemGenericAllocationHandle, prop: *const CuMulticastObjectProp);
        [pass] cuMulticastAddDevice(mc_handle: CuMemGenericAllocationHandle, dev: CuDevice);
        /// memory that only a binding keeps is found by the broker's measurement
        [pass] cuMulticastBindMem(
            mc_handle: CuMemGenericAllocationHandle, mc_offset: usize, mem_handle: CuMemGenericAllocationHandle,
            mem_offset: usize, size: usize, flags: c_ulonglong,
        );
        /// memory that only a binding keeps is found by the broker's measurement
        [pass] cuMulticastBindMem_v2(
            mc_handle: CuMemGenericAllocationHandle, dev: CuDevice, mc_offset: usize,
            mem_handle: CuMemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong,
        );
        [pass] cuMulticastBindAddr(
            mc_handle: CuMemGenericAllocationHandle, mc_offset: usize, memptr: CuDevicePtr, size: usize,
            flags: c_ulonglong,
        );
        [pass] cuMulticastBindAddr_v2(
            mc_handle: CuMemGenericAllocationHandle, dev: CuDevice, mc_offset: usize, memptr: CuDevicePtr, size: usize,
            flags: c_ulonglong,
        );
        [pass] cuMulticastUnbind(mc_handle: CuMemGenericAllocationHandle, dev: CuDevice, mc_offset: usize, size: usize);
        [pass] cuMulticastGetGranularity(granularity: *mut usize, prop: *const CuMulticastObjectProp, option: c_int);
    }
    "Unified addressing" {
        [pass] cuPointerGetAttribute(data: *mut c_void, attribute: c_int, ptr: CuDevicePtr);
        /// moves what is charged already
        [gate(Inside(stream))] cuMemPrefetchAsync(
            dev_ptr: CuDevicePtr, count: usize, dst_device: CuDevice, stream: CuStream,
        );
        /// moves what is charged already
        [gate(Inside(stream))] cuMemPrefetchAsync_ptsz(
            dev_ptr: CuDevicePtr, count: usize, dst_device: CuDevice, stream: CuStream,
        );
        /// moves what is charged already
        [gate(Inside(stream))] cuMemPrefetchAsync_v2(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        /// moves what is charged already
        [gate(Inside(stream))] cuMemPrefetchAsync_v2_ptsz(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        /// moves what is charged already
        [pass] cuMemAdvise(dev_ptr: CuDevicePtr, count: usize, advice: c_int, device: CuDevice);
        /// moves what is charged already
        [pass] cuMemAdvise_v2(dev_ptr: CuDevicePtr, count: usize, advice: c_int, location: CuMemLocation);
        [gate(Inside(stream))] cuMemPrefetchBatchAsync(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut CuMemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemPrefetchBatchAsync_ptsz(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut CuMemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CuStream,
        );
        [pass] cuMemDiscardBatchAsync(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CuStream,
        );
        [pass] cuMemDiscardBatchAsync_ptsz(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemDiscardAndPrefetchBatchAsync(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut CuMemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CuStream,
        );
        [gate(Inside(stream))] cuMemDiscardAndPrefetchBatchAsync_ptsz(
            dptrs: *mut CuDevicePtr, sizes: *mut usize, count: usize, prefetch_locs: *mut CuMemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CuStream,
        );
        [pass] cuMemRangeGetAttribute(
            data: *mut c_void, data_size: usize, attribute: c_int, dev_ptr: CuDevicePtr, count: usize,
        );
        [pass] cuMemRangeGetAttributes(
            data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut c_int, num_attributes: usize,
            dev_ptr: CuDevicePtr, count: usize,
        );
        [pass] cuPointerSetAttribute(value: *const c_void, attribute: c_int, ptr: CuDevicePtr);
        [pass] cuPointerGetAttributes(
            num_attributes: c_uint, attributes: *mut c_int, data: *mut *mut c_void, ptr: CuDevicePtr,
        );
    }
    "Peer access" {
        [pass] cuDeviceCanAccessPeer(can_access_peer: *mut c_int, dev: CuDevice, peer_dev: CuDevice);
        [pass] cuCtxEnablePeerAccess(peer_context: CuContext, flags: c_uint);
        [pass] cuCtxDisablePeerAccess(peer_context: CuContext);
        [pass] cuDeviceGetP2PAttribute(value: *mut c_int, attrib: c_int, src_device: CuDevice, dst_device: CuDevice);
        [pass] cuDeviceGetP2PAtomicCapabilities(
            capabilities: *mut c_uint, operations: *const c_int, count: c_uint, src_device: CuDevice,
            dst_device: CuDevice,
        );
    }
    "Stream management" {
        [pass] cuStreamCreate(stream: *mut CuStream, flags: c_uint);
        [pass] cuStreamCreateWithPriority(stream: *mut CuStream, flags: c_uint, priority: c_int);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCaptureToCig(stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCaptureToCig_ptsz(
            stream: CuStream, stream_cig_capture_params: *mut CuStreamCigCaptureParams,
        );
        [pass] cuStreamEndCaptureToCig(stream: CuStream);
        [pass] cuStreamEndCaptureToCig_ptsz(stream: CuStream);
        [pass] cuStreamGetPriority(stream: CuStream, priority: *mut c_int);
        [pass] cuStreamGetPriority_ptsz(stream: CuStream, priority: *mut c_int);
        [pass] cuStreamGetDevice(stream: CuStream, device: *mut CuDevice);
        [pass] cuStreamGetDevice_ptsz(stream: CuStream, device: *mut CuDevice);
        [pass] cuStreamGetFlags(stream: CuStream, flags: *mut c_uint);
        [pass] cuStreamGetFlags_ptsz(stream: CuStream, flags: *mut c_uint);
        [pass] cuStreamGetId(stream: CuStream, stream_id: *mut c_ulonglong);
        [pass] cuStreamGetId_ptsz(stream: CuStream, stream_id: *mut c_ulonglong);
        [pass] cuStreamGetCtx(stream: CuStream, ctx: *mut CuContext);
        [pass] cuStreamGetCtx_ptsz(stream: CuStream, ctx: *mut CuContext);
        [pass] cuStreamGetCtx_v2(stream: CuStream, ctx: *mut CuContext, green_ctx: *mut CuGreenCtx);
        [pass] cuStreamGetCtx_v2_ptsz(stream: CuStream, ctx: *mut CuContext, green_ctx: *mut CuGreenCtx);
        [settle(stream)] cuStreamWaitEvent(stream: CuStream, event: CuEvent, flags: c_uint);
        [settle(stream)] cuStreamWaitEvent_ptsz(stream: CuStream, event: CuEvent, flags: c_uint);
        [settle(stream)] cuStreamAddCallback(
            stream: CuStream, callback: CuStreamCallback, user_data: *mut c_void, flags: c_uint
        );
        [settle(stream)] cuStreamAddCallback_ptsz(
            stream: CuStream, callback: CuStreamCallback, user_data: *mut c_void, flags: c_uint,
        );
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCapture(stream: CuStream);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCapture_ptsz(stream: CuStream);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCapture_v2(stream: CuStream, mode: c_int);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCapture_v2_ptsz(stream: CuStream, mode: c_int);
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginRecaptureToGraph(
            stream: CuStream, mode: c_int, graph: CuGraph, callback_func: CuGraphRecaptureCallback,
            user_data: *mut c_void,
        );
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginRecaptureToGraph_ptsz(
            stream: CuStream, mode: c_int, graph: CuGraph, callback_func: CuGraphRecaptureCallback,
            user_data: *mut c_void,
        );
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCaptureToGraph(
            stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, mode: c_int,
        );
        /// from then on streams are asked whether they are captured
        [track] cuStreamBeginCaptureToGraph_ptsz(
            stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, mode: c_int,
        );
        [pass] cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
        [pass] cuStreamEndCapture(stream: CuStream, graph: *mut CuGraph);
        [pass] cuStreamEndCapture_ptsz(stream: CuStream, graph: *mut CuGraph);
        [pass] cuStreamIsCapturing(stream: CuStream, capture_status: *mut c_int);
        [pass] cuStreamIsCapturing_ptsz(stream: CuStream, capture_status: *mut c_int);
        [pass] cuStreamGetCaptureInfo(stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64);
        [pass] cuStreamGetCaptureInfo_ptsz(stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64);
        [pass] cuStreamGetCaptureInfo_v2(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, num_dependencies_out: *mut usize,
        );
        [pass] cuStreamGetCaptureInfo_v2_ptsz(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, num_dependencies_out: *mut usize,
        );
        [pass] cuStreamGetCaptureInfo_v3(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [pass] cuStreamGetCaptureInfo_v3_ptsz(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [pass] cuStreamUpdateCaptureDependencies(
            stream: CuStream, dependencies: *mut CuGraphNode, num_dependencies: usize, flags: c_uint,
        );
        [pass] cuStreamUpdateCaptureDependencies_ptsz(
            stream: CuStream, dependencies: *mut CuGraphNode, num_dependencies: usize, flags: c_uint,
        );
        [pass] cuStreamUpdateCaptureDependencies_v2(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [pass] cuStreamUpdateCaptureDependencies_v2_ptsz(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [pass] cuStreamAttachMemAsync(stream: CuStream, dptr: CuDevicePtr, length: usize, flags: c_uint);
        [pass] cuStreamAttachMemAsync_ptsz(stream: CuStream, dptr: CuDevicePtr, length: usize, flags: c_uint);
        [settle(stream)] cuStreamQuery(stream: CuStream);
        [settle(stream)] cuStreamQuery_ptsz(stream: CuStream);
        /// pools may have shrunk
        [track] cuStreamSynchronize(stream: CuStream);
        /// pools may have shrunk
        [track] cuStreamSynchronize_ptsz(stream: CuStream);
        [track] cuStreamDestroy(stream: CuStream);
        [track] cuStreamDestroy_v2(stream: CuStream);
        [pass] cuStreamCopyAttributes(dst_stream: CuStream, src_stream: CuStream);
        [pass] cuStreamCopyAttributes_ptsz(dst_stream: CuStream, src_stream: CuStream);
        [pass] cuStreamGetAttribute(stream: CuStream, attr: c_int, value: *mut CuLaunchAttributeValue);
        [pass] cuStreamGetAttribute_ptsz(stream: CuStream, attr: c_int, value: *mut CuLaunchAttributeValue);
        [pass] cuStreamSetAttribute(stream: CuStream, attr: c_int, param: *const CuLaunchAttributeValue);
        [pass] cuStreamSetAttribute_ptsz(stream: CuStream, attr: c_int, param: *const CuLaunchAttributeValue);
    }
    "Event management" {
        [pass] cuEventCreate(event: *mut CuEvent, flags: c_uint);
        [settle(stream)] cuEventRecord(event: CuEvent, stream: CuStream);
        [settle(stream)] cuEventRecord_ptsz(event: CuEvent, stream: CuStream);
        [settle(stream)] cuEventRecordWithFlags(event: CuEvent, stream: CuStream, flags: c_uint);
        [settle(stream)] cuEventRecordWithFlags_ptsz(event: CuEvent, stream: CuStream, flags: c_uint);
        [pass] cuEventQuery(event: CuEvent);
        /// pools may have shrunk
        [track] cuEventSynchronize(event: CuEvent);
        [pass] cuEventDestroy(event: CuEvent);
        [pass] cuEventDestroy_v2(event: CuEvent);
        [pass] cuEventElapsedTime(milliseconds: *mut f32, start: CuEvent, end: CuEvent);
        [pass] cuEventElapsedTime_v2(milliseconds: *mut f32, start: CuEvent, end: CuEvent);
    }
    "Stream memory operations" {
        [settle(stream)] cuStreamWaitValue32(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [settle(stream)] cuStreamWaitValue32_ptsz(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [settle(stream)] cuStreamWaitValue32_v2(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [settle(stream)] cuStreamWaitValue32_v2_ptsz(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [settle(stream)] cuStreamWaitValue64(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [settle(stream)] cuStreamWaitValue64_ptsz(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [settle(stream)] cuStreamWaitValue64_v2(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [settle(stream)] cuStreamWaitValue64_v2_ptsz(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [pass] cuStreamWriteValue32(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [pass] cuStreamWriteValue32_ptsz(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [pass] cuStreamWriteValue32_v2(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [pass] cuStreamWriteValue32_v2_ptsz(stream: CuStream, addr: CuDevicePtr, value: u32, flags: c_uint);
        [pass] cuStreamWriteValue64(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [pass] cuStreamWriteValue64_ptsz(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [pass] cuStreamWriteValue64_v2(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [pass] cuStreamWriteValue64_v2_ptsz(stream: CuStream, addr: CuDevicePtr, value: u64, flags: c_uint);
        [pass] cuStreamBatchMemOp(
            stream: CuStream, count: c_uint, param_array: *mut CuStreamBatchMemOpParams, flags: c_uint,
        );
        [pass] cuStreamBatchMemOp_ptsz(
            stream: CuStream, count: c_uint, param_array: *mut CuStreamBatchMemOpParams, flags: c_uint,
        );
        [pass] cuStreamBatchMemOp_v2(
            stream: CuStream, count: c_uint, param_array: *mut CuStreamBatchMemOpParams, flags: c_uint,
        );
        [pass] cuStreamBatchMemOp_v2_ptsz(
            stream: CuStream, count: c_uint, param_array: *mut CuStreamBatchMemOpParams, flags: c_uint,
        );
    }
    "Graph management" {
        [pass] cuGraphCreate(graph: *mut CuGraph, flags: c_uint);
        [pass] cuGraphAddKernelNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaKernelNodeParamsV1,
        );
        [pass] cuGraphAddKernelNode_v2(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaKernelNodeParams,
        );
        [pass] cuGraphKernelNodeGetParams(node: CuGraphNode, node_params: *mut CudaKernelNodeParamsV1);
        [pass] cuGraphKernelNodeGetParams_v2(node: CuGraphNode, node_params: *mut CudaKernelNodeParams);
        [pass] cuGraphKernelNodeSetParams(node: CuGraphNode, node_params: *const CudaKernelNodeParamsV1);
        [pass] cuGraphKernelNodeSetParams_v2(node: CuGraphNode, node_params: *const CudaKernelNodeParams);
        [pass] cuGraphAddMemcpyNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            copy_params: *const CudaMemcpy3d, ctx: CuContext,
        );
        [pass] cuGraphMemcpyNodeGetParams(node: CuGraphNode, node_params: *mut CudaMemcpy3d);
        [pass] cuGraphMemcpyNodeSetParams(node: CuGraphNode, node_params: *const CudaMemcpy3d);
        [pass] cuGraphAddMemsetNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            memset_params: *const CudaMemsetNodeParams, ctx: CuContext,
        );
        [pass] cuGraphMemsetNodeGetParams(node: CuGraphNode, node_params: *mut CudaMemsetNodeParams);
        [pass] cuGraphMemsetNodeSetParams(node: CuGraphNode, node_params: *const CudaMemsetNodeParams);
        [pass] cuGraphAddHostNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaHostNodeParams,
        );
        [pass] cuGraphHostNodeGetParams(node: CuGraphNode, node_params: *mut CudaHostNodeParams);
        [pass] cuGraphHostNodeSetParams(node: CuGraphNode, node_params: *const CudaHostNodeParams);
        [pass] cuGraphAddChildGraphNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            child_graph: CuGraph,
        );
        [pass] cuGraphChildGraphNodeGetGraph(node: CuGraphNode, graph: *mut CuGraph);
        [pass] cuGraphAddEmptyNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
        );
        [pass] cuGraphAddEventRecordNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            event: CuEvent,
        );
        [pass] cuGraphEventRecordNodeGetEvent(node: CuGraphNode, event_out: *mut CuEvent);
        [pass] cuGraphEventRecordNodeSetEvent(node: CuGraphNode, event: CuEvent);
        [pass] cuGraphAddEventWaitNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            event: CuEvent,
        );
        [pass] cuGraphEventWaitNodeGetEvent(node: CuGraphNode, event_out: *mut CuEvent);
        [pass] cuGraphEventWaitNodeSetEvent(node: CuGraphNode, event: CuEvent);
        [pass] cuGraphAddExternalSemaphoresSignalNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaExtSemSignalNodeParams,
        );
        [pass] cuGraphExternalSemaphoresSignalNodeGetParams(
            node: CuGraphNode, params_out: *mut CudaExtSemSignalNodeParams,
        );
        [pass] cuGraphExternalSemaphoresSignalNodeSetParams(
            node: CuGraphNode, node_params: *const CudaExtSemSignalNodeParams,
        );
        [pass] cuGraphAddExternalSemaphoresWaitNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaExtSemWaitNodeParams,
        );
        [pass] cuGraphExternalSemaphoresWaitNodeGetParams(node: CuGraphNode, params_out: *mut CudaExtSemWaitNodeParams);
        [pass] cuGraphExternalSemaphoresWaitNodeSetParams(
            node: CuGraphNode, node_params: *const CudaExtSemWaitNodeParams,
        );
        [pass] cuGraphAddBatchMemOpNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaBatchMemOpNodeParams,
        );
        [pass] cuGraphBatchMemOpNodeGetParams(node: CuGraphNode, node_params_out: *mut CudaBatchMemOpNodeParams);
        [pass] cuGraphBatchMemOpNodeSetParams(node: CuGraphNode, node_params: *const CudaBatchMemOpNodeParams);
        [pass] cuGraphExecBatchMemOpNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaBatchMemOpNodeParams,
        );
        /// charged when the graph is launched
        [track] cuGraphAddMemAllocNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *mut CudaMemAllocNodeParams,
        );
        [pass] cuGraphMemAllocNodeGetParams(node: CuGraphNode, params_out: *mut CudaMemAllocNodeParams);
        [pass] cuGraphAddMemFreeNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            dptr: CuDevicePtr,
        );
        [pass] cuGraphMemFreeNodeGetParams(node: CuGraphNode, dptr_out: *mut CuDevicePtr);
        /// refunded by what the device's graphs give up
        [track] cuDeviceGraphMemTrim(device: CuDevice);
        [pass] cuDeviceGetGraphMemAttribute(device: CuDevice, attr: c_int, value: *mut c_void);
        [pass] cuDeviceSetGraphMemAttribute(device: CuDevice, attr: c_int, value: *mut c_void);
        [pass] cuGraphClone(graph_clone: *mut CuGraph, original_graph: CuGraph);
        [pass] cuGraphNodeFindInClone(node: *mut CuGraphNode, original_node: CuGraphNode, cloned_graph: CuGraph);
        [pass] cuGraphNodeGetType(node: CuGraphNode, kind: *mut c_int);
        [pass] cuGraphNodeGetContainingGraph(node: CuGraphNode, graph: *mut CuGraph);
        [pass] cuGraphNodeGetLocalId(node: CuGraphNode, node_id: *mut c_uint);
        [pass] cuGraphNodeGetToolsId(node: CuGraphNode, tools_node_id: *mut c_ulonglong);
        [pass] cuGraphGetId(graph: CuGraph, graph_id: *mut c_uint);
        [pass] cuGraphExecGetId(graph_exec: CuGraphExec, graph_id: *mut c_uint);
        [pass] cuGraphGetNodes(graph: CuGraph, nodes: *mut CuGraphNode, num_nodes: *mut usize);
        [pass] cuGraphGetRootNodes(graph: CuGraph, root_nodes: *mut CuGraphNode, num_root_nodes: *mut usize);
        [pass] cuGraphGetEdges(graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, num_edges: *mut usize);
        [pass] cuGraphGetEdges_v2(
            graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_edges: *mut usize,
        );
        [pass] cuGraphNodeGetDependencies(
            node: CuGraphNode, dependencies: *mut CuGraphNode, num_dependencies: *mut usize,
        );
        [pass] cuGraphNodeGetDependencies_v2(
            node: CuGraphNode, dependencies: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependencies: *mut usize,
        );
        [pass] cuGraphNodeGetDependentNodes(
            node: CuGraphNode, dependent_nodes: *mut CuGraphNode, num_dependent_nodes: *mut usize,
        );
        [pass] cuGraphNodeGetDependentNodes_v2(
            node: CuGraphNode, dependent_nodes: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependent_nodes: *mut usize,
        );
        [pass] cuGraphAddDependencies(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, num_dependencies: usize,
        );
        [pass] cuGraphAddDependencies_v2(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [pass] cuGraphRemoveDependencies(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, num_dependencies: usize,
        );
        [pass] cuGraphRemoveDependencies_v2(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [pass] cuGraphDestroyNode(node: CuGraphNode);
        /// finds what its launches take
        [track] cuGraphInstantiateWithFlags(graph_exec: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong);
        /// finds what its launches take; charged at once when it is uploaded
        [answer] cuGraphInstantiateWithParams(
            graph_exec: *mut CuGraphExec, graph: CuGraph, instantiate_params: *mut CudaGraphInstantiateParams,
        );
        /// finds what its launches take; charged at once when it is uploaded
        [answer] cuGraphInstantiateWithParams_ptsz(
            graph_exec: *mut CuGraphExec, graph: CuGraph, instantiate_params: *mut CudaGraphInstantiateParams,
        );
        [pass] cuGraphExecGetFlags(graph_exec: CuGraphExec, flags: *mut u64);
        [pass] cuGraphExecKernelNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaKernelNodeParamsV1,
        );
        [pass] cuGraphExecKernelNodeSetParams_v2(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaKernelNodeParams,
        );
        [pass] cuGraphExecMemcpyNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, copy_params: *const CudaMemcpy3d, ctx: CuContext,
        );
        [pass] cuGraphExecMemsetNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, memset_params: *const CudaMemsetNodeParams, ctx: CuContext,
        );
        [pass] cuGraphExecHostNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaHostNodeParams,
        );
        [pass] cuGraphExecChildGraphNodeSetParams(graph_exec: CuGraphExec, node: CuGraphNode, child_graph: CuGraph);
        [pass] cuGraphExecEventRecordNodeSetEvent(graph_exec: CuGraphExec, node: CuGraphNode, event: CuEvent);
        [pass] cuGraphExecEventWaitNodeSetEvent(graph_exec: CuGraphExec, node: CuGraphNode, event: CuEvent);
        [pass] cuGraphExecExternalSemaphoresSignalNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaExtSemSignalNodeParams,
        );
        [pass] cuGraphExecExternalSemaphoresWaitNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaExtSemWaitNodeParams,
        );
        [pass] cuGraphNodeSetEnabled(graph_exec: CuGraphExec, node: CuGraphNode, is_enabled: c_uint);
        [pass] cuGraphNodeGetEnabled(graph_exec: CuGraphExec, node: CuGraphNode, is_enabled: *mut c_uint);
        /// charged by what the device's graphs reserve
        [answer] cuGraphUpload(graph: CuGraphExec, stream: CuStream);
        /// charged by what the device's graphs reserve
        [answer] cuGraphUpload_ptsz(graph: CuGraphExec, stream: CuStream);
        /// charged by what the device's graphs reserve
        [answer] cuGraphLaunch(graph: CuGraphExec, stream: CuStream);
        /// charged by what the device's graphs reserve
        [answer] cuGraphLaunch_ptsz(graph: CuGraphExec, stream: CuStream);
        /// refunded by what the device's graphs give up
        [track] cuGraphExecDestroy(graph_exec: CuGraphExec);
        [pass] cuGraphDestroy(graph: CuGraph);
        /// finds what its launches take
        [track] cuGraphExecUpdate(
            graph_exec: CuGraphExec, graph: CuGraph, error_node_out: *mut CuGraphNode, update_result_out: *mut c_int,
        );
        /// finds what its launches take
        [track] cuGraphExecUpdate_v2(
            graph_exec: CuGraphExec, graph: CuGraph, result_info: *mut CuGraphExecUpdateResultInfo,
        );
        [pass] cuGraphKernelNodeCopyAttributes(dst: CuGraphNode, src: CuGraphNode);
        [pass] cuGraphKernelNodeGetAttribute(node: CuGraphNode, attr: c_int, value_out: *mut CuLaunchAttributeValue);
        [pass] cuGraphKernelNodeSetAttribute(node: CuGraphNode, attr: c_int, value: *const CuLaunchAttributeValue);
        [pass] cuGraphDebugDotPrint(graph: CuGraph, path: *const c_char, flags: c_uint);
        [pass] cuUserObjectCreate(
            object_out: *mut CuUserObject, ptr: *mut c_void, destroy: CuHostFn, initial_refcount: c_uint, flags: c_uint,
        );
        [pass] cuUserObjectRetain(object: CuUserObject, count: c_uint);
        [pass] cuUserObjectRelease(object: CuUserObject, count: c_uint);
        [pass] cuGraphRetainUserObject(graph: CuGraph, object: CuUserObject, count: c_uint, flags: c_uint);
        [pass] cuGraphReleaseUserObject(graph: CuGraph, object: CuUserObject, count: c_uint);
        /// allocation nodes are charged when the graph is launched
        [track] cuGraphAddNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *mut CuGraphNodeParams,
        );
        /// allocation nodes are charged when the graph is launched
        [track] cuGraphAddNode_v2(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode,
            dependency_data: *const CuGraphEdgeData, num_dependencies: usize, node_params: *mut CuGraphNodeParams,
        );
        /// allocation nodes are charged when the graph is launched
        [track] cuGraphAddNode_v3(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode,
            dependency_data: *const CuGraphEdgeData, num_dependencies: usize, node_params: *mut CuGraphNodeParams,
        );
        [pass] cuGraphNodeSetParams(node: CuGraphNode, node_params: *mut CuGraphNodeParams);
        [pass] cuGraphNodeSetParams_v2(node: CuGraphNode, node_params: *mut CuGraphNodeParams);
        [pass] cuGraphNodeGetParams(node: CuGraphNode, node_params: *mut CuGraphNodeParams);
        [pass] cuGraphExecNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *mut CuGraphNodeParams,
        );
        [pass] cuGraphConditionalHandleCreate(
            handle_out: *mut CuGraphConditionalHandle, graph: CuGraph, ctx: CuContext, default_launch_value: c_uint,
            flags: c_uint,
        );
        /// finds what its launches take
        [track] cuGraphInstantiate(
            graph_exec: *mut CuGraphExec, graph: CuGraph, error_node: *mut CuGraphNode, log_buffer: *mut c_char,
            buffer_size: usize,
        );
        /// finds what its launches take
        [track] cuGraphInstantiate_v2(
            graph_exec: *mut CuGraphExec, graph: CuGraph, error_node: *mut CuGraphNode, log_buffer: *mut c_char,
            buffer_size: usize,
        );
    }
    "External resource interoperability" {
        /// memory that another API allocated; costs nothing here; ties the process to its device
        [track] cuImportExternalMemory(
            ext_mem_out: *mut CuExternalMemory, mem_handle_desc: *const CudaExternalMemoryHandleDesc,
        );
        /// memory that another API allocated; costs nothing here
        [pass] cuExternalMemoryGetMappedBuffer(
            dev_ptr: *mut CuDevicePtr, ext_mem: CuExternalMemory, buffer_desc: *const CudaExternalMemoryBufferDesc,
        );
        /// memory that another API allocated; costs nothing here
        [pass] cuExternalMemoryGetMappedMipmappedArray(
            mipmap: *mut CuMipmappedArray, ext_mem: CuExternalMemory,
            mipmap_desc: *const CudaExternalMemoryMipmappedArrayDesc,
        );
        [pass] cuDestroyExternalMemory(ext_mem: CuExternalMemory);
        /// ties the process to its device
        [track] cuImportExternalSemaphore(
            ext_sem_out: *mut CuExternalSemaphore, sem_handle_desc: *const CudaExternalSemaphoreHandleDesc,
        );
        [pass] cuSignalExternalSemaphoresAsync(
            ext_sem_array: *const CuExternalSemaphore, params_array: *const CudaExternalSemaphoreSignalParams,
            num_ext_sems: c_uint, stream: CuStream,
        );
        [pass] cuSignalExternalSemaphoresAsync_ptsz(
            ext_sem_array: *const CuExternalSemaphore, params_array: *const CudaExternalSemaphoreSignalParams,
            num_ext_sems: c_uint, stream: CuStream,
        );
        [pass] cuWaitExternalSemaphoresAsync(
            ext_sem_array: *const CuExternalSemaphore, params_array: *const CudaExternalSemaphoreWaitParams,
            num_ext_sems: c_uint, stream: CuStream,
        );
        [pass] cuWaitExternalSemaphoresAsync_ptsz(
            ext_sem_array: *const CuExternalSemaphore, params_array: *const CudaExternalSemaphoreWaitParams,
            num_ext_sems: c_uint, stream: CuStream,
        );
        [pass] cuDestroyExternalSemaphore(ext_sem: CuExternalSemaphore);
    }
    "Texture and surface objects" {
        [pass] cuTexObjectCreate(
            tex_object: *mut CuTexObject, res_desc: *const CudaResourceDesc, tex_desc: *const CudaTextureDesc,
            res_view_desc: *const CudaResourceViewDesc,
        );
        [pass] cuTexObjectDestroy(tex_object: CuTexObject);
        [pass] cuTexObjectGetResourceDesc(res_desc: *mut CudaResourceDesc, tex_object: CuTexObject);
        [pass] cuTexObjectGetTextureDesc(tex_desc: *mut CudaTextureDesc, tex_object: CuTexObject);
        [pass] cuTexObjectGetResourceViewDesc(res_view_desc: *mut CudaResourceViewDesc, tex_object: CuTexObject);
        [pass] cuSurfObjectCreate(surf_object: *mut CuSurfObject, res_desc: *const CudaResourceDesc);
        [pass] cuSurfObjectDestroy(surf_object: CuSurfObject);
        [pass] cuSurfObjectGetResourceDesc(res_desc: *mut CudaResourceDesc, surf_object: CuSurfObject);
    }
    "Texture and surface references" {
        [pass] cuTexRefSetArray(tex_ref: CuTexref, array: CuArray, flags: c_uint);
        [pass] cuTexRefSetMipmappedArray(tex_ref: CuTexref, mipmapped_array: CuMipmappedArray, flags: c_uint);
        [pass] cuTexRefSetAddress(byte_offset: *mut c_uint, tex_ref: CuTexref, dptr: CuDevicePtrV1, bytes: c_uint);
        [pass] cuTexRefSetAddress_v2(byte_offset: *mut usize, tex_ref: CuTexref, dptr: CuDevicePtr, bytes: usize);
        [pass] cuTexRefSetAddress2D(
            tex_ref: CuTexref, desc: *const CudaArrayDescriptorV1, dptr: CuDevicePtrV1, pitch: c_uint,
        );
        [pass] cuTexRefSetAddress2D_v2(
            tex_ref: CuTexref, desc: *const CudaArrayDescriptor, dptr: CuDevicePtr, pitch: usize,
        );
        [pass] cuTexRefSetAddress2D_v3(
            tex_ref: CuTexref, desc: *const CudaArrayDescriptor, dptr: CuDevicePtr, pitch: usize,
        );
        [pass] cuTexRefSetFormat(tex_ref: CuTexref, fmt: c_int, num_packed_components: c_int);
        [pass] cuTexRefSetAddressMode(tex_ref: CuTexref, dim: c_int, am: c_int);
        [pass] cuTexRefSetFilterMode(tex_ref: CuTexref, fm: c_int);
        [pass] cuTexRefSetMipmapFilterMode(tex_ref: CuTexref, fm: c_int);
        [pass] cuTexRefSetMipmapLevelBias(tex_ref: CuTexref, bias: f32);
        [pass] cuTexRefSetMipmapLevelClamp(tex_ref: CuTexref, min_mipmap_level_clamp: f32, max_mipmap_level_clamp: f32);
        [pass] cuTexRefSetMaxAnisotropy(tex_ref: CuTexref, max_aniso: c_uint);
        [pass] cuTexRefSetBorderColor(tex_ref: CuTexref, border_color: *mut f32);
        [pass] cuTexRefSetFlags(tex_ref: CuTexref, flags: c_uint);
        [pass] cuTexRefGetAddress(dptr: *mut CuDevicePtrV1, tex_ref: CuTexref);
        [pass] cuTexRefGetAddress_v2(dptr: *mut CuDevicePtr, tex_ref: CuTexref);
        [pass] cuTexRefGetArray(array: *mut CuArray, tex_ref: CuTexref);
        [pass] cuTexRefGetMipmappedArray(mipmapped_array: *mut CuMipmappedArray, tex_ref: CuTexref);
        [pass] cuTexRefGetAddressMode(pam: *mut c_int, tex_ref: CuTexref, dim: c_int);
        [pass] cuTexRefGetFilterMode(pfm: *mut c_int, tex_ref: CuTexref);
        [pass] cuTexRefGetFormat(format: *mut c_int, num_channels: *mut c_int, tex_ref: CuTexref);
        [pass] cuTexRefGetMipmapFilterMode(pfm: *mut c_int, tex_ref: CuTexref);
        [pass] cuTexRefGetMipmapLevelBias(pbias: *mut f32, tex_ref: CuTexref);
        [pass] cuTexRefGetMipmapLevelClamp(
            pmin_mipmap_level_clamp: *mut f32, pmax_mipmap_level_clamp: *mut f32, tex_ref: CuTexref,
        );
        [pass] cuTexRefGetMaxAnisotropy(pmax_aniso: *mut c_int, tex_ref: CuTexref);
        [pass] cuTexRefGetBorderColor(border_color: *mut f32, tex_ref: CuTexref);
        [pass] cuTexRefGetFlags(flags: *mut c_uint, tex_ref: CuTexref);
        [pass] cuTexRefCreate(tex_ref: *mut CuTexref);
        [pass] cuTexRefDestroy(tex_ref: CuTexref);
        [pass] cuSurfRefSetArray(surf_ref: CuSurfref, array: CuArray, flags: c_uint);
        [pass] cuSurfRefGetArray(array: *mut CuArray, surf_ref: CuSurfref);
    }
    "Tensor map object management" {
        [pass] cuTensorMapEncodeTiled(
            tensor_map: *mut CuTensorMap, tensor_data_type: c_int, tensor_rank: u32, global_address: *mut c_void,
            global_dim: *const u64, global_strides: *const u64, box_dim: *const u32, element_strides: *const u32,
            interleave: c_int, swizzle: c_int, l2_promotion: c_int, oob_fill: c_int,
        );
        [pass] cuTensorMapEncodeIm2col(
            tensor_map: *mut CuTensorMap, tensor_data_type: c_int, tensor_rank: u32, global_address: *mut c_void,
            global_dim: *const u64, global_strides: *const u64, pixel_box_lower_corner: *const c_int,
            pixel_box_upper_corner: *const c_int, channels_per_pixel: u32, pixels_per_column: u32,
            element_strides: *const u32, interleave: c_int, swizzle: c_int, l2_promotion: c_int, oob_fill: c_int,
        );
        [pass] cuTensorMapEncodeIm2colWide(
            tensor_map: *mut CuTensorMap, tensor_data_type: c_int, tensor_rank: u32, global_address: *mut c_void,
            global_dim: *const u64, global_strides: *const u64, pixel_box_lower_corner_width: c_int,
            pixel_box_upper_corner_width: c_int, channels_per_pixel: u32, pixels_per_column: u32,
            element_strides: *const u32, interleave: c_int, mode: c_int, swizzle: c_int, l2_promotion: c_int,
            oob_fill: c_int,
        );
        [pass] cuTensorMapReplaceAddress(tensor_map: *mut CuTensorMap, global_address: *mut c_void);
        [pass] cuTensorMapSetAllocationClass(
            tensor_map: *mut CuTensorMap, alloc_class: c_int, out_alloc_class: *mut c_int,
        );
    }
    "Graphics interoperability" {
        [pass] cuGraphicsUnregisterResource(resource: CuGraphicsResource);
        [pass] cuGraphicsSubResourceGetMappedArray(
            array: *mut CuArray, resource: CuGraphicsResource, array_index: c_uint, mip_level: c_uint,
        );
        [pass] cuGraphicsResourceGetMappedMipmappedArray(
            mipmapped_array: *mut CuMipmappedArray, resource: CuGraphicsResource,
        );
        [pass] cuGraphicsResourceGetMappedPointer(
            dev_ptr: *mut CuDevicePtrV1, size: *mut c_uint, resource: CuGraphicsResource,
        );
        [pass] cuGraphicsResourceGetMappedPointer_v2(
            dev_ptr: *mut CuDevicePtr, size: *mut usize, resource: CuGraphicsResource,
        );
        [pass] cuGraphicsResourceSetMapFlags(resource: CuGraphicsResource, flags: c_uint);
        [pass] cuGraphicsResourceSetMapFlags_v2(resource: CuGraphicsResource, flags: c_uint);
        [pass] cuGraphicsMapResources(count: c_uint, resources: *mut CuGraphicsResource, stream: CuStream);
        [pass] cuGraphicsMapResources_ptsz(count: c_uint, resources: *mut CuGraphicsResource, stream: CuStream);
        [pass] cuGraphicsUnmapResources(count: c_uint, resources: *mut CuGraphicsResource, stream: CuStream);
        [pass] cuGraphicsUnmapResources_ptsz(count: c_uint, resources: *mut CuGraphicsResource, stream: CuStream);
    }
    "OpenGL interoperability" {
        /// graphics tie the process to its device
        [track] cuGraphicsGLRegisterBuffer(cuda_resource: *mut CuGraphicsResource, buffer: c_uint, flags: c_uint);
        /// graphics tie the process to its device
        [track] cuGraphicsGLRegisterImage(
            cuda_resource: *mut CuGraphicsResource, image: c_uint, target: c_uint, flags: c_uint,
        );
        [pass] cuGLGetDevices(
            p_cuda_device_count: *mut c_uint, p_cuda_devices: *mut CuDevice, cuda_device_count: c_uint,
            device_list: c_int,
        );
        [pass] cuGLGetDevices_v2(
            p_cuda_device_count: *mut c_uint, p_cuda_devices: *mut CuDevice, cuda_device_count: c_uint,
            device_list: c_int,
        );
        /// announced before and measured after, undone where it does not fit
        [track] cuGLCtxCreate(ctx: *mut CuContext, flags: c_uint, device: CuDevice);
        /// announced before and measured after, undone where it does not fit
        [track] cuGLCtxCreate_v2(ctx: *mut CuContext, flags: c_uint, device: CuDevice);
        [pass] cuGLInit();
        /// graphics tie the process to its device
        [track] cuGLRegisterBufferObject(buffer: c_uint);
        [pass] cuGLMapBufferObject(dptr: *mut CuDevicePtrV1, size: *mut c_uint, buffer: c_uint);
        [pass] cuGLMapBufferObject_v2(dptr: *mut CuDevicePtr, size: *mut usize, buffer: c_uint);
        [pass] cuGLMapBufferObject_v2_ptds(dptr: *mut CuDevicePtr, size: *mut usize, buffer: c_uint);
        [pass] cuGLUnmapBufferObject(buffer: c_uint);
        [pass] cuGLUnregisterBufferObject(buffer: c_uint);
        [pass] cuGLSetBufferObjectMapFlags(buffer: c_uint, flags: c_uint);
        [pass] cuGLMapBufferObjectAsync(dptr: *mut CuDevicePtrV1, size: *mut c_uint, buffer: c_uint, stream: CuStream);
        [pass] cuGLMapBufferObjectAsync_v2(dptr: *mut CuDevicePtr, size: *mut usize, buffer: c_uint, stream: CuStream);
        [pass] cuGLMapBufferObjectAsync_v2_ptsz(
            dptr: *mut CuDevicePtr, size: *mut usize, buffer: c_uint, stream: CuStream,
        );
        [pass] cuGLUnmapBufferObjectAsync(buffer: c_uint, stream: CuStream);
    }
    "EGL interoperability" {
        /// graphics tie the process to its device
        [track] cuGraphicsEGLRegisterImage(cuda_resource: *mut CuGraphicsResource, image: *mut c_void, flags: c_uint);
        /// graphics tie the process to its device
        [track] cuEGLStreamConsumerConnect(conn: *mut CuEglStreamConnection, stream: *mut c_void);
        /// graphics tie the process to its device
        [track] cuEGLStreamConsumerConnectWithFlags(
            conn: *mut CuEglStreamConnection, stream: *mut c_void, flags: c_uint,
        );
        [pass] cuEGLStreamConsumerDisconnect(conn: *mut CuEglStreamConnection);
        [pass] cuEGLStreamConsumerAcquireFrame(
            conn: *mut CuEglStreamConnection, cuda_resource: *mut CuGraphicsResource, stream: *mut CuStream,
            timeout: c_uint,
        );
        [pass] cuEGLStreamConsumerReleaseFrame(
            conn: *mut CuEglStreamConnection, cuda_resource: CuGraphicsResource, stream: *mut CuStream,
        );
        /// graphics tie the process to its device
        [track] cuEGLStreamProducerConnect(
            conn: *mut CuEglStreamConnection, stream: *mut c_void, width: c_int, height: c_int,
        );
        [pass] cuEGLStreamProducerDisconnect(conn: *mut CuEglStreamConnection);
        [pass] cuEGLStreamProducerPresentFrame(
            conn: *mut CuEglStreamConnection, eglframe: CuEglFrame, stream: *mut CuStream,
        );
        [pass] cuEGLStreamProducerReturnFrame(
            conn: *mut CuEglStreamConnection, eglframe: *mut CuEglFrame, stream: *mut CuStream,
        );
        /// graphics tie the process to its device
        [track] cuEventCreateFromEGLSync(event: *mut CuEvent, egl_sync: *mut c_void, flags: c_uint);
    }
    "VDPAU interoperability" {
        [pass] cuVDPAUGetDevice(device: *mut CuDevice, vdp_device: u32, vdp_get_proc_address: *mut c_void);
        /// announced before and measured after, undone where it does not fit
        [track] cuVDPAUCtxCreate(
            ctx: *mut CuContext, flags: c_uint, device: CuDevice, vdp_device: u32, vdp_get_proc_address: *mut c_void,
        );
        /// announced before and measured after, undone where it does not fit
        [track] cuVDPAUCtxCreate_v2(
            ctx: *mut CuContext, flags: c_uint, device: CuDevice, vdp_device: u32, vdp_get_proc_address: *mut c_void,
        );
        /// graphics tie the process to its device
        [track] cuGraphicsVDPAURegisterVideoSurface(
            cuda_resource: *mut CuGraphicsResource, vdp_surface: u32, flags: c_uint,
        );
        /// graphics tie the process to its device
        [track] cuGraphicsVDPAURegisterOutputSurface(
            cuda_resource: *mut CuGraphicsResource, vdp_surface: u32, flags: c_uint,
        );
    }
    "Fabric" {
        [pass] cuDeviceGetFabricClusterUuid(uuid: *mut CuUuid, dev: CuDevice);
        [pass] cuDeviceGetCliqueCount(count: *mut usize, dev: CuDevice);
        [pass] cuDeviceGetCliqueInfo(clique_info: *mut CuCliqueInfo, count: *mut usize, dev: CuDevice);
        [pass] cuLogicalEndpointIdReserve(base_le_id: *mut CuLogicalEndpointId, count: u32);
        [pass] cuLogicalEndpointIdRelease(base_le_id: CuLogicalEndpointId, count: u32);
        [pass] cuLogicalEndpointCreate(le_id: CuLogicalEndpointId, prop: *const CuLogicalEndpointProp);
        [pass] cuLogicalEndpointAddDevice(le_id: CuLogicalEndpointId, dev: CuDevice);
        [pass] cuLogicalEndpointDestroy(le_id: CuLogicalEndpointId);
        [pass] cuLogicalEndpointBindAddr(
            le_id: CuLogicalEndpointId, dev: CuDevice, offset: u64, ptr: *mut c_void, size: u64, flags: c_ulonglong,
        );
        [pass] cuLogicalEndpointBindMem(
            le_id: CuLogicalEndpointId, dev: CuDevice, offset: u64, mem_handle: CuMemGenericAllocationHandle,
            mem_offset: u64, size: u64, flags: c_ulonglong,
        );
        [pass] cuLogicalEndpointUnbind(le_id: CuLogicalEndpointId, dev: CuDevice, offset: u64, size: u64);
        /// ties the process to its device
        [track] cuLogicalEndpointExport(handle: *mut c_void, le_id: CuLogicalEndpointId, handle_type: c_int);
        /// ties the process to its device
        [track] cuLogicalEndpointImport(le_id: CuLogicalEndpointId, handle: *const c_void, handle_type: c_int);
        [pass] cuLogicalEndpointGetLimits(
            bind_alignment: *mut u64, max_size: *mut u64, prop: *const CuLogicalEndpointProp,
        );
        [pass] cuLogicalEndpointQuery(le_id: CuLogicalEndpointId, count: u32, query_status: *mut c_int);
        [pass] cuFabricCpyBatchAsync(
            num_ops: usize, op_list: *mut CudaFabricCopyBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [pass] cuFabricCpyBatchAsync_ptsz(
            num_ops: usize, op_list: *mut CudaFabricCopyBatchOp, flags: c_ulonglong, stream: CuStream,
        );
    }
    "Checkpointing" {
        [pass] cuCheckpointProcessGetRestoreThreadId(pid: c_int, tid: *mut c_int);
        [pass] cuCheckpointProcessGetState(pid: c_int, state: *mut c_int);
        [pass] cuCheckpointProcessLock(pid: c_int, args: *mut CuCheckpointLockArgs);
        [pass] cuCheckpointProcessCheckpoint(pid: c_int, args: *mut CuCheckpointCheckpointArgs);
        [pass] cuCheckpointProcessRestore(pid: c_int, args: *mut CuCheckpointRestoreArgs);
        [pass] cuCheckpointOperationComplete(handle: CuCheckpointOperationHandle);
        [pass] cuCheckpointProcessUnlock(pid: c_int, args: *mut CuCheckpointUnlockArgs);
    }
    "Profiler control" {
        [pass] cuProfilerInitialize(config_file: *const c_char, output_file: *const c_char, output_mode: c_int);
        [pass] cuProfilerStart();
        [pass] cuProfilerStop();
    }
    "Core dumps" {
        [pass] cuCoredumpGetAttribute(attrib: c_int, value: *mut c_void, size: *mut usize);
        [pass] cuCoredumpGetAttributeGlobal(attrib: c_int, value: *mut c_void, size: *mut usize);
        [pass] cuCoredumpSetAttribute(attrib: c_int, value: *mut c_void, size: *mut usize);
        [pass] cuCoredumpSetAttributeGlobal(attrib: c_int, value: *mut c_void, size: *mut usize);
        [pass] cuCoredumpRegisterStartCallback(
            callback: CuCoredumpStatusCallback, user_data: *mut c_void, callback_out: *mut CuCoredumpCallbackHandle,
        );
        [pass] cuCoredumpRegisterCompleteCallback(
            callback: CuCoredumpStatusCallback, user_data: *mut c_void, callback_out: *mut CuCoredumpCallbackHandle,
        );
        [pass] cuCoredumpDeregisterStartCallback(callback: CuCoredumpCallbackHandle);
        [pass] cuCoredumpDeregisterCompleteCallback(callback: CuCoredumpCallbackHandle);
    }
    "Error log" {
        [pass] cuLogsRegisterCallback(
            callback_func: CuLogsCallback, user_data: *mut c_void, callback_out: *mut CuLogsCallbackHandle,
        );
        [pass] cuLogsUnregisterCallback(callback: CuLogsCallbackHandle);
        [pass] cuLogsCurrent(iterator_out: *mut CuLogIterator, flags: c_uint);
        [pass] cuLogsDumpToFile(iterator: *mut CuLogIterator, path_to_file: *const c_char, flags: c_uint);
        [pass] cuLogsDumpToMemory(iterator: *mut CuLogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint);
    }
    "Egl interoperability" {
        [pass] cuGraphicsResourceGetMappedEglFrame(
            egl_frame: *mut CuEglFrame, resource: CuGraphicsResource, index: c_uint, mip_level: c_uint,
        );
    }
    } };
}
