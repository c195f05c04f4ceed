// SPDX-License-Identifier: Apache-2.0
//! What a registration says of a job: whose first process it begins with, and which control group it owns.
//!
//! `partage run` makes its caller the first process of a job. A *registration* names another process, which has not
//! run a program of its user yet: the first one of a container. The job *owns* the container's control group: whatever
//! process is at or below it is of the job.

use serde::{Deserialize, Serialize};

/// A control group: a path in one hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cgroup {
    /// As `/proc/PID/cgroup` names it: `memory`, `cpu,cpuacct`, `name=systemd`; empty for the unified one.
    pub hierarchy: String,
    /// From the hierarchy's root on.
    pub path: String,
}

impl Cgroup {
    /// Is `other` this group, or one below it?
    #[must_use]
    pub fn holds(&self, other: &Self) -> bool {
        let below = other.path.strip_prefix(self.path.trim_end_matches('/'));
        self.hierarchy == other.hierarchy && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// What is kept of a registration in the job's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registration {
    /// The container's id, as its runtime has it; empty for a process that is in none.
    pub container: String,
    /// The container's name; empty where the runtime told none.
    pub name: String,
    /// The control group that the job owns. None: processes that enter the container later belong to the job by their
    /// parents alone.
    pub cgroup: Option<Cgroup>,
    /// Root registered it. Then the container and its labels count for rules, and the group holds whatever is in it;
    /// otherwise only processes of the job's user, or of a user namespace of that user.
    pub is_by_root: bool,
}

/// What a user wrote beside a job that somebody else asks for (annotations of a container). It only lowers. As
/// written; what cannot be read was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lowered {
    /// The most memory on each device: `1GiB`, `25%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_mem: Option<String>,
    /// The most of each device's time: `30%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_compute: Option<String>,
    /// A class whose numbers are the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_class: Option<String>,
}

impl Lowered {
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The most that a job may have which root registered, as root or an administrator wrote it last; `none` lifts a limit.
/// Its owner lowers its numbers and raises them up to that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ceiling {
    /// Memory on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    /// Promised memory on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_request: Option<String>,
    /// Memory of each process on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_mem: Option<String>,
    /// Promised part of each device's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// Cap of each device's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<String>,
    /// Weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

impl Ceiling {
    /// What is said of this one counts, where it says something.
    pub(crate) fn or(self, old: Self) -> Self {
        Self {
            mem: self.mem.or(old.mem),
            mem_request: self.mem_request.or(old.mem_request),
            process_mem: self.process_mem.or(old.process_mem),
            promise: self.promise.or(old.promise),
            cap: self.cap.or(old.cap),
            weight: self.weight.or(old.weight),
            priority: self.priority.or(old.priority),
            time_limit: self.time_limit.or(old.time_limit),
        }
    }

    /// `mem 1GiB, compute-max 50%`; empty where nothing was said.
    pub(crate) fn words(&self) -> String {
        let keys = [
            ("mem", &self.mem),
            ("mem-request", &self.mem_request),
            ("process-mem", &self.process_mem),
            ("compute", &self.promise),
            ("compute-max", &self.cap),
            ("weight", &self.weight),
            ("priority", &self.priority),
            ("time-limit", &self.time_limit),
        ];
        let said = keys
            .iter()
            .filter_map(|(key, text)| Some(format!("{key} {}", text.as_ref()?)));
        said.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(hierarchy: &str, path: &str) -> Cgroup {
        Cgroup {
            hierarchy: hierarchy.into(),
            path: path.into(),
        }
    }

    #[test]
    fn a_group_holds_itself_and_what_is_below_it() {
        let own = group("pids", "/pods/a");
        for path in ["/pods/a", "/pods/a/", "/pods/a/b/c"] {
            assert!(own.holds(&group("pids", path)), "{path}");
        }
        for path in ["/pods", "/pods/ab", "/", "", "pods/a"] {
            assert!(!own.holds(&group("pids", path)), "{path}");
        }
        assert!(!own.holds(&group("", "/pods/a")), "another hierarchy");
        assert!(group("", "/").holds(&group("", "/x")));
    }
}
