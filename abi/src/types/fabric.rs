// SPDX-License-Identifier: Apache-2.0
//! Multicast objects, cliques, logical endpoints and fabric copies.

use super::*;

c_layouts! {
    struct CuMulticastObjectProp = "CUmulticastObjectProp" {
        numDevices: c_uint,
        size: usize,
        handleTypes: c_ulonglong,
        flags: c_ulonglong,
    }
    struct CuCliqueInfo = "CUcliqueInfo" {
        kind = "type": c_int,
        id: c_uint,
    }
    struct CuLogicalEndpointPropCastUnicast = "CUlogicalEndpointProp.unicast" {
        device: CuDevice,
    }
    struct CuLogicalEndpointPropCastMulticast = "CUlogicalEndpointProp.multicast" {
        numDevices: c_uint,
    }
    union CuLogicalEndpointPropCast = "" {
        unicast: CuLogicalEndpointPropCastUnicast,
        multicast: CuLogicalEndpointPropCastMulticast,
    }
    struct CuLogicalEndpointProp = "CUlogicalEndpointProp" {
        kind = "type": c_int,
        cast = "unicast": CuLogicalEndpointPropCast,
        size: c_ulonglong,
        ipcHandleTypes: c_uint,
        flags: c_uint,
    }
    struct CuFabricCpyOperandOpPtr = "CUfabricCpyOperand.op.ptr" {
        ptr: CuDevicePtr,
        locHint: CuMemLocation,
    }
    struct CuFabricCpyOperandOpLe = "CUfabricCpyOperand.op.le" {
        id: CuLogicalEndpointId,
        offset: u64,
    }
    union CuFabricCpyOperandOp = "CUfabricCpyOperand.op" {
        ptr: CuFabricCpyOperandOpPtr,
        le: CuFabricCpyOperandOpLe,
    }
    struct CuFabricCpyOperand = "CUfabricCpyOperand" {
        kind = "type": c_int,
        op: CuFabricCpyOperandOp,
    }
    struct CudaFabricCopyBatchOp = "CUDA_FABRIC_COPY_BATCH_OP" {
        src: CuFabricCpyOperand,
        dst: CuFabricCpyOperand,
        size: usize,
        flags: c_uint,
    }
    struct CudaFabricCpyBatchNodeParams = "CUDA_FABRIC_CPY_BATCH_NODE_PARAMS" {
        numOps: usize,
        opList: *mut CudaFabricCopyBatchOp,
        flags: c_ulonglong,
        ctx: CuContext,
    }
}
