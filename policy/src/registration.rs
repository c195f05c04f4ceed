// SPDX-License-Identifier: Apache-2.0
//! What a registration says of a job: whose first process it begins with, and which control group it owns.
//!
//! `partage run` makes its caller the first process of a job. A *registration* names another process, which has not
//! run a program of its user yet: the first one of a container, or of a job of an engine such as Slurm. The job *owns*
//! that control group: whatever process is at or below it is of the job. A container's job ends with its first process;
//! one that owns a group which is no container's ends with the last process there, and whoever registers that group
//! once more finds it.

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

/// A job of an engine, which registered it here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineJob {
    /// The engine and its own id of the job: `slurm:4711`; empty for a job of none.
    pub id: String,
    /// What the engine gave it, in its words: `shard:5 of 10`; empty where it told nothing.
    pub words: String,
}

impl EngineJob {
    /// Of no engine.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.id.is_empty()
    }

    /// Judges what a job of an engine is to be called. `slurm:4711`: small letters, digits and dashes, a colon, and an
    /// id.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_id(text: &str) -> Result<(), String> {
        const LONGEST: usize = 128;
        let (engine, id) = text.split_once(':').ok_or("it has no colon")?;
        let in_engine = |c: &char| matches!(c, 'a'..='z' | '0'..='9' | '-');
        let in_id = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        if matches!(engine, "container" | "cgroup" | "process") {
            return Err(format!("{engine}: is taken"));
        }
        if let Some(c) = engine.chars().find(|c| !in_engine(c)) {
            return Err(format!(
                "an engine is called by small letters, digits and dashes: {c:?} is none"
            ));
        }
        if !engine.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err("an engine's name begins with a small letter".to_owned());
        }
        if let Some(c) = id.chars().find(|c| !in_id(c)) {
            return Err(format!("an id has letters, digits, dots, _, - and +: {c:?} is none"));
        }
        match id {
            "" => Err("it has no id after the colon".to_owned()),
            _ if text.len() > LONGEST => Err(format!("it is longer than {LONGEST} bytes")),
            _ => Ok(()),
        }
    }

    /// `slurm:4711 (shard:5 of 10)`; empty for a job of none.
    #[must_use]
    pub fn said(&self) -> String {
        match self.words.as_str() {
            "" => self.id.clone(),
            words => format!("{} ({words})", self.id),
        }
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
    /// The engine's job that it is.
    #[serde(skip_serializing_if = "EngineJob::is_none")]
    pub engine: EngineJob,
}

impl Registration {
    /// The control group that the job owns and lives by: not a container's, whose first process it lives by.
    #[must_use]
    pub fn lived_by(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref().filter(|_| self.container.is_empty())
    }

    /// Does it name the group by which a job of this other registration lives, with the same right?
    pub(crate) fn finds(&self, other: &Self) -> bool {
        let own = self.lived_by();
        own.is_some() && own == other.lived_by() && self.is_by_root == other.is_by_root
    }
}

/// What was written beside a job that somebody registers (annotations of a container, `--at-most`). It only lowers. As
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
    /// The most of each number (`--at-most`).
    #[serde(skip_serializing_if = "Ceiling::is_empty")]
    pub at_most: Ceiling,
}

impl Lowered {
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The most that a job may have. Of one that root registered: as root or an administrator wrote it last, where `none`
/// lifts a limit; its owner lowers its numbers and raises them up to that. Of `--at-most`: as it was registered.
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
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

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

    #[test]
    fn an_engines_job_is_called_by_the_engine_and_its_id() {
        for text in ["slurm:4711", "ray:01000000", "k8s-job:a.b_c-7", "slurm:12+0"] {
            assert_eq!(EngineJob::check_id(text), Ok(()), "{text}");
        }
        let long = format!("slurm:{}", "7".repeat(128));
        for text in [
            "",
            "slurm",
            "slurm:",
            ":7",
            "Slurm:7",
            "7:7",
            "slurm:7 8",
            "slurm:7\n",
            "a/b:7",
            "slurm:a:b",
            "container:7",
            "cgroup:7",
            "process:7",
            &long,
        ] {
            assert!(EngineJob::check_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_registration_finds_the_job_that_lives_by_its_group() {
        let one = Registration {
            cgroup: Some(group("freezer", "/slurm/job_7")),
            is_by_root: true,
            ..Registration::default()
        };
        assert!(one.finds(&one.clone()));
        let others = [
            Registration {
                cgroup: None,
                ..one.clone()
            },
            Registration {
                cgroup: Some(group("freezer", "/slurm/job_8")),
                ..one.clone()
            },
            Registration {
                cgroup: Some(group("", "/slurm/job_7")),
                ..one.clone()
            },
            Registration {
                container: "0123".into(),
                ..one.clone()
            },
            Registration {
                is_by_root: false,
                ..one.clone()
            },
        ];
        for other in others {
            assert!(!one.finds(&other) && !other.finds(&one), "{other:?}");
        }
        let none = Registration::default();
        assert!(!none.finds(&none.clone()), "neither has a group");
    }
}
