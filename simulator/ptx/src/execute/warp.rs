// SPDX-License-Identifier: Apache-2.0
//! A warp: 32 lanes in groups that share a program counter.
//!
//! Lanes that diverge form groups. The group deepest in calls, and among those the one with the lowest program
//! counter, runs until it meets another, which brings diverging lanes together again at the earliest point. So that a
//! lane which waits for another of its warp cannot keep it from running, every second turn goes to the group that has
//! waited longest. A turn is bounded in instructions; blocks, stop requests and other warps get their chance between
//! turns.

mod barrier;
mod call;
mod group;

use super::code::{Code, Lines, ROW32, ROW64, Special};
use super::lanes::{ALL, Inst, Kind, LANES, Lanes, NO_GUARD, WORTH_ALL, each_lane};
use crate::error::FaultKind;
use group::{Group, Next, Wait};

pub use group::Barriers;

/// Bytes of the row that begins every frame.
pub const FRAME_START: u32 = ROW64;

/// Instructions in one turn.
pub const TURN: u32 = 50_000;
/// A warp with its registers.
pub struct Warp {
    registers: Lines,
    specials: Lines,
    local: Lines,
    groups: Vec<Group>,
    /// Lanes that have not exited.
    pub live: u32,
    turns: u64,
}

impl Warp {
    /// A warp of kernel `code`; `index` is its number in the block.
    pub fn new(code: &Code, index: u32, block: [u32; 3]) -> Self {
        let kernel = &code.functions[0];
        let mut warp = Self {
            registers: Lines::new(kernel.frame as usize),
            specials: Lines::new((Special::Last as u32 * ROW32) as usize),
            local: Lines::new(code.local as usize * LANES),
            groups: Vec::new(),
            live: 0,
            turns: 0,
        };
        let threads = block[0] * block[1] * block[2];
        let first = index * LANES as u32;
        for lane in 0..LANES {
            let thread = first + lane as u32;
            let own = 1u32 << lane;
            for (special, value) in [
                (Special::TidX, thread % block[0]),
                (Special::TidY, thread / block[0] % block[1]),
                (Special::TidZ, thread / block[0] / block[1]),
                (Special::LaneId, lane as u32),
                (Special::LaneMaskEq, own),
                (Special::LaneMaskLt, own - 1),
                (Special::LaneMaskLe, own | (own - 1)),
                (Special::LaneMaskGe, !(own - 1)),
                (Special::LaneMaskGt, !(own | (own - 1))),
            ] {
                warp.special_row(special)[lane] = value;
            }
        }
        for (special, value) in [
            (Special::WarpId, index),
            (Special::NwarpId, threads.div_ceil(LANES as u32)),
            (Special::NtidX, block[0]),
            (Special::NtidY, block[1]),
            (Special::NtidZ, block[2]),
        ] {
            warp.special_row(special).fill(value);
        }
        warp
    }

    /// Sets special registers that are the same for all lanes.
    pub fn set_special(&mut self, values: &[(Special, u32)]) {
        for (special, value) in values {
            self.special_row(*special).fill(*value);
        }
    }

    fn special_row(&mut self, special: Special) -> &mut [u32; LANES] {
        // SAFETY: the buffer has a row for each special register.
        unsafe { &mut *self.specials.start().add((special as u32 * ROW32) as usize).cast() }
    }

    /// Starts the kernel for `threads` lanes.
    pub fn start(&mut self, threads: u32) {
        let mask = if threads >= LANES as u32 {
            u32::MAX
        } else {
            (1 << threads) - 1
        };
        self.live = mask;
        self.groups.clear();
        self.groups.push(Group {
            pc: 0,
            mask,
            base: 0,
            local: 0,
            function: 0,
            stack: Vec::new(),
            wait: Wait::Ready,
            turn: 0,
        });
    }

    /// True when a group can run.
    pub fn is_ready(&self) -> bool {
        self.groups.iter().any(|group| !matches!(group.wait, Wait::Barrier(..)))
    }

    /// Bytes that the warp occupies.
    pub fn bytes(&self) -> usize {
        self.registers.bytes() + self.specials.bytes() + self.local.bytes()
    }

    /// Points the lanes at this warp's memory and the given frame.
    fn enter(&mut self, lanes: &mut Lanes, code: &Code, base: u32, local: u32) {
        lanes.bases[0] = self.registers.start().wrapping_add(base as usize);
        lanes.bases[2] = self.specials.start();
        lanes.spaces.local = self.local.start();
        lanes.spaces.local_bytes = u64::from(code.local);
        // The frame's first row holds where the function's part of local memory begins.
        // SAFETY: every frame begins with a row of 64-bit words.
        unsafe { (*lanes.row::<u64>(0)).fill(u64::from(local)) };
    }

