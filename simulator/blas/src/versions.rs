// SPDX-License-Identifier: Apache-2.0
//! Versions that programs ask for at their start, and cudnn's, of which nothing else is built.

use core::ffi::{c_char, c_int, c_void};

use crate::handle::{answer, exports, state};
use crate::status::{Outcome, Status};

/// Major, minor, patch of the libraries that stand for CUDA 12 and 13.
const BLAS_12: [c_int; 3] = [12, 9, 0];
const BLAS_13: [c_int; 3] = [13, 0, 0];
/// What the stand-ins for the runtimes say.
const RUNTIME_12: usize = 12_090;
const RUNTIME_13: usize = 13_000;
/// PyTorch refuses a cudnn older than the one that it was built for, of which this is the newest (2.15.0).
const CUDNN: [c_int; 3] = [9, 26, 0];

fn number([major, minor, patch]: [c_int; 3]) -> c_int {
    major * 10_000 + minor * 100 + patch
}

fn property(parts: [c_int; 3], which: c_int, to: *mut c_int) -> Outcome<()> {
    let part = usize::try_from(which).ok().and_then(|which| parts.get(which));
    answer(to, *part.ok_or(Status::INVALID_VALUE)?)
}

exports! {
    partage_cublasGetVersion_v2(handle: *mut c_void, to: *mut c_int)
        state(handle).and_then(|_| answer(to, number(BLAS_13)));
    partage_cublasGetVersion_v2_v12(handle: *mut c_void, to: *mut c_int)
        state(handle).and_then(|_| answer(to, number(BLAS_12)));
    partage_cublasGetProperty(which: c_int, to: *mut c_int) property(BLAS_13, which, to);
    partage_cublasGetProperty_v12(which: c_int, to: *mut c_int) property(BLAS_12, which, to);
    partage_cublasLtGetProperty(which: c_int, to: *mut c_int) property(BLAS_13, which, to);
    partage_cublasLtGetProperty_v12(which: c_int, to: *mut c_int) property(BLAS_12, which, to);
}

macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        #[allow(non_snake_case, reason = "the library's name")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> usize {
            $value
        }
    )*};
}
numbers! {
    partage_cublasGetCudartVersion = RUNTIME_13;
    partage_cublasGetCudartVersion_v12 = RUNTIME_12;
    partage_cublasLtGetVersion = number(BLAS_13) as usize;
    partage_cublasLtGetVersion_v12 = number(BLAS_12) as usize;
    partage_cublasLtGetCudartVersion = RUNTIME_13;
    partage_cublasLtGetCudartVersion_v12 = RUNTIME_12;
    partage_cudnnGetVersion = number(CUDNN) as usize;
    partage_cudnnGetCudartVersion = runtime_of_this_process();
}

/// That of the runtime that is loaded: one file serves both.
fn runtime_of_this_process() -> usize {
    // SAFETY: a C string; nothing is loaded that was not.
    let old = unsafe { libc::dlopen(c"libcudart.so.12".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if old.is_null() {
        return RUNTIME_13;
    }
    // SAFETY: a handle of `dlopen`, which keeps the library from going no longer.
    unsafe { libc::dlclose(old) };
    RUNTIME_12
}

/// `cudnnGetProperty`
#[allow(non_snake_case, reason = "the library's name")]
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudnnGetProperty(which: c_int, to: *mut c_int) -> c_int {
    const BAD_PARAM: c_int = 2000;
    property(CUDNN, which, to).map_or(BAD_PARAM, |()| 0)
}

/// `cudnnGetErrorString`: the codes that cudnn's refusals answer, and the classes of the others.
#[allow(non_snake_case, reason = "the library's name")]
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudnnGetErrorString(status: c_int) -> *const c_char {
    match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
        2000..3000 => c"CUDNN_STATUS_BAD_PARAM",
        3000..4000 => c"CUDNN_STATUS_NOT_SUPPORTED",
        4000..5000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        5000..6000 => c"CUDNN_STATUS_EXECUTION_FAILED",
        _ => c"CUDNN_UNKNOWN_STATUS",
    }
    .as_ptr()
}
