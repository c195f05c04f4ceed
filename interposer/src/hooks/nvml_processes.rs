// SPDX-License-Identifier: Apache-2.0
//! NVML's process lists: only the job's own processes.
//!
//! A process is the job's when its environment began with our token (`/proc/PID/environ` is what it was started with,
//! so a program cannot drop out by changing its own), or, without a token, when it is in our control group. What we may
//! not read is somebody else's.

// Functions bear the driver's own names, and its documentation is theirs.
#![allow(non_snake_case, missing_docs)]

use core::ffi::c_uint;

use partage_abi::nvml::{NvmlDevice, NvmlProcessInfo, NvmlProcessInfoV1, NvmlProcessInfoV2, NvmlReturn};
use partage_protocol::message::TOKEN_BYTES;

use super::nvml::shared;
use crate::entry::call_nvml;
use crate::settings::PATH_BYTES;
use crate::state::State;
use crate::sys;
use crate::text::{self, Text};

/// An entry of some version of the list.
trait Process: Copy {
    fn pid(&self) -> c_uint;
}
impl Process for NvmlProcessInfo {
    fn pid(&self) -> c_uint {
        self.pid
    }
}
impl Process for NvmlProcessInfoV1 {
    fn pid(&self) -> c_uint {
        self.pid
    }
}
impl Process for NvmlProcessInfoV2 {
    fn pid(&self) -> c_uint {
        self.pid
    }
}

macro_rules! lists {
    ($( $symbol:ident: $info:ty; )*) => { $(
        pub fn $symbol(device: NvmlDevice, info_count: *mut c_uint, infos: *mut $info) -> NvmlReturn {
            let result = call_nvml!($symbol(device, info_count, infos));
            keep_ours(result, info_count, infos)
        }
    )* };
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetComputeRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetComputeRunningProcesses_v3: NvmlProcessInfo;
    nvmlDeviceGetGraphicsRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetGraphicsRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetGraphicsRunningProcesses_v3: NvmlProcessInfo;
    nvmlDeviceGetMPSComputeRunningProcesses: NvmlProcessInfoV1;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: NvmlProcessInfoV2;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: NvmlProcessInfo;
}

/// Shortens a filled list to the job's processes. A list that was too small, or only counted, is left as NVML said: the
/// number is an upper bound, which is what callers use it for.
fn keep_ours<T: Process>(result: NvmlReturn, count: *mut c_uint, infos: *mut T) -> NvmlReturn {
    if !result.is_success() || count.is_null() || infos.is_null() {
        return result;
    }
    let Some((state, _)) = shared() else { return result };
    let identity = Identity::own(state);
    // SAFETY: NVML succeeded with this pointer.
    let filled = unsafe { count.read() } as usize;
    let mut kept = 0;
    for index in 0..filled {
        // SAFETY: NVML filled that many.
        let info = unsafe { infos.add(index).read() };
        if identity.is_shared_by(info.pid()) {
            // SAFETY: `kept` never passes `index`.
            unsafe { infos.add(kept).write(info) };
            kept += 1;
        }
    }
    // SAFETY: as above.
    unsafe { count.write(kept as c_uint) };
    result
}

const VARIABLE: &[u8] = b"PARTAGE_TOKEN=";

/// What the processes of our job have in common.
#[expect(clippy::large_enum_variant, reason = "lives on one frame, and nothing may allocate")]
enum Identity {
    Token([u8; TOKEN_BYTES]),
    ControlGroup(Text<PATH_BYTES>),
}

impl Identity {
    fn own(state: &State) -> Self {
        if state.settings().has_token {
            return Self::Token(state.settings().token);
        }
        Self::ControlGroup(control_group(c"/proc/self/cgroup"))
    }

    fn is_shared_by(&self, pid: c_uint) -> bool {
        if pid == sys::pid() {
            return true;
        }
        let mut path = Text::<64>::new();
        path.push("/proc/").push_number(pid.into());
        match self {
            Self::Token(token) => {
                path.push("/environ");
                environment_has(path.as_c_str(), token)
            }
            Self::ControlGroup(own) => {
                path.push("/cgroup");
                !own.is_empty() && control_group(path.as_c_str()).as_bytes() == own.as_bytes()
            }
        }
    }
}

fn control_group(path: &core::ffi::CStr) -> Text<PATH_BYTES> {
    let mut text = Text::new();
    read_parts(path, |part| {
        text.push(part);
        true
    });
    text
}

/// Does the environment that a process was started with hold this token?
fn environment_has(path: &core::ffi::CStr, token: &[u8; TOKEN_BYTES]) -> bool {
    let mut wanted = Text::<{ 14 + 2 * TOKEN_BYTES + 1 }>::new();
    wanted.push(VARIABLE).push_hex(token);
    let wanted = wanted.as_bytes();
    // How much of the wanted entry the bytes so far match; `None` inside an entry that is another.
    let mut matched = Some(0);
    let mut found = false;
    read_parts(path, |part| {
        for byte in part {
            if *byte == 0 {
                found |= matched == Some(wanted.len());
                matched = Some(0);
            } else {
                matched = matched.filter(|at| same(wanted.get(*at), *byte)).map(|at| at + 1);
            }
        }
        !found
    });
    found
}

/// Hexadecimal digits may be written in either case.
fn same(wanted: Option<&u8>, byte: u8) -> bool {
    wanted.is_some_and(|wanted| {
        *wanted == byte || (text::hex_digit(byte).is_some() && wanted.eq_ignore_ascii_case(&byte))
    })
}

/// Reads a file in parts until it ends or `take` has enough.
fn read_parts(path: &core::ffi::CStr, mut take: impl FnMut(&[u8]) -> bool) {
    let Some(fd) = i32::try_from(sys::open(path, libc::O_RDONLY, 0))
        .ok()
        .filter(|fd| *fd >= 0)
    else {
        return;
    };
    let mut buffer = [0_u8; 4096];
    loop {
        let length = sys::read(fd, &mut buffer);
        let part = usize::try_from(length)
            .ok()
            .and_then(|length| buffer.get(..length))
            .unwrap_or(&[]);
        if part.is_empty() || !take(part) {
            break;
        }
    }
    sys::close(fd);
}
