// SPDX-License-Identifier: Apache-2.0
//! What the user database answers, and what follows: jobs are judged anew, and administrators get their socket.

use nix::unistd::{Gid, chown};
use partage_policy::Event;
use tracing::warn;

use super::state_driver::StateDriver;
use crate::clock::Now;
use crate::host::user_database::{Account, Answer, Ask, UserEvent};
use crate::kind::Kind;

/// Members may use the administrators' socket.
const ADMINISTRATORS: &str = "partage";

impl StateDriver {
    /// The administrators' socket is there: lets the group `partage`, where there is one, reach it.
    pub fn share_admin_socket(&mut self) {
        if self.site.directory.kind() != Kind::Managed {
            return;
        }
        match self.site.users.local_gid(ADMINISTRATORS) {
            Some(gid) => self.give_admin_socket(gid),
            None => self.database.wants_administrators = true,
        }
    }

    fn give_admin_socket(&self, gid: u32) {
        if let Err(error) = chown(&self.site.directory.admin_socket(), None, Some(Gid::from_raw(gid))) {
            warn!(%error, "the group {ADMINISTRATORS} does not get the administrators' socket");
        }
    }

    /// What the database is to be asked now.
    pub fn take_user_asks(&mut self, now: Now) -> Vec<Ask> {
        self.site.now = now;
        let mut asks: Vec<Ask> = self.site.users.take_wanted(now.ns).into_iter().map(Ask::User).collect();
        if std::mem::take(&mut self.database.wants_administrators) {
            asks.push(Ask::Group(ADMINISTRATORS.to_owned()));
        }
        asks
    }

    /// The database answered, or did not.
    pub(super) fn hear_of_users(&mut self, event: UserEvent) {
        match event {
            UserEvent::Answered(ask, answer) => {
                if self.database.silent.take().is_some() {
                    let text = "the user database answers again".to_owned();
                    self.site.publish("user-database-answers", None, None, text);
                }
                match (ask, answer) {
                    (Ask::User(uid), Answer::User(account)) => self.user_known(uid, account),
                    (Ask::Group(_), Answer::Group(Some(gid))) => self.give_admin_socket(gid),
                    // No such group; and an answer to another question is none.
                    _ => {}
                }
            }
            UserEvent::Silent(why) => {
                let is_news = self.database.silent.replace(why).is_none();
                if let Some(text) = self.database.note().filter(|_| is_news) {
                    warn!(text, "users");
                    self.site.publish("user-database-silent", None, None, text);
                }
            }
        }
    }

    fn user_known(&mut self, uid: u32, account: Option<Account>) {
        self.site.users.take(uid, account, self.site.now.ns);
        let event = Event::UserKnown {
            uid,
            user: self.site.users.name(uid),
            groups: self.site.users.groups(uid, &[]),
        };
        self.site.tell(event);
    }

    /// The users of all jobs are met: after the rules were read, which may ask for groups now.
    pub(super) fn meet_users(&mut self) {
        self.site
            .users
            .follow_groups(self.site.config.policy.rules.match_groups());
        for uid in self.site.policy.users() {
            self.site.users.groups(uid, &[]);
        }
    }
}
