// SPDX-License-Identifier: Apache-2.0
//! What every thread reads of the attachment: written once, before the phase becomes `Attached`.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use partage_protocol::message::{MAX_DEVICES, Welcome};
use partage_protocol::page::{BrokerPage, ClientFile};

use crate::attachment::job::Job;

/// In a list of slots: a device that is not the job's.
pub const FOREIGN: i32 = -1;

/// The job, the shared pages, and where slots went. All-zero memory is "none".
pub struct Attachment {
    /// Set before the pages are published, never changed after.
    job: UnsafeCell<Job>,
    /// The broker's page; null until attached.
    broker_page: AtomicPtr<BrokerPage>,
    /// The client's file; null until attached.
    client_file: AtomicPtr<ClientFile>,
    /// Where each standalone slot went at a late attach; [`FOREIGN`] for a device outside the job.
    moved_slots: [AtomicI32; MAX_DEVICES],
}

impl Attachment {
    /// The job, once attached.
    pub fn job(&self) -> Option<&Job> {
        // SAFETY: written before the page was published, never after.
        (!self.broker_page.load(Ordering::Acquire).is_null()).then(|| unsafe { &*self.job.get() })
    }

    /// The broker's page, once attached.
    pub fn broker_page(&self) -> Option<&BrokerPage> {
        // SAFETY: null or a mapping that is never unmapped in this process.
        unsafe { self.broker_page.load(Ordering::Acquire).as_ref() }
    }

    /// The client's file, once attached.
    pub fn client_file(&self) -> Option<&ClientFile> {
        // SAFETY: as above.
        unsafe { self.client_file.load(Ordering::Acquire).as_ref() }
    }

    /// Where a standalone slot went. `None`: its device is outside the job.
    pub fn moved_slot(&self, slot: usize) -> Option<usize> {
        usize::try_from(self.moved_slots.get(slot)?.load(Ordering::Relaxed)).ok()
    }

    /// Takes over the job that a welcome names, with the page that came with it.
    ///
    /// # Safety
    /// The pages are not published, and the caller holds the session's lock.
    pub unsafe fn take_job(&self, welcome: &Welcome, page: &'static BrokerPage) -> &Job {
        // SAFETY: nobody reads the job before the pages are published, and nobody else writes it.
        let job = unsafe { &mut *self.job.get() };
        job.read(welcome, page);
        job
    }

    /// Says which slot of the job a standalone slot has become. `None`: its device is outside the job.
    pub fn move_slot(&self, slot: usize, to: Option<usize>) {
        if let Some(moved) = self.moved_slots.get(slot) {
            moved.store(to.map_or(FOREIGN, |to| to as i32), Ordering::Relaxed);
        }
    }

    /// Shows both pages to every thread.
    ///
    /// # Safety
    /// The pages stay mapped as long as the process.
    pub unsafe fn publish(&self, broker: *mut BrokerPage, client: *mut ClientFile) {
        self.client_file.store(client, Ordering::Release);
        self.broker_page.store(broker, Ordering::Release);
    }
}
