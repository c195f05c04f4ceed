// SPDX-License-Identifier: Apache-2.0
//! Handles of cublas and cublasLt. A handle is a number that is checked: one that was destroyed or never made is
//! refused, never followed. Programs pass a handle of cublas where one of cublasLt is asked, so both are the same.

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::driver::driver;
use crate::status::{Outcome, Status};

/// What a handle holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The stream that work goes to.
    pub stream: usize,
    /// True where alpha, beta and results are in device memory.
    pub on_device: bool,
    /// `cublasMath_t`, kept and told: a sum is in single precision or better in every mode.
    math: c_int,
    /// `cublasAtomicsMode_t`, kept and told: nothing here uses atomics.
    atomics: c_int,
    /// Kept and told.
    multiprocessors: c_int,
}

struct Handles {
    live: BTreeMap<usize, State>,
    last: usize,
}

/// Apart from anything that a program could mistake for memory.
const FIRST: usize = 0x6275_0000_0000;
const APART: usize = 64;

static HANDLES: Mutex<Handles> = Mutex::new(Handles {
    live: BTreeMap::new(),
    last: FIRST,
});

fn with<T>(handle: *mut c_void, act: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
    let mut handles = HANDLES.lock().unwrap_or_else(|broken| broken.into_inner());
    act(handles
        .live
        .get_mut(&(handle as usize))
        .ok_or(Status::NOT_INITIALIZED)?)
}

/// What a handle holds now.
pub fn state(handle: *mut c_void) -> Outcome<State> {
    with(handle, |state| Ok(*state))
}

fn create(to: *mut *mut c_void) -> Outcome<()> {
    if to.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    driver()?.ensure_context()?;
    let mut handles = HANDLES.lock().unwrap_or_else(|broken| broken.into_inner());
    handles.last += APART;
    let handle = handles.last;
    handles.live.insert(handle, State::default());
    // SAFETY: not null, and a place for a handle by contract.
    unsafe { to.write(handle as *mut c_void) };
    Ok(())
}

fn destroy(handle: *mut c_void) -> Outcome<()> {
    let mut handles = HANDLES.lock().unwrap_or_else(|broken| broken.into_inner());
    match handles.live.remove(&(handle as usize)) {
        Some(_) => Ok(()),
        None => Err(Status::NOT_INITIALIZED),
    }
}

/// Writes an answer to a place of the caller's.
pub fn answer<T>(to: *mut T, value: T) -> Outcome<()> {
    if to.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, and a place for a value by contract.
    unsafe { to.write(value) };
    Ok(())
}

macro_rules! exports {
    ($($name:ident($($argument:ident: $type:ty),*) $body:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        #[allow(non_snake_case, reason = "the library's name")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> $crate::status::Status {
            $crate::status::status_of($crate::turn::begin().and_then(|_turn| $body))
        }
    )*};
}
pub(crate) use exports;

exports! {
    partage_cublasCreate_v2(to: *mut *mut c_void) create(to);
    partage_cublasLtCreate(to: *mut *mut c_void) create(to);
    partage_cublasDestroy_v2(handle: *mut c_void) destroy(handle);
    partage_cublasLtDestroy(handle: *mut c_void) destroy(handle);
    partage_cublasSetStream_v2(handle: *mut c_void, stream: *mut c_void) with(handle, |state| {
        state.stream = stream as usize;
        Ok(())
    });
    partage_cublasGetStream_v2(handle: *mut c_void, to: *mut *mut c_void)
        with(handle, |state| answer(to, state.stream as *mut c_void));
    // Nothing here needs a workspace; one that is given stays the caller's.
    partage_cublasSetWorkspace_v2(handle: *mut c_void, _workspace: *mut c_void, _bytes: usize)
        with(handle, |_| Ok(()));
    partage_cublasSetPointerMode_v2(handle: *mut c_void, mode: c_int) with(handle, |state| match mode {
        0 | 1 => {
            state.on_device = mode == 1;
            Ok(())
        }
        _ => Err(Status::INVALID_VALUE),
    });
    partage_cublasGetPointerMode_v2(handle: *mut c_void, to: *mut c_int)
        with(handle, |state| answer(to, c_int::from(state.on_device)));
    partage_cublasSetMathMode(handle: *mut c_void, mode: c_int) with(handle, |state| match mode & !16 {
        0..=4 | 8 => {
            state.math = mode;
            Ok(())
        }
        _ => Err(Status::INVALID_VALUE),
    });
    partage_cublasGetMathMode(handle: *mut c_void, to: *mut c_int) with(handle, |state| answer(to, state.math));
    partage_cublasSetAtomicsMode(handle: *mut c_void, mode: c_int) with(handle, |state| match mode {
        0 | 1 => {
            state.atomics = mode;
            Ok(())
        }
        _ => Err(Status::INVALID_VALUE),
    });
    partage_cublasGetAtomicsMode(handle: *mut c_void, to: *mut c_int) with(handle, |state| answer(to, state.atomics));
    partage_cublasSetSmCountTarget(handle: *mut c_void, count: c_int) with(handle, |state| {
        if count < 0 {
            return Err(Status::INVALID_VALUE);
        }
        state.multiprocessors = count;
        Ok(())
    });
    partage_cublasGetSmCountTarget(handle: *mut c_void, to: *mut c_int)
        with(handle, |state| answer(to, state.multiprocessors));
}
