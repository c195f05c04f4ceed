// SPDX-License-Identifier: Apache-2.0
//! Rules where jobs meet them: `run`, default jobs, `partage set`, a reload, and the next broker.

use crate::host::{Host, caller, mem};
use partage_policy::{
    Action, At, Change, Config, Event, Match, Max, Membership, Pattern, Policy, Preset, Rule, Rules, TargetQuery,
    Ticket, Written,
};
use partage_protocol::admin::{ErrorCode, ErrorView, JobView, Reply, RunRequest, TermsChange};
use partage_protocol::size::Amount;
use partage_protocol::units::{ClientId, GIB, JobId, SECOND_NS};

pub fn written<T>(value: T, text: &str, line: usize) -> Written<T> {
    let file = "/etc/partage/partage.toml".to_owned();
    Written {
        value,
        text: text.into(),
        at: At { file, line },
    }
}

pub fn gib(gib: u64) -> Written<Amount> {
    written(Amount::Bytes(gib * GIB), &format!("{gib}GiB"), 12)
}

/// At most that much memory for this user, or for everybody.
pub fn at_most(gib_each: u64, user: Option<&str>) -> Rules {
    let user = user.map(|user| vec![Pattern(user.into())]);
    Rules {
        rules: vec![Rule {
            name: "students".into(),
            matching: Match {
                user,
                ..Match::default()
            },
            max: Max {
                mem: Some(gib(gib_each)),
                ..Max::default()
            },
            ..Rule::default()
        }],
        ..Rules::default()
    }
}

fn with_small(mut rules: Rules, is_default: bool) -> Rules {
    let small = Preset {
        name: "small".into(),
        mem: Some(gib(4)),
        mem_request: Some(gib(1)),
        weight: Some(written(50, "50", 4)),
        ..Preset::default()
    };
    rules.presets.insert("small".into(), small);
    if let Some(rule) = rules.rules.first_mut().filter(|_| is_default) {
        rule.preset = Some("small".into());
    }
    rules
}

pub fn host(rules: Rules) -> Host {
    let mut host = Host::new(&[16]);
    host.policy = Policy::new(Config {
        is_private: false,
        rules,
        ..Config::default()
    });
    host.enumerate();
    host.measure();
    host
}

/// The user database answers about a user.
fn known(host: &mut Host, uid: u32, user: &str, groups: &[&str]) {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = user.to_owned();
    host.step(Event::UserKnown { uid, user, groups });
}

pub fn reload(host: &mut Host, rules: Rules) {
    host.step(Event::Rules(Box::new(new_rules(rules))));
}

pub fn new_rules(rules: Rules) -> Config {
    Config {
        rules,
        ..Config::default()
    }
}

pub fn view(host: &Host, job: JobId) -> JobView {
    host.policy.job_view(job, &caller(0), &host.board).expect("known")
}

fn limit(host: &Host, job: JobId) -> Option<u64> {
    view(host, job).devices[0].limit_bytes.map(|bytes| bytes / GIB)
}

fn promise(host: &Host, job: JobId) -> u64 {
    view(host, job).devices[0].request_bytes / GIB
}

