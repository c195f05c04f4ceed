// SPDX-License-Identifier: Apache-2.0
//! What is mapped where in this process, as the kernel says.

use core::ffi::c_int;

use super::{sys, text};

/// Do two addresses lie in one mapping? `false` too where the kernel does not say.
pub fn is_one_mapping(one: usize, other: usize) -> bool {
    let Ok(fd) = c_int::try_from(sys::open_own(c"maps", libc::O_RDONLY)) else {
        return false;
    };
    if fd < 0 {
        return false;
    }
    // `START-END ...`, a line for each mapping; only the two numbers matter.
    let (mut start, mut number, mut is_in_range) = (0_usize, 0_usize, true);
    let mut is_one = false;
    let mut buffer = [0; 1024];
    while let Some(part) = usize::try_from(sys::read(fd, &mut buffer))
        .ok()
        .and_then(|length| buffer.get(..length))
        && !part.is_empty()
    {
        for byte in part {
            match byte {
                b'\n' => (number, is_in_range) = (0, true),
                b'-' if is_in_range => (start, number) = (number, 0),
                b' ' if is_in_range => {
                    let range = start..number;
                    is_one |= range.contains(&one) && range.contains(&other);
                    is_in_range = false;
                }
                digit if is_in_range => {
                    number = number << 4 | text::hex_digit(*digit).map_or(0, usize::from);
                }
                _ => {}
            }
        }
    }
    sys::close(fd);
    is_one
}
