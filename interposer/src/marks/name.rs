// SPDX-License-Identifier: Apache-2.0
//! A stream as lanes know it.

use partage_abi::types::CuContext;

use crate::guard;
use crate::real::{Library, call};
use crate::stream::StreamName;

/// The handles that name default streams.
pub const LEGACY: usize = 1;
/// See [`LEGACY`].
pub const PER_THREAD: usize = 2;

/// A stream as lanes know it.
pub struct Name {
    /// Differs from that of every other stream.
    pub key: u64,
    /// Its context.
    pub context: u64,
    /// How the driver is to be told of it.
    pub stream: StreamName,
}

impl Name {
    /// Default streams are a context's, or a context's and a thread's; other handles are unique.
    pub fn of(real: &Library, stream: StreamName) -> Self {
        let mut context = CuContext::NULL;
        let _ = call!(real, cuCtxGetCurrent(&raw mut context));
        let context = context.0 as u64;
        let handle = stream.handle.0 as usize;
        let key = match (handle, stream.is_per_thread) {
            (PER_THREAD, _) | (0, true) => context.rotate_left(8) ^ guard::thread_key() | PER_THREAD as u64,
            (LEGACY, _) | (0, false) => context.wrapping_add(LEGACY as u64),
            _ => handle as u64,
        };
        Self { key, context, stream }
    }
}
