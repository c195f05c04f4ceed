// SPDX-License-Identifier: Apache-2.0
//! What files say, rightly and wrongly.

mod bad_files;

use std::path::Path;

use partage_metrics::JobLabel;
use partage_policy::{Order, QueueRules, Response, Split};
use partage_protocol::aliases::Family;
use partage_protocol::terms::Class;
use partage_protocol::time_aliases::TimeVariable;
use partage_protocol::units::{MIB, SECOND_NS};

use super::{Config, ConfigError, Listen, MetricsSettings, OnSick};
use crate::kind::Kind;
use crate::testing::Scratch;

fn load(main: &str, drop_in: Option<&str>) -> Result<Config, ConfigError> {
    let scratch = Scratch::new("config");
    let path = scratch.path().join("partage.toml");
    std::fs::write(&path, main).expect("written");
    if let Some(text) = drop_in {
        std::fs::create_dir(scratch.path().join("conf.d")).expect("made");
        std::fs::write(scratch.path().join("conf.d/10-site.toml"), text).expect("written");
    }
    Config::load(&path)
}

#[test]
fn a_later_file_wins_and_the_most_specific_reserve_counts() {
    let main = "schema = 1\n[gpu.\"*\"]\nreserve=\"1GiB\"\n[gpu.1]\nreserve=\"10%\"\n[broker]\npoll=\"100ms\"\n";
    let site = "schema = 1\n[gpu.\"GPU-ab\"]\nreserve=\"2GiB\"\n[broker]\npoll=\"200ms\"\n";
    let config = load(main, Some(site)).expect("valid");
    assert_eq!(config.poll_ns, SECOND_NS / 5);
    assert_eq!(config.reserve(0, "GPU-x", 10 << 30, 0), 1 << 30);
    assert_eq!(config.reserve(1, "GPU-x", 10 << 30, 0), 1 << 30);
    assert_eq!(config.reserve(1, "GPU-abc", 10 << 30, 0), 2 << 30);
    assert_eq!(
        config.reserve(0, "GPU-x", 10 << 30, 3 << 30),
        3 << 30,
        "never less than the driver keeps"
    );
}

#[test]
fn what_becomes_of_a_sick_devices_jobs_stands_beside_tables_of_devices() {
    let drains = "schema = 1\n[gpu]\non_sick = \"drain\"\n[gpu.0]\nreserve = \"1GiB\"\n";
    let config = load(drains, None).expect("valid");
    assert_eq!(
        (config.on_sick, config.reserve(0, "GPU-x", 10 << 30, 0)),
        (OnSick::Drain, 1 << 30)
    );
    let config = load(drains, Some("schema = 1\n[gpu]\non_sick = \"keep\"\n")).expect("valid");
    assert_eq!(config.on_sick, OnSick::Keep, "a later file wins");
    let mut now = load("schema = 1\n", None).expect("valid");
    assert!(now.take(load(drains, None).expect("valid")).contains(&"[gpu] reserve"));
    assert_eq!(now.on_sick, OnSick::Drain, "a reload takes it at once");
}

#[test]
fn a_file_that_is_a_link_to_nowhere_is_an_error_and_none_at_all_is_not() {
    let scratch = Scratch::new("config-link");
    let path = scratch.path().join("partage.toml");
    assert!(Config::load(&path).is_ok(), "no file: the defaults");
    std::os::unix::fs::symlink(scratch.path().join("gone.toml"), &path).expect("linked");
    assert!(matches!(Config::load(&path), Err(ConfigError::Read { .. })));
}

