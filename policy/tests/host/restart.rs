// SPDX-License-Identifier: Apache-2.0
//! The next broker of the host.

use partage_policy::{Adoption, Config, Event, Policy};

use super::Host;

impl Host {
    /// A new broker that knows what the files say: the ledger's L words, the jobs' records and the ended jobs.
    pub fn restart(&mut self, records: Vec<partage_policy::JobRecord>) {
        self.restart_with(Config::default(), records);
    }

    /// The same under a configuration.
    pub fn restart_with(&mut self, config: Config, records: Vec<partage_policy::JobRecord>) {
        let (ended, drained) = (self.ended(), self.policy.drained().clone());
        let sick = self.policy.sick().collect();
        let clients = self
            .programs
            .values()
            .map(|program| partage_policy::LedgerClient {
                client: program.client,
                job: program.job,
                process: program.process,
            })
            .collect();
        self.policy = Policy::new(config);
        self.board.lost = self.programs.keys().copied().collect();
        self.enumerate();
        self.step(Event::Adopt(Adoption {
            jobs: records,
            clients,
            next_job: 50,
            ended,
            usage: self.usage(),
            drained,
            sick,
        }));
    }
}
