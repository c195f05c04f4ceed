// SPDX-License-Identifier: Apache-2.0
//! Terms of device time: what `run` and `set` may say, what is kept, shown and passed on, and the time limit.

use crate::host::{Host, broker_view, caller, mem, uuid};
use partage_policy::{Action, Caller, Config, JobRecord, Membership, Policy, Process, Terms};
use partage_protocol::admin::{ErrorCode, ErrorView, Reply, RunRequest, TermsView};
use partage_protocol::terms::Class;
use partage_protocol::units::{DeviceUuid, JobId};

pub fn request(settings: &[(&str, &str)]) -> RunRequest {
    let mut request = mem("");
    for (key, value) in settings {
        let place = match *key {
            "compute" => &mut request.compute,
            "compute-max" => &mut request.compute_max,
            "weight" => &mut request.weight,
            "priority" => &mut request.priority,
            "mem" => &mut request.mem,
            "gpu" => &mut request.gpu,
            name => {
                request.aliases.push((name.to_owned(), (*value).to_owned()));
                continue;
            }
        };
        *place = Some((*value).to_owned());
    }
    request
}

pub fn terms_of(host: &Host, job: JobId) -> TermsView {
    host.policy.job_view(job, &caller(1), &host.board).expect("known").terms
}

fn refusal(reply: Reply) -> ErrorView {
    match reply {
        Reply::Error(error) => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// What was last passed on about a job.
fn shown(commands: &[Action], id: JobId) -> (Vec<DeviceUuid>, partage_scheduling::Terms) {
    let shown = commands.iter().rev().find_map(|command| match command {
        Action::ShowTerms { job, devices, terms } if *job == id => Some((devices.clone(), *terms)),
        _ => None,
    });
    shown.expect("terms are passed on")
}

/// A managed host, where everybody may ask for at most this class.
fn managed(max_class: Class) -> Host {
    let mut host = Host::new(&[8]);
    host.policy = Policy::new(Config {
        is_private: false,
        max_class,
        ..Config::default()
    });
    host.enumerate();
    host.measure();
    host
}

#[test]
fn a_job_that_says_nothing_has_the_usual_terms() {
    let mut host = Host::new(&[8]);
    let (job, _) = host.admitted(1, request(&[]));
    assert_eq!(terms_of(&host, job), TermsView::default());
    assert_eq!(
        shown(&host.commands, job),
        (vec![uuid(1)], partage_scheduling::Terms::default())
    );
}

#[test]
fn what_was_said_is_kept_shown_and_passed_on() {
    let mut host = Host::new(&[8, 8]);
    let mut asked = request(&[
        ("compute", "30%"),
        ("compute-max", "50%"),
        ("weight", "300"),
        ("priority", "low"),
        ("gpu", "1,0"),
    ]);
    asked.from_variables = vec!["PARTAGE_WEIGHT".into()];
    let (job, _) = host.admitted(1, asked);
    let view = terms_of(&host, job);
    assert_eq!(
        (view.promise, view.cap, view.weight, view.priority.as_str()),
        (0.3, Some(0.5), 300, "low")
    );
    assert_eq!(
        [
            &view.promise_from,
            &view.cap_from,
            &view.weight_from,
            &view.priority_from
        ],
        [
            "--compute 30%",
            "--compute-max 50%",
            "PARTAGE_WEIGHT=300",
            "--priority low"
        ]
    );
    let (devices, terms) = shown(&host.commands, job);
    assert_eq!(devices, [uuid(2), uuid(1)]);
    assert_eq!(
        (terms.promise_ppm, terms.cap_ppm, terms.weight, terms.class),
        (300_000, Some(500_000), 300, Class::Low)
    );
    assert!(terms.is_gang, "one program on two devices");
    let record = host
        .records()
        .into_iter()
        .find(|record| record.id == job.0)
        .expect("saved");
    assert_eq!(record.terms.shown(), "promise 30 %, cap 50 %, weight 300, priority low");
    let other = host.policy.job_view(job, &caller(2), &host.board).expect("known");
    assert!(
        other.terms.cap_from.is_empty() && other.terms.cap == Some(0.5),
        "words are the owner's"
    );
    let sentences = why(&host, 1, job);
    let rule = "time: promise 30 % by --compute 30%, cap 50 % by --compute-max 50%, weight 300 by PARTAGE_WEIGHT=300, \
                priority low by --priority low";
    assert!(sentences.iter().any(|sentence| sentence == rule), "{sentences:#?}");
}

pub fn why(host: &Host, uid: u32, job: JobId) -> Vec<String> {
    let target = partage_policy::TargetQuery {
        text: job.to_string(),
        descends_from: None,
    };
    match host.policy.why(&caller(uid), &target, host.now_ns, &host.board) {
        Ok(Reply::Why(why)) => why.sentences,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mistakes_are_refused_by_name() {
    for (settings, part) in [
        (
            &[("compute", "30")][..],
            "--compute: \"30\" has no unit: did you mean 30%?",
        ),
        (&[("compute", "0.3")], "did you mean 30%?"),
        (
            &[("compute-max", "120%")],
            "--compute-max: \"120%\" is more than the whole",
        ),
        (&[("weight", "0")], "--weight: bad weight \"0\""),
        (&[("priority", "urgent")], "--priority: unknown priority \"urgent\""),
        (
            &[("compute", "60%"), ("compute-max", "50%")],
            "a promise of 60 % is more than the cap of 50 %",
        ),
        (
            &[("CUDA_DEVICE_SM_LIMIT", "fifty")],
            "CUDA_DEVICE_SM_LIMIT=fifty is no whole percentage",
        ),
    ] {
        let mut host = Host::new(&[8]);
        let (ticket, _) = host.run(1, request(settings));
        let error = host.error_of(ticket);
        assert_eq!(error.code, ErrorCode::Invalid, "{settings:?}");
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn other_tools_variables_count_where_nothing_is_said() {
    let mut host = Host::new(&[8]);
    let aliases = [("CUDA_DEVICE_SM_LIMIT", "40"), ("CUDA_TASK_PRIORITY", "2")];
    let (job, _) = host.admitted(1, request(&aliases));
    let view = terms_of(&host, job);
    assert_eq!((view.cap, view.priority.as_str()), (Some(0.4), "low"));
    assert_eq!(view.cap_from, "CUDA_DEVICE_SM_LIMIT=40");
    let mut both = aliases.to_vec();
    both.push(("compute", "30%"));
    let (job, _) = host.admitted(1, request(&both));
    assert_eq!(
        terms_of(&host, job).cap,
        None,
        "an option about time switches the cap off"
    );
    assert_eq!(terms_of(&host, job).priority, "low");
    both.push(("priority", "high"));
    let (job, _) = host.admitted(1, request(&both));
    assert_eq!(terms_of(&host, job).priority, "high");
}

#[test]
fn a_default_job_is_only_lowered_by_its_environment() {
    let mut host = Host::new(&[8]);
    let mut attach = |variables: &[(&str, &str)], pid| {
        let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let membership = Membership {
            scope: "login".into(),
            environment: environment.collect(),
            ..Membership::default()
        };
        let process = Process { pid, start: 1 };
        let client = host.attach_as(process, 1, membership).expect("welcomed");
        let job = host.programs[&client].job;
        let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
        (job, view.terms, view.notes, view.devices[0].limit_bytes)
    };
    let (first, terms, _, _) = attach(&[], 10);
    assert_eq!(terms, TermsView::default());
    let (capped, terms, notes, limit) = attach(&[("CUDA_DEVICE_SM_LIMIT", "50"), ("CUDA_TASK_PRIORITY", "2")], 11);
    assert_ne!(
        capped, first,
        "who asks for something else has a default job of its own"
    );
    assert_eq!((terms.cap, terms.priority.as_str(), limit), (Some(0.5), "low", None));
    assert!(notes.is_empty());
    let (again, ..) = attach(&[("CUDA_DEVICE_SM_LIMIT", "50"), ("CUDA_TASK_PRIORITY", "2")], 12);
    assert_eq!(again, capped);
    let (_, terms, _, _) = attach(&[("CUDA_TASK_PRIORITY", "0")], 13);
    assert_eq!(terms.priority, "normal", "an environment raises nothing");
    let (_, terms, notes, _) = attach(&[("CUDA_DEVICE_SM_LIMIT", "x")], 14);
    assert_eq!(terms.cap, Some(0.01), "what cannot be read is never no cap");
    assert!(
        notes[0].contains("CUDA_DEVICE_SM_LIMIT=x") && notes[0].contains("1 %"),
        "{notes:?}"
    );
}

#[test]
fn a_promise_that_does_not_fit_waits_and_names_the_holders() {
    let mut host = Host::new(&[8]);
    let (holder, first) = host.admitted(1, request(&[("compute", "60%")]));
    let (fits, _) = host.admitted(1, request(&[("gpu", "0")]));
    assert_eq!(terms_of(&host, fits).promise, 0.0, "who asks for no promise needs none");
    let mut at_once = request(&[("compute", "41%")]);
    at_once.wait = false;
    let (refused, _) = host.run(1, at_once);
    let error = host.error_of(refused);
    assert_eq!((error.code, error.holders.len()), (ErrorCode::NoRoom, 1));
    let (ticket, _) = host.run(2, request(&[("compute", "50%")]));
    assert!(host.is_waiting(ticket));
    let Some(Reply::Waiting(waiting)) = host.replies[&ticket].last().cloned() else {
        panic!("it hears what it waits for")
    };
    assert_eq!(
        waiting.reason,
        "needs 50 % of the time on one device: GPU 0 has 40 % of its time left to promise"
    );
    let holders: Vec<(String, u64, Option<f64>)> = waiting
        .holders
        .into_iter()
        .map(|holder| (holder.who, holder.bytes, holder.compute))
        .collect();
    assert_eq!(holders, [(holder.to_string(), 0, Some(0.6))]);
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.queue[0].compute.as_deref(), Some("50%"));
    assert_eq!(status.devices[0].promised_time, 0.6);
    host.finish(holder, first);
    assert!(host.job_of(ticket).is_some(), "it starts when the promise is free");
}

#[test]
fn memory_and_time_are_both_looked_at() {
    let mut host = Host::new(&[8, 8]);
    host.admitted(1, request(&[("mem", "6GiB"), ("gpu", "0")]));
    host.admitted(1, request(&[("compute", "80%"), ("gpu", "1")]));
    let (ticket, _) = host.run(1, request(&[("mem", "4GiB"), ("compute", "30%")]));
    let Some(Reply::Waiting(waiting)) = host.replies[&ticket].last().cloned() else {
        panic!("neither device has both")
    };
    assert_eq!(
        waiting.reason,
        "needs 4 GiB and 30 % of the time on one device: GPU 0 has 2 GiB of 8 GiB left, GPU 1 has 20 % of its time \
         left to promise"
    );
    assert_eq!(waiting.holders.len(), 2);
}

#[test]
fn placement_takes_the_device_with_the_least_promised_of_either() {
    let mut host = Host::new(&[8, 8, 8]);
    host.admitted(1, request(&[("compute", "50%"), ("gpu", "0")]));
    host.admitted(1, request(&[("mem", "2GiB"), ("gpu", "1")]));
    host.admitted(1, request(&[("mem", "2GiB"), ("compute", "25%"), ("gpu", "2")]));
    let (ticket, _) = host.run(1, request(&[("compute", "10%")]));
    assert_eq!(
        host.devices_of(ticket),
        [1],
        "25 % of one thing is less than 25 % of both or 50 % of one"
    );
}

#[test]
fn time_is_overcommitted_only_where_it_is_configured_and_that_is_said() {
    let mut host = Host::new(&[8]);
    host.policy = Policy::new(Config {
        compute_overcommit_millionths: 1_500_000,
        ..Config::default()
    });
    host.promisable_time = 1.5;
    host.enumerate();
    host.measure();
    host.admitted(1, request(&[("compute", "80%")]));
    let (second, _) = host.admitted(1, request(&[("compute", "70%")]));
    let (ticket, _) = host.run(1, request(&[("compute", "1%")]));
    assert!(host.is_waiting(ticket));
    let note = "promises on GPU 0 add up to 150 % of its time: each is worth its proportion";
    let status = host.policy.status(broker_view(), host.now_ns, &host.board);
    assert_eq!(status.devices[0].notes, [note]);
    assert!(why(&host, 1, second).contains(&note.to_owned()));
}

#[test]
fn set_changes_terms_live_and_passes_them_on() {
    let mut host = Host::new(&[8]);
    let (job, _) = host.admitted(1, request(&[("compute", "30%"), ("mem", "2GiB")]));
    let target = job.to_string();
    let reply = host.set_terms(
        caller(1),
        &target,
        &[("compute", "40%"), ("compute-max", "80%"), ("weight", "50")],
    );
    let Reply::Job(view) = reply else { panic!("{reply:?}") };
    assert_eq!(
        (view.terms.promise, view.terms.cap, view.terms.weight),
        (0.4, Some(0.8), 50)
    );
    assert_eq!(view.terms.promise_from, "partage set compute=40% by alice");
    assert_eq!(view.devices[0].limit_bytes, Some(2 << 30), "memory stays");
    let (_, terms) = shown(&host.commands, job);
    assert_eq!(
        (terms.promise_ppm, terms.cap_ppm, terms.weight),
        (400_000, Some(800_000), 50)
    );
    let saved = host.records()[0].terms.clone();
    assert_eq!(
        (saved.promise_ppm, saved.cap_ppm, saved.weight, saved.class),
        (terms.promise_ppm, terms.cap_ppm, terms.weight, terms.class),
        "the next broker knows"
    );
    host.set_terms(
        caller(1),
        &target,
        &[("compute", "none"), ("compute-max", "none"), ("priority", "low")],
    );
    let (_, terms) = shown(&host.commands, job);
    assert_eq!((terms.promise_ppm, terms.cap_ppm, terms.class), (0, None, Class::Low));
    let event = host.commands.iter().rev().find_map(|command| match command {
        Action::Publish { kind, text, .. } if *kind == "terms-changed" => Some(text.clone()),
        _ => None,
    });
    assert_eq!(event.as_deref(), Some("j1 has weight 50, priority low now"));
}

#[test]
fn a_raised_promise_that_does_not_fit_is_refused_with_the_numbers_and_changes_nothing() {
    let mut host = Host::new(&[8]);
    let (job, _) = host.admitted(1, request(&[("compute", "30%"), ("mem", "2GiB")]));
    let (other, _) = host.admitted(2, request(&[("compute", "50%")]));
    let error = refusal(host.set_terms(caller(1), "j1", &[("compute", "60%"), ("mem", "4GiB"), ("weight", "7")]));
    assert_eq!(error.code, ErrorCode::NoRoom);
    assert_eq!(
        error.message,
        "60 % cannot be promised to j1: GPU 0 has 50 % of its time left for it"
    );
    let holders: Vec<(String, Option<f64>)> = error.holders.into_iter().map(|h| (h.who, h.compute)).collect();
    assert_eq!(holders, [(other.to_string(), Some(0.5))]);
    let view = host.policy.job_view(job, &caller(1), &host.board).expect("known");
    assert_eq!((view.terms.promise, view.terms.weight), (0.3, 100));
    assert_eq!(view.devices[0].limit_bytes, Some(2 << 30), "all or nothing");
    assert_eq!(
        refusal(host.set_terms(caller(1), "j1", &[("compute-max", "20%")])).message,
        "a promise of 30 % is more than the cap of 20 %"
    );
    // And the other way round: memory that does not fit leaves the terms alone.
    refusal(host.set_terms(caller(1), "j1", &[("compute", "40%"), ("mem", "100GiB")]));
    assert_eq!(terms_of(&host, job).promise, 0.3);
    assert!(matches!(
        host.set_terms(caller(1), "j1", &[("compute", "50%")]),
        Reply::Job(_)
    ));
    assert_eq!(refusal(host.set_terms(caller(1), "j1", &[])).code, ErrorCode::Invalid);
}

#[test]
fn a_waiting_job_can_ask_for_less() {
    let mut host = Host::new(&[8]);
    host.admitted(1, request(&[("compute", "60%")]));
    let (ticket, _) = host.run(1, request(&[("compute", "50%")]));
    assert!(host.is_waiting(ticket));
    assert!(matches!(
        host.set_terms(caller(1), "j2", &[("compute", "40%")]),
        Reply::Job(_)
    ));
    let job = host.job_of(ticket).expect("it fits now");
    assert_eq!(shown(&host.commands, job).1.promise_ppm, 400_000);
}

#[test]
fn on_a_managed_host_a_rule_says_which_class_a_user_may_have() {
    for max_class in Class::ALL {
        let mut host = managed(max_class);
        for class in Class::ALL {
            let (ticket, _) = host.run(1, request(&[("priority", class.word())]));
            if class <= max_class {
                assert!(host.job_of(ticket).is_some(), "{class} under {max_class}");
                continue;
            }
            let error = host.error_of(ticket);
            assert_eq!(error.code, ErrorCode::NotAllowed);
            assert_eq!(
                error.message,
                format!("--priority {class} is not allowed here: the rule [time] max_class = \"{max_class}\" holds")
            );
            let (by_root, _) = host.run(0, request(&[("priority", class.word())]));
            assert!(host.job_of(by_root).is_some(), "administrators may");
        }
        let (job, _) = host.admitted(1, request(&[("priority", "low")]));
        let target = job.to_string();
        for class in Class::ALL {
            let reply = host.set_terms(caller(1), &target, &[("priority", class.word())]);
            assert_eq!(
                matches!(reply, Reply::Job(_)),
                class <= max_class,
                "{class} under {max_class}"
            );
        }
    }
    let mut host = managed(Class::Normal);
    let (lowered, _) = host.admitted(1, request(&[("CUDA_TASK_PRIORITY", "0")]));
    let terms = host
        .policy
        .job_view(lowered, &caller(0), &host.board)
        .expect("known")
        .terms;
    assert_eq!(
        (terms.priority.as_str(), terms.priority_from.as_str()),
        (
            "normal",
            "rule [time] max_class = \"normal\", below CUDA_TASK_PRIORITY=0"
        ),
        "another tool's number is lowered"
    );
    let (job, _) = host.admitted(1, request(&[]));
    let root = Caller { uid: 0, ..caller(0) };
    host.set_terms(root, &job.to_string(), &[("priority", "high")]);
    let reply = host.set_terms(caller(1), &job.to_string(), &[("weight", "200")]);
    assert!(
        matches!(reply, Reply::Job(_)),
        "what an administrator gave stays, and the rest may change: {reply:?}"
    );
}

#[test]
fn terms_survive_the_broker_and_old_records_still_load() {
    let mut host = Host::new(&[8]);
    let settings = [
        ("compute", "30%"),
        ("compute-max", "50%"),
        ("weight", "300"),
        ("priority", "high"),
    ];
    let (job, first) = host.admitted(1, request(&settings));
    host.attach(job, first);
    let (_, before) = shown(&host.commands, job);
    let records = host.records();
    host.commands.clear();
    host.restart(records.clone());
    assert_eq!(shown(&host.commands, job), (vec![uuid(1)], before));
    host.measure();
    let (ticket, _) = host.run(1, request(&[("compute", "71%")]));
    assert!(host.is_waiting(ticket), "what was promised before stays promised");
    // As a broker wrote it that knew no terms.
    let mut old = serde_json::to_value(&records[0]).expect("a record");
    old.as_object_mut().expect("an object").remove("terms");
    let read: JobRecord = serde_json::from_value(old).expect("still read");
    assert_eq!(read.terms, Terms::default());
}