#[test]
fn mistakes_are_named_with_their_place_and_the_nearest_key() {
    let message = |text: &str| load(text, None).expect_err("wrong").to_string();
    let unknown = message("schema = 1\n[gpu.0]\nreserv = \"1GiB\"\n");
    assert!(
        unknown.contains("line 3") && unknown.contains("did you mean `reserve`"),
        "{unknown}"
    );
    assert!(message("[broker]\n").contains("schema = 1"));
    assert!(message("schema = 2\n").contains("schema"));
    assert!(message("schema = 1\n[gpu.0]\nreserve = \"8\"\n").contains("gpu.\"0\".reserve"));
    assert!(message("schema = 1\n[gpu.x]\nreserve = \"8GiB\"\n").contains("UUID"));
    assert!(message("schema = 1\n[gpu]\non_sick = \"cure\"\n").contains("keep, drain"));
    assert!(message("schema = 1\n[gpu]\nreserve = \"8GiB\"\n").contains("gpu"));
    assert!(message("schema = 1\n[broker]\npoll = \"10s\"\n").contains("50ms"));
    let audit = message("schema = 1\n[audit]\ndrift = \"murder\"\n");
    assert!(audit.contains("audit.drift") && audit.contains("deny-new"), "{audit}");
    assert!(message("schema = 1\n[audit]\ntolerance = \"5%\"\n").contains("audit.tolerance"));
}

#[test]
fn overcommit_and_aliases_are_read_and_a_later_file_wins() {
    let main = "schema = 1\n[admission]\novercommit = 1.3\n[aliases]\nnvidia_gpu_memory = false\n\
                cuda_device_memory_limit = false\n";
    let site = "schema = 1\n[aliases]\ncuda_device_memory_limit = true\n";
    let config = load(main, Some(site)).expect("valid");
    assert_eq!(config.policy.overcommit_millionths, 1_300_000);
    assert_eq!(config.policy.aliases_off, [Family::Nvidia]);
    let message = |text: &str| load(text, None).expect_err("wrong").to_string();
    for bad in ["0.9", "0", "-1", "17", "nan", "\"1.5\""] {
        let text = message(&format!("schema = 1\n[admission]\novercommit = {bad}\n"));
        assert!(text.contains("overcommit") || text.contains("line 3"), "{text}");
    }
    let unknown = message("schema = 1\n[aliases]\nnvidia_gpu_memori = true\n");
    assert!(unknown.contains("did you mean `nvidia_gpu_memory`"), "{unknown}");
    // The file's keys are the families' own.
    for family in Family::ALL {
        let config = load(&format!("schema = 1\n[aliases]\n{} = false\n", family.key()), None);
        assert_eq!(config.expect("valid").policy.aliases_off, [family]);
    }
}

#[test]
fn rules_about_time_are_read_and_a_later_file_wins() {
    let main = "schema = 1\n[admission]\ncompute_overcommit = 1.5\n[time]\nmax_class = \"high\"\n\
                [aliases]\ncuda_task_priority = false\n";
    let config = load(main, Some("schema = 1\n[time]\nmax_class = \"low\"\n")).expect("valid");
    assert_eq!(config.policy.compute_overcommit_millionths, 1_500_000);
    assert_eq!(
        config.policy.overcommit_millionths,
        partage_policy::Config::ALL_ONCE,
        "memory is another matter"
    );
    assert_eq!(config.for_policy(Kind::Managed, 1).max_class, Class::Low);
    assert_eq!(config.for_policy(Kind::Private, 1).max_class, Class::Realtime);
    assert_eq!(Config::default().for_policy(Kind::Managed, 1).max_class, Class::Normal);
    assert_eq!(config.policy.time_aliases_off, [TimeVariable::TaskPriority]);
    let message = |text: &str| load(text, None).expect_err("wrong").to_string();
    let class = message("schema = 1\n[time]\nmax_class = \"urgent\"\n");
    assert!(
        class.contains("time.max_class") && class.contains("realtime"),
        "{class}"
    );
    assert!(message("schema = 1\n[admission]\ncompute_overcommit = 0.5\n").contains("compute_overcommit"));
    assert!(message("schema = 1\n[time]\nmax_clas = \"low\"\n").contains("did you mean `max_class`"));
    // The file's keys are the variables' own.
    for variable in TimeVariable::ALL {
        let config = load(&format!("schema = 1\n[aliases]\n{} = false\n", variable.key()), None);
        assert_eq!(config.expect("valid").policy.time_aliases_off, [variable]);
    }
}

