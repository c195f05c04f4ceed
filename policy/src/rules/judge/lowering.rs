// SPDX-License-Identifier: Apache-2.0
//! What whoever started a container wrote beside it: the most of each number, like a rule's `max`.

use partage_protocol::size::parse_amount;
use partage_protocol::terms::parse_cap;

use super::{Cap, Caps};
use crate::registration::Lowered;
use crate::rules::{Rules, Written};

impl Caps {
    /// What is written beside the job allows at most, where that is stricter.
    pub(super) fn lower(&mut self, lowered: &Lowered, rules: &Rules) {
        let mem = lowered.most_mem.as_deref();
        let amount = mem.and_then(|text| Some((text, parse_amount(text).ok()?)));
        self.mem.extend(amount.map(|(text, value)| written("mem", text, value)));
        let compute = lowered.most_compute.as_deref();
        let part = compute.and_then(|text| Some((text, parse_cap(text).ok()??)));
        strictest(
            &mut self.compute_max,
            part.map(|(text, value)| written("compute", text, value)),
        );
        let Some(class) = lowered.most_class.as_ref().and_then(|name| rules.presets.get(name)) else {
            return;
        };
        let name = class.name.as_str();
        self.mem
            .extend(class.mem.as_ref().map(|said| of_class(name, "mem", said)));
        let process_mem = class.process_mem.as_ref();
        self.process_mem
            .extend(process_mem.map(|said| of_class(name, "process_mem", said)));
        let part = class.compute_promise.as_ref();
        strictest(
            &mut self.compute_promise,
            part.map(|said| of_class(name, "compute", said)),
        );
        let part = class.compute_max.as_ref();
        strictest(
            &mut self.compute_max,
            part.map(|said| of_class(name, "compute_max", said)),
        );
        let weight = class.weight.as_ref();
        strictest(&mut self.weight, weight.map(|said| of_class(name, "weight", said)));
        let priority = class.priority.as_ref();
        strictest(
            &mut self.priority,
            priority.map(|said| of_class(name, "priority", said)),
        );
        let time = class.time_limit.as_ref();
        strictest(
            &mut self.time_limit,
            time.map(|said| of_class(name, "time_limit", said)),
        );
    }
}

fn written<T>(key: &str, text: &str, value: T) -> Cap<T> {
    Cap {
        value,
        text: text.to_owned(),
        words: format!("annotation partage.dev/{key} = {text}"),
        binds_administrators: true,
    }
}

fn of_class<T: Clone>(class: &str, key: &str, said: &Written<T>) -> Cap<T> {
    Cap {
        value: said.value.clone(),
        text: said.text.clone(),
        words: format!(
            "annotation partage.dev/class = {class}, {key} = {} ({})",
            said.text, said.at
        ),
        binds_administrators: true,
    }
}

fn strictest<T: Ord>(place: &mut Option<Cap<T>>, cap: Option<Cap<T>>) {
    let Some(cap) = cap else { return };
    if place
        .as_ref()
        .is_none_or(|other| cap.stricter(other) == std::cmp::Ordering::Less)
    {
        *place = Some(cap);
    }
}
