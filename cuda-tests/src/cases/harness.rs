// SPDX-License-Identifier: Apache-2.0
//! The runner itself: a case that hangs fails by name, and its programs do not ignore the signals that `nohup` ignores.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use super::Case;
use crate::rig::Rig;
use crate::variables::{CASE, LIMIT, PARTS, TABLE};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("harness::a_hung_case_fails_by_name_and_takes_its_programs_along", hung),
        Case::new("harness::the_page_says_what_runs_on_a_real_driver", page).simulated("reads the repository's pages"),
        Case::new("harness::what_the_runner_ignores_no_program_of_a_case_ignores", ignored),
    ]
}

/// What the cases above run.
pub fn parts() -> Vec<Case> {
    vec![Case::new("part::hangs", hangs), Case::new("part::signals", signals)]
}

fn runner(part: &str) -> Command {
    let mut runner = Command::new(std::env::current_exe().expect("the kernel knows this program's path"));
    runner.args(["--exact", part]).env(PARTS, "1").env_remove(CASE);
    runner
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn hung(rig: &Rig) {
    let mut runner = runner("part::hangs");
    runner.env(LIMIT, "5");
    let output = rig.output(runner);
    let text = words(&output);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("part::hangs") && text.contains("hung: did not end within 5 s"),
        "{text}"
    );
    let started: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("note: started "))
        .collect();
    assert_eq!(started.len(), 2, "{text}");
    for process in started {
        // Killed, and reaped by whoever inherited it.
        let status = Path::new("/proc").join(process).join("status");
        rig.eventually(std::time::Duration::from_secs(10), "its programs are gone", || {
            std::fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"))
        });
    }
}

/// `PARTAGE_TEST_TABLE=1 cargo test -p partage-tests --test cases -- no-such-case` prints the table.
fn page(rig: &Rig) {
    let path = crate::artefacts::package_dir().join("../docs/real-driver.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut runner = runner("no-such-case");
    runner.env_remove(PARTS).env(TABLE, "1");
    let output = rig.output(runner);
    let printed = words(&output);
    let (heading, rows) = ("| chapter | on a real driver |", printed.lines());
    let rows = rows.skip_while(|line| !line.starts_with(heading));
    let table: String = rows
        .take_while(|line| line.starts_with('|'))
        .flat_map(|line| [line, "\n"])
        .collect();
    // The heading, its rule, and a row for each chapter.
    assert!(table.lines().count() > 20, "{printed}");
    assert!(page.contains(&table), "{} should hold:\n{table}", path.display());
}

fn hangs(rig: &Rig) {
    let mut children = Vec::new();
    for group in [None, Some(0)] {
        let mut command = rig.command("/bin/sleep");
        command.arg("600");
        if let Some(group) = group {
            command.process_group(group);
        }
        let child = command.spawn().expect("sleep starts");
        rig.note(format!("started {}", child.id()));
        children.push(child);
    }
    for mut child in children {
        let _ = child.wait();
    }
}

fn ignored(rig: &Rig) {
    let mut runner = runner("part::signals");
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        runner.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_IGN);
            }
            Ok(())
        })
    };
    let output = rig.output(runner);
    assert!(output.status.success(), "{}", words(&output));
}

fn signals(rig: &Rig) {
    let mut command = rig.command("/bin/grep");
    command.args(["-E", "^Sig(Ign|Blk)", "/proc/self/status"]);
    let text = words(&rig.output(command));
    let masks = text
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split_once('\t')?.1, 16).ok());
    // The standard signals; those above are the C library's own.
    assert!(
        masks.clone().count() == 2 && masks.clone().all(|mask| mask & 0x7fff_ffff == 0),
        "{text}"
    );
}
