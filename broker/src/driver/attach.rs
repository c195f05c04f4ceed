// SPDX-License-Identifier: Apache-2.0
//! How a process becomes a client: its identity from the kernel, its job, and its pages.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use partage_policy::{Attaching, Event, Membership, Process};
use partage_protocol::aliases::unpacked;
use partage_protocol::message::{
    HELLO_ENVIRONMENT_CUT, HELLO_PAGES_LOST, HELLO_PARKED, Hello, MAJOR, REFUSED_CAPACITY, REFUSED_IDENTITY,
    REFUSED_OWN, REFUSED_VERSION,
};
use partage_protocol::units::{ClientId, JobId};
use tracing::{debug, warn};

use super::effect::Effect;
use super::held::Hold;
use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::dispatcher::message::Message;
use crate::host::cgroups;
use crate::host::proc::{ancestors, is_own_helper, login_scope, namespace};
use crate::kind::Kind;
use crate::peer::ConnectionId;
use crate::peer::Peer;
use crate::state::clients::Client;
use crate::state::ledger::LineIndex;
use crate::state::pages::{HandedBack, PageError, PagePair};

/// Clients that one process may be: one for each copy of the library that a program can load at a time.
const CLIENTS_PER_PROCESS: usize = 8;

/// A client's pages, and their descriptors while the client does not have them.
type Pages = (Arc<PagePair>, Option<[OwnedFd; 2]>);

impl StateDriver {
    /// A private broker serves its user, root, and the users of the user's own namespaces; its socket lets in everybody
    /// that comes by its folder.
    pub(super) fn serves_not(&self, peer: &Peer) -> bool {
        let me = nix::unistd::geteuid().as_raw();
        let is_guest = peer.uid != me && peer.uid != 0;
        self.directory.kind() == Kind::Private && is_guest && !self.processes.is_in_namespace_of(peer.pid, me)
    }

    /// A connection's first binary packet, and the pages that came with it.
    pub fn hello(&mut self, peer: Peer, hello: Hello, pages: Option<HandedBack>, now: Now) {
        if self.serves_not(&peer) {
            return self.refuse(peer.connection, REFUSED_IDENTITY, "this broker serves another user");
        }
        // Before anything that waits for a helper.
        if is_own_helper(peer.pid) {
            return self.refuse(peer.connection, REFUSED_OWN, "this is the broker's own helper");
        }
        let Some(process) = self.process_of(&peer) else {
            let text = "the broker cannot see this process: its pid namespace is not below the broker's";
            return self.refuse(peer.connection, REFUSED_IDENTITY, text);
        };
        let is_parked = hello.flags & HELLO_PARKED != 0;
        let known = self.clients.get(ClientId(hello.client)).map(|client| client.process);
        if is_parked && known == Some(process) {
            return self.take_in(&peer, process, &hello, now);
        }
        if hello.client != 0 && !is_parked {
            return self.come_back(peer, process, &hello, pages, now);
        }
        if self.devices.is_ready() {
            self.attach(&peer, process, &hello, None, now);
        } else {
            self.held.push_back(Hold::Hello(peer, Box::new(hello)));
        }
    }

    /// A connection whose protocol major is another one's.
    pub fn foreign_major(&mut self, connection: ConnectionId, major: u16) {
        let text = format!("this broker speaks protocol {MAJOR}, the library {major}");
        self.refuse(connection, REFUSED_VERSION, &text);
    }

    /// The peer's process with its start time; none when it is gone or not visible.
    pub(super) fn process_of(&self, peer: &Peer) -> Option<Process> {
        let pidfd = peer.pidfd.as_ref()?;
        let stat = self.processes.stat(peer.pid)?;
        // Still alive after the look: the number was not reused in between.
        (!pidfd.has_ended()).then_some(stat.id)
    }

