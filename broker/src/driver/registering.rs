// SPDX-License-Identifier: Apache-2.0
//! `register`: what the [`registration`](crate::registration) lets through becomes a job as a `run` does.

use partage_policy::{Caller, Event, Ticket};
use partage_protocol::admin::{ErrorCode, RegisterRequest, RunRequest};

use super::requests::shorten;
use super::state_driver::StateDriver;
use crate::peer::Peer;
use crate::registration::{self, Registering};
use crate::site::effect::Effect;

impl StateDriver {
    /// A `register`.
    pub(super) fn register(&mut self, peer: Peer, caller: Caller, request: RegisterRequest) {
        let to = peer.connection;
        if let Some(inside) = caller.inside {
            let reply = registration::inside(&self.site, &peer, &caller, (inside, request.pid));
            return self.site.answer(to, reply);
        }
        let run = &request.run;
        if run.saved.is_some() || run.restored.is_some() || run.token.is_some() || run.dry_run {
            // What a job's own process asks is judged by that process.
            let message = "a registration asks for numbers: not for saves, a snapshot, a token or a dry run".to_owned();
            return self.site.deny(to, ErrorCode::Invalid, message, None);
        }
        match registration::judge(&self.site, &caller, &request) {
            Ok(registering) => {
                let mut run = request.run;
                run.wait = false;
                self.run(peer, run, Some(Box::new(registering)));
            }
            Err((code, message, hint)) => self.site.deny(to, code, message, Some(hint)),
        }
    }

    /// The devices are known: the registration is judged.
    pub(super) fn admit_registered(&mut self, peer: &Peer, mut request: RunRequest, registering: Registering) {
        let to = peer.connection;
        if !registering.lives(&self.site) || self.site.process_of(peer).is_none() {
            // Nobody is left to be told: the runtime gave up.
            self.site.tickets.remove(&to);
            return self.site.effects.push(Effect::Close(to));
        }
        shorten(&mut request.command);
        let asked = (Ticket(to.0), (self.random)());
        match registering.into_run(&mut self.site, asked, request) {
            Ok(run) => self.site.tell(Event::Run(Box::new(run))),
            Err((code, message, hint)) => self.site.deny_ticket(Ticket(to.0), code, message, Some(hint)),
        }
    }
}
