// SPDX-License-Identifier: Apache-2.0
//! Carries out one operation, on the thread that has taken it.

use std::sync::PoisonError;

use super::lanes::lanes;
use super::op::{Op, words};
use super::order::OpId;
use super::place::{Hold, Place, settle};
use super::pool::Task;
use crate::context::Context;
use crate::memory::memory;
use crate::state::driver;

/// Carries it out and returns the device time at which it ended; `time` is when what it waited for had ended.
pub fn run_one(task: &Task, op: OpId, time: u64, transit: &mut Option<Hold>) -> u64 {
    let (context, what) = (&task.context, &task.op);
    let Some(seat) = lanes(context).ok().and_then(|lanes| lanes.place()) else {
        match what {
            Op::Record { event, recording } => event.complete(*recording, time),
            other => keep_books(other, context),
        }
        return time;
    };
    let seat = &seat;
    let mut place = Place {
        context,
        seat,
        op,
        priority: task.priority,
        transit,
    };
    let is_sound = context.check().is_ok();
    match what {
        Op::Kernel(launch) if is_sound => launch.run(&mut place),
        Op::Copy(copy) if is_sound => copy.run(&mut place),
        Op::Fill(fill) if is_sound => fill.run(&mut place),
        Op::Words(steps) if is_sound => match words::run(steps, &mut place) {
            false if time > 0 => time,
            _ => seat.clock(),
        },
        Op::Elsewhere(recorded) if is_sound && !recorded.event.is_reached(recorded.number) => {
            settle(place.transit);
            recorded.event.wait(recorded.number, || context.check().is_err());
            seat.clock()
        }
        Op::Host(call) => {
            settle(place.transit);
            call.run(context);
            seat.clock()
        }
        Op::Record { event, recording } => {
            let at = if time > 0 { time } else { seat.clock() };
            event.complete(*recording, at);
            at
        }
        Op::LetGo(_) => {
            // The destructor is the program's: it may take as long as a host function.
            settle(place.transit);
            keep_books(what, context);
            seat.clock()
        }
        other => {
            keep_books(other, context);
            if time > 0 { time } else { seat.clock() }
        }
    }
}

/// What is done about memory also when the context has failed: nothing else would do it.
fn keep_books(op: &Op, context: &Context) {
    let (Ok(driver), Ok(memory)) = (driver(), memory()) else {
        return;
    };
    match op {
        Op::Free(allocation) => memory.end_free(driver, allocation),
        Op::Allocate(allocation) => memory.enter_planned(allocation),
        Op::Map(bindings) => {
            for binding in bindings.iter() {
                if let Err(code) = memory.map_span(driver, binding) {
                    context.stick(code);
                }
            }
        }
        Op::LetGo(objects) => {
            let objects = std::mem::take(&mut *objects.lock().unwrap_or_else(PoisonError::into_inner));
            objects.release();
        }
        _ => {}
    }
}
