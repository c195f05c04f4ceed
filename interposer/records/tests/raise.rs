// SPDX-License-Identifier: Apache-2.0
//! Raising a grant without a broker: every small case.

use partage_records::raise::{Raise, raise};

#[test]
fn a_grant_never_falls_and_a_job_stays_within_its_limit() {
    for wanted in 0..7 {
        for granted in 0..7 {
            for used in 0..7 {
                for others in 0..7 {
                    for limit in 0..10 {
                        match raise(wanted, (granted, used), others, limit) {
                            Raise::Enough => assert!(wanted <= granted),
                            Raise::To(to) => {
                                assert!(
                                    to >= wanted && to > granted && to >= used,
                                    "{wanted} {granted} {used}: {to}"
                                );
                                assert!(others + to <= limit);
                            }
                            Raise::Denied => assert!(wanted > granted && others + wanted.max(used) > limit),
                        }
                    }
                }
            }
        }
    }
}

/// Two threads ask for 3 and 2 of 4, each before either has any. Whoever comes second has worked out its question from
/// a use of nothing. Another process may have what the record leaves, and no more.
#[test]
fn an_old_question_of_a_second_thread_gives_nothing_away() {
    let Raise::To(granted) = raise(3, (0, 0), 0, 4) else {
        panic!("the first has room")
    };
    let used = 3;
    let after = match raise(2, (granted, used), 0, 4) {
        Raise::To(to) => to,
        Raise::Enough | Raise::Denied => granted,
    };
    assert!(after >= used, "the use stays on record: {after}");
    assert_eq!(raise(2, (0, 0), after, 4), Raise::Denied, "for another process");
    assert_eq!(raise(1, (0, 0), after, 4), Raise::To(1));
}

#[test]
fn sums_beyond_all_numbers_are_denied_unless_nothing_limits() {
    assert_eq!(raise(u64::MAX, (0, 0), 1, u64::MAX - 1), Raise::Denied);
    assert_eq!(raise(5, (0, 0), u64::MAX, u64::MAX), Raise::To(5));
}
