// SPDX-License-Identifier: Apache-2.0
//! What a total of several jobs means for one of them: it may have no more than all of them together. And what a rule
//! means that leaves its jobs nothing: memory, GPUs or jobs of 0 bar them.

use partage_protocol::size::Amount;

use super::{Cap, Caps, Judge, strictest};
use crate::rules::{NotAllowed, Preset, Rule, Written};

impl Judge {
    /// May there be such jobs at all?
    ///
    /// # Errors
    /// [`NotAllowed::Barred`], with the rule.
    pub fn bars(&self) -> Result<(), NotAllowed> {
        match &self.barred {
            None => Ok(()),
            Some(rule) => Err(NotAllowed::Barred(rule.clone())),
        }
    }
}

impl Rule {
    /// The words of what bars its jobs: `rule quota-user-alice, each_user.jobs = 0 (…)`.
    pub(super) fn bar(&self) -> Option<String> {
        let mut bars = [
            zero(self, "max.mem", &self.max.mem),
            zero(self, "max.gpus", &self.max.gpus),
        ]
        .to_vec();
        for (of, total) in self.totals() {
            let key = |key: &str| format!("{of}.{key}");
            bars.extend([
                zero(self, &key("mem"), &total.mem),
                zero(self, &key("gpus"), &total.gpus),
                zero(self, &key("jobs"), &total.jobs),
            ]);
        }
        bars.into_iter().flatten().next()
    }
}

/// What is nothing.
trait Nothing {
    fn is_nothing(&self) -> bool;
}

impl Nothing for Amount {
    fn is_nothing(&self) -> bool {
        *self == Self::Bytes(0)
    }
}

impl Nothing for usize {
    fn is_nothing(&self) -> bool {
        *self == 0
    }
}

fn zero<T: Nothing + Clone>(rule: &Rule, key: &str, written: &Option<Written<T>>) -> Option<String> {
    let written = written.as_ref().filter(|written| written.value.is_nothing())?;
    Some(Cap::of(rule, key, written).words)
}

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
        // A job that is there already keeps what it has, and gets no more memory.
        self.mem.extend(rule.bar().map(|words| Cap {
            value: Amount::Bytes(0),
            text: "0".to_owned(),
            words,
            binds_administrators: true,
        }));
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
