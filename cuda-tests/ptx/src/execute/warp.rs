// SPDX-License-Identifier: Apache-2.0
//! A warp: 32 lanes in groups that share a program counter.
//!
//! Lanes that diverge form groups. The group deepest in calls, and among those the one with the lowest program
//! counter, runs until it meets another, which brings diverging lanes together again at the earliest point. So that a
//! lane which waits for another of its warp cannot keep it from running, every second turn goes to the group that has
//! waited longest. A turn is bounded in instructions; blocks, stop requests and other warps get their chance between
//! turns.

use super::code::{BarrierAction, Code, Lines, ROW32, ROW64, Slot, Special};
use super::lanes::{ALL, Inst, Kind, LANES, Lanes, NO_GUARD, WORTH_ALL, each_lane};
use crate::error::FaultKind;

/// Instructions in one turn.
pub const TURN: u32 = 50_000;
/// Call depth that is refused; real programs are bounded by local memory long before.
const DEEPEST: usize = 4096;

/// One call that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    return_to: u32,
    site: u32,
    function: u32,
    base: u32,
    local: u32,
}

/// What a group waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wait {
    /// Nothing.
    Ready,
    /// A barrier of the block; with it the barrier site.
    Barrier(u32, u32),
    /// Other lanes of the warp.
    Members,
}

/// Lanes with one program counter.
#[derive(Clone, Debug)]
struct Group {
    pc: u32,
    mask: u32,
    /// Offset of the frame in bytes.
    base: u32,
    /// Offset of the function's part of local memory.
    local: u32,
    function: u32,
    stack: Vec<Frame>,
    wait: Wait,
    /// When it last ran.
    turn: u64,
}

impl Group {
    fn meets(&self, other: &Self) -> bool {
        self.pc == other.pc && self.base == other.base && self.stack == other.stack
    }
}

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

/// Arrivals at a barrier of the block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Barrier {
    /// Threads that have arrived.
    pub arrived: u32,
    /// The same, a whole warp counting 32 even when it has fewer threads.
    pub arrived_rounded: u32,
    /// Number of threads asked for, 0 for all.
    pub wanted: u32,
    /// Threads whose predicate holds.
    pub held: u32,
    /// Threads of which a predicate was taken.
    pub asked: u32,
}

/// Barriers of a block.
pub type Barriers = [Barrier; 16];

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
            Kind::BranchIndexed => {
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
            Kind::Call => self.call(group, code.calls[inst.x as usize].function, inst, mask, lanes, code),
            Kind::CallIndirect => {
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
            Kind::Return => Ok(self.leave(group, mask, lanes, code)),
            Kind::Exit => Ok(self.exit(group, mask)),
            Kind::Barrier => self.arrive(group, inst, mask, lanes, code, barriers),
            Kind::Trap => Err(FaultKind::Trap),
        }
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

    fn call(
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

    fn leave(&mut self, group: &mut Group, mask: u32, lanes: &mut Lanes, code: &Code) -> Next {
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

    fn arrive(
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

/// How a group goes on after a control instruction.
enum Next {
    /// With the next instruction; nothing else changed.
    On,
    /// Program counter, lanes or frame changed.
    Moved,
    /// It rests where it is.
    Rest,
    /// No lane is left.
    Gone,
}

/// Bytes of the row that begins every frame.
pub const FRAME_START: u32 = ROW64;