pub fn set(host: &mut Host, uid: u32, job: JobId, change: Change) -> Result<JobView, ErrorView> {
    let ticket = Ticket(host.fresh());
    let event = Event::Set {
        ticket,
        caller: caller(uid),
        target: TargetQuery {
            text: job.to_string(),
            descends_from: None,
        },
        change: Box::new(change),
    };
    host.step(event);
    let answered = host.replies.get(&ticket).and_then(|said| said.last().cloned());
    match answered {
        Some(Reply::Job(view)) => Ok(view),
        Some(Reply::Error(error)) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub fn to_mem(mem: &str, is_forced: bool) -> Change {
    Change {
        mem: Some(mem.into()),
        is_forced,
        ..Change::default()
    }
}

pub fn by_variable(value: &str) -> RunRequest {
    RunRequest {
        mem_from: Some("PARTAGE_MEM".into()),
        ..mem(value)
    }
}

#[test]
fn an_option_above_a_rule_is_refused_with_its_place_and_anything_else_is_lowered() {
    let mut host = host(at_most(2, Some("alice")));
    let (ticket, _) = host.run(1, mem("8GiB"));
    let error = host.error_of(ticket);
    assert_eq!(error.code, ErrorCode::NotAllowed);
    assert_eq!(
        error.message,
        "--mem 8GiB is not allowed here: the rule students, max.mem = 2GiB (/etc/partage/partage.toml:12) holds"
    );
    let (job, _) = host.admitted(1, by_variable("8GiB"));
    assert_eq!((limit(&host, job), promise(&host, job)), (Some(2), 2));
    assert_eq!(
        view(&host, job).devices[0].limit_from,
        "rule students, max.mem = 2GiB (/etc/partage/partage.toml:12), below PARTAGE_MEM=8GiB"
    );
    let (job, _) = host.admitted(1, mem(""));
    assert_eq!(
        (limit(&host, job), promise(&host, job)),
        (Some(2), 0),
        "nothing asked: the most is the limit"
    );
    let alias = RunRequest {
        aliases: vec![("CUDA_DEVICE_MEMORY_LIMIT".into(), "8g".into())],
        ..mem("")
    };
    let (job, _) = host.admitted(1, alias);
    assert_eq!(limit(&host, job), Some(2), "another tool's number");
    let (job, _) = host.admitted(2, mem("8GiB"));
    assert_eq!(limit(&host, job), Some(8), "a user whom no rule is about");
}

#[test]
fn a_class_is_a_start_and_the_first_rule_gives_it_to_jobs_that_name_none() {
    let mut host = host(with_small(at_most(8, None), true));
    let (job, _) = host.admitted(1, mem(""));
    assert_eq!((limit(&host, job), promise(&host, job)), (Some(4), 1));
    assert_eq!(view(&host, job).terms.weight, 50);
    assert_eq!(
        view(&host, job).devices[0].limit_from,
        "class small, mem = 4GiB (/etc/partage/partage.toml:12)"
    );
    let (job, _) = host.admitted(1, mem("6GiB"));
    assert_eq!(
        (limit(&host, job), promise(&host, job)),
        (Some(6), 1),
        "an option comes before the class"
    );
    let named = RunRequest {
        class: Some("smal".into()),
        ..mem("")
    };
    let (ticket, _) = host.run(1, named);
    assert_eq!(host.error_of(ticket).code, ErrorCode::Invalid);
    assert_eq!(host.error_of(ticket).hint.as_deref(), Some("there are: small"));
}

#[test]
fn a_default_job_has_the_class_and_the_most_and_no_promise_whatever_its_environment() {
    let mut host = host(with_small(at_most(2, None), true));
    for variables in [
        vec![],
        vec![("CUDA_DEVICE_MEMORY_LIMIT", "8g")],
        vec![("CUDA_DEVICE_MEMORY_LIMIT", "1g")],
    ] {
        let number = host.fresh();
        let process = partage_policy::Process {
            pid: number as u32,
            start: number,
        };
        let membership = Membership {
            scope: "s".into(),
            environment: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Membership::default()
        };
        let client = host.attach_as(process, 1, membership).expect("welcomed");
        let job = host.programs[&client].job;
        let expected = if variables.iter().any(|(_, value)| *value == "1g") {
            1
        } else {
            2
        };
        assert_eq!(
            (limit(&host, job), promise(&host, job)),
            (Some(expected), 0),
            "{variables:?}"
        );
    }
}

#[test]
fn processes_about_which_other_rules_are_share_no_default_job() {
    let mut rules = at_most(2, None);
    rules.rules[0].matching.program = Some(vec![Pattern("jupyter*".into())]);
    let mut host = host(rules);
    let mut attach = |program: &str| {
        let number = host.fresh();
        let process = partage_policy::Process {
            pid: number as u32,
            start: number,
        };
        let membership = Membership {
            scope: "s".into(),
            program: program.into(),
            ..Membership::default()
        };
        let client: ClientId = host.attach_as(process, 1, membership).expect("welcomed");
        host.programs[&client].job
    };
    let (first, second, third) = (attach("python3"), attach("jupyter-lab"), attach("python3"));
    assert!(first == third && first != second);
    assert_eq!((limit(&host, first), limit(&host, second)), (None, Some(2)));
}

#[test]
fn set_above_a_rule_is_refused_and_an_administrator_forces_until_the_job_ends() {
    let mut host = host(at_most(2, None));
    let (job, _) = host.admitted(1, mem("1GiB"));
    for mem in ["8GiB", "none"] {
        let error = set(&mut host, 1, job, to_mem(mem, false)).expect_err("above the rule");
        assert_eq!(error.code, ErrorCode::NotAllowed, "{error:?}");
        assert!(
            error.message.contains("max.mem = 2GiB (/etc/partage/partage.toml:12)"),
            "{error:?}"
        );
    }
    assert_eq!(
        set(&mut host, 1, job, to_mem("8GiB", true))
            .expect_err("not an administrator")
            .code,
        ErrorCode::NotAllowed
    );
    assert_eq!(
        set(&mut host, 0, job, to_mem("8GiB", false))
            .expect_err("not forced")
            .code,
        ErrorCode::NotAllowed
    );
    assert_eq!(limit(&host, job), Some(1), "nothing changed");
    set(&mut host, 1, job, to_mem("2GiB", false)).expect("within the rule");
    set(&mut host, 0, job, to_mem("8GiB", true)).expect("forced");
    assert_eq!(limit(&host, job), Some(8));
    let shown = view(&host, job);
    assert!(
        shown
            .notes
            .iter()
            .any(|note| note.contains("partage set mem=8GiB --force by root")),
        "{:?}",
        shown.notes
    );
    assert!(
        shown.devices[0].limit_from.contains("beyond rule students"),
        "{}",
        shown.devices[0].limit_from
    );
    reload(&mut host, at_most(3, None));
    assert_eq!(limit(&host, job), Some(8), "it holds until the job ends");
    let weight = Change {
        terms: TermsChange {
            weight: Some("200".into()),
            ..TermsChange::default()
        },
        ..Change::default()
    };
    set(&mut host, 1, job, weight).expect("the rest may change");
}

#[test]
fn a_reload_lowers_and_gives_back_what_was_asked_and_ends_nothing() {
    let mut host = host(Rules::default());
    let (job, process) = host.admitted(1, mem("8GiB"));
    let client = host.attach(job, process);
    assert!(host.allocate(client, 0, 6 * GIB));
    reload(&mut host, at_most(2, None));
    assert_eq!((limit(&host, job), promise(&host, job)), (Some(2), 2));
    assert_eq!(view(&host, job).state, "over limit", "nothing is killed");
    assert!(!host.allocate(client, 0, GIB), "and nothing grows");
    reload(&mut host, at_most(7, None));
    assert_eq!(limit(&host, job), Some(7));
    reload(&mut host, Rules::default());
    assert_eq!((limit(&host, job), promise(&host, job)), (Some(8), 8));
    assert_eq!(view(&host, job).devices[0].limit_from, "--mem 8GiB");
    assert!(host.allocate(client, 0, GIB));
}

#[test]
fn jobs_are_judged_anew_when_the_user_database_has_said_who_their_user_is() {
    let mut rules = at_most(2, None);
    rules.rules[0].matching.group = Some(vec![Pattern("students".into())]);
    let mut host = host(rules);
    let (job, _) = host.admitted(7, mem("8GiB"));
    let (other, _) = host.admitted(1, mem("6GiB"));
    let (option, _) = host.run(7, mem("4GiB"));
    let (variable, _) = host.run(7, by_variable("4GiB"));
    assert!(host.is_waiting(option) && host.is_waiting(variable));
    assert_eq!(view(&host, job).user, "7", "until then the number");
    known(&mut host, 7, "carol", &["students", "1001"]);
    assert_eq!(view(&host, job).user, "carol");
    assert_eq!((limit(&host, job), promise(&host, job)), (Some(2), 2));
    assert_eq!(limit(&host, other), Some(6), "another user's");
    assert_eq!(host.error_of(option).code, ErrorCode::NotAllowed, "as if it asked now");
    let second = host.job_of(variable).expect("lowered, and so there is room");
    assert_eq!(limit(&host, second), Some(2));
    let saved = |host: &Host| {
        let is_saved = |action: &Action| matches!(action, Action::SaveJob(record) if record.user == "carol");
        host.commands.iter().filter(|command| is_saved(command)).count()
    };
    let before = saved(&host);
    assert!(before > 0, "for the next broker");
    known(&mut host, 7, "carol", &["students"]);
    known(&mut host, 7, "7", &[]);
    assert_eq!(
        (saved(&host), limit(&host, job)),
        (before, Some(2)),
        "no news, and nothing taken away"
    );
    assert_eq!(view(&host, job).user, "carol");
}

#[test]
fn a_promise_is_given_back_only_where_there_is_room() {
    let mut host = host(at_most(4, Some("alice")));
    let (job, _) = host.admitted(1, by_variable("12GiB"));
    host.admitted(2, mem("10GiB"));
    reload(&mut host, Rules::default());
    assert_eq!(
        (limit(&host, job), promise(&host, job)),
        (Some(12), 4),
        "10 of 16 GiB are another's"
    );
}

#[test]
fn a_waiting_job_is_judged_as_if_it_asked_now() {
    let mut host = host(Rules::default());
    host.admitted(2, mem("12GiB"));
    let (option, _) = host.run(1, mem("8GiB"));
    let (variable, _) = host.run(1, by_variable("8GiB"));
    assert!(host.is_waiting(option) && host.is_waiting(variable));
    reload(&mut host, at_most(2, Some("alice")));
    assert_eq!(host.error_of(option).code, ErrorCode::NotAllowed);
    let job = host.job_of(variable).expect("lowered, and so there is room");
    assert_eq!(limit(&host, job), Some(2));
}

#[test]
fn a_time_limit_that_would_be_over_ends_no_job() {
    let mut host = host(Rules::default());
    let (job, _) = host.admitted(1, mem("1GiB"));
    host.pass(100 * SECOND_NS);
    let mut rules = Rules::default();
    let limit = |seconds: u64| written(seconds * SECOND_NS, "10s", 3);
    rules.rules.push(Rule {
        name: "short".into(),
        max: Max {
            time_limit: Some(limit(10)),
            ..Max::default()
        },
        ..Rule::default()
    });
    reload(&mut host, rules.clone());
    host.pass(30 * SECOND_NS);
    assert_eq!(view(&host, job).state, "running");
    rules.rules[0].max.time_limit = Some(limit(3_600));
    reload(&mut host, rules);
    assert_eq!(view(&host, job).terms.time_limit_ns, Some(3_600 * SECOND_NS));
}

#[test]
fn a_default_job_ends_when_the_time_limit_of_its_rules_is_over() {
    let mut rules = Rules::default();
    rules.rules.push(Rule {
        name: "short".into(),
        max: Max {
            time_limit: Some(written(10 * SECOND_NS, "10s", 3)),
            ..Max::default()
        },
        ..Rule::default()
    });
    let mut host = host(rules);
    let membership = Membership {
        scope: "s".into(),
        ..Membership::default()
    };
    let process = partage_policy::Process { pid: 77, start: 77 };
    host.attach_as(process, 1, membership).expect("welcomed");
    let signals = |host: &Host| {
        let is_signal = |action: &Action| matches!(action, Action::SignalJob { .. });
        host.commands.iter().filter(|command| is_signal(command)).count()
    };
    host.pass(9 * SECOND_NS);
    assert_eq!(signals(&host), 0);
    host.pass(SECOND_NS);
    assert_eq!(signals(&host), 1, "SIGTERM");
}

#[test]
fn a_promise_above_its_own_cap_lets_no_other_number_escape_a_reload() {
    let ruled = |max: Max| Rules {
        rules: vec![Rule {
            name: "all".into(),
            max,
            ..Rule::default()
        }],
        ..Rules::default()
    };
    let cap = |ppm, text| Some(written(ppm, text, 3));
    let mut host = host(ruled(Max {
        compute_max: cap(300_000, "30%"),
        ..Max::default()
    }));
    let asked = RunRequest {
        compute: Some("50%".into()),
        compute_max: Some("40%".into()),
        from_variables: vec!["PARTAGE_COMPUTE".into(), "PARTAGE_COMPUTE_MAX".into()],
        ..mem("1GiB")
    };
    let (job, _) = host.admitted(1, asked);
    let loose = Max {
        compute_max: cap(600_000, "60%"),
        weight: Some(written(7, "7", 4)),
        ..Max::default()
    };
    reload(&mut host, ruled(loose));
    let terms = view(&host, job).terms;
    assert_eq!((terms.weight, terms.cap, terms.promise), (7, Some(0.4), 0.3));
}

#[test]
fn the_next_broker_judges_by_its_own_rules_and_by_what_was_asked() {
    let mut host = host(at_most(4, None));
    let (job, process) = host.admitted(1, by_variable("8GiB"));
    host.attach(job, process);
    let records = host.records();
    assert_eq!(limit(&host, job), Some(4));
    host.restart(records);
    assert_eq!(
        limit(&host, job),
        Some(8),
        "this broker has no rules: what was asked holds"
    );
}