    pub(super) fn attach(
        &mut self,
        peer: &Peer,
        process: Process,
        hello: &Hello,
        known: Option<(ClientId, Arc<PagePair>)>,
        now: Now,
    ) {
        let to = peer.connection;
        self.notice_exec(process, now);
        if let Err(text) = self.has_room(process, peer.uid) {
            return self.refuse(to, REFUSED_CAPACITY, &text);
        }
        let Some(stat) = self.processes.stat(process.pid).filter(|stat| stat.id == process) else {
            return self.effects.push(Effect::Close(to));
        };
        let earlier = known.as_ref().map(|(client, _)| *client);
        let (line, id) = match self.line_of(earlier, (process, stat.image, peer.uid), hello) {
            Ok(added) => added,
            Err((code, text)) => return self.refuse(to, code, &text),
        };
        let (pages, gift) = match self.pages_of(id, line, known.map(|(_, pages)| pages)) {
            Ok(pages) => pages,
            Err(error) => {
                warn!(%error, "no pages for a client");
                self.clients.ledger.remove(line);
                return self.refuse(to, REFUSED_CAPACITY, &error.to_string());
            }
        };
        let client = Client {
            line,
            pages: Some(pages),
            gift,
            process,
            image: stat.image,
            uid: peer.uid,
            job: JobId(0),
            devices: Vec::new(),
            has_driver: false,
            connection: Some(to),
            dying: None,
            doubt_since_ns: None,
            was_shown: false,
            is_parked: false,
        };
        if self.jobs.is_empty() {
            // Nobody had a reason to look for a while.
            self.devices.look_now();
        }
        let membership = self.membership(process, peer.uid, hello);
        self.clients.insert(id, client);
        if !self.watch(process) {
            self.clients.remove(id);
            return self.effects.push(Effect::Close(to));
        }
        let attaching = Attaching {
            client: id,
            process,
            uid: peer.uid,
            user: self.users.name(peer.uid),
            unix_ns: now.unix_ns,
            fresh_token: (self.random)(),
            membership,
        };
        self.step(now, Event::Attach(Box::new(attaching)));
        self.has_arrived(id, now);
    }

    /// A line of the ledger for a client; of a restored one it says what that has to get back.
    fn line_of(
        &mut self,
        earlier: Option<ClientId>,
        (process, image, uid): (Process, (u64, u64), u32),
        hello: &Hello,
    ) -> Result<(LineIndex, ClientId), (u32, String)> {
        let added = self.clients.ledger.add(earlier, process, image, uid);
        let (line, id) = added.map_err(|error| (REFUSED_CAPACITY, error.to_string()))?;
        if let Err(text) = self.owe(process, hello, line) {
            self.clients.ledger.remove(line);
            return Err((REFUSED_IDENTITY, text.to_owned()));
        }
        Ok((line, id))
    }

    /// May the process be another client, and may its user have another one? If not, a sentence says why.
    fn has_room(&self, process: Process, uid: u32) -> Result<(), String> {
        if self.clients.of_process(process).len() >= CLIENTS_PER_PROCESS {
            return Err("this process is too many clients already".to_owned());
        }
        let of_user = self.clients.iter().filter(|(_, client)| client.uid == uid).count();
        if of_user >= self.config.clients_per_user {
            return Err(format!(
                "uid {uid} has {of_user} clients, the most that one user may have here"
            ));
        }
        Ok(())
    }

    /// The pages that a client has already, or new ones and the descriptors to give it.
    fn pages_of(&self, id: ClientId, line: LineIndex, known: Option<Arc<PagePair>>) -> Result<Pages, PageError> {
        let Some(pages) = known else {
            let (pages, gift) = PagePair::create(id, self.clients.ledger.epoch())?;
            self.begin_hold(&pages);
            self.tell_use(id, line, &pages);
            return Ok((Arc::new(pages), Some(gift)));
        };
        // The lost ledger's figures stand on the page that only brokers write.
        for (slot, shown) in pages.broker().devices.iter().enumerate() {
            let overhead = shown.overhead.load(Ordering::Relaxed);
            self.clients
                .ledger
                .overhead(line, slot)
                .store(overhead, Ordering::SeqCst);
        }
        Ok((pages, None))
    }

    /// What a client that parked uses is known before it says so itself: from the pages that it had, or as the most
    /// that the ledger lets it have.
    fn tell_use(&self, id: ClientId, line: LineIndex, pages: &PagePair) {
        let old = self.clients.pages(id);
        for (slot, page) in pages.client().devices.iter().enumerate() {
            let ledger = &self.clients.ledger;
            let most = ledger.word(line, slot).load(Ordering::SeqCst);
            let most = most.max(ledger.owed(line, slot).load(Ordering::SeqCst));
            let used = old.map_or(most, |old| old.client().devices[slot].used.load(Ordering::SeqCst));
            page.used.store(used, Ordering::SeqCst);
        }
    }

