// SPDX-License-Identifier: Apache-2.0
//! A client process: one thread that runs a program of launches, synchronisations and pauses.

use std::collections::{BTreeMap, VecDeque};

use partage_scheduling::{ClientId, DeviceTime, JobId, Observation};

use super::Random;
use super::gpu::{Ended, Kind};

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Launch {
        stream: u32,
        length_ns: u64,
        kind: Kind,
    },
    /// Waits for all of its work.
    Sync,
    /// Does something else.
    Cpu(u64),
    /// A request begins and ends here: its latency is kept.
    Begin,
    End,
    Done,
}

pub type Program = Box<dyn FnMut(u64, &mut Random) -> Step>;

/// Where the thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    AtGate,
    AtDepth,
    Entering,
    Syncing,
    Done,
    Gone,
}

pub struct Client {
    pub job: JobId,
    pub gpu: usize,
    pub program: Program,
    pub state: State,
    pub is_open: bool,
    pub depth_ns: Option<u64>,
    pub is_stopped: bool,
    /// What is seen of it while it is stopped, where its work stands still with it.
    pub frozen: Option<Observation>,
    /// It tells the device time of what has retired.
    pub is_known: bool,
    pub is_wake_pending: bool,
    /// Later wake-ups only.
    pub epoch: u64,
    /// The step that was begun and not finished.
    pub next: Option<Step>,
    pub asked_ns: Option<u64>,
    pub begun_ns: Option<u64>,
    pub done_ns: Option<u64>,
    pub at_gate_ns: Option<u64>,
    pub retired: u64,
    recent: VecDeque<u64>,
    asked: BTreeMap<u64, u64>,
    /// From the attempt to launch to the beginning on the device, for each unit.
    pub wake_to_run: Vec<u64>,
    pub keeps_latencies: bool,
    pub requests: Vec<u64>,
}

impl Client {
    pub fn new(job: JobId, gpu: usize, program: Program, is_open: bool) -> Self {
        Self {
            job,
            gpu,
            program,
            state: State::Running,
            is_open,
            depth_ns: None,
            is_stopped: false,
            frozen: None,
            is_known: false,
            is_wake_pending: false,
            epoch: 0,
            next: None,
            asked_ns: None,
            begun_ns: None,
            done_ns: None,
            at_gate_ns: None,
            retired: 0,
            recent: VecDeque::new(),
            asked: BTreeMap::new(),
            wake_to_run: Vec::new(),
            keeps_latencies: false,
            requests: Vec::new(),
        }
    }

    pub fn launched(&mut self, number: u64, asked_ns: u64) {
        if self.keeps_latencies {
            self.asked.insert(number, asked_ns);
        }
    }

    pub fn ended(&mut self, ended: &Ended) {
        self.retired += 1;
        self.recent.push_back(ended.unit.length_ns);
        if self.recent.len() > 32 {
            self.recent.pop_front();
        }
        if let Some(asked) = self.asked.remove(&ended.unit.number) {
            self.wake_to_run.push(ended.begun_ns - asked);
        }
    }

    pub fn observe(&self, at: usize, is_busy: bool, device_time: DeviceTime) -> Observation {
        Observation {
            client: ClientId(at as u64),
            is_waiting: matches!(self.state, State::AtGate | State::AtDepth),
            is_entering: self.state == State::Entering,
            is_busy,
            is_pending: false,
            device_time,
            retired: self.retired,
            unit_ns: self.recent.iter().copied().max().unwrap_or(0),
            is_stopped: self.is_stopped,
        }
    }
}
