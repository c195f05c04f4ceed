// SPDX-License-Identifier: Apache-2.0
//! Launches of graphs that allocate: what the device's graph memory may grow by is reserved before, what it reserves is
//! charged after.
//!
//! A launch cannot be undone. One that has run before is expected to find its memory again, as long as the device's
//! graph memory is no smaller than it was then; one that the limit does not allow is first tried as an upload, which
//! takes the same memory and can be undone, because graphs that never run at the same time share theirs.

use core::sync::atomic::Ordering;

use partage_abi::types::CuResult;
use partage_protocol::message::NOTICE_OVERHEAD;
use partage_records::Entry;
use partage_records::graph::{DEVICES, Needs};

use super::call::{Call, End, Reuse, begin};
use super::entries::with;
use super::exec::Exec;
use super::look::shrink_after_undo;
use super::table::Source;
use crate::guest::errno;
use crate::memory::pools::table;
use crate::memory::recovery;
use crate::memory::reservation::{Begun, Denied};
use crate::memory::tables;
use crate::real::Library;
use crate::session;
use crate::state::State;

impl Exec {
    /// Whether it may find its memory with other graphs: not where these have less than it takes.
    fn may_share(&self, state: &State, real: &Library) -> bool {
        self.needs
            .iter()
            .all(|need| need.bytes == 0 || reserved_by_graphs(state, real, need.ordinal) >= need.bytes)
    }
}

/// Remembers what an executable graph takes, or that it takes nothing.
pub fn remember_exec(state: &State, handle: u64, needs: Needs) {
    let table = &mut tables::hold(state).execs;
    let _ = table.take(handle);
    if needs.iter().any(|need| need.bytes > 0) {
        // Without memory for it, its launches are charged when somebody looks.
        let _ = table.add(Exec {
            handle,
            needs,
            ..Exec::NONE
        });
    }
    table::pools(state).execs.store(table.count() as u32, Ordering::Relaxed);
}

/// Forgets an executable graph. Answers what it took.
pub fn forget_exec(state: &State, handle: u64) -> Option<Exec> {
    let table = &mut tables::hold(state).execs;
    let found = table.take(handle);
    table::pools(state).execs.store(table.count() as u32, Ordering::Relaxed);
    found
}

/// Launches a graph; `upload` uploads it in the same stream.
pub fn launch(
    state: &'static State,
    real: &Library,
    handle: u64,
    launch: &dyn Fn() -> CuResult,
    upload: &dyn Fn() -> CuResult,
) -> CuResult {
    let Some(exec) = find(state, handle) else {
        return launch();
    };
    let denied = match charged(state, real, &exec, None, launch) {
        Ok(called) => return called.keep(state, real, &exec),
        Err(denied) => denied,
    };
    if !exec.may_share(state, real) {
        return denied.tell();
    }
    match charged(state, real, &exec, Some(Reuse::Always), upload) {
        Ok(called) if called.beyond.is_none() && called.result.is_success() => {}
        Ok(called) => {
            if called.beyond.is_some() {
                shrink(state, real, &exec);
            }
            return denied.tell();
        }
        Err(_) => return denied.tell(),
    }
    match charged(state, real, &exec, Some(Reuse::Always), launch) {
        Ok(called) => called.keep(state, real, &exec),
        Err(denied) => denied.tell(),
    }
}

/// Uploads a graph, or makes one that is uploaded at once.
pub fn upload(state: &'static State, real: &Library, needs: Needs, upload: &dyn Fn() -> CuResult) -> CuResult {
    let exec = Exec { needs, ..Exec::NONE };
    let called = charged(state, real, &exec, None, upload).or_else(|denied| {
        if exec.may_share(state, real) {
            charged(state, real, &exec, Some(Reuse::Always), upload)
        } else {
            Err(denied)
        }
    });
    match called {
        Ok(Called { result, beyond: None }) => result,
        Ok(Called {
            beyond: Some(denied), ..
        }) => {
            shrink(state, real, &exec);
            denied.tell()
        }
        Err(denied) => denied.tell(),
    }
}

