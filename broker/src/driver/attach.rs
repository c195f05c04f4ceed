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

use super::held::Hold;
use super::state_driver::StateDriver;
use crate::dispatcher::message::Message;
use crate::host::proc::{is_own_helper, login_scope};
use crate::kind::Kind;
use crate::peer::{ConnectionId, Peer};
use crate::residence;
use crate::site::Site;
use crate::site::effect::Effect;
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
        self.site.directory.kind() == Kind::Private && is_guest && !self.site.processes.is_in_namespace_of(peer.pid, me)
    }

    /// A connection's first binary packet, and the pages that came with it.
    pub(super) fn greet(&mut self, peer: Peer, hello: Hello, pages: Option<HandedBack>) {
        if self.serves_not(&peer) {
            return refuse_identity(&mut self.site, peer.connection, "this broker serves another user");
        }
        // Before anything that waits for a helper.
        if is_own_helper(peer.pid) {
            return self
                .site
                .refuse(peer.connection, REFUSED_OWN, "this is the broker's own helper");
        }
        let Some(process) = self.site.process_of(&peer) else {
            let text = "the broker cannot see this process: its pid namespace is not below the broker's";
            return refuse_identity(&mut self.site, peer.connection, text);
        };
        let is_parked = hello.flags & HELLO_PARKED != 0;
        let known = self.site.clients.get(ClientId(hello.client));
        if is_parked && known.is_some_and(|client| client.process == process) {
            return self.take_in(&peer, process, &hello);
        }
        if hello.client != 0 && !is_parked {
            return self.come_back(peer, process, &hello, pages);
        }
        if self.site.devices.is_ready() {
            self.attach(&peer, process, &hello, None);
        } else {
            self.held.push_back(Hold::Hello(peer, Box::new(hello)));
        }
    }

    /// A connection whose protocol major is another one's.
    pub fn foreign_major(&mut self, connection: ConnectionId, major: u16) {
        let text = format!("this broker speaks protocol {MAJOR}, the library {major}");
        self.site.refuse(connection, REFUSED_VERSION, &text);
    }

    pub(super) fn attach(
        &mut self,
        peer: &Peer,
        process: Process,
        hello: &Hello,
        known: Option<(ClientId, Arc<PagePair>)>,
    ) {
        let to = peer.connection;
        self.notice_exec(process);
        self.settle();
        if let Err(text) = self.has_room(process, peer.uid) {
            return self.site.refuse(to, REFUSED_CAPACITY, &text);
        }
        let Some(stat) = self.site.processes.stat(process.pid).filter(|stat| stat.id == process) else {
            return self.site.effects.push(Effect::Close(to));
        };
        let earlier = known.as_ref().map(|(client, _)| *client);
        let (line, id) = match self.line_of(earlier, (process, stat.image, peer.uid), hello) {
            Ok(added) => added,
            Err((code, text)) => return self.site.refuse(to, code, &text),
        };
        let (pages, gift) = match self.pages_of(id, line, known.map(|(_, pages)| pages)) {
            Ok(pages) => pages,
            Err(error) => {
                warn!(%error, "no pages for a client");
                self.site.clients.ledger.remove(line);
                return self.site.refuse(to, REFUSED_CAPACITY, &error.to_string());
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
        if self.site.jobs.is_empty() {
            // Nobody had a reason to look for a while.
            self.site.devices.look_now();
        }
        let membership = self.membership(process, peer.uid, hello);
        self.site.clients.insert(id, client);
        if !self.site.watch(process) {
            self.site.clients.remove(id);
            return self.site.effects.push(Effect::Close(to));
        }
        let attaching = Attaching {
            client: id,
            process,
            uid: peer.uid,
            user: self.site.users.name(peer.uid),
            unix_ns: self.site.now.unix_ns,
            fresh_token: (self.random)(),
            membership,
        };
        self.site.tell(Event::Attach(Box::new(attaching)));
        self.settle();
        self.engine.has_arrived(&mut self.site, id);
    }

    /// A line of the ledger for a client; of a restored one it says what that has to get back.
    fn line_of(
        &mut self,
        earlier: Option<ClientId>,
        (process, image, uid): (Process, (u64, u64), u32),
        hello: &Hello,
    ) -> Result<(LineIndex, ClientId), (u32, String)> {
        let added = self.site.clients.ledger.add(earlier, process, image, uid);
        let (line, id) = added.map_err(|error| (REFUSED_CAPACITY, error.to_string()))?;
        if let Err(text) = residence::owe(&self.site, process, hello, line) {
            self.site.clients.ledger.remove(line);
            return Err((REFUSED_IDENTITY, text.to_owned()));
        }
        Ok((line, id))
    }

    /// May the process be another client, and may its user have another one? If not, a sentence says why.
    fn has_room(&self, process: Process, uid: u32) -> Result<(), String> {
        if self.site.clients.of_process(process).len() >= CLIENTS_PER_PROCESS {
            return Err("this process is too many clients already".to_owned());
        }
        let of_user = self.site.clients.iter().filter(|(_, client)| client.uid == uid).count();
        if of_user >= self.site.config.clients_per_user {
            return Err(format!(
                "uid {uid} has {of_user} clients, the most that one user may have here"
            ));
        }
        Ok(())
    }

    /// The pages that a client has already, or new ones and the descriptors to give it.
    fn pages_of(&self, id: ClientId, line: LineIndex, known: Option<Arc<PagePair>>) -> Result<Pages, PageError> {
        let Some(pages) = known else {
            let (pages, gift) = PagePair::create(id, self.site.clients.ledger.epoch())?;
            self.engine.begin_hold(&pages);
            self.tell_use(id, line, &pages);
            return Ok((Arc::new(pages), Some(gift)));
        };
        // The lost ledger's figures stand on the page that only brokers write.
        for (slot, shown) in pages.broker().devices.iter().enumerate() {
            let overhead = shown.overhead.load(Ordering::Relaxed);
            let kept = self.site.clients.ledger.overhead(line, slot);
            kept.store(overhead, Ordering::SeqCst);
        }
        Ok((pages, None))
    }

    /// What a client that parked uses is known before it says so itself: from the pages that it had, or as the most
    /// that the ledger lets it have.
    fn tell_use(&self, id: ClientId, line: LineIndex, pages: &PagePair) {
        let old = self.site.clients.pages(id);
        for (slot, page) in pages.client().devices.iter().enumerate() {
            let ledger = &self.site.clients.ledger;
            let most = ledger.word(line, slot).load(Ordering::SeqCst);
            let most = most.max(ledger.owed(line, slot).load(Ordering::SeqCst));
            let used = old.map_or(most, |old| old.client().devices[slot].used.load(Ordering::SeqCst));
            page.used.store(used, Ordering::SeqCst);
        }
    }

    /// A client that parked, and is the process that it was, gets new pages.
    fn take_in(&mut self, peer: &Peer, process: Process, hello: &Hello) {
        let (id, to) = (ClientId(hello.client), peer.connection);
        let Some(line) = self.site.clients.get(id).map(|client| client.line) else {
            return;
        };
        let (pages, gift) = match self.pages_of(id, line, None) {
            Ok(pages) => pages,
            Err(error) => return self.site.refuse(to, REFUSED_CAPACITY, &error.to_string()),
        };
        if let Some(client) = self.site.clients.get_mut(id) {
            (client.pages, client.gift, client.is_parked) = (Some(pages), gift, false);
        }
        // The dispatcher looks at the pages that it was told of.
        self.site.effects.push(Effect::Time(Message::Left(id)));
        self.engine.show_hold(&mut self.site, id);
        if let Some(old) = self.site.clients.connect(id, Some(to)) {
            self.site.effects.push(Effect::Close(old));
        }
        let reattach = Event::Reattach {
            client: id,
            process,
            are_pages_lost: false,
        };
        self.site.tell(reattach);
    }

    fn membership(&mut self, process: Process, uid: u32, hello: &Hello) -> Membership {
        let (pid, processes) = (process.pid, &self.site.processes);
        let cgroup = processes.cgroup(pid).unwrap_or_else(|| "/".to_owned());
        let program = processes.program(pid).or_else(|| processes.name(pid));
        let length = hello.environment_length as usize;
        Membership {
            by_kernel: self.site.job_by_kernel(process),
            token: hello.token.iter().any(|byte| *byte != 0).then_some(hello.token),
            scope: login_scope(&cgroup).to_owned(),
            groups: self.site.groups_of(process.pid, uid),
            program: program.unwrap_or_default(),
            environment_limit: hello.environment_limit,
            environment: unpacked(hello.environment.get(..length).unwrap_or(&[])),
            is_environment_cut: hello.flags & HELLO_ENVIRONMENT_CUT != 0 || length > hello.environment.len(),
            cgroup,
            other_cgroups: self.site.other_cgroups(process.pid),
            nodes: hello.nodes,
        }
    }

    /// A client that an earlier connection, or an earlier broker, knew.
    fn come_back(&mut self, peer: Peer, process: Process, hello: &Hello, handed_back: Option<HandedBack>) {
        let id = ClientId(hello.client);
        let to = peer.connection;
        let Some(client) = self.site.clients.get(id) else {
            return self.come_back_unknown(&peer, process, hello, handed_back);
        };
        if client.process != process {
            return refuse_identity(&mut self.site, to, "this client id belongs to another process");
        }
        let is_mapped = client.pages.is_some();
        let are_others =
            |handed_back: &PagePair| client.pages.as_ref().is_some_and(|known| !known.are_these(handed_back));
        let pages = match handed_back {
            Some(Ok(pages)) if are_others(&pages) => {
                return refuse_identity(&mut self.site, to, "these are not the pages of this client");
            }
            Some(Err(_)) if is_mapped => {
                return refuse_identity(&mut self.site, to, "these are not the pages of this client");
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
        if let Some(client) = self.site.clients.get_mut(id) {
            client.pages = client.pages.take().or(pages);
        }
        self.engine.show_hold(&mut self.site, id);
        if let Some(old) = self.site.clients.connect(id, Some(to)) {
            self.site.effects.push(Effect::Close(old));
        }
        self.site.tell(Event::Reattach {
            client: id,
            process,
            are_pages_lost,
        });
    }

    /// The ledger does not know the client (its file was lost): it is taken in anew with the pages it has, so that what
    /// it uses is counted again from its own page.
    fn come_back_unknown(&mut self, peer: &Peer, process: Process, hello: &Hello, handed_back: Option<HandedBack>) {
        let id = ClientId(hello.client);
        match handed_back {
            Some(Ok(pages)) => {
                for line in &pages.broker().devices {
                    line.granted.store(0, Ordering::SeqCst);
                }
                debug!(client = %id, "a client that the ledger does not know came back with its pages");
                self.attach(peer, process, hello, Some((id, Arc::new(pages))));
            }
            Some(Err(error)) => self.site.refuse(peer.connection, REFUSED_IDENTITY, &error.to_string()),
            None => refuse_identity(&mut self.site, peer.connection, "no such client, and no pages of one"),
        }
    }
}

/// It is not who it says, or nobody whom this broker serves.
fn refuse_identity(site: &mut Site, to: ConnectionId, text: &str) {
    site.refuse(to, REFUSED_IDENTITY, text);
}
