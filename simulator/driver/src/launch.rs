// SPDX-License-Identifier: Apache-2.0
//! From the arguments of a launch to an operation: checks with the driver's codes, and parameters copied, because the
//! program may change them as soon as the call returns.

use std::ffi::c_void;
use std::sync::Arc;

use partage_abi::types::{CuEvent, CuFunction, CuLaunchAttribute, CuResult};
use partage_machine::Device;

use crate::context::Context;
use crate::executor::op::KernelLaunch;
use crate::function::Function;
use crate::library;
use crate::module;
use crate::occupancy::{Demand, Limits};
use crate::state::{Answer, driver};

/// `CU_LAUNCH_PARAM_*`: what an entry of `extra` is.
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;
/// `CU_DEVICE_ATTRIBUTE_*`: limits of a block and of a grid; their x, y, z follow each other.
const MAX_THREADS_PER_BLOCK: i32 = 1;
const MAX_BLOCK_DIM_X: i32 = 2;
const MAX_GRID_DIM_X: i32 = 5;
/// `CU_LAUNCH_ATTRIBUTE_*`.
const ATTRIBUTE_COOPERATIVE: i32 = 2;
const ATTRIBUTE_CLUSTER: i32 = 4;
const ATTRIBUTE_PROGRAMMATIC_EVENT: i32 = 7;
const ATTRIBUTE_PRIORITY: i32 = 8;
const ATTRIBUTE_COMPLETION_EVENT: i32 = 12;
const ATTRIBUTE_DEVICE_UPDATABLE: i32 = 13;
const LAST_ATTRIBUTE: i32 = 18;
/// Blocks of a cluster that every device with clusters can run.
const MOST_CLUSTER_BLOCKS: u64 = 8;

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
}

/// The two ways in which a program hands in parameters.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// An array of pointers, one for each parameter.
    pub params: *const *mut c_void,
    /// A list of keys and values that leads to one buffer.
    pub extra: *const *mut c_void,
}

/// What launch attributes ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// All blocks must be resident at once.
    pub is_cooperative: bool,
    /// Blocks of a cluster; 0 without clusters.
    pub cluster: [u32; 3],
    /// Overrides the stream's priority.
    pub priority: Option<i32>,
    /// Recorded when all blocks have triggered it, by the kernel's end at the latest.
    pub programmatic_event: Option<CuEvent>,
    /// Recorded when all blocks have begun.
    pub completion_event: Option<CuEvent>,
}

/// Makes a launch in a context.
///
/// INVALID_HANDLE for a function that is not there or is another context's, INVALID_VALUE for sizes or parameters that
/// cannot be, LAUNCH_OUT_OF_RESOURCES for more threads than the kernel allows, COOPERATIVE_LAUNCH_TOO_LARGE.
pub fn prepare(
    context: &Arc<Context>,
    function: CuFunction,
    shape: Shape,
    given: Given,
    wishes: Wishes,
) -> Answer<KernelLaunch> {
    let function = library::lookup_function(function)?;
    function.check_context(context)?;
    let arguments = arguments(&function, given)?;
    prepare_with(context, function, shape, arguments, wishes)
}

/// As [`prepare`], with the parameters at hand.
pub fn prepare_with(
    context: &Arc<Context>,
    function: Arc<Function>,
    shape: Shape,
    arguments: Arc<[u8]>,
    wishes: Wishes,
) -> Answer<KernelLaunch> {
    let device = &driver()?.at(context.device);
    if let Some(why) = function.kernel.refusal() {
        // A real driver would have carried it out: say why this one does not.
        module::say_once(&format!(
            "kernel {} is refused with NOT_SUPPORTED (801): PTX line {}: {}",
            function.name(),
            why.line,
            why.reason
        ));
        return Err(CuResult::NOT_SUPPORTED);
    }
    check_shape(device, &shape)?;
    let threads: u32 = shape.block.iter().product();
    if threads > function.max_threads(device) {
        return Err(CuResult::LAUNCH_OUT_OF_RESOURCES);
    }
    if u64::from(shape.shared) > u64::from(function.max_dynamic_shared(device)) {
        return Err(CuResult::INVALID_VALUE);
    }
    check_cluster(&shape, wishes.cluster)?;
    if wishes.is_cooperative {
        check_residency(device, &function, &shape)?;
    }
    Ok(KernelLaunch {
        function,
        context: Arc::clone(context),
        grid: shape.grid,
        block: shape.block,
        shared: shape.shared,
        arguments,
        is_cooperative: wishes.is_cooperative,
        priority: wishes.priority,
    })
}

fn check_shape(device: &Device, shape: &Shape) -> Answer {
    let most = |attribute| {
        device
            .attribute(attribute)
            .and_then(|most| u64::try_from(most).ok())
            .unwrap_or(0)
    };
    for axis in 0..3 {
        let (blocks, threads) = (u64::from(shape.grid[axis]), u64::from(shape.block[axis]));
        let is_grid = (1..=most(MAX_GRID_DIM_X + axis as i32)).contains(&blocks);
        let is_block = (1..=most(MAX_BLOCK_DIM_X + axis as i32)).contains(&threads);
        if !is_grid || !is_block {
            return Err(CuResult::INVALID_VALUE);
        }
    }
    let threads: u64 = shape.block.iter().map(|&size| u64::from(size)).product();
    if threads > most(MAX_THREADS_PER_BLOCK) {
        Err(CuResult::INVALID_VALUE)
    } else {
        Ok(())
    }
}

