// SPDX-License-Identifier: Apache-2.0
//! The functions of [`chapters`](super) for programs whose default stream is the thread's own: `_ptsz` where a stream
//! is an argument, `_ptds` where it is not.

use partage_abi::types::*;

use super::*;
use crate::types::{Dim3, Extent, Memcpy3d, PitchedPtr};

/// The stream that is meant.
pub(super) fn own(stream: CuStream) -> CuStream {
    if stream.is_null() { CuStream::PER_THREAD } else { stream }
}

/// Runs what was put into the thread's own stream to its end, as the synchronous functions do.
fn finish(begun: CuResult) -> CuResult {
    if !begun.is_success() {
        return begun;
    }
    crate::driver::cuStreamSynchronize(CuStream::PER_THREAD)
}

macro_rules! in_own_stream {
    ($( $name:ident = $plain:ident ($($arg:ident: $type:ty),*); )*) => { $(
        /// As the function without the ending, in the thread's own default stream.
        pub fn $name($($arg: $type,)* stream: CuStream) -> CuResult {
            $plain($($arg,)* own(stream))
        }
    )* };
}

in_own_stream! {
    cudaMemcpyAsync_ptsz = cudaMemcpyAsync(target: CuDevicePtr, source: CuDevicePtr, bytes: usize, kind: c_int);
    cudaMemcpy2DAsync_ptsz = cudaMemcpy2DAsync(
        target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize, height: usize,
        kind: c_int
    );
    cudaMemcpy3DAsync_ptsz = cudaMemcpy3DAsync(parameters: *const Memcpy3d);
    cudaMemcpyToSymbolAsync_ptsz = cudaMemcpyToSymbolAsync(
        symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int
    );
    cudaMemcpyFromSymbolAsync_ptsz = cudaMemcpyFromSymbolAsync(
        target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int
    );
    cudaMemsetAsync_ptsz = cudaMemsetAsync(pointer: CuDevicePtr, value: c_int, bytes: usize);
    cudaMemset2DAsync_ptsz = cudaMemset2DAsync(
        pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize
    );
    cudaMemset3DAsync_ptsz = cudaMemset3DAsync(target: PitchedPtr, value: c_int, extent: Extent);
    cudaLaunchKernel_ptsz = cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize
    );
    __cudaLaunchKernel_ptsz = __cudaLaunchKernel(
        kernel: CuKernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize
    );
    cudaLaunchCooperativeKernel_ptsz = cudaLaunchCooperativeKernel(
        host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize
    );
}

macro_rules! in_own_stream_to_the_end {
    ($( $name:ident = $plain:ident ($($arg:ident: $type:ty),*); )*) => { $(
        /// As the function without the ending, in the thread's own default stream.
        pub fn $name($($arg: $type),*) -> CuResult {
            finish($plain($($arg,)* CuStream::PER_THREAD))
        }
    )* };
}

in_own_stream_to_the_end! {
    cudaMemcpy2D_ptds = cudaMemcpy2DAsync(
        target: CuDevicePtr, target_pitch: usize, source: CuDevicePtr, source_pitch: usize, width: usize, height: usize,
        kind: c_int
    );
    cudaMemcpy3D_ptds = cudaMemcpy3DAsync(parameters: *const Memcpy3d);
    cudaMemcpyToSymbol_ptds = cudaMemcpyToSymbolAsync(
        symbol: *const c_void, source: CuDevicePtr, bytes: usize, offset: usize, kind: c_int
    );
    cudaMemcpyFromSymbol_ptds = cudaMemcpyFromSymbolAsync(
        target: CuDevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int
    );
    cudaMemset_ptds = cudaMemsetAsync(pointer: CuDevicePtr, value: c_int, bytes: usize);
    cudaMemset2D_ptds = cudaMemset2DAsync(
        pointer: CuDevicePtr, pitch: usize, value: c_int, width: usize, height: usize
    );
    cudaMemset3D_ptds = cudaMemset3DAsync(target: PitchedPtr, value: c_int, extent: Extent);
}
