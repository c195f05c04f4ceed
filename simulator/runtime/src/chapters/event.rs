// SPDX-License-Identifier: Apache-2.0
//! Events, also those of other processes.

use std::ffi::c_uint;

use partage_abi::types::{CuEvent, CuIpcEventHandle, CuStream};

use crate::driver::call;
use crate::rows::rows;

rows! {
    both inside cuEventCreate: cudaEventCreate(event: *mut CuEvent) { call!(cuEventCreate(event, 0)) }
    both inside cuEventCreate: cudaEventCreateWithFlags(event: *mut CuEvent, flags: c_uint) {
        call!(cuEventCreate(event, flags))
    }
    both inside cuEventDestroy_v2: cudaEventDestroy(event: CuEvent) { call!(cuEventDestroy_v2(event)) }
    both inside cuEventElapsedTime: cudaEventElapsedTime(milliseconds: *mut f32, start: CuEvent, end: CuEvent) {
        call!(cuEventElapsedTime(milliseconds, start, end))
    }
    both inside cuEventQuery: cudaEventQuery(event: CuEvent) { call!(cuEventQuery(event)) }
    both inside cuEventRecord: cudaEventRecord(event: CuEvent, stream: CuStream) { call!(cuEventRecord(event, stream)) }
    both inside cuEventRecord_ptsz: cudaEventRecord_ptsz(event: CuEvent, stream: CuStream) {
        call!(cuEventRecord_ptsz(event, stream))
    }
    both inside cuEventRecordWithFlags: cudaEventRecordWithFlags(event: CuEvent, stream: CuStream, flags: c_uint) {
        call!(cuEventRecordWithFlags(event, stream, flags))
    }
    both inside cuEventRecordWithFlags_ptsz: cudaEventRecordWithFlags_ptsz(
        event: CuEvent, stream: CuStream, flags: c_uint,
    ) {
        call!(cuEventRecordWithFlags_ptsz(event, stream, flags))
    }
    both inside cuEventSynchronize: cudaEventSynchronize(event: CuEvent) { call!(cuEventSynchronize(event)) }
    both inside cuIpcGetEventHandle: cudaIpcGetEventHandle(handle: *mut CuIpcEventHandle, event: CuEvent) {
        call!(cuIpcGetEventHandle(handle, event))
    }
    both inside cuIpcOpenEventHandle: cudaIpcOpenEventHandle(event: *mut CuEvent, handle: CuIpcEventHandle) {
        call!(cuIpcOpenEventHandle(event, handle))
    }
}
