// SPDX-License-Identifier: Apache-2.0
//! How contexts are made, and what goes when one ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_abi::types::{CuDevice, CuResult};

use super::{Beginning, Context, Green, is_in_use};
use crate::executor::lanes;
use crate::memory::{memory, settle_pools, trim_pools, windows};
use crate::state::{Answer, driver};
use crate::stream::forget_defaults;

/// Makes a context, which costs device memory.
pub fn create(ordinal: CuDevice, flags: u32, is_primary: bool, api_version: u32) -> Answer<Arc<Context>> {
    let driver = driver()?;
    let device = driver.device(ordinal)?.index;
    windows()?.open_device(driver, device)?;
    driver
        .machine()
        .open_context(device)
        .map_err(|_| CuResult::OUT_OF_MEMORY)?;
    let made = Context::begin(Beginning {
        ordinal,
        device,
        is_primary,
        green: None,
        home: None,
        api_version,
        flags,
        peers: 0,
    });
    made.inspect_err(|_| driver.machine().close_context(device))
}

/// Makes a primary context with the resources of a green one: the same memory and code, streams of its own.
pub fn convert(primary: &Context, green: Green) -> Answer<Arc<Context>> {
    Context::begin(Beginning {
        ordinal: primary.ordinal,
        device: primary.device,
        is_primary: true,
        green: Some(green),
        home: Some(primary.home),
        api_version: primary.api_version,
        flags: primary.flags.load(Ordering::Relaxed),
        peers: primary.peers.load(Ordering::Acquire),
    })
}

/// Ends what [`convert`] made. The memory is the primary context's and stays.
pub fn end_converted(context: &Context) {
    if context.end() {
        end_work(context);
        context.overhead.end();
        context.forget();
    }
}

/// Ends a context with everything that belongs to it. Does nothing when it has ended already.
pub fn destroy(context: &Context) {
    let (Ok(driver), Ok(memory)) = (driver(), memory()) else {
        return;
    };
    if !context.end() {
        return;
    }
    end_work(context);
    memory.free_all_of(driver, context);
    context.overhead.end();
    settle_pools(driver, |freed| freed.context == context.id);
    driver.machine().close_context(context.device);
    context.forget();
    // Pools and graphs are for those who work on the device: with the last of them goes what they kept.
    if !is_in_use(context.device) {
        trim_pools(driver, context.device);
        memory.end_graphs(driver, context.device);
    }
}

/// Waits for what was submitted, then drops the lanes and the default streams. Precondition: the context is marked as
/// ended.
fn end_work(context: &Context) {
    lanes::end(context);
    forget_defaults(context);
}
