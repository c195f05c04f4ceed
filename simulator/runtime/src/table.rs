// SPDX-License-Identifier: Apache-2.0
//! The table of the CUDA runtime: one row per exported function of `libcudart.so.12` (12.9) and `.13` (13.5).
//!
//! `[since kind call] name(arguments);` answers an error. `since` says in which of the two libraries the name is:
//! `both`, `cuda12` or `cuda13`. Where one name has two meanings there are two rows, and the older one's ends in
//! `_v12`. `call` is the driver's function that it rests on, or `none`. Kinds, and what an export does:
//! [`entry`](crate::entry). Rows are sorted by name; a row that is not built has no arguments.

macro_rules! runtime_table {
    ($($then:tt)*) => { $($then)*! {
        [both unbuilt none] cudaArrayGetInfo;
        [both unbuilt none] cudaArrayGetMemoryRequirements;
        [both straight cuArrayGetPlane] cudaArrayGetPlane(
            plane_array: *mut CuArray, array: CuArray, plane_idx: c_uint,
        );
        [both unbuilt none] cudaArrayGetSparseProperties;
        [both unbuilt none] cudaChooseDevice;
        [both unbuilt none] cudaCreateChannelDesc;
        [both unbuilt none] cudaCreateSurfaceObject;
        [both unbuilt none] cudaCreateTextureObject;
        [both straight cuCtxResetPersistingL2Cache] cudaCtxResetPersistingL2Cache();
        [both straight cuDestroyExternalMemory] cudaDestroyExternalMemory(ext_mem: CuExternalMemory);
        [both unbuilt none] cudaDestroyExternalSemaphore;
        [both unbuilt none] cudaDestroySurfaceObject;
        [both unbuilt none] cudaDestroyTextureObject;
        [cuda13 straight cuDevResourceGenerateDesc] cudaDevResourceGenerateDesc(
            desc: *mut CuDevResourceDesc, resources: *mut CuDevResource, nb_resources: c_uint,
        );
        [cuda13 unbuilt none] cudaDevSmResourceSplit;
        [cuda13 straight cuDevSmResourceSplitByCount] cudaDevSmResourceSplitByCount(
            result: *mut CuDevResource, nb_groups: *mut c_uint, input: *const CuDevResource,
            remainder: *mut CuDevResource, flags: c_uint, min_count: c_uint,
        );
        [both early cuDeviceCanAccessPeer] cudaDeviceCanAccessPeer(
            can_access_peer: *mut c_int, dev: CuDevice, peer_dev: CuDevice,
        );
        [both own cuCtxDisablePeerAccess] cudaDeviceDisablePeerAccess(peer: c_int);
        [both own cuCtxEnablePeerAccess] cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint);
        [both unbuilt none] cudaDeviceFlushGPUDirectRDMAWrites;
        [both early cuDeviceGetAttribute] cudaDeviceGetAttribute(value: *mut c_int, attrib: c_int, dev: CuDevice);
        [both early cuDeviceGetByPCIBusId] cudaDeviceGetByPCIBusId(dev: *mut CuDevice, pci_bus_id: *const c_char);
        [both straight cuCtxGetCacheConfig] cudaDeviceGetCacheConfig(pconfig: *mut c_int);
        [both straight cuDeviceGetDefaultMemPool] cudaDeviceGetDefaultMemPool(
            pool_out: *mut CuMemoryPool, dev: CuDevice,
        );
        [cuda13 straight cuDeviceGetDevResource] cudaDeviceGetDevResource(
            device: CuDevice, resource: *mut CuDevResource, kind: c_int,
        );
        [cuda13 unbuilt none] cudaDeviceGetExecutionCtx;
        [both straight cuDeviceGetGraphMemAttribute] cudaDeviceGetGraphMemAttribute(
            device: CuDevice, attr: c_int, value: *mut c_void,
        );
        [cuda13 unbuilt none] cudaDeviceGetHostAtomicCapabilities;
        [both straight cuCtxGetLimit] cudaDeviceGetLimit(pvalue: *mut usize, limit: c_int);
        [both straight cuDeviceGetMemPool] cudaDeviceGetMemPool(pool: *mut CuMemoryPool, dev: CuDevice);
        [both unbuilt none] cudaDeviceGetNvSciSyncAttributes;
        [cuda13 unbuilt none] cudaDeviceGetP2PAtomicCapabilities;
        [both early cuDeviceGetP2PAttribute] cudaDeviceGetP2PAttribute(
            value: *mut c_int, attrib: c_int, src_device: CuDevice, dst_device: CuDevice,
        );
        [both early cuDeviceGetPCIBusId] cudaDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CuDevice);
        [both straight cuCtxGetSharedMemConfig] cudaDeviceGetSharedMemConfig(config: *mut c_int);
        [both straight cuCtxGetStreamPriorityRange] cudaDeviceGetStreamPriorityRange(
            least_priority: *mut c_int, greatest_priority: *mut c_int,
        );
        [both unbuilt none] cudaDeviceGetTexture1DLinearMaxWidth;
        [both straight cuDeviceGraphMemTrim] cudaDeviceGraphMemTrim(device: CuDevice);
        [both unbuilt none] cudaDeviceRegisterAsyncNotification;
        [both own none] cudaDeviceReset();
        [both straight cuCtxSetCacheConfig] cudaDeviceSetCacheConfig(config: c_int);
        [both straight cuDeviceSetGraphMemAttribute] cudaDeviceSetGraphMemAttribute(
            device: CuDevice, attr: c_int, value: *mut c_void,
        );
        [both straight cuCtxSetLimit] cudaDeviceSetLimit(limit: c_int, value: usize);
        [both straight cuDeviceSetMemPool] cudaDeviceSetMemPool(dev: CuDevice, pool: CuMemoryPool);
        [both straight cuCtxSetSharedMemConfig] cudaDeviceSetSharedMemConfig(config: c_int);
        [both straight cuCtxSynchronize] cudaDeviceSynchronize();
        [both unbuilt none] cudaDeviceUnregisterAsyncNotification;
        [both own cuDriverGetVersion] cudaDriverGetVersion(version: *mut c_int);
        [both unbuilt none] cudaEGLStreamConsumerAcquireFrame;
        [both unbuilt none] cudaEGLStreamConsumerConnect;
        [both unbuilt none] cudaEGLStreamConsumerConnectWithFlags;
        [both unbuilt none] cudaEGLStreamConsumerDisconnect;
        [both unbuilt none] cudaEGLStreamConsumerReleaseFrame;
        [both unbuilt none] cudaEGLStreamProducerConnect;
        [both unbuilt none] cudaEGLStreamProducerDisconnect;
        [both unbuilt none] cudaEGLStreamProducerPresentFrame;
        [both unbuilt none] cudaEGLStreamProducerReturnFrame;
        [both own cuEventCreate] cudaEventCreate(event: *mut CuEvent);
        [both unbuilt none] cudaEventCreateFromEGLSync;
        [both straight cuEventCreate] cudaEventCreateWithFlags(event: *mut CuEvent, flags: c_uint);
        [both straight cuEventDestroy_v2] cudaEventDestroy(event: CuEvent);
        [both straight cuEventElapsedTime] cudaEventElapsedTime(milliseconds: *mut f32, start: CuEvent, end: CuEvent);
        [cuda12 straight cuEventElapsedTime_v2] cudaEventElapsedTime_v2(
            milliseconds: *mut f32, start: CuEvent, end: CuEvent,
        );
        [both straight cuEventQuery] cudaEventQuery(event: CuEvent);
        [both straight cuEventRecord] cudaEventRecord(event: CuEvent, stream: CuStream);
        [both straight cuEventRecordWithFlags] cudaEventRecordWithFlags(
            event: CuEvent, stream: CuStream, flags: c_uint,
        );
        [both straight cuEventRecordWithFlags_ptsz] cudaEventRecordWithFlags_ptsz(
            event: CuEvent, stream: CuStream, flags: c_uint,
        );
        [both straight cuEventRecord_ptsz] cudaEventRecord_ptsz(event: CuEvent, stream: CuStream);
        [both straight cuEventSynchronize] cudaEventSynchronize(event: CuEvent);
        [cuda13 unbuilt none] cudaExecutionCtxDestroy;
        [cuda13 unbuilt none] cudaExecutionCtxGetDevResource;
        [cuda13 unbuilt none] cudaExecutionCtxGetDevice;
        [cuda13 unbuilt none] cudaExecutionCtxGetId;
        [cuda13 unbuilt none] cudaExecutionCtxRecordEvent;
        [cuda13 unbuilt none] cudaExecutionCtxStreamCreate;
        [cuda13 unbuilt none] cudaExecutionCtxSynchronize;
        [cuda13 unbuilt none] cudaExecutionCtxWaitEvent;
        [both unbuilt none] cudaExternalMemoryGetMappedBuffer;
        [both unbuilt none] cudaExternalMemoryGetMappedMipmappedArray;
        [both own cuMemFree_v2] cudaFree(pointer: CuDevicePtr);
        [both unbuilt none] cudaFreeArray;
        [both straight cuMemFreeAsync] cudaFreeAsync(dptr: CuDevicePtr, stream: CuStream);
        [both straight cuMemFreeAsync_ptsz] cudaFreeAsync_ptsz(dptr: CuDevicePtr, stream: CuStream);
        [both own cuMemFreeHost] cudaFreeHost(pointer: *mut c_void);
        [both unbuilt none] cudaFreeMipmappedArray;
        [both own cuFuncGetAttribute] cudaFuncGetAttributes(attributes: *mut FuncAttributes, host: *const c_void);
        [both own cuKernelGetName] cudaFuncGetName(name: *mut *const c_char, host: *const c_void);
        [cuda13 own cuFuncGetParamCount] cudaFuncGetParamCount(host: *const c_void, count: *mut usize);
        [both own cuFuncGetParamInfo] cudaFuncGetParamInfo(
            host: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize,
        );
        [both own cuFuncSetAttribute] cudaFuncSetAttribute(host: *const c_void, attribute: c_int, value: c_int);
        [both own cuFuncSetCacheConfig] cudaFuncSetCacheConfig(host: *const c_void, config: c_int);
        [both unbuilt none] cudaFuncSetSharedMemConfig;
        [both unbuilt none] cudaGLGetDevices;
        [both unbuilt none] cudaGLMapBufferObject;
        [both unbuilt none] cudaGLMapBufferObjectAsync;
        [both unbuilt none] cudaGLRegisterBufferObject;
        [both unbuilt none] cudaGLSetBufferObjectMapFlags;
        [both unbuilt none] cudaGLSetGLDevice;
        [both unbuilt none] cudaGLUnmapBufferObject;
        [both unbuilt none] cudaGLUnmapBufferObjectAsync;
        [both unbuilt none] cudaGLUnregisterBufferObject;
        [both unbuilt none] cudaGetChannelDesc;
        [both own none] cudaGetDevice(device: *mut c_int);
        [both own cuDeviceGetCount] cudaGetDeviceCount(count: *mut c_int);
        [both own cuDevicePrimaryCtxGetState] cudaGetDeviceFlags(flags: *mut c_uint);
        [cuda13 own none] cudaGetDeviceProperties(properties: *mut c_void, device: c_int);
        [cuda12 unbuilt none] cudaGetDeviceProperties_v12;
        [cuda12 own none] cudaGetDeviceProperties_v2(properties: *mut c_void, device: c_int);
        [both own none] cudaGetDriverEntryPoint(
            symbol: *const c_char, address: *mut *mut c_void, flags: c_ulonglong, status: *mut c_int,
        );
        [both own cuGetProcAddress_v2] cudaGetDriverEntryPointByVersion(
            symbol: *const c_char, address: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_int,
        );
        [both own none] cudaGetDriverEntryPointByVersion_ptsz(
            symbol: *const c_char, address: *mut *mut c_void, version: c_uint, flags: c_ulonglong, status: *mut c_int,
        );
        [both own none] cudaGetDriverEntryPoint_ptsz(
            symbol: *const c_char, address: *mut *mut c_void, flags: c_ulonglong, status: *mut c_int,
        );
        [both own none] cudaGetErrorName(code: CuResult) -> *const c_char;
        [both own none] cudaGetErrorString(code: CuResult) -> *const c_char;
        [both unbuilt none] cudaGetExportTable;
        [both own none] cudaGetFuncBySymbol(function: *mut CuFunction, host: *const c_void);
        [both own none] cudaGetKernel(kernel: *mut CuKernel, host: *const c_void);
        [both own none] __cudaGetKernel(kernel: *mut CuKernel, host: *const c_void);
        [both own none] cudaGetLastError() -> CuResult;
        [both unbuilt none] cudaGetMipmappedArrayLevel;
        [cuda13 unbuilt none] __cudaGetProcAddress;
        [both unbuilt none] cudaGetSurfaceObjectResourceDesc;
        [both own none] cudaGetSymbolAddress(pointer: *mut CuDevicePtr, symbol: *const c_void);
        [both own none] cudaGetSymbolSize(bytes: *mut usize, symbol: *const c_void);
        [both unbuilt none] cudaGetTextureObjectResourceDesc;
        [both unbuilt none] cudaGetTextureObjectResourceViewDesc;
        [both unbuilt none] cudaGetTextureObjectTextureDesc;
        [both straight cuGraphAddChildGraphNode] cudaGraphAddChildGraphNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            child_graph: CuGraph,
        );
        [cuda13 straight cuGraphAddDependencies_v2] cudaGraphAddDependencies(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [cuda12 straight cuGraphAddDependencies] cudaGraphAddDependencies_v12(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, num_dependencies: usize,
        );
        [cuda12 straight cuGraphAddDependencies_v2] cudaGraphAddDependencies_v2(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [both straight cuGraphAddEmptyNode] cudaGraphAddEmptyNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
        );
        [both straight cuGraphAddEventRecordNode] cudaGraphAddEventRecordNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            event: CuEvent,
        );
        [both straight cuGraphAddEventWaitNode] cudaGraphAddEventWaitNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            event: CuEvent,
        );
        [both unbuilt none] cudaGraphAddExternalSemaphoresSignalNode;
        [both unbuilt none] cudaGraphAddExternalSemaphoresWaitNode;
        [both straight cuGraphAddHostNode] cudaGraphAddHostNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *const CudaHostNodeParams,
        );
        [both own cuGraphAddKernelNode_v2] cudaGraphAddKernelNode(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
            parameters: *const KernelNode,
        );
        [both straight cuGraphAddMemAllocNode] cudaGraphAddMemAllocNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            node_params: *mut CudaMemAllocNodeParams,
        );
        [both straight cuGraphAddMemFreeNode] cudaGraphAddMemFreeNode(
            graph_node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, num_dependencies: usize,
            dptr: CuDevicePtr,
        );
        [both own cuGraphAddMemcpyNode] cudaGraphAddMemcpyNode(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
            parameters: *const Memcpy3d,
        );
        [both own cuGraphAddMemcpyNode] cudaGraphAddMemcpyNode1D(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
            target: CuDevicePtr, source: CuDevicePtr, bytes: usize, _kind: c_int,
        );
        [both unbuilt none] cudaGraphAddMemcpyNodeFromSymbol;
        [both unbuilt none] cudaGraphAddMemcpyNodeToSymbol;
        [both own cuGraphAddMemsetNode] cudaGraphAddMemsetNode(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
            parameters: *const MemsetNode,
        );
        [cuda13 own cuGraphAddNode_v2] cudaGraphAddNode(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, edges: *const CuGraphEdgeData,
            count: usize, parameters: *mut CuGraphNodeParams,
        );
        [cuda12 own none] cudaGraphAddNode_v12(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, count: usize,
            parameters: *mut CuGraphNodeParams,
        );
        [cuda12 own none] cudaGraphAddNode_v2(
            node: *mut CuGraphNode, graph: CuGraph, dependencies: *const CuGraphNode, edges: *const CuGraphEdgeData,
            count: usize, parameters: *mut CuGraphNodeParams,
        );
        [both straight cuGraphChildGraphNodeGetGraph] cudaGraphChildGraphNodeGetGraph(
            node: CuGraphNode, graph: *mut CuGraph,
        );
        [both straight cuGraphClone] cudaGraphClone(graph_clone: *mut CuGraph, original_graph: CuGraph);
        [both own cuGraphConditionalHandleCreate] cudaGraphConditionalHandleCreate(
            handle: *mut CuGraphConditionalHandle, graph: CuGraph, value: c_uint, flags: c_uint,
        );
        [cuda13 unbuilt none] cudaGraphConditionalHandleCreate_v2;
        [both straight cuGraphCreate] cudaGraphCreate(graph: *mut CuGraph, flags: c_uint);
        [both straight cuGraphDebugDotPrint] cudaGraphDebugDotPrint(
            graph: CuGraph, path: *const c_char, flags: c_uint,
        );
        [both straight cuGraphDestroy] cudaGraphDestroy(graph: CuGraph);
        [both straight cuGraphDestroyNode] cudaGraphDestroyNode(node: CuGraphNode);
        [both straight cuGraphEventRecordNodeGetEvent] cudaGraphEventRecordNodeGetEvent(
            node: CuGraphNode, event_out: *mut CuEvent,
        );
        [both straight cuGraphEventRecordNodeSetEvent] cudaGraphEventRecordNodeSetEvent(
            node: CuGraphNode, event: CuEvent,
        );
        [both straight cuGraphEventWaitNodeGetEvent] cudaGraphEventWaitNodeGetEvent(
            node: CuGraphNode, event_out: *mut CuEvent,
        );
        [both straight cuGraphEventWaitNodeSetEvent] cudaGraphEventWaitNodeSetEvent(
            node: CuGraphNode, event: CuEvent,
        );
        [both straight cuGraphExecChildGraphNodeSetParams] cudaGraphExecChildGraphNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, child_graph: CuGraph,
        );
        [both straight cuGraphExecDestroy] cudaGraphExecDestroy(graph_exec: CuGraphExec);
        [both straight cuGraphExecEventRecordNodeSetEvent] cudaGraphExecEventRecordNodeSetEvent(
            graph_exec: CuGraphExec, node: CuGraphNode, event: CuEvent,
        );
        [both straight cuGraphExecEventWaitNodeSetEvent] cudaGraphExecEventWaitNodeSetEvent(
            graph_exec: CuGraphExec, node: CuGraphNode, event: CuEvent,
        );
        [both unbuilt none] cudaGraphExecExternalSemaphoresSignalNodeSetParams;
        [both unbuilt none] cudaGraphExecExternalSemaphoresWaitNodeSetParams;
        [both straight cuGraphExecGetFlags] cudaGraphExecGetFlags(graph_exec: CuGraphExec, flags: *mut u64);
        [cuda13 straight cuGraphExecGetId] cudaGraphExecGetId(graph_exec: CuGraphExec, graph_id: *mut c_uint);
        [both straight cuGraphExecHostNodeSetParams] cudaGraphExecHostNodeSetParams(
            graph_exec: CuGraphExec, node: CuGraphNode, node_params: *const CudaHostNodeParams,
        );
        [both own cuGraphExecKernelNodeSetParams_v2] cudaGraphExecKernelNodeSetParams(
            exec: CuGraphExec, node: CuGraphNode, parameters: *const KernelNode,
        );
        [both unbuilt none] cudaGraphExecMemcpyNodeSetParams;
        [both unbuilt none] cudaGraphExecMemcpyNodeSetParams1D;
        [both unbuilt none] cudaGraphExecMemcpyNodeSetParamsFromSymbol;
        [both unbuilt none] cudaGraphExecMemcpyNodeSetParamsToSymbol;
        [both own cuGraphExecMemsetNodeSetParams] cudaGraphExecMemsetNodeSetParams(
            exec: CuGraphExec, node: CuGraphNode, parameters: *const MemsetNode,
        );
        [both unbuilt none] cudaGraphExecNodeSetParams;
        [both straight cuGraphExecUpdate_v2] cudaGraphExecUpdate(
            graph_exec: CuGraphExec, graph: CuGraph, result_info: *mut CuGraphExecUpdateResultInfo,
        );
        [both unbuilt none] cudaGraphExternalSemaphoresSignalNodeGetParams;
        [both unbuilt none] cudaGraphExternalSemaphoresSignalNodeSetParams;
        [both unbuilt none] cudaGraphExternalSemaphoresWaitNodeGetParams;
        [both unbuilt none] cudaGraphExternalSemaphoresWaitNodeSetParams;
        [cuda13 straight cuGraphGetEdges_v2] cudaGraphGetEdges(
            graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_edges: *mut usize,
        );
        [cuda12 straight cuGraphGetEdges] cudaGraphGetEdges_v12(
            graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, num_edges: *mut usize,
        );
        [cuda12 straight cuGraphGetEdges_v2] cudaGraphGetEdges_v2(
            graph: CuGraph, from: *mut CuGraphNode, to: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_edges: *mut usize,
        );
        [cuda13 straight cuGraphGetId] cudaGraphGetId(graph: CuGraph, graph_id: *mut c_uint);
        [both straight cuGraphGetNodes] cudaGraphGetNodes(
            graph: CuGraph, nodes: *mut CuGraphNode, num_nodes: *mut usize,
        );
        [both straight cuGraphGetRootNodes] cudaGraphGetRootNodes(
            graph: CuGraph, root_nodes: *mut CuGraphNode, num_root_nodes: *mut usize,
        );
        [both straight cuGraphHostNodeGetParams] cudaGraphHostNodeGetParams(
            node: CuGraphNode, node_params: *mut CudaHostNodeParams,
        );
        [both straight cuGraphHostNodeSetParams] cudaGraphHostNodeSetParams(
            node: CuGraphNode, node_params: *const CudaHostNodeParams,
        );
        [both straight cuGraphInstantiateWithFlags] cudaGraphInstantiate(
            graph_exec: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong,
        );
        [both straight cuGraphInstantiateWithFlags] cudaGraphInstantiateWithFlags(
            graph_exec: *mut CuGraphExec, graph: CuGraph, flags: c_ulonglong,
        );
        [both straight cuGraphInstantiateWithParams] cudaGraphInstantiateWithParams(
            graph_exec: *mut CuGraphExec, graph: CuGraph, instantiate_params: *mut CudaGraphInstantiateParams,
        );
        [both straight cuGraphInstantiateWithParams_ptsz] cudaGraphInstantiateWithParams_ptsz(
            graph_exec: *mut CuGraphExec, graph: CuGraph, instantiate_params: *mut CudaGraphInstantiateParams,
        );
        [cuda13 straight cuGraphKernelNodeCopyAttributes] cudaGraphKernelNodeCopyAttributes(
            dst: CuGraphNode, src: CuGraphNode,
        );
        [cuda12 own cuGraphKernelNodeCopyAttributes] cudaGraphKernelNodeCopyAttributes_v12(
            source: CuGraphNode, target: CuGraphNode,
        );
        [both straight cuGraphKernelNodeGetAttribute] cudaGraphKernelNodeGetAttribute(
            node: CuGraphNode, attr: c_int, value_out: *mut CuLaunchAttributeValue,
        );
        [both unbuilt none] cudaGraphKernelNodeGetParams;
        [both straight cuGraphKernelNodeSetAttribute] cudaGraphKernelNodeSetAttribute(
            node: CuGraphNode, attr: c_int, value: *const CuLaunchAttributeValue,
        );
        [both own cuGraphKernelNodeSetParams_v2] cudaGraphKernelNodeSetParams(
            node: CuGraphNode, parameters: *const KernelNode,
        );
        [both straight cuGraphLaunch] cudaGraphLaunch(graph: CuGraphExec, stream: CuStream);
        [both straight cuGraphLaunch_ptsz] cudaGraphLaunch_ptsz(graph: CuGraphExec, stream: CuStream);
        [both straight cuGraphMemAllocNodeGetParams] cudaGraphMemAllocNodeGetParams(
            node: CuGraphNode, params_out: *mut CudaMemAllocNodeParams,
        );
        [both straight cuGraphMemFreeNodeGetParams] cudaGraphMemFreeNodeGetParams(
            node: CuGraphNode, dptr_out: *mut CuDevicePtr,
        );
        [both unbuilt none] cudaGraphMemcpyNodeGetParams;
        [both unbuilt none] cudaGraphMemcpyNodeSetParams;
        [both unbuilt none] cudaGraphMemcpyNodeSetParams1D;
        [both unbuilt none] cudaGraphMemcpyNodeSetParamsFromSymbol;
        [both unbuilt none] cudaGraphMemcpyNodeSetParamsToSymbol;
        [both straight cuGraphMemsetNodeGetParams] cudaGraphMemsetNodeGetParams(
            node: CuGraphNode, node_params: *mut CudaMemsetNodeParams,
        );
        [both straight cuGraphMemsetNodeSetParams] cudaGraphMemsetNodeSetParams(
            node: CuGraphNode, node_params: *const CudaMemsetNodeParams,
        );
        [both straight cuGraphNodeFindInClone] cudaGraphNodeFindInClone(
            node: *mut CuGraphNode, original_node: CuGraphNode, cloned_graph: CuGraph,
        );
        [cuda13 straight cuGraphNodeGetContainingGraph] cudaGraphNodeGetContainingGraph(
            node: CuGraphNode, graph: *mut CuGraph,
        );
        [cuda13 straight cuGraphNodeGetDependencies_v2] cudaGraphNodeGetDependencies(
            node: CuGraphNode, dependencies: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependencies: *mut usize,
        );
        [cuda12 straight cuGraphNodeGetDependencies] cudaGraphNodeGetDependencies_v12(
            node: CuGraphNode, dependencies: *mut CuGraphNode, num_dependencies: *mut usize,
        );
        [cuda12 straight cuGraphNodeGetDependencies_v2] cudaGraphNodeGetDependencies_v2(
            node: CuGraphNode, dependencies: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependencies: *mut usize,
        );
        [cuda13 straight cuGraphNodeGetDependentNodes_v2] cudaGraphNodeGetDependentNodes(
            node: CuGraphNode, dependent_nodes: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependent_nodes: *mut usize,
        );
        [cuda12 straight cuGraphNodeGetDependentNodes] cudaGraphNodeGetDependentNodes_v12(
            node: CuGraphNode, dependent_nodes: *mut CuGraphNode, num_dependent_nodes: *mut usize,
        );
        [cuda12 straight cuGraphNodeGetDependentNodes_v2] cudaGraphNodeGetDependentNodes_v2(
            node: CuGraphNode, dependent_nodes: *mut CuGraphNode, edge_data: *mut CuGraphEdgeData,
            num_dependent_nodes: *mut usize,
        );
        [both straight cuGraphNodeGetEnabled] cudaGraphNodeGetEnabled(
            graph_exec: CuGraphExec, node: CuGraphNode, is_enabled: *mut c_uint,
        );
        [cuda13 straight cuGraphNodeGetLocalId] cudaGraphNodeGetLocalId(node: CuGraphNode, node_id: *mut c_uint);
        [cuda13 unbuilt none] cudaGraphNodeGetParams;
        [cuda13 straight cuGraphNodeGetToolsId] cudaGraphNodeGetToolsId(
            node: CuGraphNode, tools_node_id: *mut c_ulonglong,
        );
        [both straight cuGraphNodeGetType] cudaGraphNodeGetType(node: CuGraphNode, kind: *mut c_int);
        [both straight cuGraphNodeSetEnabled] cudaGraphNodeSetEnabled(
            graph_exec: CuGraphExec, node: CuGraphNode, is_enabled: c_uint,
        );
        [both unbuilt none] cudaGraphNodeSetParams;
        [both straight cuGraphReleaseUserObject] cudaGraphReleaseUserObject(
            graph: CuGraph, object: CuUserObject, count: c_uint,
        );
        [cuda13 straight cuGraphRemoveDependencies_v2] cudaGraphRemoveDependencies(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [cuda12 straight cuGraphRemoveDependencies] cudaGraphRemoveDependencies_v12(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, num_dependencies: usize,
        );
        [cuda12 straight cuGraphRemoveDependencies_v2] cudaGraphRemoveDependencies_v2(
            graph: CuGraph, from: *const CuGraphNode, to: *const CuGraphNode, edge_data: *const CuGraphEdgeData,
            num_dependencies: usize,
        );
        [both straight cuGraphRetainUserObject] cudaGraphRetainUserObject(
            graph: CuGraph, object: CuUserObject, count: c_uint, flags: c_uint,
        );
        [both straight cuGraphUpload] cudaGraphUpload(graph: CuGraphExec, stream: CuStream);
        [both straight cuGraphUpload_ptsz] cudaGraphUpload_ptsz(graph: CuGraphExec, stream: CuStream);
        [both unbuilt none] cudaGraphicsEGLRegisterImage;
        [both unbuilt none] cudaGraphicsGLRegisterBuffer;
        [both unbuilt none] cudaGraphicsGLRegisterImage;
        [both unbuilt none] cudaGraphicsMapResources;
        [both unbuilt none] cudaGraphicsResourceGetMappedEglFrame;
        [both unbuilt none] cudaGraphicsResourceGetMappedMipmappedArray;
        [both unbuilt none] cudaGraphicsResourceGetMappedPointer;
        [both unbuilt none] cudaGraphicsResourceSetMapFlags;
        [both unbuilt none] cudaGraphicsSubResourceGetMappedArray;
        [both unbuilt none] cudaGraphicsUnmapResources;
        [both unbuilt none] cudaGraphicsUnregisterResource;
        [both unbuilt none] cudaGraphicsVDPAURegisterOutputSurface;
        [both unbuilt none] cudaGraphicsVDPAURegisterVideoSurface;
        [cuda13 unbuilt none] cudaGreenCtxCreate;
        [both own cuMemHostAlloc] cudaHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        [both straight cuMemHostGetDevicePointer_v2] cudaHostGetDevicePointer(
            dptr: *mut CuDevicePtr, p: *mut c_void, flags: c_uint,
        );
        [both straight cuMemHostGetFlags] cudaHostGetFlags(flags: *mut c_uint, p: *mut c_void);
        [both straight cuMemHostRegister_v2] cudaHostRegister(p: *mut c_void, bytes: usize, flags: c_uint);
        [both straight cuMemHostUnregister] cudaHostUnregister(p: *mut c_void);
        [both unbuilt none] cudaImportExternalMemory;
        [both unbuilt none] cudaImportExternalSemaphore;
        [both own none] cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint);
        [both own none] __cudaInitModule(handle: *mut *mut c_void) -> c_char;
        [both straight cuIpcCloseMemHandle] cudaIpcCloseMemHandle(dptr: CuDevicePtr);
        [both straight cuIpcGetEventHandle] cudaIpcGetEventHandle(handle: *mut CuIpcEventHandle, event: CuEvent);
        [both straight cuIpcGetMemHandle] cudaIpcGetMemHandle(handle: *mut CuIpcMemHandle, dptr: CuDevicePtr);
        [both straight cuIpcOpenEventHandle] cudaIpcOpenEventHandle(event: *mut CuEvent, handle: CuIpcEventHandle);
        [both straight cuIpcOpenMemHandle_v2] cudaIpcOpenMemHandle(
            dptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint,
        );
        [both own cuKernelSetAttribute] cudaKernelSetAttributeForDevice(
            kernel: CuKernel, attribute: c_int, value: c_int, device: c_int,
        );
        [both own cuLaunchCooperativeKernel] cudaLaunchCooperativeKernel(
            host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [cuda12 unbuilt none] cudaLaunchCooperativeKernelMultiDevice;
        [both own none] cudaLaunchCooperativeKernel_ptsz(
            host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [both straight cuLaunchHostFunc] cudaLaunchHostFunc(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void,
        );
        [both straight cuLaunchHostFunc_ptsz] cudaLaunchHostFunc_ptsz(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void,
        );
        [cuda13 straight cuLaunchHostFunc_v2] cudaLaunchHostFunc_v2(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void, sync_mode: c_uint,
        );
        [cuda13 straight cuLaunchHostFunc_v2_ptsz] cudaLaunchHostFunc_v2_ptsz(
            stream: CuStream, function: CuHostFn, user_data: *mut c_void, sync_mode: c_uint,
        );
        [both own none] __cudaLaunchKernel(
            kernel: CuKernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [both own cuLaunchKernel] cudaLaunchKernel(
            host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [both own none] cudaLaunchKernelExC(
            config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void,
        );
        [both own none] cudaLaunchKernelExC_ptsz(
            config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void,
        );
        [both own none] __cudaLaunchKernel_ptsz(
            kernel: CuKernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [both own none] cudaLaunchKernel_ptsz(
            host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
            stream: CuStream,
        );
        [both straight cuLibraryEnumerateKernels] cudaLibraryEnumerateKernels(
            kernels: *mut CuKernel, num_kernels: c_uint, lib: CuLibrary,
        );
        [both straight cuLibraryGetGlobal] cudaLibraryGetGlobal(
            dptr: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char,
        );
        [both straight cuLibraryGetKernel] cudaLibraryGetKernel(
            kernel: *mut CuKernel, library: CuLibrary, name: *const c_char,
        );
        [both straight cuLibraryGetKernelCount] cudaLibraryGetKernelCount(count: *mut c_uint, lib: CuLibrary);
        [both straight cuLibraryGetManaged] cudaLibraryGetManaged(
            dptr: *mut CuDevicePtr, bytes: *mut usize, library: CuLibrary, name: *const c_char,
        );
        [both straight cuLibraryGetUnifiedFunction] cudaLibraryGetUnifiedFunction(
            fptr: *mut *mut c_void, library: CuLibrary, symbol: *const c_char,
        );
        [both straight cuLibraryLoadData] cudaLibraryLoadData(
            library: *mut CuLibrary, code: *const c_void, jit_options: *mut c_int,
            jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_int,
            library_option_values: *mut *mut c_void, num_library_options: c_uint,
        );
        [both straight cuLibraryLoadFromFile] cudaLibraryLoadFromFile(
            library: *mut CuLibrary, file_name: *const c_char, jit_options: *mut c_int,
            jit_options_values: *mut *mut c_void, num_jit_options: c_uint, library_options: *mut c_int,
            library_option_values: *mut *mut c_void, num_library_options: c_uint,
        );
        [both straight cuLibraryUnload] cudaLibraryUnload(library: CuLibrary);
        [cuda13 unbuilt none] cudaLogsCurrent;
        [cuda13 unbuilt none] cudaLogsDumpToFile;
        [cuda13 unbuilt none] cudaLogsDumpToMemory;
        [cuda13 unbuilt none] cudaLogsRegisterCallback;
        [cuda13 unbuilt none] cudaLogsUnregisterCallback;
        [both own cuMemAlloc_v2] cudaMalloc(pointer: *mut CuDevicePtr, bytes: usize);
        [both own cuMemAllocPitch_v2] cudaMalloc3D(pointer: *mut PitchedPtr, extent: Extent);
        [both unbuilt none] cudaMalloc3DArray;
        [both unbuilt none] cudaMallocArray;
        [both straight cuMemAllocAsync] cudaMallocAsync(dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream);
        [both straight cuMemAllocAsync_ptsz] cudaMallocAsync_ptsz(
            dptr: *mut CuDevicePtr, bytes: usize, stream: CuStream,
        );
        [both straight cuMemAllocFromPoolAsync] cudaMallocFromPoolAsync(
            dptr: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream,
        );
        [both straight cuMemAllocFromPoolAsync_ptsz] cudaMallocFromPoolAsync_ptsz(
            dptr: *mut CuDevicePtr, bytes: usize, pool: CuMemoryPool, stream: CuStream,
        );
        [both own none] cudaMallocHost(pointer: *mut *mut c_void, bytes: usize);
        [both straight cuMemAllocManaged] cudaMallocManaged(dptr: *mut CuDevicePtr, bytes: usize, flags: c_uint);
        [both unbuilt none] cudaMallocMipmappedArray;
        [both own cuMemAllocPitch_v2] cudaMallocPitch(
            pointer: *mut CuDevicePtr, pitch: *mut usize, width: usize, height: usize,
        );
        [cuda13 straight cuMemAdvise_v2] cudaMemAdvise(
            dev_ptr: CuDevicePtr, count: usize, advice: c_int, location: CuMemLocation,
        );
        [cuda12 straight cuMemAdvise] cudaMemAdvise_v12(
            dev_ptr: CuDevicePtr, count: usize, advice: c_int, device: CuDevice,
        );
        [cuda12 straight cuMemAdvise_v2] cudaMemAdvise_v2(
            dev_ptr: CuDevicePtr, count: usize, advice: c_int, location: CuMemLocation,
        );
        [cuda13 unbuilt none] cudaMemDiscardAndPrefetchBatchAsync;
        [cuda13 unbuilt none] cudaMemDiscardAndPrefetchBatchAsync_ptsz;
        [cuda13 unbuilt none] cudaMemDiscardBatchAsync;
        [cuda13 unbuilt none] cudaMemDiscardBatchAsync_ptsz;
        [cuda13 straight cuMemGetDefaultMemPool] cudaMemGetDefaultMemPool(
            pool_out: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int,
        );
        [both straight cuMemGetInfo_v2] cudaMemGetInfo(free: *mut usize, total: *mut usize);
        [cuda13 unbuilt none] cudaMemGetLocationInfo;
        [cuda13 straight cuMemGetMemPool] cudaMemGetMemPool(
            pool: *mut CuMemoryPool, location: *mut CuMemLocation, kind: c_int,
        );
        [both straight cuMemPoolCreate] cudaMemPoolCreate(pool: *mut CuMemoryPool, pool_props: *const CuMemPoolProps);
        [both straight cuMemPoolDestroy] cudaMemPoolDestroy(pool: CuMemoryPool);
        [both straight cuMemPoolExportPointer] cudaMemPoolExportPointer(
            share_data_out: *mut CuMemPoolPtrExportData, ptr: CuDevicePtr,
        );
        [both straight cuMemPoolExportToShareableHandle] cudaMemPoolExportToShareableHandle(
            handle_out: *mut c_void, pool: CuMemoryPool, handle_type: c_int, flags: c_ulonglong,
        );
        [both straight cuMemPoolGetAccess] cudaMemPoolGetAccess(
            flags: *mut c_int, mem_pool: CuMemoryPool, location: *mut CuMemLocation,
        );
        [both straight cuMemPoolGetAttribute] cudaMemPoolGetAttribute(
            pool: CuMemoryPool, attr: c_int, value: *mut c_void,
        );
        [both straight cuMemPoolImportFromShareableHandle] cudaMemPoolImportFromShareableHandle(
            pool_out: *mut CuMemoryPool, handle: *mut c_void, handle_type: c_int, flags: c_ulonglong,
        );
        [both straight cuMemPoolImportPointer] cudaMemPoolImportPointer(
            ptr_out: *mut CuDevicePtr, pool: CuMemoryPool, share_data: *mut CuMemPoolPtrExportData,
        );
        [both straight cuMemPoolSetAccess] cudaMemPoolSetAccess(
            pool: CuMemoryPool, map: *const CuMemAccessDesc, count: usize,
        );
        [both straight cuMemPoolSetAttribute] cudaMemPoolSetAttribute(
            pool: CuMemoryPool, attr: c_int, value: *mut c_void,
        );
        [both straight cuMemPoolTrimTo] cudaMemPoolTrimTo(pool: CuMemoryPool, min_bytes_to_keep: usize);
        [cuda13 straight cuMemPrefetchAsync_v2] cudaMemPrefetchAsync(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        [cuda12 straight cuMemPrefetchAsync] cudaMemPrefetchAsync_v12(
            dev_ptr: CuDevicePtr, count: usize, dst_device: CuDevice, stream: CuStream,
        );
        [cuda13 straight cuMemPrefetchAsync_v2_ptsz] cudaMemPrefetchAsync_ptsz(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        [cuda12 straight cuMemPrefetchAsync_ptsz] cudaMemPrefetchAsync_ptsz_v12(
            dev_ptr: CuDevicePtr, count: usize, dst_device: CuDevice, stream: CuStream,
        );
        [cuda12 straight cuMemPrefetchAsync_v2] cudaMemPrefetchAsync_v2(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        [cuda12 straight cuMemPrefetchAsync_v2_ptsz] cudaMemPrefetchAsync_v2_ptsz(
            dev_ptr: CuDevicePtr, count: usize, location: CuMemLocation, flags: c_uint, stream: CuStream,
        );
        [cuda13 unbuilt none] cudaMemPrefetchBatchAsync;
        [cuda13 unbuilt none] cudaMemPrefetchBatchAsync_ptsz;
        [both unbuilt none] cudaMemRangeGetAttribute;
        [both unbuilt none] cudaMemRangeGetAttributes;
        [cuda13 straight cuMemSetMemPool] cudaMemSetMemPool(
            location: *mut CuMemLocation, kind: c_int, pool: CuMemoryPool,
        );
        [both own cuMemcpy] cudaMemcpy(target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int);
        [both own cuMemcpy2DUnaligned_v2] cudaMemcpy2D(
            target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize,
            height: usize, kind: c_int,
        );
        [both unbuilt none] cudaMemcpy2DArrayToArray;
        [both unbuilt none] cudaMemcpy2DArrayToArray_ptds;
        [both own cuMemcpy2DAsync_v2] cudaMemcpy2DAsync(
            target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize,
            height: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpy2DAsync_ptsz(
            target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize,
            height: usize, kind: c_int, stream: CuStream,
        );
        [both unbuilt none] cudaMemcpy2DFromArray;
        [both unbuilt none] cudaMemcpy2DFromArrayAsync;
        [both unbuilt none] cudaMemcpy2DFromArrayAsync_ptsz;
        [both unbuilt none] cudaMemcpy2DFromArray_ptds;
        [both unbuilt none] cudaMemcpy2DToArray;
        [both unbuilt none] cudaMemcpy2DToArrayAsync;
        [both unbuilt none] cudaMemcpy2DToArrayAsync_ptsz;
        [both unbuilt none] cudaMemcpy2DToArray_ptds;
        [both own none] cudaMemcpy2D_ptds(
            target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize,
            height: usize, kind: c_int,
        );
        [both own cuMemcpy3D_v2] cudaMemcpy3D(parameters: *const Memcpy3d);
        [both own cuMemcpy3DAsync_v2] cudaMemcpy3DAsync(parameters: *const Memcpy3d, stream: CuStream);
        [both own none] cudaMemcpy3DAsync_ptsz(parameters: *const Memcpy3d, stream: CuStream);
        [cuda13 straight cuMemcpy3DBatchAsync_v2] cudaMemcpy3DBatchAsync(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [cuda12 straight cuMemcpy3DBatchAsync] cudaMemcpy3DBatchAsync_v12(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CuStream,
        );
        [cuda13 straight cuMemcpy3DBatchAsync_v2_ptsz] cudaMemcpy3DBatchAsync_ptsz(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [cuda12 straight cuMemcpy3DBatchAsync_ptsz] cudaMemcpy3DBatchAsync_ptsz_v12(
            num_ops: usize, op_list: *mut CudaMemcpy3dBatchOp, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CuStream,
        );
        [both unbuilt none] cudaMemcpy3DPeer;
        [both unbuilt none] cudaMemcpy3DPeerAsync;
        [both unbuilt none] cudaMemcpy3DPeerAsync_ptsz;
        [both unbuilt none] cudaMemcpy3DPeer_ptds;
        [cuda13 straight cuMemcpy3DWithAttributesAsync] cudaMemcpy3DWithAttributesAsync(
            op: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [cuda13 straight cuMemcpy3DWithAttributesAsync_ptsz] cudaMemcpy3DWithAttributesAsync_ptsz(
            op: *mut CudaMemcpy3dBatchOp, flags: c_ulonglong, stream: CuStream,
        );
        [both own none] cudaMemcpy3D_ptds(parameters: *const Memcpy3d);
        [both unbuilt none] cudaMemcpyArrayToArray;
        [both unbuilt none] cudaMemcpyArrayToArray_ptds;
        [both own cuMemcpyAsync] cudaMemcpyAsync(
            target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpyAsync_ptsz(
            target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int, stream: CuStream,
        );
        [cuda13 straight cuMemcpyBatchAsync_v2] cudaMemcpyBatchAsync(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CuStream,
        );
        [cuda12 straight cuMemcpyBatchAsync] cudaMemcpyBatchAsync_v12(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CuStream,
        );
        [cuda13 straight cuMemcpyBatchAsync_v2_ptsz] cudaMemcpyBatchAsync_ptsz(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CuStream,
        );
        [cuda12 straight cuMemcpyBatchAsync_ptsz] cudaMemcpyBatchAsync_ptsz_v12(
            dsts: *mut CuDevicePtr, srcs: *mut CuDevicePtr, sizes: *mut usize, count: usize,
            attrs: *mut CuMemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CuStream,
        );
        [both unbuilt none] cudaMemcpyFromArray;
        [both unbuilt none] cudaMemcpyFromArrayAsync;
        [both unbuilt none] cudaMemcpyFromArrayAsync_ptsz;
        [both unbuilt none] cudaMemcpyFromArray_ptds;
        [both own cuMemcpy] cudaMemcpyFromSymbol(
            target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int,
        );
        [both own cuMemcpyAsync] cudaMemcpyFromSymbolAsync(
            target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpyFromSymbolAsync_ptsz(
            target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpyFromSymbol_ptds(
            target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int,
        );
        [both own cuMemcpyPeer] cudaMemcpyPeer(
            target: CuDevicePtr, target_device: c_int, source: CuDevicePtr, source_device: c_int, bytes: usize,
        );
        [both own cuMemcpyPeerAsync] cudaMemcpyPeerAsync(
            target: CuDevicePtr, target_device: c_int, source: CuDevicePtr, source_device: c_int, bytes: usize,
            stream: CuStream,
        );
        [both unbuilt none] cudaMemcpyToArray;
        [both unbuilt none] cudaMemcpyToArrayAsync;
        [both unbuilt none] cudaMemcpyToArrayAsync_ptsz;
        [both unbuilt none] cudaMemcpyToArray_ptds;
        [both own cuMemcpy] cudaMemcpyToSymbol(
            symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int,
        );
        [both own cuMemcpyAsync] cudaMemcpyToSymbolAsync(
            symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpyToSymbolAsync_ptsz(
            symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int, stream: CuStream,
        );
        [both own none] cudaMemcpyToSymbol_ptds(
            symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int,
        );
        [cuda13 straight cuMemcpyWithAttributesAsync] cudaMemcpyWithAttributesAsync(
            dst: CuDevicePtr, src: CuDevicePtr, size: usize, attr: *mut CuMemcpyAttributes, stream: CuStream,
        );
        [cuda13 straight cuMemcpyWithAttributesAsync_ptsz] cudaMemcpyWithAttributesAsync_ptsz(
            dst: CuDevicePtr, src: CuDevicePtr, size: usize, attr: *mut CuMemcpyAttributes, stream: CuStream,
        );
        [both own cuMemcpy_ptds] cudaMemcpy_ptds(target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int);
        [both own cuMemsetD8_v2] cudaMemset(pointer: CuDevicePtr, value: c_int, bytes: usize);
        [both own cuMemsetD2D8_v2] cudaMemset2D(
            pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize,
        );
        [both own cuMemsetD2D8Async] cudaMemset2DAsync(
            pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize, stream: CuStream,
        );
        [both own none] cudaMemset2DAsync_ptsz(
            pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize, stream: CuStream,
        );
        [both own none] cudaMemset2D_ptds(
            pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize,
        );
        [both own cuMemsetD2D8_v2] cudaMemset3D(target: PitchedPtr, value: c_int, extent: Extent);
        [both own cuMemsetD2D8Async] cudaMemset3DAsync(
            target: PitchedPtr, value: c_int, extent: Extent, stream: CuStream,
        );
        [both own none] cudaMemset3DAsync_ptsz(target: PitchedPtr, value: c_int, extent: Extent, stream: CuStream);
        [both own none] cudaMemset3D_ptds(target: PitchedPtr, value: c_int, extent: Extent);
        [both own cuMemsetD8Async] cudaMemsetAsync(
            pointer: CuDevicePtr, value: c_int, bytes: usize, stream: CuStream,
        );
        [both own none] cudaMemsetAsync_ptsz(pointer: CuDevicePtr, value: c_int, bytes: usize, stream: CuStream);
        [both own none] cudaMemset_ptds(pointer: CuDevicePtr, value: c_int, bytes: usize);
        [both straight cuMipmappedArrayGetMemoryRequirements] cudaMipmappedArrayGetMemoryRequirements(
            memory_requirements: *mut CudaArrayMemoryRequirements, mipmap: CuMipmappedArray, device: CuDevice,
        );
        [both straight cuMipmappedArrayGetSparseProperties] cudaMipmappedArrayGetSparseProperties(
            sparse_properties: *mut CudaArraySparseProperties, mipmap: CuMipmappedArray,
        );
        [both own cuOccupancyAvailableDynamicSMemPerBlock] cudaOccupancyAvailableDynamicSMemPerBlock(
            bytes: *mut usize, host: *const c_void, blocks: c_int, threads: c_int,
        );
        [both own none] cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, host: *const c_void, threads: c_int, shared_bytes: usize,
        );
        [both own cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags]
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks: *mut c_int, host: *const c_void, threads: c_int, shared_bytes: usize, flags: c_uint,
        );
        [both own cuOccupancyMaxActiveClusters] cudaOccupancyMaxActiveClusters(
            clusters: *mut c_int, host: *const c_void, config: *const LaunchConfig,
        );
        [both own cuOccupancyMaxPotentialClusterSize] cudaOccupancyMaxPotentialClusterSize(
            size: *mut c_int, host: *const c_void, config: *const LaunchConfig,
        );
        [both own none] cudaPeekAtLastError() -> CuResult;
        [cuda13 own none] cudaPointerGetAttributes(attributes: *mut PointerAttributes13, pointer: CuDevicePtr);
        [cuda12 own none] cudaPointerGetAttributes_v12(attributes: *mut PointerAttributes, pointer: CuDevicePtr);
        [both own none] __cudaPopCallConfiguration(
            grid: *mut Dim3, block: *mut Dim3, shared_bytes: *mut usize, stream: *mut CuStream,
        );
        [both early cuProfilerStart] cudaProfilerStart();
        [both early cuProfilerStop] cudaProfilerStop();
        [both own none] __cudaPushCallConfiguration(
            grid: Dim3, block: Dim3, shared_bytes: usize, stream: CuStream,
        ) -> c_uint;
        [both own none] __cudaRegisterFatBinary(image: *mut c_void) -> *mut *mut c_void;
        [both own none] __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) -> ();
        [both own none] __cudaRegisterFunction(
            handle: *mut *mut c_void, host: *const c_void, _device_function: *mut c_char, name: *const c_char,
            _thread_limit: c_int, _thread: *mut c_void, _block: *mut c_void, _block_dimensions: *mut c_void,
            _grid_dimensions: *mut c_void, _warp_size: *mut c_int,
        ) -> ();
        [both unbuilt none] __cudaRegisterHostVar;
        [both own none] __cudaRegisterManagedVar(
            handle: *mut *mut c_void, host: *mut *mut c_void, _device_address: *mut c_char, name: *const c_char,
            _is_external: c_int, bytes: usize, _is_constant: c_int, _is_global: c_int,
        ) -> ();
        [both unbuilt none] __cudaRegisterUnifiedTable;
        [both own none] __cudaRegisterVar(
            handle: *mut *mut c_void, host: *mut c_void, _device_address: *mut c_char, name: *const c_char,
            _is_external: c_int, bytes: usize, _is_constant: c_int, _is_global: c_int,
        ) -> ();
        [cuda13 own none] cudaRuntimeGetVersion(version: *mut c_int);
        [cuda12 own none] cudaRuntimeGetVersion_v12(version: *mut c_int);
        [both own none] cudaSetDevice(device: c_int);
        [both own cuDevicePrimaryCtxSetFlags_v2] cudaSetDeviceFlags(flags: c_uint);
        [cuda12 unbuilt none] cudaSetDoubleForDevice;
        [cuda12 unbuilt none] cudaSetDoubleForHost;
        [both unbuilt none] cudaSetValidDevices;
        [cuda13 unbuilt none] cudaSignalExternalSemaphoresAsync;
        [cuda12 unbuilt none] cudaSignalExternalSemaphoresAsync_v12;
        [cuda13 unbuilt none] cudaSignalExternalSemaphoresAsync_ptsz;
        [cuda12 unbuilt none] cudaSignalExternalSemaphoresAsync_ptsz_v12;
        [cuda12 unbuilt none] cudaSignalExternalSemaphoresAsync_v2;
        [cuda12 unbuilt none] cudaSignalExternalSemaphoresAsync_v2_ptsz;
        [both straight cuStreamAddCallback] cudaStreamAddCallback(
            stream: CuStream, callback: CuStreamCallback, user_data: *mut c_void, flags: c_uint,
        );
        [both straight cuStreamAddCallback_ptsz] cudaStreamAddCallback_ptsz(
            stream: CuStream, callback: CuStreamCallback, user_data: *mut c_void, flags: c_uint,
        );
        [both straight cuStreamAttachMemAsync] cudaStreamAttachMemAsync(
            stream: CuStream, dptr: CuDevicePtr, length: usize, flags: c_uint,
        );
        [both straight cuStreamAttachMemAsync_ptsz] cudaStreamAttachMemAsync_ptsz(
            stream: CuStream, dptr: CuDevicePtr, length: usize, flags: c_uint,
        );
        [both straight cuStreamBeginCapture_v2] cudaStreamBeginCapture(stream: CuStream, mode: c_int);
        [both straight cuStreamBeginCaptureToGraph] cudaStreamBeginCaptureToGraph(
            stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode,
            dependency_data: *const CuGraphEdgeData, num_dependencies: usize, mode: c_int,
        );
        [both straight cuStreamBeginCaptureToGraph_ptsz] cudaStreamBeginCaptureToGraph_ptsz(
            stream: CuStream, graph: CuGraph, dependencies: *const CuGraphNode,
            dependency_data: *const CuGraphEdgeData, num_dependencies: usize, mode: c_int,
        );
        [both straight cuStreamBeginCapture_v2_ptsz] cudaStreamBeginCapture_ptsz(stream: CuStream, mode: c_int);
        [cuda13 unbuilt none] cudaStreamBeginRecaptureToGraph;
        [cuda13 unbuilt none] cudaStreamBeginRecaptureToGraph_ptsz;
        [both straight cuStreamCopyAttributes] cudaStreamCopyAttributes(dst_stream: CuStream, src_stream: CuStream);
        [both straight cuStreamCopyAttributes_ptsz] cudaStreamCopyAttributes_ptsz(
            dst_stream: CuStream, src_stream: CuStream,
        );
        [both own cuStreamCreate] cudaStreamCreate(stream: *mut CuStream);
        [both straight cuStreamCreate] cudaStreamCreateWithFlags(stream: *mut CuStream, flags: c_uint);
        [both straight cuStreamCreateWithPriority] cudaStreamCreateWithPriority(
            stream: *mut CuStream, flags: c_uint, priority: c_int,
        );
        [both straight cuStreamDestroy_v2] cudaStreamDestroy(stream: CuStream);
        [both straight cuStreamEndCapture] cudaStreamEndCapture(stream: CuStream, graph: *mut CuGraph);
        [both straight cuStreamEndCapture_ptsz] cudaStreamEndCapture_ptsz(stream: CuStream, graph: *mut CuGraph);
        [both straight cuStreamGetAttribute] cudaStreamGetAttribute(
            stream: CuStream, attr: c_int, value: *mut CuLaunchAttributeValue,
        );
        [both straight cuStreamGetAttribute_ptsz] cudaStreamGetAttribute_ptsz(
            stream: CuStream, attr: c_int, value: *mut CuLaunchAttributeValue,
        );
        [cuda13 straight cuStreamGetCaptureInfo_v3] cudaStreamGetCaptureInfo(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [cuda12 straight cuStreamGetCaptureInfo] cudaStreamGetCaptureInfo_v12(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64,
        );
        [cuda13 straight cuStreamGetCaptureInfo_v3_ptsz] cudaStreamGetCaptureInfo_ptsz(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [cuda12 straight cuStreamGetCaptureInfo_ptsz] cudaStreamGetCaptureInfo_ptsz_v12(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64,
        );
        [cuda12 straight cuStreamGetCaptureInfo_v2] cudaStreamGetCaptureInfo_v2(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, num_dependencies_out: *mut usize,
        );
        [cuda12 straight cuStreamGetCaptureInfo_v2_ptsz] cudaStreamGetCaptureInfo_v2_ptsz(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, num_dependencies_out: *mut usize,
        );
        [cuda12 straight cuStreamGetCaptureInfo_v3] cudaStreamGetCaptureInfo_v3(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [cuda12 straight cuStreamGetCaptureInfo_v3_ptsz] cudaStreamGetCaptureInfo_v3_ptsz(
            stream: CuStream, capture_status_out: *mut c_int, id_out: *mut u64, graph_out: *mut CuGraph,
            dependencies_out: *mut *const CuGraphNode, edge_data_out: *mut *const CuGraphEdgeData,
            num_dependencies_out: *mut usize,
        );
        [cuda13 straight cuStreamGetDevResource] cudaStreamGetDevResource(
            stream: CuStream, resource: *mut CuDevResource, kind: c_int,
        );
        [cuda13 straight cuStreamGetDevResource_ptsz] cudaStreamGetDevResource_ptsz(
            stream: CuStream, resource: *mut CuDevResource, kind: c_int,
        );
        [both straight cuStreamGetDevice] cudaStreamGetDevice(stream: CuStream, device: *mut CuDevice);
        [both straight cuStreamGetDevice_ptsz] cudaStreamGetDevice_ptsz(stream: CuStream, device: *mut CuDevice);
        [both straight cuStreamGetFlags] cudaStreamGetFlags(stream: CuStream, flags: *mut c_uint);
        [both straight cuStreamGetFlags_ptsz] cudaStreamGetFlags_ptsz(stream: CuStream, flags: *mut c_uint);
        [both straight cuStreamGetId] cudaStreamGetId(stream: CuStream, stream_id: *mut c_ulonglong);
        [both straight cuStreamGetId_ptsz] cudaStreamGetId_ptsz(stream: CuStream, stream_id: *mut c_ulonglong);
        [both straight cuStreamGetPriority] cudaStreamGetPriority(stream: CuStream, priority: *mut c_int);
        [both straight cuStreamGetPriority_ptsz] cudaStreamGetPriority_ptsz(stream: CuStream, priority: *mut c_int);
        [both straight cuStreamIsCapturing] cudaStreamIsCapturing(stream: CuStream, capture_status: *mut c_int);
        [both straight cuStreamIsCapturing_ptsz] cudaStreamIsCapturing_ptsz(
            stream: CuStream, capture_status: *mut c_int,
        );
        [both straight cuStreamQuery] cudaStreamQuery(stream: CuStream);
        [both straight cuStreamQuery_ptsz] cudaStreamQuery_ptsz(stream: CuStream);
        [both straight cuStreamSetAttribute] cudaStreamSetAttribute(
            stream: CuStream, attr: c_int, param: *const CuLaunchAttributeValue,
        );
        [both straight cuStreamSetAttribute_ptsz] cudaStreamSetAttribute_ptsz(
            stream: CuStream, attr: c_int, param: *const CuLaunchAttributeValue,
        );
        [both straight cuStreamSynchronize] cudaStreamSynchronize(stream: CuStream);
        [both straight cuStreamSynchronize_ptsz] cudaStreamSynchronize_ptsz(stream: CuStream);
        [cuda13 straight cuStreamUpdateCaptureDependencies_v2] cudaStreamUpdateCaptureDependencies(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [cuda12 straight cuStreamUpdateCaptureDependencies] cudaStreamUpdateCaptureDependencies_v12(
            stream: CuStream, dependencies: *mut CuGraphNode, num_dependencies: usize, flags: c_uint,
        );
        [cuda13 straight cuStreamUpdateCaptureDependencies_v2_ptsz] cudaStreamUpdateCaptureDependencies_ptsz(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [cuda12 straight cuStreamUpdateCaptureDependencies_ptsz] cudaStreamUpdateCaptureDependencies_ptsz_v12(
            stream: CuStream, dependencies: *mut CuGraphNode, num_dependencies: usize, flags: c_uint,
        );
        [cuda12 straight cuStreamUpdateCaptureDependencies_v2] cudaStreamUpdateCaptureDependencies_v2(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [cuda12 straight cuStreamUpdateCaptureDependencies_v2_ptsz] cudaStreamUpdateCaptureDependencies_v2_ptsz(
            stream: CuStream, dependencies: *mut CuGraphNode, dependency_data: *const CuGraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        );
        [both straight cuStreamWaitEvent] cudaStreamWaitEvent(stream: CuStream, event: CuEvent, flags: c_uint);
        [both straight cuStreamWaitEvent_ptsz] cudaStreamWaitEvent_ptsz(
            stream: CuStream, event: CuEvent, flags: c_uint,
        );
        [cuda13 unbuilt none] cudaSubgridCreate;
        [cuda13 unbuilt none] cudaSubgridWorkerGridCreate;
        [cuda13 unbuilt none] cudaSubgridWorksetCreate;
        [both early cuThreadExchangeStreamCaptureMode] cudaThreadExchangeStreamCaptureMode(mode: *mut c_int);
        [cuda12 unbuilt none] cudaThreadExit;
        [cuda12 unbuilt none] cudaThreadGetCacheConfig;
        [cuda12 unbuilt none] cudaThreadGetLimit;
        [cuda12 unbuilt none] cudaThreadSetCacheConfig;
        [cuda12 unbuilt none] cudaThreadSetLimit;
        [cuda12 straight cuCtxSynchronize] cudaThreadSynchronize();
        [both own none] __cudaUnregisterFatBinary(handle: *mut *mut c_void) -> ();
        [both straight cuUserObjectCreate] cudaUserObjectCreate(
            object_out: *mut CuUserObject, ptr: *mut c_void, destroy: CuHostFn, initial_refcount: c_uint,
            flags: c_uint,
        );
        [both straight cuUserObjectRelease] cudaUserObjectRelease(object: CuUserObject, count: c_uint);
        [both straight cuUserObjectRetain] cudaUserObjectRetain(object: CuUserObject, count: c_uint);
        [both unbuilt none] cudaVDPAUGetDevice;
        [both unbuilt none] cudaVDPAUSetVDPAUDevice;
        [cuda13 unbuilt none] cudaWaitExternalSemaphoresAsync;
        [cuda12 unbuilt none] cudaWaitExternalSemaphoresAsync_v12;
        [cuda13 unbuilt none] cudaWaitExternalSemaphoresAsync_ptsz;
        [cuda12 unbuilt none] cudaWaitExternalSemaphoresAsync_ptsz_v12;
        [cuda12 unbuilt none] cudaWaitExternalSemaphoresAsync_v2;
        [cuda12 unbuilt none] cudaWaitExternalSemaphoresAsync_v2_ptsz;
    } };
}
pub(crate) use runtime_table;

macro_rules! list {
    ($( [$since:ident $kind:ident $call:ident] $name:ident $(($($argument:tt)*))? $(-> $answer:ty)?; )*) => {
        &[$( [stringify!($name), stringify!($since), stringify!($kind), stringify!($call)] ),*]
    };
}
/// Name, since, kind and call of each row.
const ROWS: &[[&str; 4]] = runtime_table! { list };

/// The row behind a name in the library of a generation, `cuda12` or `cuda13`.
fn row(name: &str, since: &str) -> Option<&'static [&'static str; 4]> {
    let has = |name: &str| ROWS.iter().find(|row| row[0] == name);
    let old = (since == "cuda12").then(|| has(&format!("{name}_v12"))).flatten();
    old.or_else(|| has(name).filter(|row| row[1] == "both" || row[1] == since))
}

/// Whether a name of a generation's library, `cuda12` or `cuda13`, leads to a function that does what it is asked for.
#[must_use]
pub fn is_built(name: &str, since: &str) -> bool {
    row(name, since).is_some_and(|row| row[2] != "unbuilt")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{ROWS, is_built};

    #[test]
    fn rows_are_unique_and_say_what_they_rest_on() {
        let names: HashSet<_> = ROWS.iter().map(|row| row[0]).collect();
        assert_eq!(names.len(), ROWS.len());
        for [name, since, kind, call] in ROWS {
            assert!(["both", "cuda12", "cuda13"].contains(since), "{name}");
            assert!(["straight", "early", "own", "unbuilt"].contains(kind), "{name}");
            let is_a_call = partage_abi::ROWS.iter().any(|row| row.name() == *call);
            assert!(is_a_call || *call == "none", "{name}: the driver has no {call}");
            assert!(!name.ends_with("_v12") || *since == "cuda12", "{name}");
        }
    }

    #[test]
    fn every_name_that_pytorch_binds_is_built() {
        let bound = [
            ("cuda12", include_str!("../names/torch-2.6.0.txt"), 82),
            ("cuda13", include_str!("../names/torch-2.15.0.txt"), 113),
        ];
        for (since, names, count) in bound {
            let names: Vec<_> = names.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(names.len(), count);
            for name in names {
                assert!(is_built(name, since), "{name} of {since}");
            }
        }
    }
}
