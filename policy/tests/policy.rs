// SPDX-License-Identifier: Apache-2.0
//! The policy's tests, in one program: each of its own would be built with the whole host again.

#[path = "host/acts.rs"]
mod acts;
mod host;

mod admission;
mod advice;
mod aliases;
mod audit;
mod backfill;
mod ceiling;
mod clients;
mod contexts;
mod draining;
mod dying;
mod ending;
mod engines;
mod every_reachable_state;
mod fair;
mod idling;
mod lazy;
mod limits;
mod measured_time;
mod moving;
mod nodes;
mod numbers;
mod overhead;
mod per;
mod preemption;
mod process_limits;
mod promises_every_state;
mod queue_cost;
mod queue_view;
mod random_hosts;
mod registration;
mod residence;
mod residence_eligibility;
mod residence_every_interleaving;
mod residence_job;
mod residence_return;
mod rules;
mod rules_in_use;
mod rules_random;
mod rules_table;
mod scale;
mod settings;
mod slowness;
mod targets;
mod terms;
mod time_audit;
mod time_limit;
mod totals;
mod totals_every_state;
mod totals_residence;
mod undecided;
mod unmanaged_time;