    /// Chooses the group that runs next and takes it out of the list.
    fn take_next(&mut self) -> Option<Group> {
        self.turns += 1;
        let fair = self.turns.is_multiple_of(2);
        let ready = |group: &&(usize, &Group)| group.1.wait == Wait::Ready;
        let all: Vec<(usize, &Group)> = self.groups.iter().enumerate().collect();
        let chosen = if fair {
            all.iter().filter(ready).min_by_key(|(_, group)| group.turn)
        } else {
            all.iter()
                .filter(ready)
                .min_by_key(|(_, group)| (usize::MAX - group.stack.len(), group.pc))
        };
        // Lanes that can no longer be joined by those they name go on without them.
        let chosen = chosen
            .or_else(|| all.iter().find(|(_, group)| group.wait == Wait::Members))?
            .0;
        let mut group = self.groups.swap_remove(chosen);
        group.turn = self.turns;
        Some(group)
    }

    /// Takes the deepest, earliest ready group.
    fn take_earliest(&mut self) -> Option<Group> {
        let chosen = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.wait == Wait::Ready)
            .min_by_key(|(_, group)| (usize::MAX - group.stack.len(), group.pc))?
            .0;
        Some(self.groups.swap_remove(chosen))
    }

    /// Puts a group back, joining it with one at the same place.
    fn put(&mut self, group: Group) {
        if !matches!(group.wait, Wait::Barrier(..)) {
            for other in &mut self.groups {
                if !matches!(other.wait, Wait::Barrier(..)) && other.meets(&group) {
                    other.mask |= group.mask;
                    other.wait = Wait::Ready;
                    return;
                }
            }
        }
        self.groups.push(group);
    }

    /// The program counter at which the running group meets another or must let it pass.
    fn horizon(&self, running: &Group) -> u32 {
        self.groups
            .iter()
            .filter(|group| group.wait == Wait::Ready && group.stack.len() == running.stack.len())
            .map(|group| group.pc)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// Runs one turn. Returns the instructions executed, or the fault and its line.
    pub fn run(&mut self, lanes: &mut Lanes, code: &Code, barriers: &mut Barriers) -> Result<u32, (FaultKind, u32)> {
        let mut left = TURN;
        let mut alone = true;
        while let Some(group) = if alone { self.take_next() } else { self.take_earliest() } {
            // A fair turn must not end at the first meeting, or it would not be one.
            let fair = alone && self.turns.is_multiple_of(2);
            alone = false;
            self.enter(lanes, code, group.base, group.local);
            self.run_group(group, lanes, code, barriers, &mut left, fair)?;
            if left == 0 {
                break;
            }
        }
        Ok(TURN - left)
    }

    /// Runs a group until it ends, waits, meets another or the turn is over; puts what is left of it back.
    fn run_group(
        &mut self,
        mut group: Group,
        lanes: &mut Lanes,
        code: &Code,
        barriers: &mut Barriers,
        left: &mut u32,
        fair: bool,
    ) -> Result<(), (FaultKind, u32)> {
        let mut horizon = if fair { u32::MAX } else { self.horizon(&group) };
        let mut forced = group.wait == Wait::Members;
        group.wait = Wait::Ready;
        lanes.group = group.mask;
        loop {
            if *left == 0 {
                self.put(group);
                return Ok(());
            }
            *left -= 1;
            // SAFETY: the translator ends every function with a return, and branches lead to labels of the code.
            let inst = unsafe { code.insts.get_unchecked(group.pc as usize) };
            let mask = if inst.guard == NO_GUARD {
                group.mask
            } else {
                // SAFETY: the guard is a predicate row.
                let held = unsafe { lanes.predicate(inst.guard) };
                group.mask & if inst.negated { !held } else { held }
            };
            if mask == 0 {
                group.pc += 1;
            } else if inst.kind == Kind::Compute {
                // Registers of lanes that are not there may take any value, and whole rows are faster.
                let mask = if inst.is_pure && mask | !self.live == ALL && mask.count_ones() >= WORTH_ALL {
                    ALL
                } else {
                    mask
                };
                // SAFETY: the rule on handlers in `lanes`.
                if !unsafe { (inst.run)(lanes, inst, mask) } {
                    return Err((lanes.fault.take().unwrap_or(FaultKind::IllegalInstruction), inst.line));
                }
                group.pc += 1;
            } else {
                match self.control(&mut group, inst, mask, lanes, code, barriers, &mut forced) {
                    Ok(Next::On) => {}
                    Ok(Next::Moved) => {
                        self.enter(lanes, code, group.base, group.local);
                        lanes.group = group.mask;
                        horizon = if fair { u32::MAX } else { self.horizon(&group) };
                    }
                    Ok(Next::Gone) => return Ok(()),
                    Ok(Next::Rest) => {
                        self.put(group);
                        return Ok(());
                    }
                    Err(fault) => return Err((fault, inst.line)),
                }
            }
            if group.pc >= horizon {
                self.put(group);
                return Ok(());
            }
        }
    }

    fn control(
        &mut self,
        group: &mut Group,
        inst: &Inst,
        mask: u32,
        lanes: &mut Lanes,
        code: &Code,
        barriers: &mut Barriers,
        forced: &mut bool,
    ) -> Result<Next, FaultKind> {
        match inst.kind {
            Kind::Compute | Kind::Yield => {
                // SAFETY: the rule on handlers in `lanes`.
                unsafe { (inst.run)(lanes, inst, mask) };
                group.pc += 1;
                Ok(if inst.kind == Kind::Yield { Next::Rest } else { Next::On })
            }
            Kind::Converge => {
                // SAFETY: `m` is a row of words.
                let members = unsafe { (*lanes.row::<u32>(inst.m))[mask.trailing_zeros() as usize] };
                if members & self.live & !group.mask != 0 && !*forced && !self.groups.is_empty() {
                    group.wait = Wait::Members;
                    return Ok(Next::Rest);
                }
                *forced = false;
                // SAFETY: the rule on handlers in `lanes`.
                if !unsafe { (inst.run)(lanes, inst, mask) } {
                    return Err(lanes.fault.take().unwrap_or(FaultKind::IllegalInstruction));
                }
                group.pc += 1;
                Ok(Next::On)
            }
            Kind::Branch => Ok(self.branch(group, inst.x as u32, mask)),
            Kind::BranchIndexed => self.branch_indexed(group, inst, mask, lanes),
            Kind::Call => self.call(group, code.calls[inst.x as usize].function, inst, mask, lanes, code),
            Kind::CallIndirect => self.call_indirect(group, inst, mask, lanes, code),
            Kind::Return => Ok(self.leave(group, mask, lanes, code)),
            Kind::Exit => Ok(self.exit(group, mask)),
            Kind::Barrier => self.arrive(group, inst, mask, lanes, code, barriers),
            Kind::Trap => Err(FaultKind::Trap),
        }
    }

    /// `brx.idx`: the lanes with the first one's target branch, the others run the instruction again.
    fn branch_indexed(
        &mut self,
        group: &mut Group,
        inst: &Inst,
        mask: u32,
        lanes: &mut Lanes,
    ) -> Result<Next, FaultKind> {
        // SAFETY: `a` is a row of words; the list holds `c` targets.
        let (index, first) = unsafe {
            let row = *lanes.row::<u32>(inst.a);
            (row, row[mask.trailing_zeros() as usize])
        };
        if first >= inst.c {
            return Err(FaultKind::IllegalInstruction);
        }
        let mut same = 0;
        each_lane(mask, |lane| same |= u32::from(index[lane] == first) << lane);
        let rest = mask & !same;
        if rest != 0 {
            // The others run this instruction again with their own index.
            let mut other = group.clone();
            other.mask = rest;
            group.mask &= !rest;
            self.put(other);
        }
        // SAFETY: checked above.
        let target = unsafe { lanes.listed(inst.b, first) };
        self.branch(group, target, same);
        Ok(Next::Moved)
    }

    /// A call through a pointer: the lanes with the first one's target call, the others run the instruction again.
    fn call_indirect(
        &mut self,
        group: &mut Group,
        inst: &Inst,
        mask: u32,
        lanes: &mut Lanes,
        code: &Code,
    ) -> Result<Next, FaultKind> {
        // SAFETY: `a` is a row of 64-bit words.
        let targets = unsafe { *lanes.row::<u64>(inst.a) };
        let target = targets[mask.trailing_zeros() as usize];
        let mut same = 0;
        each_lane(mask, |lane| same |= u32::from(targets[lane] == target) << lane);
        let found = code
            .functions
            .iter()
            .position(|function| function.address == target && target != 0);
        let Some(function) = found else {
            return Err(FaultKind::IllegalCall(target));
        };
        if mask & !same != 0 {
            let mut other = group.clone();
            other.mask = mask & !same;
            group.mask &= !other.mask;
            self.put(other);
        }
        self.call(group, function as u32, inst, same, lanes, code)
    }

    fn branch(&mut self, group: &mut Group, target: u32, taken: u32) -> Next {
        if taken == group.mask {
            group.pc = target;
            return Next::On;
        }
        let mut other = group.clone();
        other.pc = group.pc + 1;
        other.mask = group.mask & !taken;
        group.pc = target;
        group.mask = taken;
        // The earlier of the two goes on, so that the later is met.
        if other.pc < group.pc {
            std::mem::swap(&mut other, group);
        }
        self.put(other);
        Next::Moved
    }

    fn exit(&mut self, group: &mut Group, mask: u32) -> Next {
        self.live &= !mask;
        if mask == group.mask {
            return Next::Gone;
        }
        group.mask &= !mask;
        group.pc += 1;
        Next::Moved
    }
}