fn check_cluster(shape: &Shape, cluster: [u32; 3]) -> Answer {
    if cluster == [0; 3] {
        return Ok(());
    }
    let blocks: u64 = cluster.iter().map(|&size| u64::from(size)).product();
    let divides = (0..3).all(|axis| cluster[axis] != 0 && shape.grid[axis].is_multiple_of(cluster[axis]));
    if !divides || blocks > MOST_CLUSTER_BLOCKS {
        Err(CuResult::INVALID_CLUSTER_SIZE)
    } else {
        Ok(())
    }
}

fn check_residency(device: &Device, function: &Function, shape: &Shape) -> Answer {
    let limits = Limits::of(device);
    let resident = limits.blocks(&Demand::of(function, shape.block.iter().product(), shape.shared));
    let blocks: u64 = shape.grid.iter().map(|&size| u64::from(size)).product();
    if blocks > u64::from(resident) * u64::from(limits.multiprocessors) {
        return Err(CuResult::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// The parameter buffer, gathered from what the program gave. INVALID_VALUE if both ways or neither is used, or if
/// the buffer is too short.
pub fn arguments(function: &Function, given: Given) -> Answer<Arc<[u8]>> {
    let bytes = function.parameter_bytes() as usize;
    match (given.params.is_null(), given.extra.is_null()) {
        (false, false) => Err(CuResult::INVALID_VALUE),
        (true, true) if bytes == 0 => Ok(Arc::new([])),
        (true, true) => Err(CuResult::INVALID_VALUE),
        (false, true) => from_pointers(function, given.params, bytes),
        (true, false) => from_buffer(given.extra, bytes),
    }
}

fn from_pointers(function: &Function, params: *const *mut c_void, bytes: usize) -> Answer<Arc<[u8]>> {
    let mut buffer = vec![0; bytes];
    for (index, parameter) in function.parameters().iter().enumerate() {
        // SAFETY: by the entry point's contract an array with one pointer for each parameter of the kernel.
        let from = unsafe { params.add(index).read_unaligned() };
        if from.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        let to = &mut buffer[parameter.offset as usize..][..parameter.size as usize];
        // SAFETY: by the same contract each leads to a value of the parameter's size.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr(), to.len()) };
    }
    Ok(buffer.into())
}

fn from_buffer(extra: *const *mut c_void, bytes: usize) -> Answer<Arc<[u8]>> {
    let (mut pointer, mut size) = (std::ptr::null::<u8>(), None);
    let mut at = extra;
    loop {
        // SAFETY: by the entry point's contract a list of keys, each but the last followed by a value.
        let key = unsafe { at.read_unaligned() } as usize;
        if key == PARAM_END {
            break;
        }
        // SAFETY: as above.
        let value = unsafe { at.add(1).read_unaligned() };
        match key {
            PARAM_BUFFER_POINTER => pointer = value.cast(),
            // SAFETY: by the same contract the value leads to the size.
            PARAM_BUFFER_SIZE if !value.is_null() => size = Some(unsafe { value.cast::<usize>().read_unaligned() }),
            _ => return Err(CuResult::INVALID_VALUE),
        }
        // SAFETY: as above.
        at = unsafe { at.add(2) };
    }
    let size = size.ok_or(CuResult::INVALID_VALUE)?;
    if size < bytes || pointer.is_null() && bytes > 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(Arc::new([]));
    }
    // SAFETY: the program says that the buffer has `size` bytes, which is no less than `bytes`.
    Ok(unsafe { std::slice::from_raw_parts(pointer, bytes) }.into())
}

/// What a list of launch attributes asks for. INVALID_VALUE for an unknown one, NOT_SUPPORTED for a node that kernels
/// are to change.
pub fn wishes(list: *const CuLaunchAttribute, count: u32) -> Answer<Wishes> {
    let mut wishes = Wishes::default();
    if count == 0 {
        return Ok(wishes);
    }
    if list.is_null() {
        return Err(CuResult::INVALID_VALUE);
    }
    // SAFETY: not null, and by the entry point's contract an array of `count` entries.
    for attribute in unsafe { std::slice::from_raw_parts(list, count as usize) } {
        // SAFETY: the number says which member is meant; all are plain data.
        unsafe {
            match attribute.id {
                ATTRIBUTE_COOPERATIVE => wishes.is_cooperative = attribute.value.cooperative != 0,
                ATTRIBUTE_CLUSTER => {
                    let cluster = attribute.value.clusterDim;
                    wishes.cluster = [cluster.x, cluster.y, cluster.z];
                }
                ATTRIBUTE_PRIORITY => wishes.priority = Some(attribute.value.priority),
                ATTRIBUTE_PROGRAMMATIC_EVENT => {
                    let given = attribute.value.programmaticEvent;
                    wishes.programmatic_event = Some(event_of(given.event, given.flags)?);
                }
                ATTRIBUTE_COMPLETION_EVENT => {
                    let given = attribute.value.launchCompletionEvent;
                    wishes.completion_event = Some(event_of(given.event, given.flags)?);
                }
                ATTRIBUTE_DEVICE_UPDATABLE if attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0 => {
                    return Err(CuResult::NOT_SUPPORTED);
                }
                // Hints about caches and synchronisation, and the permission to overlap with the kernel before, which
                // is never made use of: a kernel that triggers nothing lets its successor begin at its own end.
                0..=LAST_ATTRIBUTE => {}
                _ => return Err(CuResult::INVALID_VALUE),
            }
        }
    }
    Ok(wishes)
}

/// The event of an attribute. Flags of recordings are not for attributes.
fn event_of(event: CuEvent, flags: i32) -> Answer<CuEvent> {
    if flags == 0 {
        Ok(event)
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}
