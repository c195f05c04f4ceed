// SPDX-License-Identifier: Apache-2.0
//! Functions of the program that run in stream order.

use std::ffi::c_void;

use partage_abi::types::{CuResult, CuStream};

use crate::context::Context;

/// A function and its argument.
#[derive(Clone, Copy, Debug)]
pub enum HostCall {
    /// `cuLaunchHostFunc`: not called when the context has failed.
    Function {
        /// What to call.
        function: unsafe extern "C" fn(*mut c_void),
        /// With what.
        data: *mut c_void,
    },
    /// `cuStreamAddCallback`: always called, and told the context's state.
    Callback {
        /// What to call.
        callback: unsafe extern "C" fn(CuStream, CuResult, *mut c_void),
        /// The stream as the program named it.
        stream: CuStream,
        /// With what.
        data: *mut c_void,
    },
}

// SAFETY: the program says by submitting it that the function may be called on another thread with this argument.
unsafe impl Send for HostCall {}
// SAFETY: as above; nothing is read through the pointers here.
unsafe impl Sync for HostCall {}

impl HostCall {
    /// Calls it.
    pub fn run(&self, context: &Context) {
        let state = context.check();
        match *self {
            // SAFETY: the program passed this function and this argument for each other.
            Self::Function { function, data } if state.is_ok() => unsafe { function(data) },
            Self::Function { .. } => {}
            Self::Callback { callback, stream, data } => {
                let state = state.err().unwrap_or(CuResult::SUCCESS);
                // SAFETY: as above.
                unsafe { callback(stream, state, data) };
            }
        }
    }
}
