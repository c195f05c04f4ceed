// SPDX-License-Identifier: Apache-2.0
//! Each wall is broken, and found.

use super::*;
use crate::circles::{all_arrows, circles};

fn rules(sources: &[(&str, &str)]) -> Vec<&'static str> {
    let files: Vec<_> = sources
        .iter()
        .map(|(path, text)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    faults(&files, &all_arrows(&circles(&files)))
        .iter()
        .map(|fault| fault.rule)
        .collect()
}

#[test]
fn a_name_over_a_wall_is_found_and_one_within_it_is_not() {
    let crate_ = |gate: &'static str, memory: &'static str, hook: &'static str| {
        rules(&[
            ("interposer/Cargo.toml", ""),
            ("interposer/src/lib.rs", "mod gate; mod memory; mod hooks; mod session;"),
            ("interposer/src/gate/mod.rs", gate),
            ("interposer/src/memory/mod.rs", memory),
            ("interposer/src/hooks/mod.rs", hook),
            ("interposer/src/session.rs", "pub fn s() {}"),
        ])
    };
    assert!(
        crate_(
            "pub fn g() {}",
            "pub fn m() {}",
            "use crate::gate::g; use crate::memory::m;"
        )
        .is_empty()
    );
    assert_eq!(
        crate_("use crate::memory::m;", "pub fn m() {}", ""),
        ["gate-knows-no-memory"]
    );
    assert_eq!(
        crate_("pub fn g() {}", "fn m() { crate::gate::g(); }", ""),
        ["memory-knows-no-gate"]
    );
    assert_eq!(
        crate_("", "", "fn h() { crate::session::s(); }"),
        ["hooks-call-five-rooms"]
    );
}

#[test]
fn a_decision_that_names_a_view_is_found_and_the_step_is_not() {
    let crate_ = |step: &'static str, room: &'static str| {
        rules(&[
            ("policy/Cargo.toml", ""),
            ("policy/src/lib.rs", "mod views; mod decisions;"),
            ("policy/src/decisions/mod.rs", "mod step; mod room;"),
            ("policy/src/decisions/step.rs", step),
            ("policy/src/decisions/room.rs", room),
            ("policy/src/views/mod.rs", "pub fn ps() {}"),
        ])
    };
    assert!(crate_("use crate::views::ps;", "").is_empty());
    assert_eq!(crate_("", "use crate::views::ps;"), ["decisions-name-no-view"]);
    assert_eq!(crate_("", "fn f() { crate::views::ps(); }"), ["decisions-name-no-view"]);
}

#[test]
fn books_that_name_a_decision_are_found() {
    let crate_ = |room: &'static str| {
        rules(&[
            ("policy/Cargo.toml", ""),
            ("policy/src/lib.rs", "mod books; mod decisions;"),
            ("policy/src/books/mod.rs", room),
            ("policy/src/decisions/mod.rs", "pub fn admit() {}"),
        ])
    };
    assert!(crate_("").is_empty());
    assert_eq!(crate_("use crate::decisions::admit;"), ["books-name-no-decision"]);
}

#[test]
fn an_engine_that_names_the_driver_is_found() {
    let crate_ = |engine: &'static str| {
        rules(&[
            ("broker/Cargo.toml", ""),
            ("broker/src/lib.rs", "mod driver; mod residence; mod site;"),
            ("broker/src/driver/mod.rs", "pub fn step() {}"),
            ("broker/src/residence/mod.rs", engine),
            ("broker/src/site/mod.rs", "pub fn tell() {}"),
        ])
    };
    assert!(crate_("use crate::site::tell;").is_empty());
    assert_eq!(crate_("fn f() { crate::driver::step(); }"), ["engine-knows-no-driver"]);
}

#[test]
fn a_row_whose_folder_has_moved_is_named() {
    let here: Vec<_> = WALLS
        .iter()
        .flat_map(|wall| [wall.within, wall.except, wall.never, wall.but])
        .chain(BANNED.iter().flat_map(|row| [row.within, row.but]))
        .flatten()
        .chain([&WORDLESS])
        .map(|place| File {
            path: format!("{place}x.rs"),
            text: String::new(),
        })
        .collect();
    assert!(idle_rows(&here).is_empty());
    let without_hooks = here.into_iter().filter(|file| !file.path.contains("/hooks"));
    let said = idle_rows(&without_hooks.collect::<Vec<_>>());
    assert!(
        said.iter().all(|line| line.contains("interposer/src/hooks")),
        "{said:?}"
    );
    assert!(!said.is_empty());
}

