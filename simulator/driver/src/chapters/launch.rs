// SPDX-License-Identifier: Apache-2.0
//! Execution control: launches in all their forms, and host functions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use partage_abi::types::*;

use super::flavours::{answer, both_flavours};
use crate::event::{DISABLE_TIMING, Event, INTERPROCESS};
use crate::executor::op::HostCall;
use crate::graph::Work;
use crate::launch::{Given, Shape, Wishes, prepare, prepare_with, wishes};
use crate::library;
use crate::state::{Answer, code};
use crate::stream::StreamName;
use crate::submission::{perform, record};

fn launch(stream: StreamName, function: CuFunction, shape: Shape, given: Given, wishes: Wishes) -> Answer {
    if function.is_null() {
        return Err(CuResult::INVALID_HANDLE);
    }
    let stream = stream.find()?;
    let context = stream.context()?;
    let events = [wishes.completion_event, wishes.programmatic_event];
    let events: Vec<Arc<Event>> = events.into_iter().flatten().map(untimed).collect::<Answer<_>>()?;
    // A captured launch keeps the priority of the stream that it was captured in.
    let wishes = Wishes {
        priority: wishes.priority.or(Some(stream.priority)),
        ..wishes
    };
    let launch = prepare(&context, function, shape, given, wishes)?;
    perform(&stream, Work::Kernel(Box::new(launch)))?;
    // The manual lets both be as late as the kernel's end.
    events.iter().try_for_each(|event| record(&stream, event))
}

