// SPDX-License-Identifier: Apache-2.0
//! Calls that wait, and the end of streams: what was waited for may have given memory back, and has its marks.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use partage_abi::types::{CuContext, CuEvent, CuResult, CuStream};

use crate::entry::call;
use crate::pools::{self, StreamName, Waited};
use crate::real::Library;
use crate::time::{self, Settled};

pub fn cuStreamSynchronize(real: &Library, stream: CuStream) -> CuResult {
    stream_synchronised(real, StreamName::plain(stream), || {
        call!(real, cuStreamSynchronize(stream))
    })
}

pub fn cuStreamSynchronize_ptsz(real: &Library, stream: CuStream) -> CuResult {
    stream_synchronised(real, StreamName::per_thread(stream), || {
        call!(real, cuStreamSynchronize_ptsz(stream))
    })
}

fn stream_synchronised(real: &Library, stream: StreamName, wait: impl FnOnce() -> CuResult) -> CuResult {
    let settled = Settled::begin(real, Some(stream));
    let result = wait();
    settled.end(result);
    pools::synchronised(Waited::Stream(stream));
    result
}

pub fn cuEventSynchronize(real: &Library, event: CuEvent) -> CuResult {
    let result = call!(real, cuEventSynchronize(event));
    pools::synchronised(Waited::Any);
    result
}

pub fn cuCtxSynchronize(real: &Library) -> CuResult {
    context_synchronised(real, || call!(real, cuCtxSynchronize()))
}

pub fn cuCtxSynchronize_v2(real: &Library, ctx: CuContext) -> CuResult {
    context_synchronised(real, || call!(real, cuCtxSynchronize_v2(ctx)))
}

fn context_synchronised(real: &Library, wait: impl FnOnce() -> CuResult) -> CuResult {
    let settled = Settled::begin(real, None);
    let result = wait();
    settled.end(result);
    pools::synchronised(Waited::Any);
    result
}

pub fn cuStreamDestroy(real: &Library, stream: CuStream) -> CuResult {
    time::orphan(real, StreamName::plain(stream));
    call!(real, cuStreamDestroy(stream))
}

pub fn cuStreamDestroy_v2(real: &Library, stream: CuStream) -> CuResult {
    time::orphan(real, StreamName::plain(stream));
    call!(real, cuStreamDestroy_v2(stream))
}