#[test]
fn the_order_of_the_queue_and_the_split_of_time_are_read() {
    let main = "schema = 1\n[admission]\norder = \"fair\"\nhalf_life = \"2h\"\n[time]\nsplit = \"job\"\n";
    let config = load(main, Some("schema = 1\n[admission]\nmax_wait = \"3d\"\n")).expect("valid");
    let hour = 3_600 * SECOND_NS;
    let queue = QueueRules {
        order: Order::Fair,
        half_life_ns: 2 * hour,
        max_wait_ns: 72 * hour,
    };
    assert_eq!(
        (config.policy.queue, config.for_policy(Kind::Managed, 1).split),
        (queue, Split::Job)
    );
    assert_eq!(Config::default().policy.queue.order, Order::Arrival);
    assert_eq!(Config::default().for_policy(Kind::Managed, 1).split, Split::User);
    assert_eq!(Config::default().for_policy(Kind::Private, 1).split, Split::Job);
}

#[test]
fn where_metrics_are_served_and_whom_they_name_is_read() {
    let main = "schema = 1\n[metrics]\nlisten = \"127.0.0.1:9811\"\nlabels = [\"user\", \"name\", \"user\"]\n";
    let config = load(
        main,
        Some("schema = 1\n[metrics]\ntoken_file = \"/t\"\nmost_series = 7\n"),
    )
    .expect("valid");
    let expected = MetricsSettings {
        listen: Listen::parse("127.0.0.1:9811").ok(),
        labels: vec![JobLabel::Name, JobLabel::User],
        token_file: Some("/t".into()),
        most_series: 7,
    };
    assert_eq!(config.metrics, expected);
    assert_eq!(Config::default().metrics.listen, None);
}

#[test]
fn the_page_about_the_configuration_shows_every_default() {
    let page = include_str!("../../../docs/configuration.md");
    let example = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("an example");
    let mut config = load(example, None).expect("valid");
    assert_eq!(config.reserve(0, "GPU-x", 10 << 30, 0), 512 * MIB);
    config.reserves.clear();
    assert_eq!(config, Config::default());
}

/// The keys that the reader knows in a table, from what it says about one that it does not.
fn keys(before: &str, after: &str) -> Vec<String> {
    let unknown = "xxxxxxxxxxxxxxxxxxxxxxxx";
    let said = load(&format!("schema = 1\n{before}{unknown} = 1{after}\n"), None);
    let said = said.expect_err("unknown").to_string();
    let known = said
        .split("; known: ")
        .nth(1)
        .unwrap_or_else(|| panic!("{before}: {said}"));
    known.trim_end().split(", ").map(str::to_owned).collect()
}

#[test]
fn the_page_about_the_configuration_shows_every_key() {
    let page = include_str!("../../../docs/configuration.md");
    let examples: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let examples = examples.concat();
    let mut count = 0;
    let mut check = |keys: Vec<String>, is_shown: &dyn Fn(&str) -> bool| {
        count += keys.len();
        let missing: Vec<&String> = keys.iter().filter(|key| !is_shown(key)).collect();
        assert!(missing.is_empty(), "not on the page: {missing:?}");
    };
    let is_table = |key: &str| {
        examples.contains(&format!("[{key}"))
            || examples.contains(&format!("[[{key}]]"))
            || examples.contains(&format!("\n{key} ="))
    };
    check(keys("", ""), &is_table);
    for table in [
        "gpu.0",
        "admission",
        "time",
        "audit",
        "aliases",
        "broker",
        "metrics",
        "class.a",
    ] {
        let is_line = |key: &str| examples.contains(&format!("\n{key} ="));
        check(keys(&format!("[{table}]\n"), ""), &is_line);
    }
    let rule = "[[rule]]\nname = \"a\"\n";
    check(keys(rule, ""), &|key| examples.contains(&format!("\n{key} =")));
    for table in ["max", "each_user", "together"] {
        let line = examples.lines().find(|line| line.starts_with(&format!("{table} = {{")));
        let line = line.unwrap_or_else(|| panic!("no {table} on the page"));
        check(keys(&format!("{rule}{table} = {{ "), " }"), &|key| {
            line.contains(&format!(" {key} = "))
        });
    }
    // One of them is in the example, and the text says what each means.
    check(keys(&format!("{rule}match = {{ "), " }"), &|key| {
        page.contains(&format!("`{key}`"))
    });
    assert!(count > 60, "{count} keys");
}

