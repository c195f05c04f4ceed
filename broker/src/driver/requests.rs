// SPDX-License-Identifier: Apache-2.0
//! The JSON requests of `partage`: who calls, which event the policy gets, and the answer.

use partage_policy::{Caller, Change, Event, Process, Residence, Run, Ticket, job_number};
use partage_protocol::admin::{AuditView, BrokerView, ErrorCode, EventsRequest, Reply, Request, RunRequest};
use partage_protocol::units::JobId;
use tracing::{debug, info};

use super::held::{HeldRun, Hold};
use super::state_driver::StateDriver;
use crate::history::Ask;
use crate::host::gpu::Driver;
use crate::host::proc::{namespace, outer_number};
use crate::kind::Kind;
use crate::peer::{ConnectionId, Peer};
use crate::registration::Registering;
use crate::site::effect::Effect;
use crate::site::error_view;
use crate::views::{ViewRequest, What};
use crate::{invariants, residence};

/// Bytes of a command that a job's record keeps, for its owner's eyes in `ps`.
const SHOWN_COMMAND: usize = 4096;

fn not_understood(error: &serde_json::Error) -> Reply {
    let message = format!("the broker does not understand this request: {error}");
    let hint = "use the `partage` of the broker's version (partage version)";
    Reply::Error(error_view(ErrorCode::Invalid, message, Some(hint)))
}

impl StateDriver {
    /// A whole request came in.
    pub(super) fn serve(&mut self, peer: Peer, document: &[u8]) {
        let to = peer.connection;
        let mut request = match serde_json::from_slice::<Request>(document) {
            Ok(request) => request,
            Err(error) => return self.site.answer(to, not_understood(&error)),
        };
        let Some(process) = self.site.process_of(&peer) else {
            let message = "the broker cannot see this process: its pid namespace is not below the broker's".to_owned();
            return self.site.deny(to, ErrorCode::NotAllowed, message, None);
        };
        debug!(uid = peer.uid, pid = peer.pid, ?request, "request");
        if let Err((code, message)) = self.is_for_us(&peer, &mut request) {
            return self.site.deny(to, code, message.to_owned(), None);
        }
        let caller = self.caller(&peer, process);
        match request {
            Request::Run(request) => self.run(peer, *request, None),
            Request::Register(request) => self.register(peer, caller, *request),
            Request::Ps { all, after } => self.ps(to, caller, all, after.as_deref()),
            Request::Status => self.view(to, caller, What::Status),
            Request::Queue => self.view(to, caller, What::Queue),
            Request::Metrics(asked) => self.view(to, caller, What::Metrics(asked)),
            Request::Get { target } => self.view(to, caller, What::Get(self.site.target(target))),
            Request::Set {
                target,
                mem,
                name,
                mem_request,
                process_mem,
                terms,
                force,
            } => {
                let change = Change {
                    mem,
                    mem_request,
                    process_mem,
                    name,
                    terms,
                    is_forced: force,
                };
                let event = Event::Set {
                    ticket: self.ticket(to),
                    caller,
                    target: self.site.target(target),
                    change: Box::new(change),
                };
                self.site.tell(event);
            }
            Request::Why { target } => self.view(to, caller, What::Why(self.site.target(target))),
            Request::Stop { target, grace_ns } => self.stop(to, caller, (target, grace_ns)),
            request @ (Request::Suspend { .. }
            | Request::Resume { .. }
            | Request::Checkpoint { .. }
            | Request::Restore(_)
            | Request::Migrate { .. }
            | Request::Drain { .. }
            | Request::Undrain { .. }) => {
                let ticket = self.ticket(to);
                // A script that ends one job and moves another asks before the loop hears of the end.
                self.find_all_ended();
                self.settle();
                self.engine.request(&mut self.site, ticket, caller, request);
            }
            Request::Events(request) => self.send_events(to, &caller, request),
            Request::StopBroker => self.stop_broker(to, &caller),
            Request::ShowConfig { target } => self.show_config(to, (&caller, target.as_deref())),
            Request::ReloadConfig => self.reload_config(to, &caller),
        }
    }

    /// Is this a request of somebody whom this broker serves, about a process that there is? Its target then says the
    /// number that the process has here.
    fn is_for_us(&self, peer: &Peer, request: &mut Request) -> Result<(), (ErrorCode, &'static str)> {
        if self.serves_not(peer) {
            return Err((ErrorCode::NotAllowed, "this broker serves another user"));
        }
        if !self.translate_target(request, peer.pid) {
            return Err((ErrorCode::NoTarget, "no process of this pid namespace has that number"));
        }
        Ok(())
    }

    /// A target that is a process's number, or `process:` and one, is one of the caller's pid namespace. `false`: there
    /// is none there, and the process that has this number here is not meant.
    fn translate_target(&self, request: &mut Request, caller: u32) -> bool {
        let Some(target) = request.target_mut() else {
            return true;
        };
        let digits = target.strip_prefix("process:").unwrap_or(target);
        let Ok(number) = digits.parse() else { return true };
        if namespace(caller) == namespace(std::process::id()) {
            return true;
        }
        let Some(outer) = outer_number(number, caller, &*self.site.processes) else {
            return false;
        };
        *target = format!("{}{outer}", &target[..target.len() - digits.len()]);
        true
    }

