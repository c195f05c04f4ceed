// SPDX-License-Identifier: Apache-2.0
//! What each step does to the model.

use partage_policy::{Answer, Mark, Place, Process, ProcessState, Residence, Step};

use super::{BYTES, Hold, World, process, uuid};

const ILLEGAL_STATE: i32 = 401;

impl World {
    /// Carries a step out; `cut` is how many accesses to words of the ledger the broker lives to make.
    pub fn carry_out(&mut self, step: &Step, cut: usize) -> Answer {
        assert!(
            self.granted.is_none() || matches!(step, Step::Write(_)),
            "room was granted, and not claimed at once: {step:?}"
        );
        let proved = self.proved.take();
        match step {
            Step::Write(mark) => {
                self.write(mark.clone());
                self.save();
            }
            Step::RoomAsk(place) => return self.ask_room(*place),
            Step::HoldSoft => {
                let mut targets = self.targets.iter();
                assert!(targets.all(|target| target.state != ProcessState::Checkpointed));
                (self.hold, self.is_fenced) = (Hold::Soft, false);
            }
            Step::Barrier => self.is_fenced = true,
            Step::NobodyInside { .. } => assert!(self.is_fenced && self.hold != Hold::Open),
            Step::HoldHard => self.hold = Hold::Hard,
            Step::Park => {
                let mut targets = self.targets.iter();
                assert!(targets.all(|target| !target.is_alive || target.state == ProcessState::Running));
                assert_eq!(self.hold, Hold::Hard);
                self.is_parked = true;
            }
            Step::NvmlClear(of) => {
                let mut of = of.iter();
                return match of.all(|of| self.targets[of.pid as usize - 100].on_device() == 0) {
                    true => Answer::Done,
                    false => Answer::TimedOut,
                };
            }
            Step::LedgerLeave(_) | Step::LedgerCome(_) | Step::LedgerBack => self.change_words(step, cut),
            Step::Dump { is_to_stop } => self.dump(*is_to_stop),
            Step::Commit => {
                assert!(self.snapshot.is_whole);
                self.snapshot.is_committed = true;
            }
            Step::End => {
                assert!(self.snapshot.is_committed, "killed before the commit");
                (0..self.targets.len()).for_each(|at| self.kill(at));
            }
            Step::Continue => self.targets.iter_mut().for_each(|target| target.is_frozen = false),
            Step::RoomProve { process, place } => {
                if self.free(self.at(*place)) < BYTES {
                    return Answer::NoRoom;
                }
                self.proved = Some((*process, *place));
            }
            Step::Restore { process, place, .. } => {
                self.may_restore(*process, *place, proved);
                return self.call(step);
            }
            Step::Lock { .. } | Step::Checkpoint(_) | Step::Unlock(_) | Step::State(_) | Step::Locate(_) => {
                return self.call(step);
            }
            Step::Unpark => self.is_parked = false,
            Step::Placement => assert!(!self.mark.is_placed),
            Step::Open => self.hold = Hold::Open,
            Step::Pause { .. } => {
                self.pauses += 1;
                if self.pauses.is_multiple_of(3) {
                    self.heal();
                }
            }
        }
        Answer::Done
    }

    fn save(&mut self) {
        self.disk = (self.mark.clone(), self.device);
        self.is_behind = false;
    }

    /// As the policy does with a mark.
    pub fn write(&mut self, mark: Mark) {
        if let Some(place) = self.granted.take() {
            let claims = match place {
                Place::Source => matches!(mark.residence, Residence::Coming | Residence::Saving),
                Place::Target => mark.holds_target,
            };
            assert!(claims, "room at {place:?} was granted, and {mark:?} does not claim it");
        }
        self.mark = mark;
        if self.mark.is_placed {
            self.device = self.at(Place::Target);
            self.mark.is_placed = false;
            self.mark.target = None;
            self.mark.holds_target = false;
            self.mark.on_target.clear();
        }
    }

    fn ask_room(&mut self, place: Place) -> Answer {
        let device = self.at(place);
        if self.returning() + self.greedy[device] > super::DEVICE {
            return Answer::NoRoom;
        }
        // What the mark claims already needs no other one.
        let is_claimed = match place {
            Place::Source => matches!(self.mark.residence, Residence::Coming | Residence::Saving),
            Place::Target => self.mark.holds_target,
        };
        self.granted = (!is_claimed).then_some(place);
        Answer::Done
    }