    /// A client that parked, and is the process that it was, gets new pages.
    fn take_in(&mut self, peer: &Peer, process: Process, hello: &Hello, now: Now) {
        let (id, to) = (ClientId(hello.client), peer.connection);
        let Some(line) = self.clients.get(id).map(|client| client.line) else {
            return;
        };
        let (pages, gift) = match self.pages_of(id, line, None) {
            Ok(pages) => pages,
            Err(error) => return self.refuse(to, REFUSED_CAPACITY, &error.to_string()),
        };
        if let Some(client) = self.clients.get_mut(id) {
            (client.pages, client.gift, client.is_parked) = (Some(pages), gift, false);
        }
        // The dispatcher looks at the pages that it was told of.
        self.effects.push(Effect::Time(Message::Left(id)));
        self.show_hold(id);
        if let Some(old) = self.clients.connect(id, Some(to)) {
            self.effects.push(Effect::Close(old));
        }
        let reattach = Event::Reattach {
            client: id,
            process,
            are_pages_lost: false,
        };
        self.step(now, reattach);
    }

    /// A process's paths in other hierarchies than the one that names its scope.
    pub(super) fn other_cgroups(&self, pid: u32) -> Vec<String> {
        cgroups::others(self.processes.cgroup(pid).as_deref(), self.processes.cgroups(pid))
    }

    fn membership(&mut self, process: Process, uid: u32, hello: &Hello) -> Membership {
        let cgroup = self.processes.cgroup(process.pid).unwrap_or_else(|| "/".to_owned());
        let program = self
            .processes
            .program(process.pid)
            .or_else(|| self.processes.name(process.pid));
        Membership {
            by_kernel: self.job_by_kernel(process),
            token: hello.token.iter().any(|byte| *byte != 0).then_some(hello.token),
            scope: login_scope(&cgroup).to_owned(),
            groups: self.groups_of(process.pid, uid),
            program: program.unwrap_or_default(),
            environment_limit: hello.environment_limit,
            environment: unpacked(
                hello
                    .environment
                    .get(..hello.environment_length as usize)
                    .unwrap_or(&[]),
            ),
            is_environment_cut: hello.flags & HELLO_ENVIRONMENT_CUT != 0
                || hello.environment_length as usize > hello.environment.len(),
            cgroup,
            other_cgroups: self.other_cgroups(process.pid),
            nodes: hello.nodes,
        }
    }

    /// The job of a process: the one that owns the nearest control group that it is in, else the one by its parents,
    /// else the container's in whose pid namespace it is.
    pub(super) fn job_by_kernel(&self, process: Process) -> Option<JobId> {
        self.job_by_cgroup(process)
            .or_else(|| self.job_by_ancestry(process))
            .or_else(|| self.job_by_pid_namespace(process))
    }

    /// The job that owns the nearest control group that a process is in.
    pub(super) fn job_by_cgroup(&self, process: Process) -> Option<JobId> {
        if !self.jobs.own_cgroups() {
            return None;
        }
        let jobs = self.jobs.of_cgroups(&self.processes.cgroups(process.pid));
        let job = jobs.into_iter().find(|job| self.may_hold(*job, process.pid))?;
        // The number was not reused while its group was read.
        self.processes
            .stat(process.pid)
            .filter(|stat| stat.id == process)
            .map(|_| job)
    }

    /// May a registered job hold this process by its group or namespace? What a user registered holds that user's
    /// processes alone, and those of the user's namespaces.
    fn may_hold(&self, job: JobId, pid: u32) -> bool {
        let Some(record) = self.jobs.get(job) else { return false };
        let Some(registration) = &record.registration else {
            return false;
        };
        registration.is_by_root
            || self.processes.uid(pid) == Some(record.uid)
            || self.processes.is_in_namespace_of(pid, record.uid)
    }

