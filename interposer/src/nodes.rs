// SPDX-License-Identifier: Apache-2.0
//! Which GPUs this process may open: in a container often not all that the machine has.
//!
//! A driver reads a list of devices up to the first that it cannot open, and sees none of those behind it: a mask with
//! a device that is not there would hide the ones that are. The broker is told which nodes can be opened, and answers
//! which of the job's devices those are.

use crate::guest::sys;
use crate::guest::text::{Text, bytes_of};

/// The nodes that one word has bits for.
const NODES: u32 = 32;

/// Bit N for the node `/dev/nvidiaN` that can be opened; 0 where none can: not every driver has such nodes (WSL 2,
/// Tegra). What hinders for another reason than that the node is absent or denied counts for nothing.
pub fn openable() -> u32 {
    let mut found = 0;
    let mut is_any = false;
    for number in 0..NODES {
        let mut path = Text::<1024>::new();
        // A simulated machine has its nodes in its own folder.
        // SAFETY: `getenv` answers null or a string, which is copied at once.
        let machine = unsafe { bytes_of(libc::getenv(c"PARTAGE_SIM_DIR".as_ptr())) };
        path.push(machine).push("/dev/nvidia").push_number(u64::from(number));
        if !path.is_complete() {
            return 0;
        }
        let result = sys::can_read_and_write(path.as_c_str());
        let is_away = matches!(
            result,
            Err(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::EPERM | libc::ENXIO | libc::ENODEV)
        );
        is_any |= result.is_ok();
        found |= u32::from(!is_away) << number;
    }
    if is_any { found } else { 0 }
}
