// SPDX-License-Identifier: Apache-2.0
//! The JSON requests of `partage`: who calls, which event the policy gets, and the answer.

use partage_policy::{Caller, Change, Event, Process, Residence, Run, TargetQuery, Ticket, job_number};
use partage_protocol::admin::{
    AuditView, BrokerView, ErrorCode, ErrorView, JobView, Reply, Request, RunRequest, UnmanagedView,
};
use partage_protocol::frame;
use partage_protocol::units::JobId;
use tracing::{debug, info};

use super::effect::Effect;
use super::held::HeldRun;
use super::held::Hold;
use super::held::Registering;
use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::host::gpu::Driver;
use crate::host::proc::{namespace, outer_number};
use crate::invariants;
use crate::kind::Kind;
use crate::peer::ConnectionId;
use crate::peer::Peer;

/// Bytes of a command that a job's record keeps, for its owner's eyes in `ps`.
const SHOWN_COMMAND: usize = 4096;

/// Bytes of jobs in one answer to `ps`; more go into further ones. With the longest labels and commands a thousand jobs
/// take four times what a document may hold, and one job with all the clients that it may have a fifth of it: there is
/// always room for the processes of no job, which come with the first page.
const PAGE: usize = frame::MAX_DOCUMENT / 4;

fn not_understood(error: &serde_json::Error) -> Reply {
    let message = format!("the broker does not understand this request: {error}");
    let hint = "use the `partage` of the broker's version (partage version)";
    Reply::Error(error_view(ErrorCode::Invalid, message, Some(hint)))
}