/// What an executable graph takes, if it takes anything.
pub fn needs_of_exec(state: &State, handle: u64) -> Option<Needs> {
    find(state, handle).map(|exec| exec.needs)
}

fn find(state: &State, handle: u64) -> Option<Exec> {
    tables::hold(state).execs.get(handle)
}

/// A call that the driver has answered.
struct Called {
    result: CuResult,
    /// It took more than the limit allows.
    beyond: Option<Denied>,
}

impl Called {
    /// A launch: remembers what graphs have reserved now.
    fn keep(self, state: &'static State, real: &Library, exec: &Exec) -> CuResult {
        let mut reserved = [0; DEVICES];
        for (place, need) in reserved.iter_mut().zip(&exec.needs) {
            if need.bytes > 0 {
                *place = reserved_by_graphs(state, real, need.ordinal);
            }
        }
        let is_unsteady = self.beyond.is_some();
        tables::hold(state).execs.change(exec.handle, |exec| {
            exec.reserved = reserved;
            exec.is_unsteady |= is_unsteady;
        });
        if is_unsteady {
            // It runs: what it took beyond the limit shows as overhead.
            for need in exec.needs.iter().filter(|need| need.bytes > 0) {
                let slot = with(state, |table| {
                    let entry = table.find(Source::graph(real, need.ordinal))?;
                    Some(entry.charge.slot as usize)
                });
                if let Some(slot) = slot {
                    errno::preserving(|| session::notice(state, NOTICE_OVERHEAD, slot, 0));
                }
            }
        }
        self.result
    }
}

fn reserved_by_graphs(state: &State, real: &Library, ordinal: i32) -> u64 {
    with(state, |table| {
        table
            .find(Source::graph(real, ordinal))
            .map_or(0, |entry| entry.account.reserved())
    })
}

/// Reserves what the graph may take on each device, calls, and settles.
fn charged(
    state: &'static State,
    real: &Library,
    exec: &Exec,
    reuse: Option<Reuse>,
    call: &dyn Fn() -> CuResult,
) -> Result<Called, Denied> {
    let mut pending = [const { None::<Call> }; DEVICES];
    let all = pending.iter_mut().zip(exec.needs.iter().zip(exec.reserved));
    let mut denial = None;
    for (place, (need, before)) in all {
        if need.bytes == 0 {
            continue;
        }
        let reuse = reuse.unwrap_or_else(|| {
            let is_as_before = before > 0 && reserved_by_graphs(state, real, need.ordinal) >= before;
            if is_as_before && !exec.is_unsteady {
                Reuse::IfNotGranted
            } else {
                Reuse::IfIdle
            }
        });
        let source = Source::graph(real, need.ordinal);
        match begin(state, source, || Some(need.ordinal), need.bytes, None, reuse) {
            Begun::Granted(begun) => *place = Some(begun),
            Begun::Denied(denied) => {
                denial = Some(denied);
                break;
            }
            Begun::NotCharged => {}
        }
    }
    let result = denial.is_none().then(call);
    let is_success = result.is_some_and(CuResult::is_success);
    let mut beyond = None;
    for begun in pending.into_iter().flatten() {
        let charge = *begun.charge();
        match begun.end_without_address(is_success) {
            End::Beyond(denied, _) => beyond = Some(denied),
            End::Settled if is_success => recovery::granted(state, &charge),
            End::Settled => {}
        }
    }
    match (denial, result) {
        (None, Some(result)) => Ok(Called { result, beyond }),
        (Some(denied), _) => Err(denied),
        // Not called without a denial.
        (None, None) => Ok(Called {
            result: CuResult::OUT_OF_MEMORY,
            beyond,
        }),
    }
}

fn shrink(state: &'static State, real: &Library, exec: &Exec) {
    for need in exec.needs.iter().filter(|need| need.bytes > 0) {
        shrink_after_undo(state, Source::graph(real, need.ordinal));
    }
}
