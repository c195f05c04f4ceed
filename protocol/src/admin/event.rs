// SPDX-License-Identifier: Apache-2.0
//! Events, and the numbers of their sentences.

use serde::{Deserialize, Serialize};

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Its number: each event has a greater one than all before it, of earlier brokers too.
    #[serde(default)]
    pub number: u64,
    /// Unix time in nanoseconds.
    pub time_ns: u64,
    /// One of [`EVENT_KINDS`](super::EVENT_KINDS).
    pub kind: String,
    /// Whose job it concerns, for a caller that may read the sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// That user's name, as far as it was known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The job, where one is meant.
    pub job: Option<String>,
    /// The process, where one is meant.
    pub pid: Option<u32>,
    /// A sentence with the numbers.
    pub text: String,
    /// The numbers of the sentence, each beside the fields above.
    #[serde(default, flatten)]
    pub numbers: EventNumbers,
}

/// What an event says in numbers; each is absent where the event does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventNumbers {
    /// Index of the GPU that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Its UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Bytes that were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// The limit that this was judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Bytes in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Of these, overhead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_bytes: Option<u64>,
    /// Denials of the job so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<u64>,
    /// Part of the GPU's time, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<f64>,
    /// Exit status of the job's first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    /// How long the job ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ns: Option<u64>,
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ns: Option<u64>,
    /// Its place in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// Its promised part of each GPU's time, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<f64>,
    /// Its cap, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<f64>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What it has on each of its GPUs from now on; at its end, what it had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<EventDevice>,
}

impl EventNumbers {
    /// The names of those that it says.
    #[must_use]
    pub fn fields(&self) -> Vec<&'static str> {
        let said = [
            ("gpu", self.gpu.is_some()),
            ("uuid", self.uuid.is_some()),
            ("asked_bytes", self.asked_bytes.is_some()),
            ("limit_bytes", self.limit_bytes.is_some()),
            ("used_bytes", self.used_bytes.is_some()),
            ("overhead_bytes", self.overhead_bytes.is_some()),
            ("denied", self.denied.is_some()),
            ("busy", self.busy.is_some()),
            ("exit_code", self.exit_code.is_some()),
            ("ran_ns", self.ran_ns.is_some()),
            ("time_limit_ns", self.time_limit_ns.is_some()),
            ("place", self.place.is_some()),
            ("promise", self.promise.is_some()),
            ("cap", self.cap.is_some()),
            ("weight", self.weight.is_some()),
            ("devices", !self.devices.is_empty()),
        ];
        said.into_iter()
            .filter(|(_, is_said)| *is_said)
            .map(|(name, _)| name)
            .collect()
    }
}

/// What a job has on one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDevice {
    /// Index of the GPU; none for one that is not there any more.
    pub gpu: Option<u32>,
    /// Its UUID.
    pub uuid: String,
    /// The limit; none is the whole card.
    pub limit_bytes: Option<u64>,
    /// What is promised.
    pub request_bytes: u64,
    /// The most that was in use, at the job's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}
