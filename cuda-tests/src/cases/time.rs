// SPDX-License-Identifier: Apache-2.0
//! Time sharing as programs see it: each call has the result that it has without Partage.

use std::process::Command;

use super::{Case, seed, tenth};
use crate::artefacts::{package_dir, program};
use crate::client::PATIENCE;
use crate::rig::{Driver, Rig, Spec};
use crate::time_client::TimeClient;
use crate::truth::Truth;

pub fn cases() -> Vec<Case> {
    let on_one_device = |name, body| Case {
        spec: Spec {
            gpus: 1,
            ..Spec::default()
        },
        ..Case::new(name, body)
    };
    vec![
        Case::new("time::same_results_with_and_without", same),
        on_one_device("time::same_results_beside_a_saturating_neighbour", contended),
    ]
}

/// Threads of a random program, and their steps.
const THREADS: &str = "4";
const STEPS: &str = "120";

/// Random programs over streams, events, captures in all modes, graphs, every form of launch, host functions and
/// default streams print the same codes and results with the library preloaded and without.
fn same(rig: &Rig) {
    compare(rig, 100 / tenth() as u64);
}

/// The same while another job wants the device all the time, so that the gate closes, depth is bounded and marks are
/// put into the streams.
fn contended(rig: &Rig) {
    let neighbour = TimeClient::under(rig, &[], "0", "kernel 500000");
    match rig.driver {
        Driver::Simulated => drop(Truth::of(rig).wait_for_work_of(0, &[neighbour.pid()])),
        Driver::Real => drop(rig.eventually(PATIENCE, "the neighbour is there", || !rig.jobs().is_empty())),
    }
    compare(rig, 30 / tenth() as u64);
    let done = neighbour.stop();
    assert!(done.units > 0, "{done:?}");
}

fn compare(rig: &Rig, rounds: u64) {
    let path = program("random_program", "random_program.c", &["-ldl", "-lpthread"]);
    let mut lines = 0;
    for round in 0..rounds {
        for mode in ["free", "turns"] {
            let number = seed().wrapping_add(round).to_string();
            let arguments = [&number, STEPS, THREADS, mode];
            let mut bare = rig.command(&path);
            bare.args(arguments);
            let (without, with) = (printed(rig, bare), printed(rig, rig.run(&[], &path, &arguments)));
            let differs = without
                .lines()
                .zip(with.lines())
                .find(|(bare, preloaded)| bare != preloaded);
            if let Some((bare, preloaded)) = differs {
                panic!("random_program {arguments:?}: `{bare}` without, `{preloaded}` with the library");
            }
            assert_eq!(without.len(), with.len(), "random_program {arguments:?} ends early");
            lines += without.lines().count();
        }
    }
    rig.note(format!(
        "{rounds} programs in each mode, {lines} calls and results alike"
    ));
}

/// What the program prints.
#[track_caller]
fn printed(rig: &Rig, mut command: Command) -> String {
    command.env("TIME_CLIENT_KERNELS", package_dir().join("kernels"));
    let output = rig.output(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("\nlaunches "),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
