// SPDX-License-Identifier: Apache-2.0
//! Everything that `why` says in English, from facts that other files find.

mod job;
mod time;

pub(super) use job::{ceiling_rules, counts, preemptible_rule, rules, saved_rule, use_text};
pub(super) use time::terms_rule;