    fn change_words(&mut self, step: &Step, cut: usize) {
        let mut left = cut;
        let mut access = || {
            left = left.saturating_sub(1);
            left > 0
        };
        for at in 0..self.targets.len() {
            let target = &mut self.targets[at];
            let is_meant = |of: &[Process]| of.contains(&process(at));
            match step {
                Step::LedgerLeave(of) if is_meant(of) => {
                    assert_eq!(target.state, ProcessState::Checkpointed, "its memory is on the device");
                    if target.parked == 0 {
                        target.parked = target.used + target.overhead;
                    }
                    let writes: [fn(&mut super::Target1); 3] =
                        [|t| t.granted = 0, |t| t.ledger = 0, |t| t.overhead = 0];
                    for write in writes {
                        if !access() {
                            return;
                        }
                        write(target);
                    }
                }
                Step::LedgerCome(of) if is_meant(of) && target.parked > 0 => {
                    target.ledger = target.parked;
                    // O is measured anew, and L counts all.
                    target.overhead = 0;
                }
                Step::LedgerBack if target.parked > 0 => {
                    target.granted = target.ledger;
                    if !access() {
                        return;
                    }
                    target.parked = 0;
                }
                _ => continue,
            }
            if !access() {
                return;
            }
        }
    }

    fn dump(&mut self, is_to_stop: bool) {
        let is_away = |target: &super::Target1| !target.is_alive || target.state == ProcessState::Checkpointed;
        assert!(
            self.targets.iter().all(is_away),
            "CRIU refuses what is not checkpointed"
        );
        assert!(self.is_parked, "CRIU refuses what shares pages with the broker");
        self.snapshot.is_begun = true;
        self.snapshot.is_whole = true;
        for target in &mut self.targets {
            target.is_frozen |= is_to_stop;
        }
    }

    fn may_restore(&self, of: Process, place: Place, proved: Option<(Process, Place)>) {
        assert_eq!(proved, Some((of, place)), "nothing showed that there is room");
        let target = &self.targets[of.pid as usize - 100];
        let is_home = self.at(place) == self.device;
        let booked = if is_home {
            target.ledger + target.overhead
        } else {
            self.returning()
        };
        assert!(booked >= BYTES, "restored without room in the books: {self:#?}");
        assert!(
            is_home || self.mark.holds_target,
            "restored on a device that nobody claimed"
        );
        assert!(
            self.is_gap || self.free(self.at(place)) >= BYTES,
            "restored without room on the device"
        );
    }

    /// A call of the driver.
    pub fn call(&mut self, step: &Step) -> Answer {
        use ProcessState::{Checkpointed, Locked, Running};
        let Some(of) = step.process() else { return Answer::Done };
        let (hold, is_gap, had_fault) = (self.hold, self.is_gap, self.had_fault);
        let place = |world: &Self, device: usize| {
            if device == world.device {
                Place::Source
            } else {
                Place::Target
            }
        };
        let target = self.target(of).clone();
        if !target.is_alive {
            return Answer::Gone;
        }
        if target.hanging.is_some() {
            return Answer::TimedOut;
        }
        if target.is_stopped || target.is_frozen {
            return Answer::Stopped;
        }
        let illegal = || {
            assert!(had_fault, "{step:?} of a process that is {:?}", target.state);
            Answer::Refused(ILLEGAL_STATE)
        };
        match (step, target.state) {
            (Step::State(_), state) => return Answer::Is(state),
            (Step::Locate(_), _) => return Answer::At(place(self, target.device)),
            (Step::Lock { .. }, Running) => self.target(of).state = Locked,
            (Step::Checkpoint(_), Locked) => {
                assert_eq!(hold, Hold::Hard, "checkpointed while threads can come");
                self.target(of).state = Checkpointed;
            }
            (Step::Unlock(_), Locked) => self.target(of).state = Running,
            (Step::Restore { pair, place, .. }, Checkpointed) => {
                if target.is_poisoned {
                    return Answer::Refused(304);
                }
                let device = match pair {
                    Some((from, to)) if *from == uuid(target.device) => usize::from(*to == uuid(1)),
                    _ => target.device,
                };
                assert_eq!(device, self.at(*place), "it lands elsewhere");
                if is_gap {
                    self.stolen[device] += self.free(device);
                    self.is_gap = false;
                }
                if self.free(device) < BYTES {
                    let target = self.target(of);
                    (target.is_poisoned, target.device) = (true, device);
                    return Answer::Refused(2);
                }
                let target = self.target(of);
                (target.state, target.device) = (Locked, device);
            }
            _ => return illegal(),
        }
        Answer::Done
    }
}
