// SPDX-License-Identifier: Apache-2.0
//! Calls and returns: frames, and the values that pass between them.

use super::Warp;
use super::group::{Frame, Group, Next};
use crate::error::FaultKind;
use crate::execute::code::{Code, Slot};
use crate::execute::lanes::{Inst, Lanes, each_lane};

/// Call depth that is refused; real programs are bounded by local memory long before.
const DEEPEST: usize = 4096;

impl Warp {
    pub(super) fn call(
        &mut self,
        group: &mut Group,
        function: u32,
        inst: &Inst,
        mask: u32,
        lanes: &mut Lanes,
        code: &Code,
    ) -> Result<Next, FaultKind> {
        let site = &code.calls[inst.x as usize];
        let caller = &code.functions[group.function as usize];
        let callee = &code.functions[function as usize];
        let (base, local) = (group.base + caller.frame, group.local + caller.local);
        if local + callee.local > code.local || group.stack.len() >= DEEPEST {
            return Err(FaultKind::StackOverflow);
        }
        self.registers.grow((base + callee.frame) as usize);
        self.enter(lanes, code, group.base, group.local);
        for (from, to) in site.arguments.iter().zip(&callee.parameters) {
            self.copy(lanes, mask, (*from, group.base, group.local), (*to, base, local));
        }
        if mask != group.mask {
            let mut other = group.clone();
            other.mask = group.mask & !mask;
            other.pc += 1;
            group.mask = mask;
            self.put(other);
        }
        group.stack.push(Frame {
            return_to: group.pc + 1,
            site: inst.x as u32,
            function: group.function,
            base: group.base,
            local: group.local,
        });
        (group.base, group.local, group.function, group.pc) = (base, local, function, callee.start);
        Ok(Next::Moved)
    }

    /// Copies a value of each lane between frames; a place is a slot, a frame and a part of local memory.
    fn copy(&mut self, lanes: &Lanes, mask: u32, from: (Slot, u32, u32), to: (Slot, u32, u32)) {
        let stride = lanes.spaces.local_bytes as usize;
        let registers = self.registers.start();
        let local = self.local.start();
        let place = |(slot, base, part): (Slot, u32, u32), lane: usize| match slot {
            Slot::Row(operand, wide) => {
                let start = if operand >> 30 == 0 {
                    registers.wrapping_add((base + operand) as usize)
                } else {
                    lanes.at::<u8>(operand)
                };
                let bytes = if wide { 8 } else { 4 };
                (start.wrapping_add(lane * bytes), bytes)
            }
            Slot::Local(offset, bytes) => (
                local.wrapping_add(lane * stride + (part + offset) as usize),
                bytes as usize,
            ),
        };
        each_lane(mask, |lane| {
            let (source, available) = place(from, lane);
            let (target, wanted) = place(to, lane);
            // SAFETY: both lie in this warp's buffers, which the call has grown.
            unsafe { std::ptr::copy(source, target, available.min(wanted)) };
        });
    }

    pub(super) fn leave(&mut self, group: &mut Group, mask: u32, lanes: &mut Lanes, code: &Code) -> Next {
        let Some(frame) = group.stack.last().cloned() else {
            return self.exit(group, mask);
        };
        let callee = &code.functions[group.function as usize];
        let site = &code.calls[frame.site as usize];
        for (from, to) in callee.returns.iter().zip(&site.returns) {
            self.copy(
                lanes,
                mask,
                (*from, group.base, group.local),
                (*to, frame.base, frame.local),
            );
        }
        if mask != group.mask {
            let mut other = group.clone();
            other.mask = group.mask & !mask;
            other.pc += 1;
            group.mask = mask;
            self.put(other);
        }
        group.stack.pop();
        (group.pc, group.base, group.local, group.function) =
            (frame.return_to, frame.base, frame.local, frame.function);
        // A group that still is in the function must be able to catch up.
        Next::Rest
    }
}
