// SPDX-License-Identifier: Apache-2.0
//! Every state that two jobs under one total can reach: each asks for 60 % of it, in every order of asking, charging,
//! freeing and dying, with the broker killed at every step and its clients coming back in every order.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::host::{Host, mem};
use crate::rules_in_use::host as ruled_host;
use crate::totals::{each_user, held, memory};
use partage_policy::{Action, Config, Event};
use partage_protocol::message::{VERDICT_GRANTED, VERDICT_RETRY};
use partage_protocol::reservation::{Charged, charge, refund, settle};
use partage_protocol::units::{ClientId, GIB, SECOND_NS};

const TOTAL: u64 = 5 * GIB;
const WANTED: u64 = 3 * GIB;

/// Where a client's allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Idle,
    /// It asked, and is not answered.
    Asked,
    Granted,
    Denied,
    Holds,
    Freed,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Charges, or asks where the grant does not cover it.
    Try(usize),
    /// After an answer that grants it.
    Charge(usize),
    Free(usize),
    Kill(usize),
    KillBroker,
    Back(usize),
    Pass,
}

#[derive(Clone)]
struct World {
    host: Host,
    clients: [ClientId; 2],
    at: [At; 2],
    away: [bool; 2],
    broker_kills: u32,
    kills: u32,
    passes: u32,
    frees: bool,
    /// A broker was killed. The next one counts a client that is not back with all that it was granted, and does not
    /// know who was just granted something: then two may be denied for one another's sake, and none gets too much. As
    /// soon as both are back, whichever asks again has it.
    was_cut: bool,
}

impl World {
    fn new(broker_kills: u32, kills: u32, frees: bool) -> Self {
        let mut host = ruled_host(each_user(memory(5)));
        let clients = [0, 1].map(|_| {
            let (job, first) = host.admitted(1, mem(""));
            host.attach(job, first)
        });
        Self {
            host,
            clients,
            at: [At::Idle; 2],
            away: [false; 2],
            broker_kills,
            kills,
            passes: 1,
            frees,
            was_cut: false,
        }
    }

    /// Does it; answers whether it was possible.
    fn act(&mut self, act: Act) -> bool {
        let from = self.host.commands.len();
        let is_possible = match act {
            Act::Try(n) => self.at[n] == At::Idle && !self.away[n] && self.reserve(n),
            Act::Charge(n) => self.at[n] == At::Granted && self.charge(n),
            Act::Free(n) => self.frees && self.at[n] == At::Holds && self.free(n),
            Act::Kill(n) => self.kills > 0 && self.at[n] != At::Dead && !self.away[n] && self.kill(n),
            Act::KillBroker => self.broker_kills > 0 && self.kill_broker(),
            Act::Back(n) => self.away[n] && self.back(n),
            Act::Pass => {
                self.passes > 0 && {
                    self.passes -= 1;
                    self.host.pass(2 * SECOND_NS);
                    true
                }
            }
        };
        self.hear(from);
        is_possible
    }

    fn words(&self, n: usize) -> &[std::sync::atomic::AtomicU64] {
        &self.host.board.rows[&self.clients[n]][0].0
    }

    fn reserve(&mut self, n: usize) -> bool {
        let row = self.words(n);
        match charge(&row[2], &row[1], WANTED) {
            Charged::Done => self.at[n] = At::Holds,
            Charged::Overflow => panic!("overflow"),
            Charged::MustAsk { wanted } => {
                self.at[n] = At::Asked;
                self.host.say_ask(self.clients[n], 0, wanted, WANTED);
            }
        }
        true
    }

    fn charge(&mut self, n: usize) -> bool {
        let row = self.words(n);
        let charged = charge(&row[2], &row[1], WANTED);
        settle(&row[3]);
        self.at[n] = if charged == Charged::Done { At::Holds } else { At::Idle };
        true
    }

    fn free(&mut self, n: usize) -> bool {
        refund(&self.words(n)[2], WANTED).expect("held");
        self.at[n] = At::Freed;
        true
    }

    fn kill(&mut self, n: usize) -> bool {
        self.kills -= 1;
        self.host.kill(self.clients[n]);
        self.at[n] = At::Dead;
        true
    }

    /// The next broker knows the files; whoever waited for an answer asks again when it is back.
    fn kill_broker(&mut self) -> bool {
        self.broker_kills -= 1;
        self.was_cut = true;
        let config = Config {
            is_private: false,
            rules: each_user(memory(5)),
            ..Config::default()
        };
        let records = self.host.records();
        self.host.restart_with(config, records);
        for n in 0..2 {
            self.away[n] = self.at[n] != At::Dead;
            if self.at[n] == At::Asked {
                self.at[n] = At::Idle;
            }
        }
        true
    }

    fn back(&mut self, n: usize) -> bool {
        let client = self.clients[n];
        self.away[n] = false;
        self.host.board.lost.retain(|lost| *lost != client);
        let process = self.host.programs[&client].process;
        self.host.step(Event::Reattach {
            client,
            process,
            are_pages_lost: false,
        });
        self.host.measure();
        true
    }

