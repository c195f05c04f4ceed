// SPDX-License-Identifier: Apache-2.0
//! Calls that wait, and the end of streams: what was waited for may have given memory back, and has its marks.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use partage_abi::types::{CuContext, CuEvent, CuResult, CuStream};

use crate::marks::{self, Settled};
use crate::memory::pools::{self, Waited};
use crate::real::Library;
use crate::real::call;
use crate::stream::StreamName;

pub fn cuStreamSynchronize(real: &Library, stream: CuStream) -> CuResult {
    let name = StreamName::plain(stream);
    let settled = Settled::begin(real, Some(name));
    let result = call!(real, cuStreamSynchronize(stream));
    waited(settled, result, Waited::Stream(name))
}

pub fn cuStreamSynchronize_ptsz(real: &Library, stream: CuStream) -> CuResult {
    let name = StreamName::per_thread(stream);
    let settled = Settled::begin(real, Some(name));
    let result = call!(real, cuStreamSynchronize_ptsz(stream));
    waited(settled, result, Waited::Stream(name))
}

fn waited(settled: Settled, result: CuResult, waited: Waited) -> CuResult {
    settled.end(result);
    pools::synchronised(waited);
    result
}

pub fn cuEventSynchronize(real: &Library, event: CuEvent) -> CuResult {
    let result = call!(real, cuEventSynchronize(event));
    pools::synchronised(Waited::Any);
    result
}

pub fn cuCtxSynchronize(real: &Library) -> CuResult {
    let settled = Settled::begin(real, None);
    let result = call!(real, cuCtxSynchronize());
    waited(settled, result, Waited::Any)
}

pub fn cuCtxSynchronize_v2(real: &Library, ctx: CuContext) -> CuResult {
    let settled = Settled::begin(real, None);
    let result = call!(real, cuCtxSynchronize_v2(ctx));
    waited(settled, result, Waited::Any)
}

pub fn cuStreamDestroy(real: &Library, stream: CuStream) -> CuResult {
    marks::orphan(real, StreamName::plain(stream));
    call!(real, cuStreamDestroy(stream))
}

pub fn cuStreamDestroy_v2(real: &Library, stream: CuStream) -> CuResult {
    marks::orphan(real, StreamName::plain(stream));
    call!(real, cuStreamDestroy_v2(stream))
}
