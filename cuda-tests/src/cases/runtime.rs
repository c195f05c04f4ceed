// SPDX-License-Identifier: Apache-2.0
//! A program as a CUDA compiler makes it, linked against the stand-ins for the CUDA runtime: it sees the same bare and
//! under a limit, but for its memory.

use std::process::Command;

use self::program::{make_runtime, parts, search_path, seen, walker};
use super::Case;
use crate::rig::{GIB, Rig};

mod beside;
mod program;
mod refusals;

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated("the stand-ins are for the simulated driver");
    vec![
        simulated("runtime::a_program_of_12_sees_the_same_under_a_limit", |rig| {
            same_under_a_limit(rig, "12");
        }),
        simulated("runtime::a_program_of_13_sees_the_same_under_a_limit", |rig| {
            same_under_a_limit(rig, "13");
        }),
        simulated(
            "runtime::what_is_not_built_says_itself_once",
            refusals::each_says_itself_once,
        ),
        simulated(
            "runtime::libraries_of_the_vendors_are_named_whenever_they_are_loaded",
            beside::half_installed,
        ),
        simulated("runtime::two_users_machines_beside_each_other", beside::two_users),
        simulated(
            "runtime::a_shared_machines_stand_ins_serve_all_users",
            beside::shared_under_a_umask,
        ),
    ]
}

fn same_under_a_limit(rig: &Rig, cuda: &str) {
    let folder = make_runtime(rig);
    let program = walker(&folder, cuda);
    let path = search_path(rig, &folder);
    let output = |mut command: Command| {
        command.env("LD_LIBRARY_PATH", &path);
        let output = rig.output(command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{}\n{said}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(
            said.matches("cudaCreateTextureObject").count(),
            1,
            "called twice, named once: {said}"
        );
        assert!(!said.contains("no version information"), "{said}");
        parts(&output)
    };
    let seen = seen(cuda);
    // Each device's, and what is in use and free of the first.
    let (memory, others) = output(rig.command(&program));
    assert_eq!(others, seen, "bare");
    assert_eq!(memory, [16 * GIB; 3], "bare");
    let (memory, others) = output(rig.run(&["-g", "0,1", "-m", "1GiB"], &program, &[]));
    assert_eq!(others, seen, "under a limit");
    assert_eq!(memory, [GIB; 3], "under a limit");
    // Nothing stays charged of what was held when a process ended or broke.
    rig.eventually(crate::client::PATIENCE, "nothing is held", || {
        rig.truth_allocated() == 0
    });
    assert_eq!(rig.ledger_used(), 0);
}
