// SPDX-License-Identifier: Apache-2.0
//! Graph nodes, edges, instantiation and update.

use super::*;

c_layouts! {
    struct CudaKernelNodeParamsV3 = "CUDA_KERNEL_NODE_PARAMS_v3" {
        func: CuFunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CuKernel,
        ctx: CuContext,
    }
    struct CudaMemcpyNodeParams = "CUDA_MEMCPY_NODE_PARAMS" {
        flags: c_int,
        reserved: c_int,
        copyCtx: CuContext,
        copyParams: CudaMemcpy3d,
    }
    struct CudaMemsetNodeParamsV2 = "CUDA_MEMSET_NODE_PARAMS_v2" {
        dst: CuDevicePtr,
        pitch: usize,
        value: c_uint,
        elementSize: c_uint,
        width: usize,
        height: usize,
        ctx: CuContext,
    }
    struct CudaHostNodeParamsV2 = "CUDA_HOST_NODE_PARAMS_v2" {
        function = "fn": CuHostFn,
        userData: *mut c_void,
        syncMode: c_uint,
        ctx: CuContext,
    }
    struct CudaChildGraphNodeParams = "CUDA_CHILD_GRAPH_NODE_PARAMS" {
        graph: CuGraph,
        ownership: c_int,
    }
    struct CudaEventWaitNodeParams = "CUDA_EVENT_WAIT_NODE_PARAMS" {
        event: CuEvent,
    }
    struct CudaEventRecordNodeParams = "CUDA_EVENT_RECORD_NODE_PARAMS" {
        event: CuEvent,
        ctx: CuContext,
    }
    struct CudaMemAllocNodeParamsV2 = "CUDA_MEM_ALLOC_NODE_PARAMS_v2" {
        poolProps: CuMemPoolProps,
        accessDescs: *const CuMemAccessDesc,
        accessDescCount: usize,
        bytesize: usize,
        dptr: CuDevicePtr,
    }
    struct CudaMemFreeNodeParams = "CUDA_MEM_FREE_NODE_PARAMS" {
        dptr: CuDevicePtr,
    }
    struct CudaBatchMemOpNodeParamsV2 = "CUDA_BATCH_MEM_OP_NODE_PARAMS_v2" {
        ctx: CuContext,
        count: c_uint,
        paramArray: *mut CuStreamBatchMemOpParams,
        flags: c_uint,
    }
    struct CudaConditionalNodeParams = "CUDA_CONDITIONAL_NODE_PARAMS" {
        handle: CuGraphConditionalHandle,
        kind = "type": c_int,
        size: c_uint,
        phGraph_out: *mut CuGraph,
        ctx: CuContext,
    }
    struct CudaMemcpyBatchNodeParams = "CUDA_MEMCPY_BATCH_NODE_PARAMS" {
        count: usize,
        dsts: *mut CuDevicePtr,
        srcs: *mut CuDevicePtr,
        sizes: *mut usize,
        attrs: *mut CuMemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        ctx: CuContext,
    }
    union CuGraphNodeParamsParams = "" {
        reserved1: [c_longlong; 29],
        kernel: CudaKernelNodeParamsV3,
        memcpy: CudaMemcpyNodeParams,
        memset: CudaMemsetNodeParamsV2,
        host: CudaHostNodeParamsV2,
        graph: CudaChildGraphNodeParams,
        eventWait: CudaEventWaitNodeParams,
        eventRecord: CudaEventRecordNodeParams,
        extSemSignal: CudaExtSemSignalNodeParamsV2,
        extSemWait: CudaExtSemWaitNodeParamsV2,
        alloc: CudaMemAllocNodeParamsV2,
        free: CudaMemFreeNodeParams,
        memOp: CudaBatchMemOpNodeParamsV2,
        conditional: CudaConditionalNodeParams,
        memcpyBatch: CudaMemcpyBatchNodeParams,
        fabricCpyBatch: CudaFabricCpyBatchNodeParams,
        asBytes: [c_char; 232],
    }
    struct CuGraphNodeParams = "CUgraphNodeParams" {
        kind = "type": c_int,
        reserved0: [c_int; 3],
        params = "kernel": CuGraphNodeParamsParams,
        reserved2: c_longlong,
    }
    struct CuGraphEdgeData = "CUgraphEdgeData" {
        from_port: c_uchar,
        to_port: c_uchar,
        kind = "type": c_uchar,
        reserved: [c_uchar; 5],
    }
    struct CudaKernelNodeParams = "CUDA_KERNEL_NODE_PARAMS" {
        func: CuFunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CuKernel,
        ctx: CuContext,
    }
    struct CudaMemsetNodeParams = "CUDA_MEMSET_NODE_PARAMS" {
        dst: CuDevicePtr,
        pitch: usize,
        value: c_uint,
        elementSize: c_uint,
        width: usize,
        height: usize,
    }
    struct CudaHostNodeParams = "CUDA_HOST_NODE_PARAMS" {
        function = "fn": CuHostFn,
        userData: *mut c_void,
    }
    struct CudaBatchMemOpNodeParams = "CUDA_BATCH_MEM_OP_NODE_PARAMS" {
        ctx: CuContext,
        count: c_uint,
        paramArray: *mut CuStreamBatchMemOpParams,
        flags: c_uint,
    }
    struct CudaMemAllocNodeParams = "CUDA_MEM_ALLOC_NODE_PARAMS" {
        poolProps: CuMemPoolProps,
        accessDescs: *const CuMemAccessDesc,
        accessDescCount: usize,
        bytesize: usize,
        dptr: CuDevicePtr,
    }
    struct CudaGraphInstantiateParams = "CUDA_GRAPH_INSTANTIATE_PARAMS" {
        flags: u64,
        hUploadStream: CuStream,
        hErrNode_out: CuGraphNode,
        result_out: c_int,
    }
    struct CuGraphExecUpdateResultInfo = "CUgraphExecUpdateResultInfo" {
        result: c_int,
        errorNode: CuGraphNode,
        errorFromNode: CuGraphNode,
    }
    struct CudaKernelNodeParamsV1 = "CUDA_KERNEL_NODE_PARAMS_v1" {
        func: CuFunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    }
}
