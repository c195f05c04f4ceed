// SPDX-License-Identifier: Apache-2.0
//! Which of a job's numbers a set, a reload or a rule at its beginning changes: what the audit log is made of.

use crate::host::{Host, mem};
use crate::process_limits::set_one;
use crate::rules_in_use::{at_most, by_variable, host, reload, set, to_mem};
use partage_policy::{Action, Change, JobRecord, Rules};
use partage_protocol::admin::TermsChange;
use partage_protocol::units::JobId;

/// Number, old and new of each change between two records.
fn differ(old: Option<&JobRecord>, new: &JobRecord) -> Vec<(String, String, String)> {
    let changes = partage_policy::changed_numbers(old, new).into_iter();
    changes.map(|change| (change.number, change.old, change.new)).collect()
}

/// A job's record as last saved, and the one before.
fn records(host: &Host, job: JobId) -> Vec<JobRecord> {
    let saved = host.commands.iter().filter_map(|command| match command {
        Action::SaveJob(record) if record.id == job.0 => Some((**record).clone()),
        _ => None,
    });
    saved.collect()
}

#[test]
fn each_number_that_a_set_or_a_reload_changes_is_told_with_what_set_it() {
    let mut host = host(Rules::default());
    let (job, _) = host.admitted(1, mem("8GiB"));
    let first = records(&host, job).pop().expect("saved");
    assert_eq!(differ(None, &first), [], "it got what it asked for");
    let change = Change {
        terms: TermsChange {
            weight: Some("200".into()),
            compute: Some("30%".into()),
            priority: Some("low".into()),
            ..TermsChange::default()
        },
        ..to_mem("4GiB", false)
    };
    set(&mut host, 1, job, change).expect("set");
    let second = records(&host, job).pop().expect("saved");
    let said = |number: &str, old: &str, new: &str| (number.to_owned(), old.to_owned(), new.to_owned());
    let expected = [
        said("compute", "none", "30 %"),
        said("weight", "100", "200"),
        said("priority", "normal", "low"),
        said("mem", "8 GiB", "4 GiB"),
        said("mem-request", "8 GiB", "4 GiB"),
    ];
    assert_eq!(differ(Some(&first), &second), expected);
    let words = partage_policy::changed_numbers(Some(&first), &second);
    assert!(words[3].words.contains("partage set mem=4GiB by alice"), "{words:?}");
    reload(&mut host, at_most(2, None));
    let third = records(&host, job).pop().expect("saved");
    assert_eq!(
        differ(Some(&second), &third),
        [said("mem", "4 GiB", "2 GiB"), said("mem-request", "4 GiB", "2 GiB")]
    );
    let words = partage_policy::changed_numbers(Some(&second), &third);
    assert!(
        words[0].words.contains("max.mem = 2GiB (/etc/partage/partage.toml:12)"),
        "{words:?}"
    );
    assert_eq!(differ(Some(&third), &third), []);
    let (lowered, _) = host.admitted(1, by_variable("8GiB"));
    let begun = records(&host, lowered).pop().expect("saved");
    assert_eq!(
        differ(None, &begun),
        [said("mem", "8 GiB", "2 GiB")],
        "lowered at the door"
    );
}

#[test]
fn limits_of_processes_are_told_too() {
    let mut host = host(Rules::default());
    let (job, first) = host.admitted(1, mem("8GiB"));
    host.attach(job, first);
    let before = records(&host, job).pop().expect("saved");
    let change = Change {
        process_mem: Some("4GiB".into()),
        ..Change::default()
    };
    set(&mut host, 1, job, change).expect("set");
    let second = records(&host, job).pop().expect("saved");
    let said = |number: &str, old: &str, new: &str| (number.to_owned(), old.to_owned(), new.to_owned());
    assert_eq!(differ(Some(&before), &second), [said("process-mem", "none", "4 GiB")]);
    set_one(&mut host, 1, first, "2GiB").expect("set");
    let third = records(&host, job).pop().expect("saved");
    let number = format!("process:{} mem", first.pid);
    assert_eq!(differ(Some(&second), &third), [said(&number, "4 GiB", "2 GiB")]);
    let words = partage_policy::changed_numbers(Some(&second), &third);
    assert!(words[0].words.contains("mem=2GiB"), "{words:?}");
    assert_eq!(differ(Some(&third), &third), []);
}
