// SPDX-License-Identifier: Apache-2.0
//! Barriers of a block: who has arrived, and who may go on.

use super::Warp;
use super::group::{Barrier, Barriers, Group, Next, Wait};
use crate::error::FaultKind;
use crate::execute::code::{BarrierAction, Code};
use crate::execute::lanes::{Inst, LANES, Lanes, each_lane};

impl Warp {
    pub(super) fn arrive(
        &mut self,
        group: &mut Group,
        inst: &Inst,
        mask: u32,
        lanes: &mut Lanes,
        code: &Code,
        barriers: &mut Barriers,
    ) -> Result<Next, FaultKind> {
        let site = &code.barriers[inst.x as usize];
        let first = mask.trailing_zeros() as usize;
        // SAFETY: the operands are rows of words and a predicate.
        let (index, wanted, held) = unsafe {
            let word = |operand: u32| (*lanes.row::<u32>(operand))[first];
            let flip = if site.predicate.1 { u32::MAX } else { 0 };
            (
                word(site.index),
                site.threads.map_or(0, word),
                lanes.predicate(site.predicate.0) ^ flip,
            )
        };
        let Some(barrier) = barriers.get_mut(index as usize) else {
            return Err(FaultKind::IllegalInstruction);
        };
        barrier.arrived += mask.count_ones();
        barrier.arrived_rounded += if mask == self.live {
            LANES as u32
        } else {
            mask.count_ones()
        };
        barrier.wanted = wanted;
        if !matches!(site.action, BarrierAction::Wait | BarrierAction::Arrive) {
            barrier.asked += mask.count_ones();
            barrier.held += (held & mask).count_ones();
        }
        if mask != group.mask {
            let mut other = group.clone();
            other.mask = group.mask & !mask;
            other.pc += 1;
            group.mask = mask;
            self.put(other);
        }
        if site.action == BarrierAction::Arrive {
            group.pc += 1;
            return Ok(Next::Moved);
        }
        group.wait = Wait::Barrier(index, inst.x as u32);
        group.pc += 1;
        Ok(Next::Rest)
    }

    /// Lets every group go that waits at barrier `index`, handing out the result of a reduction.
    pub fn release(&mut self, index: u32, barrier: &Barrier, lanes: &mut Lanes, code: &Code) {
        let mut at = 0;
        while at < self.groups.len() {
            let Wait::Barrier(waits, site) = self.groups[at].wait else {
                at += 1;
                continue;
            };
            if waits != index {
                at += 1;
                continue;
            }
            let mut group = self.groups.swap_remove(at);
            group.wait = Wait::Ready;
            let site = &code.barriers[site as usize];
            self.enter(lanes, code, group.base, group.local);
            // SAFETY: the site's result is a predicate, or a row of words for a count.
            unsafe {
                match site.action {
                    BarrierAction::And => {
                        let all = if barrier.held == barrier.asked { u32::MAX } else { 0 };
                        lanes.set_predicate(site.result, all, group.mask);
                    }
                    BarrierAction::Or => {
                        let any = if barrier.held != 0 { u32::MAX } else { 0 };
                        lanes.set_predicate(site.result, any, group.mask);
                    }
                    BarrierAction::Count => {
                        let row = lanes.row::<u32>(site.result);
                        each_lane(group.mask, |lane| (*row)[lane] = barrier.held);
                    }
                    BarrierAction::Wait | BarrierAction::Arrive => {}
                }
            }
            self.put(group);
            at = 0;
        }
    }
}