    /// The first container's job that began in the pid namespace of a process, which is not the broker's: what came by
    /// `exec` has its parent outside, and may have left the control group or found none.
    fn job_by_pid_namespace(&self, process: Process) -> Option<JobId> {
        let theirs = namespace(process.pid).filter(|theirs| Some(theirs) != namespace(std::process::id()).as_ref())?;
        let is_now = |process: Process| self.processes.stat(process.pid).is_some_and(|stat| stat.id == process);
        let begins_there = |job: &JobId| {
            let first = self.jobs.get(*job).and_then(|record| record.first);
            first.is_some_and(|first| namespace(first.pid).as_ref() == Some(&theirs) && is_now(first))
        };
        let mut jobs = self.jobs.ids().filter(|job| self.is_containers(*job));
        jobs.find(|job| self.may_hold(*job, process.pid) && begins_there(job))
            .filter(|_| is_now(process))
    }

    fn is_containers(&self, job: JobId) -> bool {
        let record = self.jobs.get(job);
        let registration = record.and_then(|record| record.registration.as_ref());
        registration.is_some_and(|one| one.cgroup.is_some() || !one.container.is_empty())
    }

    /// The job of the process itself, or of the nearest of its parents that has one.
    fn job_by_ancestry(&self, process: Process) -> Option<JobId> {
        let job_of = |process: &Process| {
            let of_first = self.jobs.of_first(*process);
            of_first.or_else(|| self.clients.job_of(*process))
        };
        let parents = || ancestors(&*self.processes, process.pid);
        job_of(&process).or_else(|| parents().iter().find_map(job_of))
    }

    /// A client that an earlier connection, or an earlier broker, knew.
    fn come_back(&mut self, peer: Peer, process: Process, hello: &Hello, handed_back: Option<HandedBack>, now: Now) {
        let id = ClientId(hello.client);
        let to = peer.connection;
        let Some(client) = self.clients.get(id) else {
            return self.come_back_unknown(&peer, process, hello, handed_back, now);
        };
        if client.process != process {
            return self.refuse(to, REFUSED_IDENTITY, "this client id belongs to another process");
        }
        let is_mapped = client.pages.is_some();
        let are_others =
            |handed_back: &PagePair| client.pages.as_ref().is_some_and(|known| !known.are_these(handed_back));
        let pages = match handed_back {
            Some(Ok(pages)) if are_others(&pages) => {
                return self.refuse(to, REFUSED_IDENTITY, "these are not the pages of this client");
            }
            Some(Err(_)) if is_mapped => {
                return self.refuse(to, REFUSED_IDENTITY, "these are not the pages of this client");
            }
            Some(Ok(pages)) => Some(Arc::new(pages)),
            Some(Err(error)) => {
                debug!(%error, client = %id, "pages not taken back");
                None
            }
            None => None,
        };
        let are_pages_lost = !is_mapped && pages.is_none();
        if are_pages_lost && hello.flags & HELLO_PAGES_LOST == 0 {
            debug!(client = %id, "came back without its pages");
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.pages = client.pages.take().or(pages);
        }
        self.show_hold(id);
        if let Some(old) = self.clients.connect(id, Some(to)) {
            self.effects.push(Effect::Close(old));
        }
        self.step(
            now,
            Event::Reattach {
                client: id,
                process,
                are_pages_lost,
            },
        );
    }

    /// The ledger does not know the client (its file was lost): it is taken in anew with the pages it has, so that what
    /// it uses is counted again from its own page.
    fn come_back_unknown(
        &mut self,
        peer: &Peer,
        process: Process,
        hello: &Hello,
        handed_back: Option<HandedBack>,
        now: Now,
    ) {
        let id = ClientId(hello.client);
        match handed_back {
            Some(Ok(pages)) => {
                for line in &pages.broker().devices {
                    line.granted.store(0, Ordering::SeqCst);
                }
                debug!(client = %id, "a client that the ledger does not know came back with its pages");
                self.attach(peer, process, hello, Some((id, Arc::new(pages))), now);
            }
            Some(Err(error)) => self.refuse(peer.connection, REFUSED_IDENTITY, &error.to_string()),
            None => self.refuse(peer.connection, REFUSED_IDENTITY, "no such client, and no pages of one"),
        }
    }
}
