// SPDX-License-Identifier: Apache-2.0
//! What ties this process to a broker: socket, descriptors, mapped pages, job, where slots went, the fast path of a
//! launch.
//!
//! ```text
//!              attach                lost
//!   nothing ───────────► standing ──────────► gone
//!                           ▲     reattach     │
//!                           └──────────────────┘
//! ```
//! *attach* maps the pages that the first welcome brings, once in the life of a process. *lost* closes the socket and
//! nothing else: charges and launches go on against the pages, which the next broker adopts. *reattach* takes the
//! connection of a broker that welcomes this process under its old id. Nothing else maps, unmaps or closes any of
//! these.
//!
//! [`Link`] is what `State::talk` guards. [`Attachment`] is what every thread reads: written once, before the phase
//! becomes `Attached`. A forked child starts from nothing: both lie in memory that is wiped, the mappings are not
//! copied, and the child closes the descriptors that [`inherited`] knows. The driver's registration of the marks' page
//! belongs to the contexts that made it; the page stays mapped as long as the process, and so outlives them.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use partage_protocol::message::{DeviceInfo, MAX_DEVICES, WELCOME_DEFAULT_JOB, WELCOME_STRICT, Welcome};
use partage_protocol::page::{
    BROKER_MAGIC, BrokerPage, CLIENT_BYTES, CLIENT_MAGIC, ClientFile, ClientPage, LAYOUT, PAGE_BYTES,
};
use partage_records::attachment::{Transition, welcomed};

use crate::devices;
use crate::guest::descriptor::Kept;
use crate::guest::inherited;
use crate::guest::sys;
use crate::own_pages;
use crate::socket::{self, Refusal};
use crate::state::{FOREIGN, NAMELESS, Phase, State};

/// The devices of the job, written once before the phase becomes `Attached`.
pub struct Job {
    /// The job's number.
    pub number: u64,
    /// Devices in use in `devices`.
    pub count: usize,
    /// Slot 0 first.
    pub devices: [DeviceInfo; MAX_DEVICES],
    /// The process belongs to no job of `run` (any more).
    pub is_default: bool,
    /// The job was started with `--strict`.
    pub is_strict: bool,
}

impl Job {
    /// The devices in slot order.
    pub fn devices(&self) -> &[DeviceInfo] {
        self.devices.get(..self.count).unwrap_or(&[])
    }

    /// The slot of a device of the job.
    pub fn slot_of(&self, uuid: &[u8; 16]) -> Option<usize> {
        self.devices().iter().position(|device| device.uuid == *uuid)
    }

    fn read(&mut self, welcome: &Welcome) {
        self.number = welcome.job;
        self.is_default = welcome.flags & WELCOME_DEFAULT_JOB != 0;
        self.is_strict = welcome.flags & WELCOME_STRICT != 0;
        self.count = (welcome.device_count as usize).min(MAX_DEVICES);
        self.devices = welcome.devices;
    }
}

/// What every thread reads of the attachment. All-zero memory is "none".
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

    /// Numbers the slots as the job does. Precondition: `State::books` is held.
    fn number_slots(&self, state: &State, job: &Job) {
        for (slot, moved) in self.moved_slots.iter().enumerate() {
            let to = job.slot_of(&own_pages::standalone_uuid(state, slot));
            moved.store(to.map_or(FOREIGN, |to| to as i32), Ordering::Relaxed);
        }
        for (ordinal, slot) in state.ordinal_slots.iter().enumerate() {
            let uuid = state.ordinal_uuid(ordinal);
            let other = if uuid == [0; 16] { NAMELESS } else { FOREIGN };
            let to = job.slot_of(&uuid).map_or(other, |to| to as i32);
            slot.store(to, Ordering::Relaxed);
        }
    }
}

/// Our end of the connection. All-zero memory is "never connected". Guarded by `State::talk`.
pub struct Link {
    socket: Kept,
    /// A hello went out on the socket; its welcome is to come.
    is_greeting: bool,
    /// The last welcome was the first, and its pages could not be taken.
    lacks_room: bool,
    broker_file: Kept,
    client_file: Kept,
    /// The id under which brokers know this process; 0 before the first welcome.
    client: u64,
}

impl Link {
    /// The connection, if there is one.
    pub fn socket(&self) -> &Kept {
        &self.socket
    }

    /// A hello is out, and not answered.
    pub fn is_greeting(&self) -> bool {
        self.is_greeting
    }

    /// This process had no descriptor or no memory left for the pages of a welcome. Whoever asks again at once has the
    /// broker make one more client each time.
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// A broker welcomed this process on a connection that stands.
    pub fn is_connected(&self) -> bool {
        !self.is_greeting && self.socket.fd().is_some()
    }

    /// The id under which brokers know this process; 0 before the first welcome.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// The files of both pages, for a broker that does not know this process. `None`: the program closed one.
    pub fn files(&self) -> Option<[c_int; 2]> {
        Some([self.broker_file.fd()?, self.client_file.fd()?])
    }

