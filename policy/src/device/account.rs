// SPDX-License-Identifier: Apache-2.0
//! A device's account: memory by job, room, and how burstable jobs share the room.
//!
//! Per job and device, in bytes: *promised* (its request), *granted* (Σ L of its clients), *used* (what they charge),
//! both with the overhead of its processes (Σ O), *measured* (what NVML shows of its processes). Measured and used are
//! two views of the same memory and never added. *committed* is max(promised, used, measured): admission counts it.
//! *held* is max(guaranteed, granted, measured): what the job could reach without asking the broker, so that Σ held is
//! what must stay within the device once anything is promised there.
//!
//! *guaranteed* is what stands behind a promise: all of it, until the promises on a device add up to more than it has,
//! which only `[admission] overcommit` allows. Then each is worth its proportion of what is there, promised × left ÷ Σ
//! promised, every job is burstable, and an allocation within limit and promise can be denied as *card full*: free
//! memory goes to the job that asks first, but no job's growth takes another job's guaranteed part.
//!
//! Unmanaged memory is what NVML lists for processes that are no client, plus what is in use beyond every process it
//! lists (processes of other containers), less the reserve. A device that uses the host's memory lacks what the host
//! has in use, and the reserve is kept available beside it.

use partage_protocol::units::JobId;

use crate::holding::{Holding, Who, sort_holders};

/// One job on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub job: JobId,
    pub slot: usize,
    pub limit: u64,
    pub promised: u64,
    pub guaranteed: u64,
    pub granted: u64,
    pub used: u64,
    /// What must not be taken from it: `used`, and what was just granted and is about to be used.
    pub floor: u64,
    /// The part of `used` that need not be on the device.
    pub managed: u64,
    pub measured: u64,
    /// Its words are not the policy's to change now, or it is a claim without words.
    pub is_fixed: bool,
}

impl Hold {
    pub(crate) fn committed(&self) -> u64 {
        self.promised.max(self.used).max(self.measured)
    }

    /// What others' growth must leave it.
    pub(crate) fn kept(&self) -> u64 {
        self.guaranteed.max(self.floor).max(self.measured)
    }

    pub(crate) fn held(&self) -> u64 {
        self.guaranteed.max(self.granted).max(self.measured)
    }

    /// As far as it can come to hold, should every promise be called in.
    fn claimed(&self) -> u64 {
        self.promised.max(self.granted).max(self.measured)
    }

    /// Its limit exceeds what is kept for it: the rest comes out of what nobody else was promised.
    pub(crate) fn is_burstable(&self) -> bool {
        !self.is_fixed && self.limit > self.guaranteed
    }
}

/// One device with everybody on it, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceAccount {
    pub index: u32,
    /// Its memory is the host's.
    pub is_unified: bool,
    pub usable: u64,
    /// What may be promised: `usable`, or more where the configuration overcommits.
    pub capacity: u64,
    /// In the order of the jobs' numbers.
    pub holds: Vec<Hold>,
    /// Listed processes that are no client: pid and bytes.
    pub processes: Vec<(u32, u64)>,
    /// In use beyond everything listed: of unified memory by the host's own programs.
    pub unexplained: u64,
}

impl DeviceAccount {
    /// What the host's own programs have of memory that is the device's too.
    pub(crate) fn host(&self) -> u64 {
        if self.is_unified { self.unexplained } else { 0 }
    }

