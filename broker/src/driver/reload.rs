// SPDX-License-Identifier: Apache-2.0
//! Reading the configuration again: judged apart, taken in one step, and the old one kept on any error.
//!
//! What a reload changes: classes and rules, `[time]`, `[aliases]`, `[audit]`, the order of the queue and
//! `clients_per_user`. Reserves, overcommit and the rest of `[broker]` count from the broker's next start: promises
//! were made by them.

use partage_policy::{Caller, Event};
use partage_protocol::admin::{ConfigView, ErrorCode, Reply};
use tracing::{info, warn};

use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::config::Config;
use crate::kind::Kind;
use crate::peer::ConnectionId;
use crate::site::error_view;
use crate::watch::audit_log::Author;
use crate::watch::notify;

impl StateDriver {
    /// Reads the configuration again, as this process wants. Answers a sentence.
    ///
    /// # Errors
    /// What is wrong with it, file, line and column first: nothing has changed then.
    pub fn reload(&mut self, by: Option<Author>, now: Now) -> Result<String, String> {
        self.site.now = now;
        let result = self.read_again(by);
        self.settle();
        result
    }

    fn read_again(&mut self, by: Option<Author>) -> Result<String, String> {
        self.reading.by = by;
        let Some(file) = self.reading.file.clone() else {
            return Err("a private broker reads no configuration".to_owned());
        };
        let result = Config::load(&file)
            .map(|new| self.take_config(new))
            .map_err(|error| error.to_string());
        match &result {
            Ok(text) => info!(text, "the configuration was read again"),
            Err(why) => {
                warn!(why, "the configuration stays what it was");
                self.site.publish(
                    "config-refused",
                    None,
                    None,
                    format!("the configuration stays what it was: {why}"),
                );
            }
        }
        self.reading.error = result.as_ref().err().cloned();
        let status = match &result {
            Ok(text) => format!("STATUS={text}"),
            Err(why) => format!("STATUS=the configuration stays what it was: {why}"),
        };
        if let Err(error) = notify::notify(std::env::var_os("NOTIFY_SOCKET"), &status) {
            warn!(%error, "the service manager was not told");
        }
        result
    }

    fn take_config(&mut self, new: Config) -> String {
        let old = self.site.config.policy.rules.lines(None);
        let later = self.site.config.take(new);
        self.audit_rules(&old);
        let new = self.site.config.for_policy(self.site.directory.kind(), 0);
        self.reading.generation += 1;
        self.reading.read_unix_ns = self.site.now.unix_ns;
        let mut text = format!(
            "configuration {} holds: {}",
            self.reading.generation,
            self.site.config.counts()
        );
        if !later.is_empty() {
            text.push_str(&format!(
                "; changes of {} count from the broker's next start",
                later.join(", ")
            ));
        }
        self.site.publish("config-read", None, None, text.clone());
        self.site.tell(Event::Rules(Box::new(new)));
        self.leave_word();
        self.meet_users();
        text
    }

    /// `config reload`.
    pub(super) fn reload_config(&mut self, to: ConnectionId, caller: &Caller) {
        let by = Author {
            uid: caller.uid,
            pid: caller.process.pid,
        };
        let reply = if caller.is_admin {
            match self.read_again(Some(by)) {
                Ok(message) => Reply::Done { message },
                Err(why) => Reply::Error(error_view(ErrorCode::Invalid, why, Some("nothing was changed"))),
            }
        } else {
            let message = "only an administrator may reload the configuration".to_owned();
            Reply::Error(error_view(ErrorCode::NotAllowed, message, None))
        };
        self.site.answer(to, reply);
    }

    /// `config show`: all of it, or what is about a job or a user.
    pub(super) fn show_config(&mut self, to: ConnectionId, (caller, target): (&Caller, Option<&str>)) {
        let reading = self.reading.view();
        let is_private = self.site.directory.kind() == Kind::Private;
        let mut view = ConfigView {
            reading,
            ..ConfigView::default()
        };
        match target {
            _ if is_private => view.lines = vec!["a private broker reads no configuration: no rule holds".to_owned()],
            None => view.lines = self.site.config.policy.rules.lines(None),
            Some(target) => {
                let target = self.site.target(target.to_owned());
                let of_job = self.site.policy.facts_of(&target, caller).ok();
                let Some(facts) = of_job.or_else(|| self.facts_of_user(&target.text)) else {
                    let message = format!("neither a job nor a user is called {:?}", target.text);
                    let hint = Some("partage ps lists the jobs");
                    return self.site.deny(to, ErrorCode::NoTarget, message, hint);
                };
                view.lines = self.site.config.policy.rules.lines(Some(&facts));
                view.totals = self.site.policy.totals_view(&facts, &self.site.clients);
            }
        }
        if target.is_none() && !is_private {
            view.classes = self.site.config.policy.rules.presets.keys().cloned().collect();
        }
        self.site.answer(to, Reply::Config(view));
    }

    /// A user's facts without a process: what a rule asks of a process beside, holds for none.
    fn facts_of_user(&mut self, user: &str) -> Option<partage_policy::Facts> {
        let user = user.strip_prefix('@').unwrap_or(user);
        let uid = self.site.users.uid(user)?;
        Some(partage_policy::Facts {
            uid,
            user: user.to_owned(),
            groups: self.site.users.groups(uid, &[]),
            ..partage_policy::Facts::default()
        })
    }
}
