// SPDX-License-Identifier: Apache-2.0
//! What every thread reads of the attachment: written once, before the phase becomes `Attached`; and what stands for it
//! before.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use partage_protocol::message::{MAX_DEVICES, Welcome};
use partage_protocol::page::{BrokerPage, ClientFile, ClientHead, ClientPage};

use crate::attachment::job::Job;
use crate::attachment::ordinals::{FOREIGN, Ordinals};
use crate::attachment::own_pages::OwnPages;
use crate::guest::lock::Lock;
use crate::state::State;
use crate::state::rooms::{Owner, Room};

/// The job, the shared pages, where slots went, and the own pages. All-zero memory is "none".
pub struct Attachment {
    /// Set before the pages are published, never changed after.
    job: UnsafeCell<Job>,
    /// The broker's page; null until attached.
    broker_page: AtomicPtr<BrokerPage>,
    /// The client's file; null until attached.
    client_file: AtomicPtr<ClientFile>,
    /// Where each standalone slot went at a late attach; [`FOREIGN`] for a device outside the job.
    moved_slots: [AtomicI32; MAX_DEVICES],
    /// A late attach: the broker has not heard yet what was charged before it.
    pub is_uncovered: AtomicBool,
    /// Guards the move from the own pages to the shared ones, and what is on record of device memory.
    pub ledger: Lock,
    /// What the job last used, per slot, for when the broker is away.
    pub last_job_used: [AtomicU64; MAX_DEVICES],
    /// Stand for the shared pages while standalone.
    pub own: OwnPages,
    /// The devices as the program sees them.
    pub ordinals: Ordinals,
}

// SAFETY: all-zero memory is "none"; nothing else lies in this room.
unsafe impl Room for Attachment {
    const OWNER: Owner = Owner::Attachment;
}

// SAFETY: the job is written once, by the thread that attaches, before the page that shows it is published.
unsafe impl Sync for Attachment {}

/// What ties this process to a broker.
#[inline(always)]
pub fn of(state: &State) -> &Attachment {
    state.room()
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

    /// The client's page, once attached.
    pub fn client_page(&self) -> Option<&ClientPage> {
        self.client_file().map(|file| &file.page)
    }

    /// Process-wide counters: on the shared page once attached, before on the own one.
    pub fn counters(&self) -> &ClientHead {
        &self.client_page().unwrap_or(&self.own.client).head
    }

    /// Where a standalone slot went. `None`: its device is outside the job.
    pub fn moved_slot(&self, slot: usize) -> Option<usize> {
        usize::try_from(self.moved_slots.get(slot)?.load(Ordering::Relaxed)).ok()
    }

    /// The job has another number: this process was restored as another one's.
    pub fn set_number(&self, number: u64) {
        if let Some(job) = self.job() {
            job.number.store(number, Ordering::Relaxed);
        }
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