    /// What no job can have, the host's own programs included.
    pub(crate) fn unmanaged(&self) -> u64 {
        self.processes
            .iter()
            .fold(self.unexplained, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// What a job holds here, or claims. Holds stand in the order of the jobs' numbers.
    pub(crate) fn holds_of(&self, job: JobId) -> &[Hold] {
        let from = self.holds.partition_point(|hold| hold.job < job);
        let to = self.holds.partition_point(|hold| hold.job <= job);
        &self.holds[from..to]
    }

    /// A job was granted so much, and nothing else changed.
    pub(crate) fn set_granted(&mut self, job: JobId, granted: u64) {
        let from = self.holds.partition_point(|hold| hold.job < job);
        for hold in self.holds[from..].iter_mut().take_while(|hold| hold.job == job) {
            if !hold.is_fixed {
                hold.granted = granted;
            }
        }
    }

    /// An account over some of its holds, as if they had a device of that size to themselves. Only what is granted
    /// counts: NVML's figures are late, and what they show beyond the charges is granted as overhead.
    pub(crate) fn part(&self, mut holds: Vec<Hold>, most: u64) -> Self {
        holds.iter_mut().for_each(|hold| hold.measured = 0);
        let guaranteed: Vec<u64> = holds.iter().map(|hold| hold.guaranteed).collect();
        let mut part = Self {
            index: self.index,
            is_unified: self.is_unified,
            usable: most,
            capacity: most,
            holds,
            processes: Vec::new(),
            unexplained: 0,
        };
        part.split_guarantees();
        for (hold, before) in part.holds.iter_mut().zip(guaranteed) {
            hold.guaranteed = hold.guaranteed.min(before);
        }
        part
    }

    /// What can still be promised when `except` is left out of account.
    pub(crate) fn promisable(&self, except: Option<JobId>) -> u64 {
        self.rest(self.capacity, except, Hold::committed)
    }

    /// What can still be used when `except` is left out of account.
    pub(crate) fn room(&self, except: Option<JobId>) -> u64 {
        self.rest(self.usable, except, Hold::kept)
    }

    /// What is left for a job that is to have `needed` bytes here, of which it is promised `request`.
    pub(crate) fn left_for(&self, job: Option<JobId>, (needed, request): (u64, u64)) -> u64 {
        self.room(job).min(match request {
            0 => u64::MAX,
            // What may be promised can be more than there is; the bytes themselves cannot.
            request => self.promisable(job).saturating_add(needed.saturating_sub(request)),
        })
    }

    /// What is left when everybody but `except` takes all that is granted to it.
    pub(crate) fn room_now(&self, except: Option<JobId>) -> u64 {
        self.rest(self.usable, except, Hold::held)
    }

    fn rest(&self, of: u64, except: Option<JobId>, amount: impl Fn(&Hold) -> u64) -> u64 {
        let taken = self.holds.iter().filter(|hold| Some(hold.job) != except).map(amount);
        of.saturating_sub(taken.fold(self.unmanaged(), u64::saturating_add))
    }

    /// Σ of what is promised.
    pub(crate) fn promised(&self) -> u64 {
        self.holds.iter().map(|hold| hold.promised).fold(0, u64::saturating_add)
    }

    /// Do the promises add up to more than there is?
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.promised() > self.usable
    }

    /// What an overcommitted device means for who was promised something there.
    pub(crate) fn overcommit_note(&self) -> Option<String> {
        let percent = u128::from(self.promised()) * 100 / u128::from(self.usable.max(1));
        self.is_overcommitted().then(|| {
            format!(
                "promises on GPU {} add up to {percent} % of its memory: allocations within a job's limit may be \
                 denied as card full",
                self.index
            )
        })
    }

    /// Splits what there is among promises that add up to more.
    pub(crate) fn split_guarantees(&mut self) {
        if !self.is_overcommitted() {
            return;
        }
        let promised = u128::from(self.promised());
        let left = u128::from(self.usable.saturating_sub(self.unmanaged()));
        for hold in &mut self.holds {
            // At most what was promised, so it fits.
            hold.guaranteed = (u128::from(hold.promised) * left / promised) as u64;
        }
    }

    pub(crate) fn committed(&self) -> u64 {
        self.holds.iter().map(Hold::committed).fold(0, u64::saturating_add)
    }

    /// Is everything that could be held within what may be promised? Precondition of a promise.
    pub(crate) fn is_within(&self) -> bool {
        let claimed = self
            .holds
            .iter()
            .map(Hold::claimed)
            .fold(self.unmanaged(), u64::saturating_add);
        claimed <= self.capacity
    }

    /// Is anything here withheld from jobs that were promised nothing? What others were promised is; and where the
    /// memory is the host's its reserve, because a host without memory ends processes, while a driver says no.
    pub(crate) fn is_withheld(&self) -> bool {
        self.is_unified || self.holds.iter().any(|hold| hold.promised > 0)
    }

    /// Who holds the device, the greatest first.
    pub(crate) fn holders(&self) -> Vec<Holding> {
        let others = if self.is_unified { Who::Host } else { Who::Hidden };
        let jobs = self.holds.iter().map(|hold| (Who::Job(hold.job), hold.committed()));
        let unmanaged = self.processes.iter().map(|(pid, bytes)| (Who::Process(*pid), *bytes));
        let all = jobs.chain(unmanaged).chain([(others, self.unexplained)]);
        let holding = |(who, bytes)| Holding {
            who,
            gpu: self.index,
            bytes,
            ppm: None,
        };
        let mut all: Vec<_> = all.filter(|(_, bytes)| *bytes > 0).map(holding).collect();
        sort_holders(&mut all);
        all
    }
}