    /// A view is made beside the loop.
    fn view(&mut self, to: ConnectionId, caller: Caller, what: What) {
        let request = ViewRequest { to, caller, what };
        self.site.effects.push(Effect::View(Box::new(request)));
    }

    fn stop(&mut self, to: ConnectionId, caller: Caller, (target, grace_ns): (String, u64)) {
        let event = Event::Stop {
            ticket: self.ticket(to),
            caller,
            target: self.site.target(target),
            grace_ns,
        };
        self.site.tell(event);
    }

    /// A `run`. It is judged by a look at the devices that begins after it came: a hundred at once share one.
    pub(super) fn run(&mut self, peer: Peer, request: RunRequest, registering: Option<Box<Registering>>) {
        self.site.tickets.insert(peer.connection);
        self.find_all_ended();
        let seen_since_ns = self.site.now.ns;
        let run = HeldRun {
            peer,
            request,
            seen_since_ns,
            registering,
        };
        if self.site.devices.is_seen_since(seen_since_ns) {
            self.admit(run);
        } else {
            self.site.devices.look_now();
            self.held.push_back(Hold::Run(Box::new(run)));
        }
    }

    /// One page of jobs, from the job after `after` on.
    fn ps(&mut self, to: ConnectionId, caller: Caller, all: bool, after: Option<&str>) {
        match after.map(|text| job_number(text).ok_or(text)).transpose() {
            Ok(number) => {
                let after = number.map(JobId);
                self.view(to, caller, What::Ps { all, after });
            }
            Err(text) => {
                let message = format!("after: {text:?} is no job id, such as j42");
                self.site.deny(to, ErrorCode::Invalid, message, None);
            }
        }
    }

    /// Hands a `run` to the policy; its process becomes the job's first.
    pub(super) fn admit(&mut self, run: HeldRun) {
        let HeldRun {
            peer,
            mut request,
            registering,
            ..
        } = run;
        if let Some(registering) = registering {
            return self.admit_registered(&peer, request, *registering);
        }
        let Some(process) = self.site.process_of(&peer) else {
            self.site.tickets.remove(&peer.connection);
            return self.site.effects.push(Effect::Close(peer.connection));
        };
        shorten(&mut request.command);
        if let Some(Err(unfit)) = request
            .restored
            .as_deref()
            .map(|needs| residence::has_needs(&self.site, process, needs))
        {
            let message = format!("the snapshot cannot be restored here: {unfit}");
            let error = error_view(ErrorCode::Failed, message, None);
            self.site.tickets.remove(&peer.connection);
            return self.site.answer(peer.connection, Reply::Error(error));
        }
        // Better now than at each save.
        if let Some(saved) = request.saved.as_ref().filter(|_| !request.dry_run) {
            let caller = self.caller(&peer, process);
            if let Err((code, message)) =
                residence::may_save(&self.site, &caller, None, std::path::Path::new(&saved.out))
            {
                let message = format!("--checkpoint-every: {message}");
                self.site.tickets.remove(&peer.connection);
                return self.site.deny(peer.connection, code, message, None);
            }
        }
        let run = Run {
            ticket: Ticket(peer.connection.0),
            caller: self.caller(&peer, process),
            request,
            token: (self.random)(),
            cgroup: self.site.processes.cgroup(process.pid),
            other_cgroups: self.site.other_cgroups(process.pid),
            groups: self.site.groups_of(process.pid, peer.uid),
            unix_ns: self.site.now.unix_ns,
            registered: None,
        };
        self.site.tell(Event::Run(Box::new(run)));
    }

    fn ticket(&mut self, connection: ConnectionId) -> Ticket {
        self.site.tickets.insert(connection);
        Ticket(connection.0)
    }

    fn caller(&mut self, peer: &Peer, process: Process) -> Caller {
        let inside = self.site.job_by_cgroup(process);
        // Of one that is ending the kernel may have told other control groups than it was in.
        let lives = self.site.processes.stat(process.pid);
        let lives = lives.is_some_and(|stat| stat.id == process && !stat.is_exiting);
        let is_managed = self.site.directory.kind() == Kind::Managed;
        Caller {
            uid: peer.uid,
            user: self.site.users.name(peer.uid),
            is_admin: peer.is_admin && inside.is_none() && lives,
            may_change_own: lives && (peer.uid != 0 || peer.is_admin || !is_managed),
            process,
            inside,
        }
    }

