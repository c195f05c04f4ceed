// SPDX-License-Identifier: Apache-2.0
//! The hold words of a job's clients, and what the clients' pages say about them.
//!
//! The dispatcher writes the other flags beside the gates and leaves [`HELD`] alone. It beats for a client whose hold
//! is soft, because that opens without.

use std::sync::atomic::Ordering;

use partage_policy::{Residence, Tie};
use partage_protocol::gate::HELD;
use partage_protocol::hold::{self, FENCED, HARD, PARKED, ties};
use partage_protocol::units::{ClientId, JobId};

use super::engine::Engine;
use super::way::Closed;
use crate::dispatcher::kernel::Kernel as _;
use crate::dispatcher::message::Message;
use crate::site::Site;
use crate::site::effect::Effect;
use crate::state::pages::PagePair;

impl Engine {
    /// Closes or opens the hold in all pages of a job's clients, and in those that come from now on.
    pub(super) fn set_hold(&mut self, site: &mut Site, job: JobId, to: Option<Closed>) {
        match to {
            Some(closed) => drop(self.ways.closed.insert(job, closed)),
            None => drop(self.ways.closed.remove(&job)),
        }
        for id in site.clients.of_job(job) {
            self.write_hold(site, id, to);
        }
    }

    /// Writes to a client's page what its job's hold says. Of a job whose passage has not said, the page stays as the
    /// broker before left it.
    pub(crate) fn show_hold(&mut self, site: &mut Site, id: ClientId) {
        let Some(job) = site.clients.get(id).map(|client| client.job) else {
            return;
        };
        let closed = self.ways.closed.get(&job).copied();
        let mark = site.policy.residence(job);
        let is_here = mark.is_none_or(|mark| mark.residence == Residence::Here);
        if closed.is_some() || is_here && !self.ways.has(job) {
            self.write_hold(site, id, closed);
        }
    }

    fn write_hold(&mut self, site: &mut Site, id: ClientId, to: Option<Closed>) {
        let Some(pages) = site.clients.pages(id) else { return };
        let head = &pages.broker().head;
        let word = head.hold.load(Ordering::Acquire);
        let is_so = match to {
            None => !hold::is_closed(word),
            // A hard one stays: a broker before may have left a checkpointed process behind it.
            Some(Closed::Soft) => hold::is_closed(word),
            Some(Closed::Hard) => word & (HARD | PARKED) == HARD,
            Some(Closed::Parked) => hold::is_parked(word),
        };
        if is_so {
            return;
        }
        let lines = &pages.broker().devices;
        match to {
            Some(closed) => {
                // The flag first: a launch on its short way that misses the word finds it.
                for line in lines {
                    line.gate_flags.fetch_or(HELD, Ordering::SeqCst);
                }
                match closed {
                    Closed::Soft => hold::close_softly(&head.hold),
                    Closed::Hard => hold::close_hard(&head.hold),
                    Closed::Parked => hold::close_parked(&head.hold),
                };
            }
            None => {
                hold::open(&head.hold);
                for line in lines {
                    line.gate_flags.fetch_and(!HELD, Ordering::SeqCst);
                }
            }
        }
        self.kernel.wake(&head.hold);
        if to.is_some() {
            site.effects.push(Effect::Time(Message::Held));
        }
    }

    /// The barrier after which each thread that passed a hold before shows in its place. `false`: there is none now,
    /// and clients were told to use fences of their own.
    pub(super) fn barrier(&mut self, site: &mut Site, job: JobId) -> bool {
        if self.kernel.heavy_barrier() {
            return true;
        }
        let mut are_fenced = true;
        for (_, client) in site.clients.iter().filter(|(_, client)| client.job == job) {
            if let Some(pages) = &client.pages {
                let before = pages.broker().head.hold.fetch_or(FENCED, Ordering::SeqCst);
                are_fenced &= before & FENCED != 0;
            }
        }
        are_fenced
    }

    /// Clients of this broker on a machine without the barrier use fences of their own from the start.
    pub(crate) fn begin_hold(&self, pages: &PagePair) {
        if !self.kernel.has_barrier() {
            pages.broker().head.hold.fetch_or(FENCED, Ordering::SeqCst);
        }
    }
}

/// Is a thread of the job inside a driver call, or may one be?
pub(super) fn is_anybody_inside(site: &Site, job: JobId) -> bool {
    site.clients.alive_of(job).any(|(_, client)| {
        client.pages.as_ref().is_some_and(|pages| {
            let word = pages.broker().head.hold.load(Ordering::Acquire);
            pages.file().is_anybody_inside(word)
        })
    })
}

/// What a client's page says that ties its process to the device; and whether its threads can be told apart.
pub(super) fn ties_of(pages: &PagePair) -> (Vec<Tie>, bool) {
    const TIES: [(u64, Tie); 11] = [
        (ties::MANAGED_MEMORY, Tie::Managed),
        (ties::IPC_MEMORY_EXPORTED | ties::IPC_MEMORY_OPENED, Tie::IpcMemory),
        (ties::IPC_EVENT_EXPORTED | ties::IPC_EVENT_OPENED, Tie::IpcEvent),
        (ties::HANDLE_EXPORTED, Tie::HandleExported),
        (ties::HANDLE_IMPORTED, Tie::HandleImported),
        (ties::SHARED_POOL, Tie::SharedPool),
        (ties::EXTERNAL_MEMORY, Tie::ExternalMemory),
        (ties::EXTERNAL_SEMAPHORE, Tie::ExternalSemaphore),
        (ties::MULTICAST, Tie::Multicast),
        (ties::GRAPHICS, Tie::Graphics),
        (ties::DMA_BUF, Tie::DmaBuf),
    ];
    let bits = pages.client().head.ties.load(Ordering::Acquire);
    let found = TIES.iter().filter(|(mask, _)| bits & mask != 0);
    (found.map(|(_, tie)| *tie).collect(), bits & ties::UNCOUNTED != 0)
}
