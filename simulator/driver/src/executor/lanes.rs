// SPDX-License-Identifier: Apache-2.0
//! How the lanes of a context are made, waited for and ended.

use std::sync::{Arc, OnceLock};

use partage_abi::types::CuResult;
use partage_machine::timeline::Timeline;

use super::pool;
use super::queue::Lanes;
use crate::context::Context;
use crate::state::{Answer, driver};

/// The context's lanes, made at the first use.
///
/// OUT_OF_MEMORY if the device has no place for another context.
pub fn lanes(context: &Context) -> Answer<Arc<Lanes>> {
    let mut inner = context.queue.lock();
    if let Some(lanes) = &*inner {
        return Ok(Arc::clone(lanes));
    }
    context.check()?;
    let seat = timeline()?
        .join(context.device, context.id)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let (group, legacy) = pool::open_group();
    let lanes = Arc::new(Lanes {
        group,
        legacy,
        seat: Arc::new(seat),
    });
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

/// The timeline of the machine that this process uses.
pub fn timeline() -> Answer<&'static Arc<Timeline>> {
    static TIMELINE: OnceLock<Option<Arc<Timeline>>> = OnceLock::new();
    let machine = &driver()?.machine;
    let open = || machine.timeline().ok().map(Arc::new);
    TIMELINE.get_or_init(open).as_ref().ok_or(CuResult::OPERATING_SYSTEM)
}