/// An event that a launch may record: INVALID_VALUE for one that measures time or is for other processes.
fn untimed(handle: CuEvent) -> Answer<Arc<Event>> {
    let event = Event::find(handle)?;
    match event.flags & (DISABLE_TIMING | INTERPROCESS) {
        DISABLE_TIMING => Ok(event),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

both_flavours! {
    cuLaunchKernel cuLaunchKernel_ptsz (
        function: CuFunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CuStream, params: *mut *mut c_void, extra: *mut *mut c_void; stream
    ) => {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch(stream, function, shape, Given { params, extra }, Wishes::default())
    }
    cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz (
        function: CuFunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CuStream, params: *mut *mut c_void; stream
    ) => {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        let wishes = Wishes { is_cooperative: true, ..Wishes::default() };
        launch(stream, function, shape, Given { params, extra: std::ptr::null() }, wishes)
    }
    cuLaunchHostFunc cuLaunchHostFunc_ptsz (
        stream: CuStream, function: CuHostFn, data: *mut c_void; stream
    ) => {
        let function = function.ok_or(CuResult::INVALID_VALUE)?;
        perform(&stream.find()?, Work::Host(HostCall::Function { function, data }))
    }
    cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz (
        stream: CuStream, function: CuHostFn, data: *mut c_void, sync_mode: c_uint; stream
    ) => {
        // How the device waits for the function: by itself, spinning or blocking. Here it always blocks.
        let function = function.filter(|_| sync_mode <= 2).ok_or(CuResult::INVALID_VALUE)?;
        perform(&stream.find()?, Work::Host(HostCall::Function { function, data }))
    }
}

pub fn cuLaunchKernelEx(
    config: *const CuLaunchConfig,
    function: CuFunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    code(launch_with_config(
        config,
        function,
        Given { params, extra },
        StreamName::plain,
    ))
}

pub fn cuLaunchKernelEx_ptsz(
    config: *const CuLaunchConfig,
    function: CuFunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    code(launch_with_config(
        config,
        function,
        Given { params, extra },
        StreamName::per_thread,
    ))
}

fn launch_with_config(
    config: *const CuLaunchConfig,
    function: CuFunction,
    given: Given,
    name: impl Fn(CuStream) -> StreamName,
) -> Answer {
    if config.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract a configuration; it need not be aligned.
    let config = unsafe { config.read_unaligned() };
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    };
    launch(
        name(config.hStream),
        function,
        shape,
        given,
        wishes(config.attrs, config.numAttrs)?,
    )
}

// ---- the launches of the first releases, which keep their settings with the function --------------------------

/// What was set for the next launch of a function.
#[derive(Clone, Default)]
struct Setting {
    block: [u32; 3],
    shared: u32,
    parameters: Vec<u8>,
}

/// The most that a parameter buffer can hold.
const MOST_PARAMETER_BYTES: usize = 4352;

fn settings() -> MutexGuard<'static, HashMap<usize, Setting>> {
    static SETTINGS: OnceLock<&'static Mutex<HashMap<usize, Setting>>> = OnceLock::new();
    SETTINGS
        .get_or_init(|| Box::leak(Box::default()))
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn set(function: CuFunction, change: impl FnOnce(&mut Setting) -> Answer) -> CuResult {
    code(library::lookup_function(function).and_then(|_| change(settings().entry(function.0 as usize).or_default())))
}

pub fn cuFuncSetBlockShape(function: CuFunction, x: c_int, y: c_int, z: c_int) -> CuResult {
    set(function, |setting| {
        let sizes = [x, y, z].map(|size| u32::try_from(size).unwrap_or(0));
        if sizes.contains(&0) {
            return Err(CuResult::INVALID_VALUE);
        }
        setting.block = sizes;
        Ok(())
    })
}

pub fn cuFuncSetSharedSize(function: CuFunction, bytes: c_uint) -> CuResult {
    set(function, |setting| {
        setting.shared = bytes;
        Ok(())
    })
}

pub fn cuParamSetSize(function: CuFunction, bytes: c_uint) -> CuResult {
    set(function, |setting| {
        if bytes as usize > MOST_PARAMETER_BYTES {
            return Err(CuResult::INVALID_VALUE);
        }
        setting.parameters.resize(bytes as usize, 0);
        Ok(())
    })
}

fn set_parameter(function: CuFunction, offset: c_int, value: &[u8]) -> CuResult {
    set(function, |setting| {
        let start = usize::try_from(offset).map_err(|_| CuResult::INVALID_VALUE)?;
        let end = start
            .checked_add(value.len())
            .filter(|&end| end <= MOST_PARAMETER_BYTES);
        let end = end.ok_or(CuResult::INVALID_VALUE)?;
        let size = setting.parameters.len().max(end);
        setting.parameters.resize(size, 0);
        setting.parameters[start..end].copy_from_slice(value);
        Ok(())
    })
}

pub fn cuParamSeti(function: CuFunction, offset: c_int, value: c_uint) -> CuResult {
    set_parameter(function, offset, &value.to_ne_bytes())
}

pub fn cuParamSetf(function: CuFunction, offset: c_int, value: f32) -> CuResult {
    set_parameter(function, offset, &value.to_ne_bytes())
}

pub fn cuParamSetv(function: CuFunction, offset: c_int, value: *mut c_void, bytes: c_uint) -> CuResult {
    if value.is_null() || bytes as usize > MOST_PARAMETER_BYTES {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: not null, and by the entry point's contract `bytes` bytes.
    set_parameter(function, offset, unsafe {
        std::slice::from_raw_parts(value.cast(), bytes as usize)
    })
}

pub fn cuLaunch(function: CuFunction) -> CuResult {
    cuLaunchGridAsync(function, 1, 1, CuStream::NULL)
}

pub fn cuLaunchGrid(function: CuFunction, width: c_int, height: c_int) -> CuResult {
    cuLaunchGridAsync(function, width, height, CuStream::NULL)
}

pub fn cuLaunchGridAsync(function: CuFunction, width: c_int, height: c_int, stream: CuStream) -> CuResult {
    answer(|| {
        let found = library::lookup_function(function)?;
        let setting = settings().get(&(function.0 as usize)).cloned().unwrap_or_default();
        let grid = [width, height, 1].map(|size| u32::try_from(size).unwrap_or(0));
        let stream = StreamName::plain(stream).find()?;
        let context = stream.context()?;
        found.check_context(&context)?;
        if setting.parameters.len() < found.parameter_bytes() as usize {
            return Err(CuResult::INVALID_VALUE);
        }
        let shape = Shape {
            grid,
            block: setting.block,
            shared: setting.shared,
        };
        let arguments: Arc<[u8]> = setting.parameters[..found.parameter_bytes() as usize].into();
        let launch = prepare_with(&context, found, shape, arguments, Wishes::default())?;
        perform(&stream, Work::Kernel(Box::new(launch)))
    })
}
