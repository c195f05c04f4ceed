// SPDX-License-Identifier: Apache-2.0
//! A storm of SIGKILL, SIGSTOP and SIGCONT on clients and broker under allocation load.
//!
//! Two jobs, one of a single client and one of two siblings, churn memory well within their limits, so that every
//! denial is a false one. Two of the clients use linear memory, the third every family. A round is: all churn; one
//! signal somewhere in the middle; a dead client is replaced; the living ones finish. Then the ledger must equal the
//! driver's truth within a second. While a stopped client is stopped still, the two may differ by the one call that it
//! has under way: charged and not yet in the driver, or a pool's first growth by more than was asked, not yet charged.

use std::time::Duration;

use super::races::{Siblings, siblings};
use super::{Case, Random, seed, tenth};
use crate::client::Client;
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![Case::new("storm::signals_under_allocation_load", storm).simulated("compares with the simulator's books")]
}

const SECOND: Duration = Duration::from_secs(1);
/// The largest allocation; a client holds at most sixteen.
const LARGEST: u64 = MIB;
/// What one call can have under way: a pool grows by a whole chunk.
const UNDER_WAY: u64 = 64 * MIB;
/// The client that mixes families.
const MIXER: usize = 2;

/// A signal and whom it meets.
#[derive(Clone, Copy, Debug)]
enum Blow {
    KillClient(usize),
    StopClient(usize),
    KillBroker,
    StopBroker,
}

impl Blow {
    fn draw(random: &mut Random, clients: usize) -> Self {
        let whom = random.below(clients as u64) as usize;
        match random.below(100) {
            0..40 => Self::KillClient(whom),
            40..75 => Self::StopClient(whom),
            75..90 => Self::KillBroker,
            _ => Self::StopBroker,
        }
    }
}

/// The clients, each with the job that it is of.
struct Crew {
    jobs: [Siblings; 2],
    clients: Vec<(usize, Client)>,
}

impl Crew {
    fn new(rig: &Rig) -> Self {
        let mut jobs = [
            siblings(rig, &["-m", "512MiB", "--name", "single"], 1),
            siblings(rig, &["-m", "1GiB", "--name", "pair"], 2),
        ];
        let mut clients = Vec::new();
        for (job, siblings) in jobs.iter_mut().enumerate() {
            clients.extend(siblings.members.drain(..).map(|client| (job, client)));
        }
        Self { jobs, clients }
    }

    fn replace(&mut self, rig: &Rig, whom: usize) {
        let job = self.clients[whom].0;
        self.clients[whom].1.kill();
        let mut client = self.jobs[job].start(rig);
        client.ready();
        self.clients[whom].1 = client;
    }
}

fn storm(rig: &Rig) {
    let signals = 10_000 / tenth();
    let mut random = Random::new(41);
    let mut crew = Crew::new(rig);
    let (mut sent, mut round) = (0, 0_u64);
    let mut tally = [0_usize; 4];
    while sent < signals {
        round += 1;
        for (at, (_, client)) in crew.clients.iter_mut().enumerate() {
            let verb = if at == MIXER { "mixkeep 60" } else { "churn 200" };
            let seed = seed() as u32 ^ (round as u32 * 8 + at as u32);
            client.tell(&format!("{verb} {LARGEST} {seed}"));
        }
        std::thread::sleep(Duration::from_micros(random.below(4_000)));
        let blow = Blow::draw(&mut random, crew.clients.len());
        let what = format!("round {round}, {blow:?}");
        match blow {
            Blow::KillClient(whom) => {
                crew.clients[whom].1.signal(libc::SIGKILL);
                finish(&mut crew, Some(whom), &what);
                crew.replace(rig, whom);
                (sent, tally[0]) = (sent + 1, tally[0] + 1);
            }
            Blow::StopClient(whom) => {
                crew.clients[whom].1.signal(libc::SIGSTOP);
                // Nobody waits for it.
                finish(&mut crew, Some(whom), &what);
                rig.eventually(SECOND, &format!("{what}: a call's difference at most"), || {
                    rig.ledger_used().abs_diff(rig.truth_allocated()) <= UNDER_WAY
                });
                crew.clients[whom].1.signal(libc::SIGCONT);
                answer(&mut crew.clients[whom].1, &what);
                (sent, tally[1]) = (sent + 2, tally[1] + 1);
            }
            Blow::KillBroker => {
                if let Some(pid) = signal_broker(rig, libc::SIGKILL) {
                    finish(&mut crew, None, &what);
                    rig.eventually(Duration::from_secs(20), &format!("{what}: another broker"), || {
                        rig.broker_pid().is_some_and(|other| other != pid)
                    });
                    (sent, tally[2]) = (sent + 1, tally[2] + 1);
                }
            }
            Blow::StopBroker => {
                if signal_broker(rig, libc::SIGSTOP).is_some() {
                    std::thread::sleep(Duration::from_micros(random.below(20_000)));
                    signal_broker(rig, libc::SIGCONT);
                    (sent, tally[3]) = (sent + 2, tally[3] + 1);
                }
                finish(&mut crew, None, &what);
            }
        }
        rig.eventually(SECOND, &format!("{what}: ledger = truth"), || rig.books_agree());
    }
    let [kills, stops, broker_kills, broker_stops] = tally;
    rig.note(format!(
        "{sent} signals in {round} rounds: clients: {kills} killed, {stops} stopped and continued; \
         brokers: {broker_kills} killed, {broker_stops} stopped and continued"
    ));
    assert!(tally.iter().all(|count| *count > 0), "every kind of blow fell");
}

/// Everybody's churn ends, without a denial; `but` is dead or stopped.
fn finish(crew: &mut Crew, but: Option<usize>, what: &str) {
    for (at, (_, client)) in crew.clients.iter_mut().enumerate() {
        if Some(at) == but {
            continue;
        }
        answer(client, what);
    }
}

#[track_caller]
fn answer(client: &mut Client, what: &str) {
    let answer = client.answer();
    let is_clean = answer.ends_with(" denied=0 failed=0 other=0");
    assert!(is_clean, "{what}: {answer}; {}", client.stderr());
}

fn signal_broker(rig: &Rig, signal: i32) -> Option<u32> {
    let pid = rig.broker_pid_quick()?;
    // SAFETY: a broker of this rig's own folder; ending and stopping it is the point of the test.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
    Some(pid)
}