#[test]
fn words_are_banned_where_their_row_says() {
    let one = |path, text| rules(&[(path, text)]);
    assert_eq!(
        one("policy/src/room.rs", "use partage_protocol::admin::Reply;"),
        ["policy-names-no-json"]
    );
    assert!(one("policy/src/views/ps.rs", "use partage_protocol::admin::Reply;").is_empty());
    assert!(one("policy/tests/a.rs", "use partage_protocol::admin::Reply;").is_empty());
    assert_eq!(
        one("broker/src/dispatcher/mod.rs", "fn f() { std::fs::read(p); }"),
        ["dispatcher-does-not-wait"]
    );
    assert_eq!(
        one("broker/src/residence/way.rs", "fn f() { nvml::clear(); }"),
        ["plan-calls-no-driver"]
    );
    assert_eq!(
        one("interposer/src/note.rs", "fn f() { map(MAP_SHARED); }"),
        ["attachment-alone-maps"]
    );
    assert!(one("interposer/src/attachment.rs", "fn f() { map(MAP_SHARED); }").is_empty());
    assert_eq!(
        one("policy/src/step.rs", "fn f() { Instant::now(); }"),
        ["policy-has-no-clock"]
    );
    assert_eq!(
        one(
            "gpu-time/src/lib.rs",
            "use std::time::Instant; struct S { at: Instant }"
        ),
        ["policy-has-no-clock"]
    );
    assert!(
        one(
            "policy/src/step.rs",
            "#[cfg(test)] mod t { fn f() { Instant::now(); } }"
        )
        .is_empty()
    );
    assert_eq!(
        one("interposer/src/note.rs", "fn f() { println!(\"x\"); }"),
        ["library-prints-nothing"]
    );
}

#[test]
fn a_sentence_in_a_decision_is_found() {
    let one = |path, text| rules(&[(path, text)]);
    for said in [
        r#"fn f() { note("it was stopped"); }"#,
        r#"fn f() { format!("{id} has {now}"); }"#,
        r##"const WHY: &str = r#"no room"#;"##,
    ] {
        assert_eq!(
            one("policy/src/decisions/end.rs", said),
            ["decisions-say-no-sentence"],
            "{said}"
        );
        assert_eq!(
            one("policy/src/decisions.rs", said),
            ["decisions-say-no-sentence"],
            "{said}"
        );
        assert!(one("policy/src/views/said/end.rs", said).is_empty());
        let in_test = format!("#[cfg(test)] mod t {{ {said} }}");
        assert!(rules(&[("policy/src/decisions/end.rs", &in_test)]).is_empty());
    }
    let kinds = r#"fn f() { publish("job-ended", "compute: "); } // it is no sentence"#;
    assert!(one("policy/src/decisions/end.rs", kinds).is_empty());
}

#[test]
fn a_file_of_policy_writes_the_fields_of_its_own_types() {
    let own = "struct S { a: u8 } impl S { fn f(&mut self) { self.a += 1; let x = self.b == 2; } }";
    assert!(rules(&[("policy/src/s.rs", own)]).is_empty());
    let other = "fn f(x: &mut S, y: &mut Document) { x.jobs.a = 1; y.b = 2; }";
    assert_eq!(
        rules(&[("policy/src/s.rs", own), ("policy/src/o.rs", other)]),
        ["writes-own-fields"]
    );
    assert!(
        rules(&[("policy/src/o.rs", other)]).is_empty(),
        "a type of another crate"
    );
}

#[test]
fn a_number_with_a_unit_is_declared_once() {
    let number = "const SLICE_NS: u64 = 1;";
    assert_eq!(
        rules(&[("a/src/x.rs", number), ("b/src/y.rs", number)]),
        ["number-declared-once"]
    );
    assert!(rules(&[("a/src/x.rs", number), ("b/tests/y.rs", number)]).is_empty());
    assert!(
        rules(&[
            ("a/src/x.rs", "const SIZE: u64 = 1;"),
            ("b/src/y.rs", "const SIZE: u64 = 1;")
        ])
        .is_empty()
    );
}
