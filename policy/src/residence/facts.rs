// SPDX-License-Identifier: Apache-2.0
//! What a passage knows of its job: each process, the hold, the books, the room.

use partage_protocol::units::DeviceUuid;

use super::mark::{InBooks, Mark};
use super::place::{Place, ProcessState};
use super::stage::Plan;
use super::step::Step;
use crate::caller::Process;

/// A process, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Known {
    /// Ask the driver.
    Nothing,
    /// The driver said so, or did it.
    Is(ProcessState),
    /// It has no CUDA: it only waits at the hold.
    Without,
    /// It can never run again.
    Poisoned,
    /// It ended.
    Gone,
}

/// One process of the job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub process: Process,
    pub known: Known,
    /// Where its memory is, or its copy is of, as far as is known.
    pub on: Place,
    /// Its memory may have landed elsewhere: where it is on a device, NVML must be asked.
    must_locate: bool,
    /// Calls of one kind that came to nothing.
    tries: u32,
}

/// What the clients' pages say at the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    /// Nobody knows: another broker wrote it.
    Unknown,
    Open,
    Soft,
    Hard,
}

/// Everything that is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub members: Vec<Member>,
    /// The passage was begun, and is not another broker's: that no process used the driver is known.
    pub is_begun: bool,
    /// Another program restored a process of it: what is on the device has no room in the books.
    pub has_returned: bool,
    pub hold: Hold,
    /// The barrier came after the hold closed.
    pub is_fenced: bool,
    /// Nobody was inside after that.
    pub is_quiet: bool,
    /// NVML listed none of the processes.
    pub is_clear: bool,
    /// What the words say; none where a broker before may have begun to change them.
    pub books: Option<InBooks>,
    /// The policy's books have room at the source for what left it.
    pub has_room: bool,
    /// And at the target.
    pub has_target_room: bool,
    /// The process that was last shown to have room, and where.
    pub proved: Option<(Process, Place)>,
    pub is_parked: bool,
    pub is_dumped: bool,
    pub is_committed: bool,
    /// A dump may have left the processes stopped.
    pub are_stopped: bool,
    /// A device, and what is to replace it.
    pub exchange: Option<(DeviceUuid, DeviceUuid)>,
    /// Something was restored, and the clients have not been notified where.
    pub is_to_place: bool,
}

impl Facts {
    /// Of a job whose processes all are in this state, on its own devices.
    pub(super) fn new(processes: &[Process], known: Known) -> Self {
        let member = |process: &Process| Member {
            process: *process,
            known,
            on: Place::Source,
            must_locate: false,
            tries: 0,
        };
        Self {
            members: processes.iter().map(member).collect(),
            is_begun: false,
            has_returned: false,
            hold: Hold::Open,
            is_fenced: false,
            is_quiet: false,
            is_clear: false,
            books: Some(InBooks::Here),
            has_room: false,
            has_target_room: false,
            proved: None,
            is_parked: false,
            is_dumped: false,
            is_committed: false,
            are_stopped: false,
            exchange: None,
            is_to_place: false,
        }
    }

    /// Of a job that another broker left with this mark. `has_landed`: a process may have been restored since then.
    pub(super) fn left(
        mark: &Mark,
        processes: &[Process],
        known: Known,
        books: Option<InBooks>,
        has_landed: bool,
    ) -> Self {
        let mut facts = Self::new(processes, known);
        facts.hold = Hold::Unknown;
        facts.books = books;
        facts.is_parked = mark.is_parked;
        facts.are_stopped = mark.are_stopped;
        facts.has_target_room = mark.holds_target;
        facts.is_to_place = has_landed;
        for member in &mut facts.members {
            if mark.poisoned.contains(&member.process) {
                member.known = Known::Poisoned;
            }
            if mark.on_target.contains(&member.process) {
                member.on = Place::Target;
            }
            member.must_locate = has_landed && mark.target.is_some();
        }
        facts
    }

    /// This broker began the passage.
    pub(super) fn note_begun(&mut self) {
        self.is_begun = true;
    }

    /// A process of a job that is away was restored by another program. NVML's next word counts only once something
    /// has left again.
    pub(super) fn note_returned(&mut self) {
        self.note_hard();
        (self.has_returned, self.is_clear) = (true, true);
    }

