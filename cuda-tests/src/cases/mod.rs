// SPDX-License-Identifier: Apache-2.0
//! The bodies: one file per chapter.

mod alone;
mod attachment;
mod case;
mod checkpoint_helper;
mod clients;
mod commands;
mod containers;
mod control_group;
mod death;
mod deepbind;
mod demo;
mod devices;
mod ends;
mod events;
mod families;
mod faults;
mod gate;
mod gate_leaving;
mod given_sockets;
mod graphs;
mod green_contexts;
mod guest;
mod harness;
mod health;
mod hold;
mod install;
mod launcher;
mod lazy;
mod limits;
mod marks;
mod matrix;
mod messages;
mod metrics;
mod namespaces;
mod overhead;
mod ownership;
mod pools;
mod proc_address;
mod quota;
mod quota_limits;
mod races;
mod random;
mod refusals;
mod registration;
mod residence;
mod rootless;
mod ruled_host;
mod rules;
mod runtime;
mod sanitizers;
mod shares;
mod sizes;
mod storm;
mod terminal;
mod time;
mod time_bare;
mod top;
mod unified;
mod upgrade;
mod user;
mod verified;
mod views;
mod why;

pub use case::Case;
pub use harness::parts;
pub use random::{Random, seed, tenth};

/// Every case.
pub fn all() -> Vec<Case> {
    [
        matrix::cases(),
        deepbind::cases(),
        proc_address::cases(),
        commands::cases(),
        devices::cases(),
        launcher::cases(),
        demo::cases(),
        lazy::cases(),
        races::cases(),
        death::cases(),
        ends::cases(),
        alone::cases(),
        attachment::cases(),
        sizes::cases(),
        rootless::cases(),
        rules::cases(),
        terminal::cases(),
        registration::cases(),
        containers::cases(),
        quota_limits::cases(),
        quota::cases(),
        families::cases(),
        views::cases(),
        overhead::cases(),
        limits::cases(),
        pools::cases(),
        graphs::cases(),
        green_contexts::cases(),
        gate::cases(),
        gate_leaving::cases(),
        given_sockets::cases(),
        hold::cases(),
        residence::cases(),
        marks::cases(),
        guest::cases(),
        ownership::cases(),
        clients::cases(),
        checkpoint_helper::cases(),
        faults::cases(),
        storm::cases(),
        sanitizers::cases(),
        shares::cases(),
        why::cases(),
        time::cases(),
        time_bare::cases(),
        top::cases(),
        messages::cases(),
        metrics::cases(),
        events::cases(),
        health::cases(),
        refusals::cases(),
        namespaces::cases(),
        verified::cases(),
        install::cases(),
        harness::cases(),
        runtime::cases(),
        unified::cases(),
        upgrade::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