impl StateDriver {
    /// A whole request came in.
    pub fn request(&mut self, peer: Peer, document: &[u8], now: Now) {
        let to = peer.connection;
        let mut request = match serde_json::from_slice::<Request>(document) {
            Ok(request) => request,
            Err(error) => return self.answer(to, not_understood(&error)),
        };
        let Some(process) = self.process_of(&peer) else {
            let message = "the broker cannot see this process: its pid namespace is not below the broker's".to_owned();
            return self.answer(to, Reply::Error(error_view(ErrorCode::NotAllowed, message, None)));
        };
        debug!(uid = peer.uid, pid = peer.pid, ?request, "request");
        if let Err((code, message)) = self.is_for_us(&peer, &mut request) {
            return self.answer(to, Reply::Error(error_view(code, message.to_owned(), None)));
        }
        let caller = self.caller(&peer, process);
        if matches!(request, Request::Ps { .. } | Request::Get { .. } | Request::Why { .. }) {
            self.find_stopped_jobs(now);
        }
        match request {
            Request::Run(request) => self.run(peer, *request, None, now),
            Request::Register(request) => self.register(peer, caller, *request, now),
            Request::Ps { all, after } => self.ps(to, &caller, all, after.as_deref()),
            Request::Status => self.status(to, &caller, now),
            Request::Queue => self.queue(to, &caller, now),
            Request::Get { target } => self.get(to, &caller, target),
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
                    target: self.target(target),
                    change: Box::new(change),
                };
                self.step(now, event);
            }
            Request::Why { target } => self.why(to, &caller, target, now),
            Request::Stop { target, grace_ns } => self.stop(to, caller, (target, grace_ns), now),
            request @ (Request::Suspend { .. }
            | Request::Resume { .. }
            | Request::Checkpoint { .. }
            | Request::Restore(_)
            | Request::Migrate { .. }
            | Request::Drain { .. }
            | Request::Undrain { .. }) => {
                let ticket = self.ticket(to);
                self.residence_request(ticket, caller, request, now);
            }
            Request::Events { follow } => self.send_events(to, &caller, follow),
            Request::StopBroker => self.stop_broker(to, &caller),
            about_config => self.config_request(to, &caller, about_config, now),
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
        let Some(outer) = outer_number(number, caller, &*self.processes) else {
            return false;
        };
        *target = format!("{}{outer}", &target[..target.len() - digits.len()]);
        true
    }

    fn get(&mut self, to: ConnectionId, caller: &Caller, target: String) {
        let target = self.target(target);
        let reply = self.policy.get(caller, &target, &self.clients);
        self.answer(to, reply.unwrap_or_else(|error| Reply::Error(*error)));
    }

    fn why(&mut self, to: ConnectionId, caller: &Caller, target: String, now: Now) {
        let target = self.target(target);
        let reply = self.policy.why(caller, &target, now.ns, &self.clients);
        self.answer(to, reply.unwrap_or_else(|error| Reply::Error(*error)));
    }

    fn stop(&mut self, to: ConnectionId, caller: Caller, (target, grace_ns): (String, u64), now: Now) {
        let event = Event::Stop {
            ticket: self.ticket(to),
            caller,
            target: self.target(target),
            grace_ns,
        };
        self.step(now, event);
    }

    /// A `run`. It is judged by a look at the devices that begins after it came: a hundred at once share one.
    pub(super) fn run(&mut self, peer: Peer, request: RunRequest, registering: Option<Box<Registering>>, now: Now) {
        self.tickets.insert(peer.connection);
        self.find_all_ended(now);
        let seen_since_ns = now.ns;
        let run = HeldRun {
            peer,
            request,
            seen_since_ns,
            registering,
        };
        if self.devices.is_seen_since(seen_since_ns) {
            self.admit(run, now);
        } else {
            self.devices.look_now();
            self.held.push_back(Hold::Run(Box::new(run)));
        }
    }

    /// One page of jobs, from the job after `after` on.
    fn ps(&mut self, to: ConnectionId, caller: &Caller, all: bool, after: Option<&str>) {
        let after = match after.map(|text| job_number(text).ok_or(text)).transpose() {
            Ok(number) => number.map(JobId),
            Err(text) => {
                let message = format!("after: {text:?} is no job id, such as j42");
                return self.answer(to, Reply::Error(error_view(ErrorCode::Invalid, message, None)));
            }
        };
        let mut bytes = 0;
        let fits = |view: &JobView| {
            bytes += serde_json::to_vec(view).map_or(0, |text| text.len());
            bytes <= PAGE
        };
        let mut reply = self.policy.ps_page(caller, (all, after), &self.clients, fits);
        if let Reply::Ps { unmanaged, .. } = &mut reply {
            self.name_unmanaged(unmanaged, caller);
        }
        self.answer(to, reply);
    }

    /// Hands a `run` to the policy; its process becomes the job's first.
    pub(super) fn admit(&mut self, run: HeldRun, now: Now) {
        let HeldRun {
            peer,
            mut request,
            registering,
            ..
        } = run;
        if let Some(registering) = registering {
            return self.admit_registered(&peer, request, *registering, now);
        }
        let Some(process) = self.process_of(&peer) else {
            self.tickets.remove(&peer.connection);
            return self.effects.push(Effect::Close(peer.connection));
        };
        shorten(&mut request.command);
        if let Some(Err(unfit)) = request.restored.as_deref().map(|needs| self.has_needs(process, needs)) {
            let message = format!("the snapshot cannot be restored here: {unfit}");
            let error = error_view(ErrorCode::Failed, message, None);
            self.tickets.remove(&peer.connection);
            return self.answer(peer.connection, Reply::Error(error));
        }
        // Better now than at each save.
        if let Some(saved) = request.saved.as_ref().filter(|_| !request.dry_run) {
            let caller = self.caller(&peer, process);
            if let Err((code, message)) = self.may_save(&caller, None, std::path::Path::new(&saved.out)) {
                let message = format!("--checkpoint-every: {message}");
                self.tickets.remove(&peer.connection);
                return self.answer(peer.connection, Reply::Error(error_view(code, message, None)));
            }
        }
        let run = Run {
            ticket: Ticket(peer.connection.0),
            caller: self.caller(&peer, process),
            request,
            token: (self.random)(),
            cgroup: self.processes.cgroup(process.pid),
            other_cgroups: self.other_cgroups(process.pid),
            groups: self.groups_of(process.pid, peer.uid),
            unix_ns: now.unix_ns,
            registered: None,
        };
        self.step(now, Event::Run(Box::new(run)));
    }

    fn ticket(&mut self, connection: ConnectionId) -> Ticket {
        self.tickets.insert(connection);
        Ticket(connection.0)
    }

    fn caller(&mut self, peer: &Peer, process: Process) -> Caller {
        let inside = self.job_by_cgroup(process);
        // Of one that is ending the kernel may have told other control groups than it was in.
        let lives = self.processes.stat(process.pid);
        let lives = lives.is_some_and(|stat| stat.id == process && !stat.is_exiting);
        let is_managed = self.directory.kind() == Kind::Managed;
        Caller {
            uid: peer.uid,
            user: self.users.name(peer.uid),
            is_admin: peer.is_admin && inside.is_none() && lives,
            may_change_own: lives && (peer.uid != 0 || peer.is_admin || !is_managed),
            process,
            inside,
        }
    }

    /// For a pid, the job that it belongs to by its control group or its parents.
    pub(super) fn target(&self, text: String) -> TargetQuery {
        let stat = text.parse::<u32>().ok().and_then(|pid| self.processes.stat(pid));
        TargetQuery {
            descends_from: stat.and_then(|stat| self.job_by_kernel(stat.id)),
            text,
        }
    }

    pub(super) fn answer(&mut self, to: ConnectionId, reply: Reply) {
        self.effects.push(Effect::Document {
            to,
            reply: Box::new(reply),
            is_last: true,
        });
    }

    /// Names the owners of unmanaged processes; their programs are for their owner's and administrators' eyes.
    fn name_unmanaged(&mut self, unmanaged: &mut [UnmanagedView], caller: &Caller) {
        for view in unmanaged {
            view.user = view.uid.map(|uid| self.users.name(uid));
            if caller.is_admin || view.uid == Some(caller.uid) && caller.inside.is_none() {
                view.command = self.processes.name(view.pid);
            }
        }
    }

    fn status(&mut self, to: ConnectionId, caller: &Caller, now: Now) {
        let broker = self.broker_view(caller, now);
        let status = self.policy.status(broker, now.ns, &self.clients);
        self.answer(to, Reply::Status(status));
    }

    fn queue(&mut self, to: ConnectionId, caller: &Caller, now: Now) {
        let view = self.policy.queue_view(caller, now.ns, &self.clients);
        self.answer(to, Reply::Queue(view));
    }

    fn broker_view(&self, caller: &Caller, now: Now) -> BrokerView {
        let driver = match self.devices.driver() {
            None => "no driver: not looked for yet".to_owned(),
            Some(Driver::Ok) if self.policy.is_adopting_any() => {
                "adopting: waits for clients of the broker before to come back".to_owned()
            }
            Some(driver) => driver.sentence(),
        };
        BrokerView {
            pid: std::process::id(),
            version: format!("{} ({})", env!("PARTAGE_VERSION"), env!("PARTAGE_COMMIT")),
            kind: self.directory.kind().word().to_owned(),
            socket_dir: self.directory.path().display().to_string(),
            is_admin: caller.is_admin,
            driver,
            jobs: 0,
            clients: 0,
            uptime_ns: now.ns.saturating_sub(self.started.ns),
            overcommit_percent: self.config.overcommit_millionths * 100 / partage_policy::Config::ALL_ONCE,
            compute_overcommit_percent: self.config.compute_overcommit_millionths * 100
                / partage_policy::Config::ALL_ONCE,
            max_class: self.config.class_rule(self.directory.kind()).word().to_owned(),
            aliases_off: self
                .config
                .aliases_off
                .iter()
                .map(|family| family.key())
                .chain(self.config.time_aliases_off.iter().map(|variable| variable.key()))
                .map(str::to_owned)
                .collect(),
            audit: AuditView {
                drift: self.config.audit.drift.word().to_owned(),
                unmanaged: self.config.audit.unmanaged.word().to_owned(),
                tolerance_bytes: self.config.audit.tolerance,
            },
            notes: self.notes.iter().cloned().chain(self.database.note()).collect(),
            config: self.reading.view(),
            invariant_violations: invariants::count(),
        }
    }

    fn send_events(&mut self, to: ConnectionId, caller: &Caller, follow: bool) {
        let events = self.events.iter();
        // Whoever is in a container has no user's eyes outside it.
        let own = Some(caller.uid).filter(|_| caller.inside.is_none());
        let packets = events
            .flat_map(|event| event.packets(own, caller.is_admin))
            .cloned()
            .collect();
        self.effects.push(Effect::Packets { to, packets });
        if follow {
            self.effects.push(Effect::Follow {
                to,
                viewer: own,
                is_admin: caller.is_admin,
            });
        } else {
            let message = "no more events".to_owned();
            self.answer(to, Reply::Done { message });
        }
    }

    /// An administrator; of a private broker, its user.
    pub(super) fn may_administer(&self, caller: &Caller) -> bool {
        let me = nix::unistd::geteuid().as_raw();
        caller.is_admin
            || self.directory.kind() == Kind::Private
                && caller.uid == me
                && caller.may_change_own
                && caller.inside.is_none()
    }

    fn stop_broker(&mut self, to: ConnectionId, caller: &Caller) {
        if !self.may_administer(caller) {
            let message = "only an administrator may stop this broker".to_owned();
            return self.answer(to, Reply::Error(error_view(ErrorCode::NotAllowed, message, None)));
        }
        // Its processes park: nothing but a broker brings them back.
        let is_saved = |job: &JobId| {
            let mark = self.policy.residence(*job);
            mark.is_some_and(|mark| mark.residence == Residence::Saving)
        };
        let saved = self.policy.live().find(is_saved);
        if let Some(job) = saved {
            let message = format!("{job} is being saved, and would stand still until another broker comes");
            let hint = format!("wait until that is over (partage ps {job})");
            return self.answer(to, Reply::Error(error_view(ErrorCode::Failed, message, Some(&hint))));
        }
        info!(uid = caller.uid, "stopped on request");
        let message = match self.policy.live_jobs() {
            0 => "broker stopped".to_owned(),
            1 => "broker stopped; 1 job goes on and the next broker adopts it".to_owned(),
            jobs => format!("broker stopped; {jobs} jobs go on and the next broker adopts them"),
        };
        self.answer(to, Reply::Done { message });
        self.effects.push(Effect::Exit);
    }
}

pub(super) fn error_view(code: ErrorCode, message: String, hint: Option<&str>) -> ErrorView {
    ErrorView {
        code,
        message,
        hint: hint.map(str::to_owned),
        holders: Vec::new(),
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
