// SPDX-License-Identifier: Apache-2.0
//! How the lanes of a context are made, waited for and ended.

use std::sync::{Arc, PoisonError, RwLock};

use partage_abi::types::CuResult;
use partage_machine::Machine;
use partage_machine::timeline::Timeline;

use super::pool;
use super::queue::Lanes;
use crate::context::{Context, all as all_contexts};
use crate::state::here::Here;
use crate::state::{Answer, Driver, driver};

/// The context's lanes, made at the first use.
///
/// OUT_OF_MEMORY if the device has no place for another context.
pub fn lanes(context: &Context) -> Answer<Arc<Lanes>> {
    if let Some(lanes) = context.queue.existing() {
        return Ok(lanes);
    }
    // Before the queue: whoever leaves the machine and comes back holds that first.
    let driver = driver()?;
    let here = driver.machine();
    let mut inner = context.queue.lock();
    if let Some(lanes) = &*inner {
        return Ok(Arc::clone(lanes));
    }
    context.check()?;
    let seat = timeline(&here)?
        .join(driver.place_of(context.device), context.id)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let (group, legacy) = pool::open_group();
    let lanes = Arc::new(Lanes::new(group, legacy, seat));
    *inner = Some(Arc::clone(&lanes));
    Ok(lanes)
}

/// Waits for everything that was submitted, whatever became of it.
pub fn wait(context: &Context) {
    if let Some(lanes) = context.queue.existing() {
        pool::wait_for(&pool::ahead_in_group(lanes.group));
    }
}

/// Waits, then drops the lanes. Precondition: the context is marked as ended, so that nothing more comes and what
/// waits inside an operation gives up.
pub fn end(context: &Context) {
    context.queue.set_stop();
    wait(context);
    let lanes = context.queue.lock().take();
    if let Some(lanes) = lanes {
        pool::close_group(lanes.group);
    }
}

/// The timeline of the machine that this process is in, if it was used.
static TIMELINE: RwLock<Option<Arc<Timeline>>> = RwLock::new(None);

/// That timeline, opened at its first use.
fn timeline(here: &Here<'_>) -> Answer<Arc<Timeline>> {
    let mut timeline = TIMELINE.write().unwrap_or_else(PoisonError::into_inner);
    if timeline.is_none() {
        let opened = here.timeline().map_err(|_| CuResult::OPERATING_SYSTEM)?;
        *timeline = Some(Arc::new(opened));
    }
    timeline.clone().ok_or(CuResult::OPERATING_SYSTEM)
}

/// Device time now, on a device that a context was used on.
pub fn clock(device: usize) -> u64 {
    let timeline = TIMELINE.read().unwrap_or_else(PoisonError::into_inner).clone();
    match (timeline, driver()) {
        (Some(timeline), Ok(driver)) => timeline.clock(driver.place_of(device)),
        _ => 0,
    }
}

/// Gives up all places on devices, and the timeline. Answers what time it was on each of `devices`. Precondition:
/// nothing that was submitted is left, and nobody comes to the machine.
pub fn leave(devices: usize) -> Vec<u64> {
    let times = (0..devices).map(clock).collect();
    for context in all_contexts() {
        if let Some(lanes) = context.queue.existing() {
            lanes.set_place(None);
        }
    }
    *TIMELINE.write().unwrap_or_else(PoisonError::into_inner) = None;
    times
}

/// Takes places on devices again, whose time goes on from `times`. OUT_OF_MEMORY when a device has none: then as after
/// [`leave`].
pub fn come_back(driver: &Driver, machine: &Machine, times: &[u64]) -> Answer {
    let used: Vec<_> = all_contexts()
        .into_iter()
        .filter_map(|context| Some((context.queue.existing()?, context)))
        .collect();
    if used.is_empty() {
        return Ok(());
    }
    let opened = Arc::new(machine.timeline().map_err(|_| CuResult::OPERATING_SYSTEM)?);
    for (device, time) in times.iter().enumerate() {
        opened.go_on_from(driver.place_of(device), *time);
    }
    for (lanes, context) in &used {
        let Some(seat) = opened.join(driver.place_of(context.device), context.id) else {
            used.iter().for_each(|(lanes, _)| lanes.set_place(None));
            return Err(CuResult::OUT_OF_MEMORY);
        };
        lanes.set_place(Some(seat));
    }
    *TIMELINE.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    Ok(())
}
