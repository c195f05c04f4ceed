// SPDX-License-Identifier: Apache-2.0
//! Processes of the host that have ended, and that nobody noticed.

use partage_policy::{Action, Event};

use super::Host;

impl Host {
    /// Who has ended unnoticed is told of, as the broker does before a question is answered.
    pub(super) fn search(&mut self, commands: &[Action]) -> Vec<Action> {
        let mut found = Vec::new();
        for command in commands {
            let Action::FindEnded { client, looked_at } = command else {
                continue;
            };
            for ended in looked_at.iter().filter(|looked_at| *looked_at != client) {
                if self.unnoticed.remove(ended) {
                    found.extend(self.step(Event::ClientDying(*ended)));
                }
            }
            found.extend(self.step(Event::Searched(*client)));
        }
        found
    }
}