#[test]
fn the_auditor_is_told_what_to_do() {
    let main = "schema = 1\n[audit]\ndrift = \"deny-new\"\ntolerance = \"1MiB\"\n";
    let config = load(main, Some("schema = 1\n[audit]\nunmanaged = \"kill\"\n")).expect("valid");
    let audit = config.policy.audit;
    assert_eq!(
        (audit.drift, audit.unmanaged, audit.tolerance),
        (Response::DenyNew, Response::Kill, MIB)
    );
}

#[test]
fn no_file_gives_the_defaults() {
    let config = Config::load(Path::new("/nonexistent/partage.toml")).expect("defaults");
    assert_eq!(config, Config::default());
}

#[test]
fn every_example_of_the_pages_holds() {
    let pages = [
        include_str!("../../../docs/configuration.md"),
        include_str!("../../../docs/administrators.md"),
    ];
    let examples = pages.iter().flat_map(|page| page.split("```toml\n").skip(1));
    let examples: Vec<&str> = examples.filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        let config = load(example, None).unwrap_or_else(|error| panic!("{error}\n{example}"));
        assert_eq!(config.policy.rules.warnings(), Vec::<String>::new(), "{example}");
    }
}

#[test]
fn a_configuration_that_others_may_change_is_refused_with_the_path_and_its_mode() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let scratch = Scratch::new("config-open");
    let folder = scratch.path().canonicalize().expect("there");
    let drop_ins = folder.join("conf.d");
    let (path, drop_in) = (folder.join("partage.toml"), drop_ins.join("10-site.toml"));
    std::fs::create_dir(&drop_ins).expect("made");
    for file in [&path, &drop_in] {
        std::fs::write(file, "schema = 1\n").expect("written");
    }
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    let is_refused = |part: &Path, words: &str| {
        let why = Config::load(&path).expect_err("others may change it").to_string();
        assert!(why.contains(&format!("{} {words}", part.display())), "{why}");
    };
    for (part, whole, open) in [
        (&path, 0o644, 0o666),
        (&drop_in, 0o644, 0o646),
        (&drop_ins, 0o755, 0o777),
        (&folder, 0o755, 0o757),
    ] {
        mode(part, whole);
        assert!(Config::load(&path).is_ok(), "{}", part.display());
        mode(part, open);
        is_refused(part, &format!("has mode {open:o}, and others may write to it"));
        mode(part, whole);
    }
    // A link's file counts, wherever it lies.
    let elsewhere = scratch.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    std::fs::rename(&path, elsewhere.join("real.toml")).expect("ours");
    symlink(elsewhere.join("real.toml"), &path).expect("ours");
    assert!(Config::load(&path).is_ok());
    mode(&elsewhere, 0o777);
    is_refused(&elsewhere.canonicalize().expect("there"), "has mode 777");
    mode(&elsewhere, 0o755);
    if nix::unistd::geteuid().is_root() {
        chown(&drop_in, Some(65_534), None).expect("root may");
        is_refused(&drop_in, "belongs to uid 65534");
        chown(&drop_in, Some(0), None).expect("root may");
        assert!(Config::load(&path).is_ok());
    }
}
