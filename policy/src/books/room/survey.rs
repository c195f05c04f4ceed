// SPDX-License-Identifier: Apache-2.0
//! The devices against which requests are judged: each is read once, however many requests wait for it.
//!
//! A survey is valid until a job begins or ends; the caller then takes a new one. Clients charge meanwhile what they
//! were granted, as they do between a survey and an admission: the admission itself reads again.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use partage_protocol::message::TOKEN_BYTES;
use partage_protocol::units::{ClientId, DeviceUuid, JobId};

use crate::books::Books;
use crate::device::{Device, DeviceAccount, DeviceState};
use crate::job::Job;
use crate::machine::Machine;

/// A job's token and owner, by which another process of it finds it.
type Key = ([u8; TOKEN_BYTES], u32);

/// Jobs that are counted as if they were away.
pub(crate) type Absent = BTreeSet<JobId>;

/// Clients that are counted as if they were gone.
pub(crate) type Gone = BTreeSet<ClientId>;

/// What was found so far.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    absent: Absent,
    gone: Gone,
    /// Devices that take long to answer have answered.
    is_soon: bool,
    sites: RefCell<BTreeMap<DeviceUuid, Rc<Site>>>,
    /// Live jobs, of several with one token the first.
    living: OnceCell<BTreeMap<Key, JobId>>,
    has_lingering: OnceCell<bool>,
}

/// One device.
#[derive(Debug)]
pub(crate) struct Site {
    /// Why nothing is admitted there, whatever it asks for.
    pub bar: Option<String>,
    pub account: Option<DeviceAccount>,
    /// What can be promised, in bytes.
    pub left: u64,
    /// Promised of its time, and what can still be, in millionths.
    pub promised_time: u64,
    pub time_left: u64,
}

impl Survey {
    /// The devices as they will be once these jobs are away.
    pub(crate) fn without(absent: Absent) -> Self {
        Self {
            absent,
            ..Self::default()
        }
    }

    /// The devices as they will be in a moment: these jobs and clients are gone, and every device has answered.
    pub(crate) fn soon(absent: Absent, gone: Gone) -> Self {
        Self {
            absent,
            gone,
            is_soon: true,
            ..Self::default()
        }
    }

    pub(crate) fn site<M: Machine>(&self, policy: &Books, device: &Device, machine: &M) -> Rc<Site> {
        let mut sites = self.sites.borrow_mut();
        let site = sites
            .entry(device.seen.uuid)
            .or_insert_with(|| Rc::new(policy.site(device, self, machine)));
        Rc::clone(site)
    }

    /// The living job of this token and owner.
    pub(crate) fn living(&self, policy: &Books, token: [u8; TOKEN_BYTES], uid: u32) -> Option<JobId> {
        let all = || {
            let mut living = BTreeMap::new();
            for job in policy.jobs.values().filter(|job| job.state().takes_processes()) {
                living.entry((job.record.token, job.record.uid)).or_insert(job.id());
            }
            living
        };
        self.living.get_or_init(all).get(&(token, uid)).copied()
    }

    /// Is there a job of which nothing runs any more?
    pub(crate) fn has_lingering(&self, policy: &Books) -> bool {
        let any = || policy.jobs.values().any(Job::is_lingering);
        *self.has_lingering.get_or_init(any)
    }
}

impl Books {
    fn site<M: Machine>(&self, device: &Device, survey: &Survey, machine: &M) -> Site {
        let account = self.account_without(device.seen.uuid, (&survey.absent, &survey.gone), machine);
        let promised_time = self.promised_time_without(device.seen.uuid, &survey.absent);
        Site {
            bar: self.bar(device, survey.is_soon),
            left: account.as_ref().map_or(0, |account| account.promisable(None)),
            account,
            promised_time,
            time_left: self.config.promisable_time().saturating_sub(promised_time),
        }
    }

    fn bar(&self, device: &Device, is_soon: bool) -> Option<String> {
        let seen = &device.seen;
        if device.state != DeviceState::Ok {
            return Some(format!("GPU {} has not been measured yet", seen.index));
        }
        if device.is_slow && !is_soon {
            return Some(format!("GPU {} takes long to answer", seen.index));
        }
        if self.is_adopting(seen.uuid) {
            let text = "is being adopted after the broker's restart: a program on it has not come back yet";
            return Some(format!("GPU {} {text}", seen.index));
        }
        self.closed_bar(seen.uuid).or_else(|| self.unmanaged_bar(seen.uuid))
    }
}