    /// The hold is hard, because the job is away.
    pub(super) fn note_hard(&mut self) {
        self.hold = Hold::Hard;
    }

    /// A device is to be replaced by another one.
    pub(super) fn exchange(&mut self, from: DeviceUuid, to: DeviceUuid) {
        self.exchange = Some((from, to));
    }

    /// The target is given up, unless a process that can never run again may have memory there.
    pub(super) fn give_up_target(&mut self) {
        let mut poisoned = self.members.iter().filter(|member| member.known == Known::Poisoned);
        if !poisoned.any(|member| member.on == Place::Target) {
            self.has_target_room = false;
        }
    }

    /// It leaves again: from the mark that says so on nothing claims its room.
    pub(super) fn give_up_room(&mut self) {
        self.has_room = false;
    }

    /// The processes that a call can reach.
    pub(super) fn living(&self) -> impl Iterator<Item = &Member> {
        let is_meant = |member: &&Member| matches!(member.known, Known::Nothing | Known::Is(_));
        self.members.iter().filter(is_meant)
    }

    /// The first of them in a state.
    pub(super) fn first(&self, state: ProcessState) -> Option<&Member> {
        self.living().find(|member| member.known == Known::Is(state))
    }

    /// Is any in this state?
    pub(super) fn any(&self, state: ProcessState) -> bool {
        self.first(state).is_some()
    }

    /// The first of which the driver must be asked.
    pub(super) fn unknown(&self) -> Option<Process> {
        let unknown = self.living().find(|member| member.known == Known::Nothing);
        unknown.map(|member| member.process)
    }

    /// The first of which NVML must be asked. What is checkpointed has no memory that NVML shows, and the devices that
    /// it had.
    pub(super) fn unlocated(&self) -> Option<Process> {
        let is_away = |member: &Member| member.known == Known::Is(ProcessState::Checkpointed);
        let unlocated = self.living().find(|member| member.must_locate && !is_away(member));
        unlocated.map(|member| member.process)
    }

    /// Those whose copy is in host memory.
    pub(super) fn checkpointed(&self) -> Vec<Process> {
        let is_so = |member: &&Member| member.known == Known::Is(ProcessState::Checkpointed);
        self.living().filter(is_so).map(|member| member.process).collect()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.members.iter().any(|member| member.known == Known::Poisoned)
    }

    /// No process is left that a call could reach, and none that is poisoned.
    pub(super) fn is_empty(&self) -> bool {
        self.living().next().is_none() && !self.is_poisoned()
    }

    /// No process of the job uses the driver, and none did: what leaves, comes or moves is its promise alone.
    pub(super) fn is_unattached(&self) -> bool {
        self.is_begun && self.members.iter().all(|member| member.known == Known::Without)
    }

    /// Does it come back to a place where the books have no room of its own?
    pub(super) fn lacks_room(&self) -> bool {
        self.any(ProcessState::Checkpointed) || self.is_unattached() || self.has_returned
    }

    /// Nothing is left of what used the driver.
    pub(super) fn is_spent(&self) -> bool {
        self.is_empty() && !self.is_unattached()
    }

    pub(super) fn poisoned(&self) -> Vec<Process> {
        let all = self.members.iter();
        all.filter(|member| member.known == Known::Poisoned)
            .map(|member| member.process)
            .collect()
    }

    /// Those whose memory, or its copy, is of the target.
    pub(super) fn on_target(&self) -> Vec<Process> {
        let is_left = |member: &&Member| !matches!(member.known, Known::Gone | Known::Without);
        let on_target = self
            .members
            .iter()
            .filter(is_left)
            .filter(|member| member.on == Place::Target);
        on_target.map(|member| member.process).collect()
    }

