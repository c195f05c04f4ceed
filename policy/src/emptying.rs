// SPDX-License-Identifier: Apache-2.0
//! One drain's book: which jobs of the device are left, and what became of the others.
//!
//! ```text
//!   begin ──► left ──► next ──► goes ─────► moved, stays, or over (it ended)
//!              ▲         └────► awaits ──┐
//!              └───────── arrived ◄──────┘   a job that was on its way to the device
//!   call_off ──► every job that did not go yet stays
//! ```

use std::collections::{BTreeSet, VecDeque};

use partage_protocol::units::{DeviceUuid, JobId};

/// A job that stays on a device that was to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Which.
    pub job: JobId,
    /// Why.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

/// What a drain does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look how this job can leave; then say [`Emptying::goes`], [`Emptying::awaits`] or [`Emptying::stays`].
    Look(JobId),
    /// A job is on its way.
    Wait,
    /// No job is left: say what became of them.
    Over,
}

/// A device that is being emptied, one job after the other.
#[derive(Debug, Default)]
pub struct Emptying {
    left: VecDeque<JobId>,
    under_way: Option<JobId>,
    /// On their way to the device when it was drained: they leave it again once they are there.
    arriving: BTreeSet<JobId>,
    moved: Vec<(JobId, DeviceUuid)>,
    staying: Vec<Stay>,
}

impl Emptying {
    /// The device is to be emptied of these jobs. Asked again it forgets who stayed: each is tried once more.
    pub fn begin(&mut self, jobs: &[JobId]) {
        let is_new = |job: &&JobId| self.under_way != Some(**job) && !self.arriving.contains(*job);
        self.left = jobs.iter().filter(is_new).copied().collect();
        self.moved.retain(|(job, _)| !jobs.contains(job));
        self.staying.clear();
    }

    /// The device is to take jobs again: a job that is on its way arrives, and no other is sent.
    pub fn call_off(&mut self) {
        let arriving = std::mem::take(&mut self.arriving);
        for job in std::mem::take(&mut self.left).into_iter().chain(arriving) {
            self.stays(job, "partage undrain came before its turn".to_owned(), None);
        }
    }

    /// What is to be done now.
    pub fn next_thing(&mut self) -> Next {
        if self.under_way.is_some() {
            return Next::Wait;
        }
        match self.left.pop_front() {
            Some(job) => Next::Look(job),
            None if self.arriving.is_empty() => Next::Over,
            None => Next::Wait,
        }
    }

    /// This job is sent away now.
    pub fn goes(&mut self, job: JobId) {
        self.under_way = Some(job);
    }

    /// This job is on its way to the device, and can leave it once it is there.
    pub fn awaits(&mut self, job: JobId) {
        self.arriving.insert(job);
    }

    /// A way to the device ended; `is_there`: the job has arrived. Answers whether it was awaited.
    pub fn arrived(&mut self, job: JobId, is_there: bool) -> bool {
        let is_awaited = self.arriving.remove(&job);
        if is_awaited && is_there {
            self.left.push_back(job);
        }
        is_awaited
    }

    /// The way of the job that was sent away is over. Answers whether it was this one.
    pub fn is_over(&mut self, job: JobId) -> bool {
        self.under_way.take_if(|under_way| *under_way == job).is_some()
    }

    /// This job is on another device now.
    pub fn moved(&mut self, job: JobId, to: DeviceUuid) {
        self.moved.push((job, to));
    }

    /// This job stays.
    pub fn stays(&mut self, job: JobId, why: String, hint: Option<String>) {
        self.staying.push(Stay { job, why, hint });
    }

    /// Who moved where, and who stays.
    #[must_use]
    pub fn into_result(self) -> (Vec<(JobId, DeviceUuid)>, Vec<Stay>) {
        (self.moved, self.staying)
    }
}