    /// Takes the broker's answers.
    fn hear(&mut self, from: usize) {
        let mut verdicts = BTreeMap::new();
        for command in &self.host.commands[from..] {
            if let Action::Answer { client, verdict, .. } = command {
                verdicts.insert(*client, *verdict);
            }
        }
        for n in 0..2 {
            let Some(verdict) = verdicts.get(&self.clients[n]).filter(|_| self.at[n] == At::Asked) else {
                continue;
            };
            self.at[n] = match *verdict {
                VERDICT_GRANTED => At::Granted,
                VERDICT_RETRY => At::Idle,
                _ => At::Denied,
            };
        }
        let records = self.host.records();
        self.host
            .commands
            .retain(|command| matches!(command, Action::SaveJob(_) | Action::ForgetJob(_)));
        let _ = records;
    }

    fn judge(&self) -> Result<(), String> {
        let held = held(&self.host, &self.clients);
        if held > TOTAL {
            return Err(format!("{held} of {TOTAL} are granted"));
        }
        let both = |at: At| self.at == [at; 2];
        if both(At::Holds) {
            return Err("both hold sixty percent".into());
        }
        // Nobody freed and nobody died: one of the two was in the other's way, and has it.
        let has_none = !self.at.contains(&At::Holds) && !self.at.contains(&At::Granted);
        if !self.frees && !self.was_cut && self.at.iter().all(|at| *at == At::Denied) && has_none {
            return Err("both were denied".into());
        }
        let is_whole = self.was_cut && self.away == [false; 2] && self.at.iter().all(|at| *at == At::Denied);
        if !self.frees && is_whole {
            return (0..2).try_for_each(|n| self.asks_again(n));
        }
        Ok(())
    }

    /// One of two that were denied tries again, with the other where it is.
    fn asks_again(&self, n: usize) -> Result<(), String> {
        let mut after = self.clone();
        after.at[n] = At::Idle;
        after.passes = 1;
        let acts = [Act::Try(n), Act::Charge(n), Act::Pass, Act::Try(n), Act::Charge(n)];
        for act in acts {
            after.act(act);
        }
        match after.at[n] {
            At::Holds => Ok(()),
            at => Err(format!("both were denied, and client {n} asks again and is {at:?}")),
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.host.policy).hash(&mut hasher);
        for client in self
            .clients
            .iter()
            .filter(|client| self.host.board.rows.contains_key(client))
        {
            for word in 0..5 {
                self.host.board.value(*client, 0, word).hash(&mut hasher);
            }
        }
        (self.at, self.away, self.broker_kills, self.kills, self.passes).hash(&mut hasher);
        hasher.finish()
    }
}

fn search(name: &str, first: World) {
    let acts = [
        Act::Try(0),
        Act::Try(1),
        Act::Charge(0),
        Act::Charge(1),
        Act::Free(0),
        Act::Free(1),
        Act::Kill(0),
        Act::Kill(1),
        Act::KillBroker,
        Act::Back(0),
        Act::Back(1),
        Act::Pass,
    ];
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut queue = VecDeque::from([(first, Vec::new())]);
    let mut ends = 0;
    while let Some((world, path)) = queue.pop_front() {
        let mut is_over = true;
        for act in acts {
            let mut after = world.clone();
            if !after.act(act) {
                continue;
            }
            is_over &= matches!(act, Act::Kill(_) | Act::KillBroker | Act::Pass);
            let mut path: Vec<Act> = path.clone();
            path.push(act);
            if let Err(why) = after.judge() {
                panic!("{name}: {why} after {path:?}");
            }
            if seen.insert(after.fingerprint()) {
                assert!(
                    seen.len() < 50_000,
                    "{name} does not end: {:?}",
                    &path[..path.len().min(24)]
                );
                queue.push_back((after, path));
            }
        }
        // At rest nobody waits for an answer, and one of two that live has what it asked for.
        let lives = world.at.iter().filter(|at| **at != At::Dead).count();
        let is_waiting = world.at.contains(&At::Asked) && world.passes == 0;
        ends += u32::from(is_over);
        assert!(
            !(is_over && is_waiting),
            "{name}: somebody waits for ever after {path:?}"
        );
        let has_one = world.at.iter().any(|at| matches!(at, At::Holds | At::Freed));
        assert!(
            !is_over || has_one || world.was_cut || lives < 2 || world.at.contains(&At::Asked),
            "{name}: nobody got it after {path:?}"
        );
    }
    println!("{name}: {} states, {ends} ends", seen.len());
    assert!(ends > 0 && seen.len() > 20);
}

#[test]
fn two_jobs_under_one_total() {
    search("60/60 of a total", World::new(0, 0, false));
    search("60/60 of a total, freed", World::new(0, 0, true));
}

#[test]
fn two_jobs_under_one_total_while_brokers_and_clients_die() {
    search("60/60 of a total, the broker killed twice", World::new(2, 0, false));
    search("60/60 of a total, broker and client killed", World::new(1, 1, true));
}
