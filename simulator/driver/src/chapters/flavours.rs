// SPDX-License-Identifier: Apache-2.0
//! Entry points that exist twice: once with the legacy stream as the default stream, once (`_ptsz`, `_ptds`) with
//! the calling thread's.

use partage_abi::types::CuResult;

use crate::state::{Answer, code};

/// Runs a body that may stop at any point with a code.
pub(super) fn answer(body: impl FnOnce() -> Answer) -> CuResult {
    code(body())
}

/// Declares both of a pair with one body: `plain per_thread (arguments; stream) => { body }`. The name after the
/// semicolon is the argument that names the stream, in the body a [`StreamName`](crate::stream::StreamName); with
/// `default name` there is no such argument and the default stream is meant. The body is an
/// [`Answer`](crate::state::Answer).
macro_rules! both_flavours {
    ($( $plain:ident $per_thread:ident ($($arg:ident: $type:ty),* $(,)?; $($stream:ident)+) => $body:block )*) => { $(
        pub fn $plain($($arg: $type),*) -> CuResult {
            both_flavours!(@bind plain $($stream)+);
            $crate::chapters::flavours::answer(|| $body)
        }

        pub fn $per_thread($($arg: $type),*) -> CuResult {
            both_flavours!(@bind per_thread $($stream)+);
            $crate::chapters::flavours::answer(|| $body)
        }
    )* };
    (@bind $flavour:ident default $stream:ident) => {
        let $stream = $crate::stream::StreamName::$flavour(CuStream::NULL);
    };
    (@bind $flavour:ident $stream:ident) => {
        let $stream = $crate::stream::StreamName::$flavour($stream);
    };
}

pub(super) use both_flavours;