    /// A connection on which `greet` says hello.
    ///
    /// # Errors
    /// What `greet` says, or that there is no place for one more descriptor of ours. The connection is gone then.
    pub fn connect(&mut self, fd: c_int, greet: impl FnOnce(&Kept) -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.lost();
        self.lacks_room = false;
        self.socket = Kept::take(fd).ok_or(Refusal::Unable)?;
        let result = greet(&self.socket);
        self.is_greeting = result.is_ok();
        if result.is_err() {
            self.lost();
        }
        result
    }

    /// The broker answered the hello: with a welcome or not.
    pub fn answered(&mut self) {
        self.is_greeting = false;
    }

    /// A broker's welcome: the first attaches, any other reattaches. `true`: it was not the first.
    ///
    /// # Errors
    /// The welcome is not for this process, or its pages are not to be had. The connection is gone then.
    pub fn welcomed(&mut self, state: &State, welcome: &Welcome, descriptors: [c_int; 2]) -> Result<bool, Refusal> {
        let has_files = descriptors.iter().all(|fd| *fd >= 0);
        let transition = welcomed(self.client, welcome.client, has_files);
        let result = match transition {
            Transition::Attach => self.attach(state, welcome, descriptors),
            // The pages stay what they are.
            Transition::Reattach | Transition::Refuse => {
                socket::discard(descriptors);
                if transition == Transition::Reattach {
                    Ok(())
                } else if self.client == 0 && welcome.client != 0 && !has_files {
                    // The kernel leaves out the descriptors that a process has no room for.
                    Err(Refusal::Unable)
                } else {
                    Err(Refusal::Final)
                }
            }
        };
        self.lacks_room = result == Err(Refusal::Unable);
        match result {
            Ok(()) => inherited::remember([self.socket, self.broker_file, self.client_file]),
            Err(_) => self.lost(),
        }
        result.map(|()| transition == Transition::Reattach)
    }

    /// The connection broke, or was not to be. The pages, and what was charged on them, stay what they are.
    pub fn lost(&mut self) {
        self.socket.close();
        self.is_greeting = false;
    }

    /// Maps the pages and takes over the job's devices.
    fn attach(&mut self, state: &State, welcome: &Welcome, [broker, client]: [c_int; 2]) -> Result<(), Refusal> {
        self.broker_file.close();
        self.client_file.close();
        self.broker_file = Kept::take(broker).unwrap_or(Kept::NONE);
        self.client_file = Kept::take(client).unwrap_or(Kept::NONE);
        let pages = Mapping::of(&self.broker_file, PAGE_BYTES, libc::PROT_READ).and_then(|broker| {
            let client = Mapping::of(&self.client_file, CLIENT_BYTES, libc::PROT_READ | libc::PROT_WRITE)?;
            Some((broker, client))
        });
        let refusal = if pages.is_some() {
            Refusal::Final
        } else {
            Refusal::Unable
        };
        let Some((broker, client)) = pages.filter(|(broker, client)| are_understood(broker, client)) else {
            self.broker_file.close();
            self.client_file.close();
            return Err(refusal);
        };
        let (broker_page, client_file): (*mut BrokerPage, *mut ClientFile) =
            (broker.keep().cast(), client.keep().cast());
        self.client = welcome.client;
        let attachment = &state.attachment;
        // SAFETY: `State::talk` is held, and nobody reads the job before the pages are published below.
        let job = unsafe { &mut *attachment.job.get() };
        job.read(welcome);
        let is_late = state.phase() == Phase::Standalone;
        let held = state.books.hold();
        attachment.number_slots(state, job);
        // SAFETY: mapped above, as long as the process.
        own_pages::move_in(state, unsafe { &(*client_file).page });
        attachment.client_file.store(client_file, Ordering::Release);
        attachment.broker_page.store(broker_page, Ordering::Release);
        state.is_uncovered.store(is_late, Ordering::Release);
        state.set_phase(Phase::Attached);
        drop(held);
        if is_late {
            devices::tell_foreign(state);
        }
        Ok(())
    }
}

/// Are both pages of the layout that this library knows? Only their heads are read.
fn are_understood(broker: &Mapping, client: &Mapping) -> bool {
    // SAFETY: mapped; the broker sealed the files against shrinking. Only the first page of each is looked at.
    let (broker, client) = unsafe {
        (
            &*broker.memory.cast::<BrokerPage>(),
            &*client.memory.cast::<ClientPage>(),
        )
    };
    broker.head.magic.load(Ordering::Acquire) == BROKER_MAGIC
        && broker.head.layout.load(Ordering::Relaxed) == LAYOUT
        && client.head.magic.load(Ordering::Relaxed) == CLIENT_MAGIC
        && client.head.layout.load(Ordering::Relaxed) == LAYOUT
}

/// Pages that are unmapped again unless somebody keeps them.
struct Mapping {
    memory: *mut c_void,
    length: usize,
}

impl Mapping {
    fn of(file: &Kept, length: usize, protection: c_int) -> Option<Self> {
        let memory = sys::map(length, protection, libc::MAP_SHARED, file.fd()?)?;
        sys::advise(memory, length, libc::MADV_DONTFORK);
        Some(Self { memory, length })
    }

    fn keep(self) -> *mut c_void {
        let memory = self.memory;
        core::mem::forget(self);
        memory
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody has seen what is not kept.
        unsafe { sys::unmap(self.memory, self.length) };
    }
}
