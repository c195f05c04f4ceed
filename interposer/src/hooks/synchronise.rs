// SPDX-License-Identifier: Apache-2.0
//! Calls that wait: what they waited for may have given memory back.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use partage_abi::types::{CuContext, CuEvent, CuResult, CuStream};

use crate::entry::call;
use crate::pools::{self, StreamName, Waited};
use crate::real::Library;

pub fn cuStreamSynchronize(real: &Library, stream: CuStream) -> CuResult {
    let result = call!(real, cuStreamSynchronize(stream));
    pools::synchronised(Waited::Stream(StreamName {
        handle: stream,
        is_per_thread: false,
    }));
    result
}

pub fn cuStreamSynchronize_ptsz(real: &Library, stream: CuStream) -> CuResult {
    let result = call!(real, cuStreamSynchronize_ptsz(stream));
    pools::synchronised(Waited::Stream(StreamName {
        handle: stream,
        is_per_thread: true,
    }));
    result
}

pub fn cuEventSynchronize(real: &Library, event: CuEvent) -> CuResult {
    let result = call!(real, cuEventSynchronize(event));
    pools::synchronised(Waited::Any);
    result
}

pub fn cuCtxSynchronize(real: &Library) -> CuResult {
    let result = call!(real, cuCtxSynchronize());
    pools::synchronised(Waited::Any);
    result
}

pub fn cuCtxSynchronize_v2(real: &Library, ctx: CuContext) -> CuResult {
    let result = call!(real, cuCtxSynchronize_v2(ctx));
    pools::synchronised(Waited::Any);
    result
}
