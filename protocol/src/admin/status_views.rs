// SPDX-License-Identifier: Apache-2.0
//! The answers to `status` and `queue`: the broker, the devices, and who waits.

use serde::{Deserialize, Serialize};

use super::config::{AuditView, ReadingView, TotalView};
use crate::denied::Denied;
use crate::size::format_bytes;
use crate::terms::Class;

/// Answer to `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// The broker itself.
    pub broker: BrokerView,
    /// The devices in index order.
    pub devices: Vec<DeviceView>,
    /// Jobs in the queue, next first.
    pub queue: Vec<QueuedView>,
    /// The totals of rules that live jobs share, for administrators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<TotalView>,
}

/// The broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerView {
    /// Process id.
    pub pid: u32,
    /// Version and commit.
    pub version: String,
    /// `private` or `managed`.
    pub kind: String,
    /// Its socket directory.
    pub socket_dir: String,
    /// The caller is an administrator there, who may see, change and stop every job.
    #[serde(default)]
    pub is_admin: bool,
    /// `ok`, `no driver`, `driver mismatch`, `adopting`, with the reason after a colon.
    pub driver: String,
    /// Jobs alive.
    pub jobs: u32,
    /// Clients attached.
    pub clients: u32,
    /// Nanoseconds since it started.
    pub uptime_ns: u64,
    /// How much of what jobs can share on a device may be promised, in percent; 100 unless configured.
    #[serde(default = "all_once")]
    pub overcommit_percent: u64,
    /// How much of a device's time may be promised, in percent; 100 unless configured.
    #[serde(default = "all_once")]
    pub compute_overcommit_percent: u64,
    /// The highest priority that everybody may ask for.
    #[serde(default = "every_class")]
    pub max_class: String,
    /// Other tools' variables that the configuration switches off, by their keys in `[aliases]`.
    #[serde(default)]
    pub aliases_off: Vec<String>,
    /// The auditor's rules.
    #[serde(default)]
    pub audit: AuditView,
    /// Sentences about what a private broker inherited from the shell that started it and could not shed: limits, a
    /// seccomp filter, a cgroup.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Which configuration holds; none for a private broker, which reads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ReadingView>,
    /// Invariants of its own that it found broken since it started; each is a defect of Partage.
    #[serde(default)]
    pub invariant_violations: u64,
    /// What the broker cannot do beside its work, in a sentence each: serve metrics where the configuration says, keep
    /// events on disk, tell a program of them.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Events that were not written to disk.
    #[serde(default)]
    pub events_unwritten: u64,
    /// Events that the program of `[notify]` was not told of, or did not take.
    #[serde(default)]
    pub events_untold: u64,
    /// The longest time in the last one to two minutes for which its loop was at work and took no event.
    #[serde(default)]
    pub loop_ns: u64,
}

const fn all_once() -> u64 {
    100
}

fn every_class() -> String {
    Class::Realtime.word().to_owned()
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    /// `nvidia-smi`'s index.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Model name.
    pub model: String,
    /// `ok`, `sick`, `lost`.
    pub state: String,
    /// Whole memory.
    pub total_bytes: u64,
    /// What jobs can share: total minus the configured reserve.
    pub usable_bytes: u64,
    /// Σ over holders of the greater of promised and used.
    pub committed_bytes: u64,
    /// In use as NVML shows, everybody included.
    pub used_bytes: u64,
    /// Of that, by processes that no job owns.
    pub unmanaged_bytes: u64,
    /// Its memory is the host's; none where it has its own.
    #[serde(default)]
    pub unified: Option<UnifiedView>,
    /// Jobs that hold it.
    pub jobs: Vec<String>,
    /// Σ of what is promised; more than `usable_bytes` only where the configuration overcommits.
    #[serde(default)]
    pub promised_bytes: u64,
    /// Denials here by reason, of the jobs that live.
    #[serde(default)]
    pub denied: Denied,
    /// Nothing is admitted there: `drain`.
    #[serde(default)]
    pub is_drained: bool,
    /// By whom and since when; none where it takes jobs.
    #[serde(default)]
    pub drained: Option<DrainedView>,
    /// Sentences worth attention about what is promised, and why nothing is admitted.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Sentences about processes of no job that use the device.
    #[serde(default)]
    pub unmanaged_notes: Vec<String>,
    /// Σ of the parts of its time that are promised; more than 1 only where the configuration overcommits.
    #[serde(default)]
    pub promised_time: f64,
    /// `overlap` or `turns`; none where no job's time is measured at the moment.
    #[serde(default)]
    pub regime: Option<String>,
    /// The part of its time that processes of no job use; none where NVML does not say.
    #[serde(default)]
    pub unmanaged_time: Option<f64>,
    /// The part of the driver's last sampling period in which a kernel ran; absent where NVML does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Temperature of the chip; as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_celsius: Option<u32>,
    /// Power that the card takes; as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Why its clocks are lower than they could be: `power-cap`, `hw-slowdown`, `sync-boost`, `sw-thermal`,
    /// `hw-thermal`, `power-brake`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
    /// All else that the driver says of its state; none before the first poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<TelemetryView>,
    /// Nothing is admitted there because of an error; none of one that is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sick: Option<SickView>,
}

