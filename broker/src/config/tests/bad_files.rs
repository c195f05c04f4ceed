// SPDX-License-Identifier: Apache-2.0
//! Sixty files that are wrong, each with the exact words that its author reads; and anything at all, which is answered.

use std::path::PathBuf;

use partage_policy::{GpuName, Pattern};
use partage_protocol::size::Amount;
use partage_protocol::units::GIB;
use proptest::prelude::*;

use super::super::Config;

fn read(text: &str) -> Result<Config, String> {
    Config::merged(&[(PathBuf::from("p.toml"), text.to_owned())]).map_err(|error| error.to_string())
}

/// What follows `schema = 1`, so that the first line of each is line 2; and what is said after `p.toml, `.
const BAD: [(&str, &str); 60] = [
    (
        "[metrics]\nlisten = \"localhost:9811\"",
        "line 3, column 10: metrics.listen: \"localhost:9811\" is no address with a port: write 127.0.0.1:9811, \
         [::1]:9811 or unix:/run/partage/metrics.sock",
    ),
    (
        "[metrics]\nlabels = [\"user\", \"pid\"]",
        "line 3, column 19: metrics.labels: \"pid\" is not one of name, user, container, namespace, pod, pod_uid, \
         engine",
    ),
    (
        "[metrics]\ntoken_file = \"token\"",
        "line 3, column 14: metrics.token_file: a path that begins with /",
    ),
    (
        "[metrics]\nport = 9811",
        "line 3, column 1: unknown key `port`; known: listen, labels, token_file, most_series",
    ),
    ("[rul]", "line 2, column 2: unknown key `rul`; did you mean `rule`?"),
    (
        "[[rules]]",
        "line 2, column 3: unknown key `rules`; did you mean `rule`?",
    ),
    (
        "[classes.small]",
        "line 2, column 2: unknown key `classes`; did you mean `class`?",
    ),
    (
        "[class.small]\nmeme = \"8GiB\"",
        "line 3, column 1: unknown key `meme`; did you mean `mem`?",
    ),
    (
        "[class.small]\nmem-request = \"8GiB\"",
        "line 3, column 1: unknown key `mem-request`; did you mean `mem_request`?",
    ),
    (
        "[class.small]\nmem = 8",
        "line 3, column 7: invalid type: integer `8`, expected a string",
    ),
    (
        "[class.small]\nmem = \"8\"",
        "line 3, column 7: class.small.mem: \"8\" has no unit: did you mean 8% or 8GiB?",
    ),
    (
        "[class.small]\nmem = \"0GiB\"",
        "line 3, column 7: class.small.mem: \"0GiB\" is zero: write 8GiB, 8192MiB or 25%",
    ),
    (
        "[class.small]\nmem = \"4GiB\"\nmem_request = \"8GiB\"",
        "line 4, column 15: class.small.mem_request: 8GiB is more than mem = 4GiB: promise at most the limit",
    ),
    (
        "[class.small]\ncompute = \"30\"",
        "line 3, column 11: class.small.compute: \"30\" has no unit: did you mean 30%?",
    ),
    (
        "[class.small]\ncompute = \"60%\"\ncompute_max = \"50%\"",
        "line 3, column 11: class.small.compute: 60% is more than compute_max = 50%: promise at most the cap",
    ),
    (
        "[class.small]\nweight = 0",
        "line 3, column 10: class.small.weight: 0 is not from 1 to 10000",
    ),
    (
        "[class.small]\nweight = \"100\"",
        "line 3, column 10: invalid type: string \"100\", expected i64",
    ),
    (
        "[class.small]\npriority = \"urgent\"",
        "line 3, column 12: class.small.priority: unknown priority \"urgent\" (use low, normal, high or realtime)",
    ),
    (
        "[class.small]\ntime_limit = \"0s\"",
        "line 3, column 14: class.small.time_limit: \"0s\" leaves no time to run (use 90s, 90m or 1h30m)",
    ),
    (
        "[class.small]\nprocess_mem = \"4 GiB\"",
        "line 3, column 15: class.small.process_mem: \"4 GiB\" contains a blank: write 4GiB",
    ),
    (
        "[class.\"a b\"]",
        "line 2, column 8: class: bad name \"a b\"; use letters, digits, '.', '_' or '-', at most 64",
    ),
    (
        "[class.small]\nmem = \"1GiB\"\nmem = \"2GiB\"",
        "line 4, column 1: duplicate key `mem`",
    ),
    (
        "[class.small]\n[class.small]",
        "line 3, column 8: duplicate key `small`",
    ),
    (
        "[[rule]]\nmax = { mem = \"1GiB\" }",
        "line 2, column 1: rule: has no name; write one, such as name = \"students\"",
    ),
    (
        "[[rule]]\nname = \"a\"\n[[rule]]\nname = \"a\"",
        "line 5, column 8: rule.name: \"a\" is another rule's name already (p.toml:3); each needs its own",
    ),
    (
        "[[rule]]\nname = \"\"",
        "line 3, column 8: rule.name: bad name \"\"; use letters, digits, '.', '_' or '-', at most 64",
    ),
    (
        "[[rule]]\nname = \"a\"\nmaxx = {}",
        "line 4, column 1: unknown key `maxx`; did you mean `max`?",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { memory = \"1GiB\" }",
        "line 4, column 9: unknown key `memory`; did you mean `mem`?",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { mem = \"1 GiB\" }",
        "line 4, column 15: rule.max.mem: \"1 GiB\" contains a blank: write 1GiB",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { process_mem = \"1 GiB\" }",
        "line 4, column 23: rule.max.process_mem: \"1 GiB\" contains a blank: write 1GiB",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { gpus = -1 }",
        "line 4, column 16: rule.max.gpus: -1 is not from 0 (none at all) to 16",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { weight = -1 }",
        "line 4, column 18: rule.max.weight: -1 is not from 1 to 10000",
    ),
    (
        "[[rule]]\nname = \"a\"\nmax = { time_limit = \"24\" }",
        "line 4, column 22: rule.max.time_limit: \"24\" has no unit: did you mean 24s?",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { groups = \"b\" }",
        "line 4, column 11: unknown key `groups`; did you mean `group`?",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { user = 7 }",
        "line 4, column 18: invalid type: integer `7`, expected a string",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { user = [] }",
        "line 4, column 18: rule.match.user: an empty list fits nothing; leave it out, or name something",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { user = \"\" }",
        "line 4, column 18: rule.match.user: an empty text matches nothing; leave the key out for everybody",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { container = \"\" }",
        "line 4, column 23: rule.match.container: an empty text matches nothing; leave the key out for everybody",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { label = [\"team=a\", \"=b\"] }",
        "line 4, column 19: rule.match.label: \"=b\" names no key; write key=value, or a key alone",
    ),
    (
        "[class.small]\nmem = \"1GiB\"\n[[rule]]\nname = \"a\"\nclass = \"smal\"",
        "line 6, column 9: rule.class: there is no class \"smal\"; did you mean `small`?",
    ),
    (
        "[[rule]]\nname = \"a\"\nclass = \"small\"",
        "line 4, column 9: rule.class: there is no class \"small\": write a table [class.small]",
    ),
    (
        "[class.small]\nmem = \"1GiB\"\n[[rule]]\nname = \"a\"\nclasses = [\"small\", \"batch\"]",
        "line 6, column 11: rule.classes: there is no class \"batch\"; known: small",
    ),
    (
        "[[rule]]\nname = \"a\"\ngpu = []",
        "line 4, column 7: rule.gpu: an empty list fits nothing; leave it out, or name something",
    ),
    (
        "[[rule]]\nname = \"a\"\ngpu = [\"x\"]",
        "line 4, column 7: rule.gpu: \"x\" is neither an index nor a UUID (`GPU-…`, `MIG-…`)",
    ),
    (
        "[[rule]]\nname = \"a\"\neach_user = { mem = \"1 GiB\" }",
        "line 4, column 21: rule.each_user.mem: \"1 GiB\" contains a blank: write 1GiB",
    ),
    (
        "[[rule]]\nname = \"a\"\neach_user = { jobs = -1 }",
        "line 4, column 22: rule.each_user.jobs: -1 is not from 0 (none at all) to 100000",
    ),
    (
        "[[rule]]\nname = \"a\"\ntogether = { compute = \"130%\" }",
        "line 4, column 24: rule.together.compute: \"130%\" is more than the whole: at most 100%",
    ),
    (
        "[[rule]]\nname = \"a\"\nper = \"user\"",
        "line 4, column 7: rule.per: says whom the class of this rule is for, and it has none; write class, too",
    ),
    (
        "[[rule]]\nname = \"a\"\nper = \"job\"",
        "line 4, column 7: rule.per: \"job\" is not one of scope, user, process",
    ),
    (
        "[[rule]]\nname = \"a\"\nstrict = \"yes\"",
        "line 4, column 10: invalid type: string \"yes\", expected a boolean",
    ),
    (
        "[[rule]]\nname = \"a\"\nwithout_broker = \"opened\"",
        "line 4, column 18: rule.without_broker: \"opened\" is not one of open, closed",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { container = \"web\" }\nwithout_broker = \"open\"",
        "line 5, column 18: rule.without_broker: goes with a match by user or by group alone, or without a match",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { user = \"a\", group = \"b\" }\nwithout_broker = \"open\"",
        "line 5, column 18: rule.without_broker: goes with a match by user or by group alone, or without a match",
    ),
    (
        "[[rule]]\nname = \"a\"\nmatch = { group = [\"b\", \"guest*\"] }\nwithout_broker = \"closed\"",
        "line 5, column 18: rule.without_broker: goes with whole names or numbers, without * and ?",
    ),
    (
        "[time]\nsplit = \"group\"",
        "line 3, column 9: time.split: \"group\" is not one of user, job",
    ),
    (
        "[time]\nsplt = \"user\"",
        "line 3, column 1: unknown key `splt`; did you mean `split`?",
    ),
    (
        "[admission]\norder = \"fifo\"",
        "line 3, column 9: admission.order: \"fifo\" is not one of arrival, fair",
    ),
    (
        "[admission]\nhalf_life = \"1\"",
        "line 3, column 13: admission.half_life: \"1\" has no unit: did you mean 1s?",
    ),
    (
        "[admission]\nhalf_life = \"1s\"",
        "line 3, column 13: admission.half_life: between 1m and 30d",
    ),
    (
        "[admission]\nmax_wait = \"400d\"",
        "line 3, column 12: admission.max_wait: between 1m and 365d",
    ),
];

#[test]
fn each_bad_file_is_answered_with_its_place_and_what_was_meant() {
    let mut wrong = Vec::new();
    for (text, expected) in BAD {
        let said = read(&format!("schema = 1\n{text}\n")).expect_err(text);
        if said != format!("p.toml, {expected}") {
            wrong.push(format!("{text}\n  says      {said}\n  and not   p.toml, {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn columns_count_characters_and_lines_of_any_file() {
    let said = read("schema = 1\n# é\n[class.small] # é\nmem = \"é\"\n").expect_err("no size");
    assert!(
        said.starts_with("p.toml, line 4, column 7: class.small.mem: "),
        "{said}"
    );
    let texts = [
        (
            PathBuf::from("p.toml"),
            "schema = 1\n[[rule]]\nname = \"a\"\nclass = \"b\"\n".to_owned(),
        ),
        (PathBuf::from("q.toml"), "schema = 1\n".to_owned()),
    ];
    let said = Config::merged(&texts).expect_err("no class").to_string();
    assert!(said.starts_with("p.toml, line 4, column 9: "), "{said}");
}

#[test]
fn what_the_order_gives_is_read_and_later_files_add_rules_and_replace_numbers() {
    let main = "schema = 1\n[class.small]\nmem = \"8GiB\"\nmem_request = \"2GiB\"\nweight = 50\n\
                [[rule]]\nname = \"students\"\nmatch = { group = [\"students\", \"guest*\"], user = \"*\" }\n\
                class = \"small\"\nclasses = [\"small\", \"batch\"]\ngpu = [0, \"GPU-1a2b\"]\n\
                max = { mem = \"16GiB\", compute_max = \"80%\", weight = 200, priority = \"normal\", gpus = 1 }\n\
                per = \"user\"\nstrict = true\n";
    let site = "schema = 1\n[class.batch]\npriority = \"low\"\n[class.small]\nmem = \"4GiB\"\n\
                [[rule]]\nname = \"all\"\nmax = { time_limit = \"24h\", compute = \"0%\" }\n";
    let texts = [
        (PathBuf::from("p.toml"), main.to_owned()),
        (PathBuf::from("conf.d/10.toml"), site.to_owned()),
    ];
    let rules = Config::merged(&texts).expect("valid").policy.rules;
    let small = &rules.presets["small"];
    let mem = small.mem.as_ref().expect("a limit");
    assert_eq!((mem.value, mem.text.as_str()), (Amount::Bytes(4 * GIB), "4GiB"));
    assert_eq!(mem.at.to_string(), "conf.d/10.toml:5");
    assert_eq!(
        small
            .mem_request
            .as_ref()
            .map(|written| written.at.to_string())
            .as_deref(),
        Some("p.toml:4")
    );
    let [students, all] = rules.rules.as_slice() else {
        panic!("{:?}", rules.rules)
    };
    assert_eq!(students.at.to_string(), "p.toml:7");
    let groups = ["students", "guest*"].map(|text| Pattern(text.to_owned()));
    assert_eq!(students.matching.group.as_deref(), Some(&groups[..]));
    let gpu = students.gpu.as_ref().expect("a list");
    assert_eq!(gpu.value, [GpuName::Index(0), GpuName::Uuid("gpu-1a2b".into())]);
    assert_eq!(gpu.text, "[0, \"GPU-1a2b\"]");
    assert!(students.is_strict && students.preset.as_deref() == Some("small"));
    assert_eq!(students.max.gpus.as_ref().map(|written| written.value), Some(1));
    assert_eq!(all.max.compute_promise.as_ref().map(|written| written.value), Some(0));
    assert!(rules.warnings().is_empty(), "{:?}", rules.warnings());
    let lines = rules.lines(None);
    assert_eq!(
        lines[2],
        "rule students (p.toml:7): user *, group students or guest*; class small per user; classes \
         [\"small\", \"batch\"]; gpu [0, \"GPU-1a2b\"]; at most mem = 16GiB, compute_max = 80%, weight = 200, \
         priority = normal, gpus = 1; strict"
    );
}

#[test]
fn a_cap_that_hangs_on_a_program_alone_is_worth_a_warning() {
    let config =
        read("schema = 1\n[[rule]]\nname = \"a\"\nmatch = { program = \"jupyter*\" }\nmax = { mem = \"1GiB\" }\n");
    let warnings = config.expect("valid").policy.rules.warnings();
    assert!(
        matches!(warnings.as_slice(), [one] if one.contains("anybody can rename")),
        "{warnings:?}"
    );
}

/// Words of the file's language, so that random files come far.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "schema = 1\n",
        "[[rule]]\n",
        "[class.small]\n",
        "[class.\"é\"]\n",
        "name = \"a\"\n",
        "name = 7\n",
        "max = {",
        "}",
        "match = {",
        "mem = \"8GiB\"",
        "mem = \"9999999999999999999999%\"",
        ", ",
        "\n",
        "gpu = [0, \"GPU-1\", -5]\n",
        "gpus = 3",
        "weight = 99999999999",
        "user = [\"*\", \"é\"]",
        "class = \"small\"\n",
        "per = \"scope\"\n",
        "\"",
        "[",
        "]",
        "#é\n",
        "[gpu.\"*\"]\n",
        "reserve = \"1GiB\"\n",
        "[audit]\n",
        "tolerance = \"1MiB\"\n",
        "\u{0}",
        "time_limit = \"1h\"",
    ]);
    prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_input_ends_the_reader(text in prop_oneof![words(), ".{0,200}"]) {
        let _ = read(&text);
        if let Err(said) = read(&format!("schema = 1\n{text}")) {
            prop_assert!(said.starts_with("p.toml, line "), "{said}");
        }
    }
}
