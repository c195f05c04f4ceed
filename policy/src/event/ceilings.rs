// SPDX-License-Identifier: Apache-2.0
//! The numbers that a registration or a change names, as they are written, and the facts that rules go by.

use std::fmt::Display;

use partage_protocol::size::{format_duration, parse_amount, parse_duration};
use partage_protocol::terms::{parse_cap, parse_class, parse_promise, parse_time_limit, parse_weight};

use super::{Change, Run};
use crate::refusal::{Refusal, unreadable};
use crate::registration::{Ceiling, Lowered};
use crate::rules::Facts;

impl Run {
    /// The facts of its caller, for the rules. The program is what the caller says it will become: a name is no more
    /// than that.
    pub(crate) fn facts(&self) -> Facts {
        let command = self.request.command.first().map_or("", String::as_str);
        // What a user registered is a label that a user gives.
        let registration = self.registered.as_ref().map(|(registration, _)| registration);
        let by_root = registration.filter(|registration| registration.is_by_root);
        let labels = by_root.map_or(&[][..], |_| &self.request.labels);
        Facts {
            uid: self.caller.uid,
            user: self.caller.user.clone(),
            groups: self.groups.clone(),
            cgroup: self.cgroup.clone().unwrap_or_default(),
            other_cgroups: self.other_cgroups.clone(),
            program: command.rsplit('/').next().unwrap_or_default().to_owned(),
            is_admin: self.caller.is_admin,
            labels: labels.to_vec(),
            container: by_root.map_or_else(String::new, |known| known.container.clone()),
            container_name: by_root.map_or_else(String::new, |known| known.name.clone()),
            scope: None,
            // Judged apart (`RunSpec::lowered`).
            lowered: Lowered::default(),
            ceiling: by_root.map(|_| self.ceiling()),
            engine: by_root.map_or_else(String::new, |known| known.engine.said()),
        }
    }

    /// The numbers that it names.
    fn ceiling(&self) -> Ceiling {
        let request = &self.request;
        Ceiling {
            mem: request.mem.clone(),
            mem_request: request.mem_request.clone(),
            process_mem: request.process_mem.clone(),
            promise: request.compute.clone(),
            cap: request.compute_max.clone(),
            weight: request.weight.clone(),
            priority: request.priority.clone(),
            time_limit: request.time_limit_ns.map(duration),
        }
    }
}

impl Ceiling {
    /// Can each number be read, as `--at-most` names it?
    ///
    /// # Errors
    /// The first that cannot; `none` is no most.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        most("mem", &self.mem, parse_amount)?;
        most("mem-request", &self.mem_request, parse_amount)?;
        most("process-mem", &self.process_mem, parse_amount)?;
        most("compute", &self.promise, parse_promise)?;
        most("compute-max", &self.cap, parse_cap)?;
        most("weight", &self.weight, parse_weight)?;
        most("priority", &self.priority, parse_class)?;
        most("time-limit", &self.time_limit, parse_time_limit)
    }
}

fn most<T, E: Display>(key: &str, said: &Option<String>, parse: impl Fn(&str) -> Result<T, E>) -> Result<(), Refusal> {
    let read = said.as_deref().map(parse).transpose();
    read.map(drop).map_err(unreadable(format!("--at-most {key}: ")))
}

/// As people write it, where that says all of it.
fn duration(ns: u64) -> String {
    let text = format_duration(ns);
    match parse_duration(&text) {
        Ok(same) if same == ns => text,
        _ => format!("{}ms", ns.div_ceil(1_000_000)),
    }
}

impl Change {
    /// The numbers that it names.
    pub(crate) fn ceiling(&self) -> Ceiling {
        let terms = self.terms.clone();
        Ceiling {
            mem: self.mem.clone(),
            mem_request: self.mem_request.clone(),
            process_mem: self.process_mem.clone(),
            promise: terms.compute,
            cap: terms.compute_max,
            weight: terms.weight,
            priority: terms.priority,
            time_limit: terms.time_limit,
        }
    }
}