/// What the driver says of a device's state. Each is absent where it does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetryView {
    /// The part of the driver's last sampling period in which memory was read or written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilization: Option<f64>,
    /// The limit that the driver keeps the card within.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_watts: Option<f64>,
    /// NVML's reasons for lower clocks, as its bits; `throttle` has those that are worth a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle_bits: Option<u64>,
    /// Clock of the multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphics_clock_mhz: Option<u32>,
    /// Clock of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Memory errors since the driver was loaded that were corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    /// Memory errors since the driver was loaded that were not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Bad rows of memory are replaced at the next reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_remap_pending: Option<bool>,
    /// A bad row of memory could not be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_remap_failed: Option<bool>,
    /// Sent over PCIe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_sent_bytes_per_second: Option<u64>,
    /// Received over PCIe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_received_bytes_per_second: Option<u64>,
    /// Sent over all NVLinks since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_sent_bytes: Option<u64>,
    /// Received over all NVLinks since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_received_bytes: Option<u64>,
    /// The driver's Xid errors that this broker heard of, by number; absent where the driver does not tell them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xids: Option<Vec<XidView>>,
}

/// One kind of error of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidView {
    /// NVIDIA's number of it.
    pub xid: u32,
    /// How often this broker heard of it.
    pub count: u64,
    /// When it did last, in nanoseconds since 1970.
    pub last_unix_ns: u64,
}

/// The mark of a sick device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SickView {
    /// Since when, in nanoseconds since 1970.
    pub since_unix_ns: u64,
    /// `xid 79`, `remap-failed`.
    pub cause: String,
    /// The same in words that follow the device.
    pub text: String,
}

/// A device without memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnifiedView {
    /// What the host's own programs have of the memory, and suspended jobs.
    pub host_bytes: u64,
    /// What is kept available to the host.
    pub kept_bytes: u64,
}

impl UnifiedView {
    /// What `status` and `doctor` say of it.
    #[must_use]
    pub fn sentence(&self, gpu: u32) -> String {
        format!(
            "GPU {gpu} has no memory of its own and uses the host's: {} in use by the host, {} kept for it",
            format_bytes(self.host_bytes),
            format_bytes(self.kept_bytes)
        )
    }
}

/// One waiting job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedView {
    /// `j43`.
    pub job: String,
    /// Owner.
    pub user: String,
    /// What it asks, as written.
    pub mem: Option<String>,
    /// The part of a device's time that it asks to be promised, as written.
    #[serde(default)]
    pub compute: Option<String>,
    /// Nanoseconds since it asked.
    pub waited_ns: u64,
    /// What it waits for.
    pub reason: String,
}

/// Answer to `queue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// Who is next: `arrival` or `fair`.
    pub order: String,
    /// All that wait, next first.
    pub jobs: Vec<PlaceView>,
}

/// One job that waits to start, or to come back to its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceView {
    /// 1 is next.
    pub place: u32,
    /// `j43`.
    pub job: String,
    /// Owner.
    pub user: String,
    /// `low`, `normal`, `high`, `realtime`.
    pub priority: String,
    /// What it asks, as written.
    pub mem: Option<String>,
    /// The part of a device's time that it asks to be promised, as written.
    pub compute: Option<String>,
    /// It was suspended and waits to come back.
    pub comes_back: bool,
    /// Nanoseconds since it began to wait.
    pub waited_ns: u64,
    /// What it waits for; empty where it was not judged yet.
    pub reason: String,
    /// How long it may still wait, a guess; none where nothing says.
    pub expected_wait_ns: Option<u64>,
    /// GPU time that its user had of late, as much of it as counts; none where the order does not go by it.
    pub user_gpu_ns: Option<u64>,
}

/// The mark of a drained device. A broker of an earlier version did not write by whom and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedView {
    /// When it was drained, in nanoseconds since 1970.
    pub since_unix_ns: Option<u64>,
    /// The user who drained it.
    pub uid: Option<u32>,
}
