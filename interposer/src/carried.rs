// SPDX-License-Identifier: Apache-2.0
//! The job's token in the path by which this library was loaded: what is left of a job in a process that kept
//! `LD_PRELOAD` and lost every other variable, and its parents.
//!
//! `partage run` writes the path of its copy with a step that changes nothing for each bit of the token, the highest
//! first: `/` for 0, `/.` for 1. So no job needs a file of its own, which somebody would have to remove:
//!
//! ```text
//!   /tmp/partage-0/lib   /.  /  /. …   /libpartage-0.1.0-….so
//!   the copy's folder    the token     the copy
//! ```

use partage_protocol::message::TOKEN_BYTES;

use crate::guest::text::bytes_of;
use crate::guest::weak;

/// What the path says.
#[derive(Clone, Copy)]
pub struct Carried {
    /// The job's token.
    pub token: [u8; TOKEN_BYTES],
    /// The folder of the copy.
    pub folder: &'static [u8],
}

/// What the path of this library says; `None` where it was loaded by another, and in a program that has more rights
/// than whoever started it.
pub fn read() -> Option<Carried> {
    // SAFETY: a plain question.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let info = weak::dladdr(read as *const () as *const _)?;
    // SAFETY: null or the name that the linker keeps of us, as long as we are loaded.
    let path: &'static [u8] = unsafe { bytes_of(info.dli_fname) };
    let end = path.iter().rposition(|byte| *byte == b'/')?;
    decode(path.get(..end)?)
}

fn decode(mut steps: &'static [u8]) -> Option<Carried> {
    let mut token = [0; TOKEN_BYTES];
    for byte in token.iter_mut().rev() {
        for bit in 0..8 {
            let dot = steps.strip_suffix(b"/.");
            *byte |= u8::from(dot.is_some()) << bit;
            steps = dot.or_else(|| steps.strip_suffix(b"/"))?;
        }
    }
    let is_whole = steps.starts_with(b"/") && !steps.ends_with(b"/");
    is_whole.then_some(Carried { token, folder: steps })
}