    fn member_mut(&mut self, process: Process) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.process == process)
    }

    /// What is known of a process from now on; nothing brings back one that is gone.
    pub(super) fn know(&mut self, process: Process, known: Known) {
        let member = self.member_mut(process).filter(|member| member.known != Known::Gone);
        if let Some(member) = member {
            member.known = known;
            member.must_locate &= known != Known::Is(ProcessState::Checkpointed);
        }
        self.proved = None;
    }

    /// It ended; answers whether that is new.
    pub(super) fn lose(&mut self, process: Process) -> bool {
        let is_new = self
            .member_mut(process)
            .is_some_and(|member| member.known != Known::Gone);
        self.know(process, Known::Gone);
        is_new
    }

    /// Where its memory is.
    pub(super) fn locate(&mut self, process: Process, place: Place) {
        if let Some(member) = self.member_mut(process) {
            member.on = place;
            member.must_locate = false;
        }
    }

    /// Only NVML can say where its memory is.
    pub(super) fn lose_place(&mut self, process: Process) {
        if let Some(member) = self.member_mut(process) {
            member.must_locate = true;
        }
    }

    /// A call came to nothing; answers how often in a row now.
    pub(super) fn count_try(&mut self, process: Process) -> u32 {
        self.member_mut(process).map_or(0, |member| {
            member.tries += 1;
            member.tries
        })
    }

    /// Tries are counted anew.
    pub(super) fn forget_tries(&mut self) {
        self.members.iter_mut().for_each(|member| member.tries = 0);
    }

    /// All of the job is where the exchange was to bring it, and its record says so.
    pub(super) fn settle_on_target(&mut self) {
        self.exchange = None;
        self.has_target_room = false;
        self.is_to_place = true;
        for member in &mut self.members {
            member.on = Place::Source;
        }
    }

    /// Has CRIU all of the job, and where it is to end, is the snapshot whole?
    pub(super) const fn is_saved(&self, plan: Plan) -> bool {
        match plan {
            Plan::Save { is_to_stop: true } => self.is_committed,
            _ => self.is_dumped,
        }
    }

    /// The step was carried out.
    pub(super) fn carry_out(&mut self, step: &Step) {
        match step {
            Step::RoomAsk(Place::Source) => self.has_room = true,
            Step::RoomAsk(Place::Target) => self.has_target_room = true,
            Step::HoldSoft => self.hold = Hold::Soft,
            Step::Barrier => self.is_fenced = true,
            Step::NobodyInside { .. } => self.is_quiet = true,
            Step::HoldHard => self.hold = Hold::Hard,
            Step::Park => self.is_parked = true,
            Step::Lock { process, .. } => self.know(*process, Known::Is(ProcessState::Locked)),
            Step::Checkpoint(process) => {
                self.know(*process, Known::Is(ProcessState::Checkpointed));
                self.is_clear = false;
            }
            Step::NvmlClear(_) => self.is_clear = true,
            Step::LedgerLeave(_) => (self.books, self.has_room) = (Some(InBooks::Left), false),
            Step::Dump { is_to_stop } => (self.is_dumped, self.are_stopped) = (true, *is_to_stop),
            Step::Commit => self.is_committed = true,
            Step::End => self.members.iter_mut().for_each(|member| member.known = Known::Gone),
            Step::Continue => self.are_stopped = false,
            Step::LedgerCome(_) => self.books = Some(InBooks::Coming),
            Step::RoomProve { process, place } => self.proved = Some((*process, *place)),
            Step::Restore { process, place, .. } => {
                self.know(*process, Known::Is(ProcessState::Locked));
                self.locate(*process, *place);
                self.is_to_place = true;
            }
            Step::LedgerBack => self.books = Some(InBooks::Here),
            Step::Unlock(process) => self.know(*process, Known::Is(ProcessState::Running)),
            Step::Unpark => self.is_parked = false,
            Step::Placement => self.is_to_place = false,
            Step::Open => (self.hold, self.is_fenced, self.is_quiet) = (Hold::Open, false, false),
            Step::Write(_) => self.proved = None,
            Step::State(_) | Step::Locate(_) | Step::Pause { .. } => {}
        }
        // A proof of room comes before each restore: it says nothing of how often the restore came to nothing.
        let process = step.process().filter(|_| !matches!(step, Step::RoomProve { .. }));
        if let Some(member) = process.and_then(|process| self.member_mut(process)) {
            member.tries = 0;
        }
    }

    /// The step was begun and failed: part of it may be done.
    pub(super) fn half_do(&mut self, step: &Step) {
        match step {
            Step::HoldSoft | Step::HoldHard | Step::Open => self.hold = Hold::Unknown,
            Step::Park => self.is_parked = true,
            Step::Dump { is_to_stop } => self.are_stopped |= *is_to_stop,
            Step::LedgerCome(_) | Step::LedgerLeave(_) | Step::LedgerBack => self.books = None,
            _ => {}
        }
    }
}