    /// As for a caller who is no administrator.
    pub(super) fn broker_view(&self) -> BrokerView {
        let driver = match self.site.devices.driver() {
            None => "no driver: not looked for yet".to_owned(),
            Some(Driver::Ok) if self.site.policy.is_adopting_any() => {
                "adopting: waits for clients of the broker before to come back".to_owned()
            }
            Some(driver) => driver.sentence(),
        };
        let config = &self.site.config.policy;
        let kind = self.site.directory.kind();
        let percent = |millionths: u64| millionths * 100 / partage_policy::Config::ALL_ONCE;
        let off = config.aliases_off.iter().map(|family| family.key());
        let off = off.chain(config.time_aliases_off.iter().map(|variable| variable.key()));
        BrokerView {
            pid: std::process::id(),
            version: format!("{} ({})", env!("PARTAGE_VERSION"), env!("PARTAGE_COMMIT")),
            kind: kind.word().to_owned(),
            socket_dir: self.site.directory.path().display().to_string(),
            is_admin: false,
            driver,
            jobs: 0,
            clients: 0,
            uptime_ns: self.site.now.ns.saturating_sub(self.started.ns),
            overcommit_percent: percent(config.overcommit_millionths),
            compute_overcommit_percent: percent(config.compute_overcommit_millionths),
            max_class: self.site.config.class_rule(kind).word().to_owned(),
            aliases_off: off.map(str::to_owned).collect(),
            audit: AuditView {
                drift: config.audit.drift.word().to_owned(),
                unmanaged: config.audit.unmanaged.word().to_owned(),
                tolerance_bytes: config.audit.tolerance,
            },
            notes: self.notes.iter().cloned().chain(self.database.note()).collect(),
            config: self.reading.view(),
            invariant_violations: invariants::count(),
            errors: self.services.errors(),
            events_unwritten: self.services.unwritten(),
            events_untold: self.services.untold(),
            loop_ns: self.services.longest_turn_ns(),
        }
    }

    /// A page is made beside the loop. A follower gets from memory what was said since its last page.
    fn send_events(&mut self, to: ConnectionId, caller: &Caller, request: EventsRequest) {
        // Whoever is in a container has no user's eyes outside it.
        let viewer = Some(caller.uid).filter(|_| caller.inside.is_none());
        let is_admin = caller.is_admin;
        if !request.follow {
            let ask = Ask {
                to,
                viewer,
                is_admin,
                request,
            };
            let effect = Effect::Events(caller.uid, Box::new(ask));
            return self.site.effects.push(effect);
        }
        let after = request.after.unwrap_or(0);
        let events = self.site.events.iter().filter(|event| event.view().number > after);
        let packets = events
            .flat_map(|event| event.packets(viewer, is_admin))
            .cloned()
            .collect();
        self.site.effects.push(Effect::Packets { to, packets });
        self.site.effects.push(Effect::Follow { to, viewer, is_admin });
    }

    fn stop_broker(&mut self, to: ConnectionId, caller: &Caller) {
        if !self.site.may_administer(caller) {
            let message = "only an administrator may stop this broker".to_owned();
            return self.site.deny(to, ErrorCode::NotAllowed, message, None);
        }
        // Its processes park: nothing but a broker brings them back.
        let is_saved = |job: &JobId| {
            let mark = self.site.policy.residence(*job);
            mark.is_some_and(|mark| mark.residence == Residence::Saving)
        };
        let saved = self.site.policy.live().find(is_saved);
        if let Some(job) = saved {
            let message = format!("{job} is being saved, and would stand still until another broker comes");
            let hint = format!("wait until that is over (partage ps {job})");
            return self.site.deny(to, ErrorCode::Failed, message, Some(&hint));
        }
        info!(uid = caller.uid, "stopped on request");
        let message = match self.site.policy.live_jobs() {
            0 => "broker stopped".to_owned(),
            1 => "broker stopped; 1 job goes on and the next broker adopts it".to_owned(),
            jobs => format!("broker stopped; {jobs} jobs go on and the next broker adopts them"),
        };
        self.site.answer(to, Reply::Done { message });
        self.site.effects.push(Effect::Exit);
    }
}

/// Cuts a command to what is kept of it.
pub(super) fn shorten(command: &mut Vec<String>) {
    let mut left = SHOWN_COMMAND;
    let mut kept = 0;
    for argument in command.iter_mut() {
        if left == 0 {
            break;
        }
        if argument.len() > left {
            let end = (0..=left)
                .rev()
                .find(|end| argument.is_char_boundary(*end))
                .unwrap_or(0);
            argument.truncate(end);
            argument.push('…');
            left = 0;
        } else {
            left = left.saturating_sub(argument.len() + 1);
        }
        kept += 1;
    }
    command.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut_between_characters() {
        let mut command = vec!["python3".to_owned(), "é".repeat(5000), "never".to_owned()];
        shorten(&mut command);
        assert_eq!(command.len(), 2);
        assert!(command[1].ends_with('…') && command[1].len() <= SHOWN_COMMAND + 3);
        let mut short = vec!["a".to_owned(), String::new(), "b".to_owned()];
        shorten(&mut short);
        assert_eq!(short, ["a", "", "b"]);
    }
}
