// SPDX-License-Identifier: Apache-2.0
//! Programs built with a sanitizer start under `partage run` and see their limit.

use std::process::Command;

use super::Case;
use super::matrix::sees_two_gib;
use crate::artefacts::program;
use crate::client::Client;
use crate::rig::Rig;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("sanitizers::a_program_with_the_thread_sanitizer_has_its_limit", |rig| {
            built_with(rig, "thread");
        }),
        Case::new(
            "sanitizers::a_program_with_the_address_sanitizer_has_its_limit",
            |rig| {
                built_with(rig, "address");
            },
        ),
    ]
}

fn built_with(rig: &Rig, sanitizer: &str) {
    let flag = format!("-fsanitize={sanitizer}");
    if !works(rig, &flag) {
        rig.note(format!(
            "SKIPPED: sanitizers: the compiler makes no program with {flag} that runs here"
        ));
        return;
    }
    let name = format!("client-{sanitizer}");
    let client = program(&name, "client.c", &[&flag, "-ldl", "-lpthread"]);
    let mut under = Client::start(rig.run(&["-m", "2GiB"], &client, &["dlopen"]));
    sees_two_gib(&mut under);
    assert!(under.finish().code().is_some(), "it ends by itself");
}

/// Without us: is there a compiler with this sanitizer, and does what it makes run on this kernel?
fn works(rig: &Rig, flag: &str) -> bool {
    let (source, built) = (rig.dir.join("empty.c"), rig.dir.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut compile = Command::new(compiler);
    compile.arg(flag).arg("-o").arg(&built).arg(&source);
    let is_made = compile.output().is_ok_and(|output| output.status.success());
    is_made && rig.output(rig.command(&built)).status.success()
}
