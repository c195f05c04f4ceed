// SPDX-License-Identifier: Apache-2.0
//! What a total of several jobs means for one of them: it may have no more than all of them together.

use super::{Cap, Caps, strictest};
use crate::rules::{Preset, Rule};

impl Caps {
    /// What this rule's totals allow one job, where that is stricter.
    pub(super) fn add_totals(&mut self, rule: &Rule) {
        for (of, total) in rule.totals() {
            let key = |key: &str| format!("{of}.{key}");
            let mem = total.mem.as_ref();
            self.mem.extend(mem.map(|written| Cap::of(rule, &key("mem"), written)));
            let compute = total.compute_promise.as_ref();
            strictest(&mut self.compute_promise, rule, &key("compute"), compute);
            strictest(&mut self.gpus, rule, &key("gpus"), total.gpus.as_ref());
        }
    }

    /// What the preset of processes without `run`, which this rule gives them, allows one of their jobs. Its memory and
    /// promise are a total of them; its cap of time is each job's.
    pub(super) fn add_preset(&mut self, rule: &Rule, preset: &Preset) {
        let key = |key: &str| format!("class {}.{key}", preset.name);
        let mem = preset.mem.as_ref();
        self.mem.extend(mem.map(|written| Cap::of(rule, &key("mem"), written)));
        let promise = preset.compute_promise.as_ref();
        strictest(&mut self.compute_promise, rule, &key("compute"), promise);
        let cap = preset.compute_max.as_ref();
        strictest(&mut self.compute_max, rule, &key("compute_max"), cap);
    }
}
