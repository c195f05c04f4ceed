// SPDX-License-Identifier: Apache-2.0
//! Every sequence of up to eight steps of a process that is refused and granted memory, against its whole history.

use partage_records::refusals::Refusals;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The broker denied, room was made, and the program saw nothing of it.
    Hidden,
    Refused,
    Granted,
}

const STEPS: [Step; 3] = [Step::Hidden, Step::Refused, Step::Granted];
const LONGEST: u32 = 8;

/// What is told of a history: the steps at which a line is said, what each grant recovers, and what the end says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    said: Vec<usize>,
    recovered: Vec<u32>,
    at_exit: bool,
}

fn told(steps: &[Step]) -> Told {
    let (mut at, mut told) = (Refusals::default(), Told::default());
    for (step, what) in steps.iter().enumerate() {
        // What is kept between two calls is the word alone.
        let now = Refusals::of(at.word());
        at = match what {
            Step::Hidden => now.answered(),
            Step::Refused => {
                let (next, is_said) = now.answered().refused();
                told.said.extend(is_said.then_some(step));
                next
            }
            Step::Granted => {
                let (next, recovered) = now.granted();
                told.recovered.push(recovered);
                next
            }
        };
    }
    told.at_exit = at.is_pending();
    told
}

/// The same from the rule: what lies between two grants is one attempt.
fn expected(steps: &[Step]) -> Told {
    let mut told = Told::default();
    let refused = |attempt: &[Step]| attempt.iter().filter(|step| **step == Step::Refused).count();
    let mut start = 0;
    let attempts: Vec<&[Step]> = steps.split(|step| *step == Step::Granted).collect();
    for (index, attempt) in attempts.iter().enumerate() {
        let places = (0..attempt.len()).filter(|place| attempt[*place] == Step::Refused);
        told.said.extend(places.skip(1).map(|place| start + place));
        start += attempt.len() + 1;
        if index + 1 < attempts.len() {
            let answers = u32::try_from(attempt.len()).expect("few");
            told.recovered.push(if refused(attempt) < 2 { answers } else { 0 });
        } else {
            told.at_exit = refused(attempt) == 1;
        }
    }
    told
}

#[test]
fn every_short_sequence_is_told_as_the_rule_says() {
    let mut count = 0;
    for length in 0..=LONGEST {
        for number in 0..3_usize.pow(length) {
            let steps: Vec<Step> = (0..length)
                .map(|place| STEPS[number / 3_usize.pow(place) % 3])
                .collect();
            assert_eq!(told(&steps), expected(&steps), "{steps:?}");
            count += 1;
        }
    }
    assert_eq!(count, 9841);
}

#[test]
fn nothing_open_is_zero_and_a_count_that_is_full_stays() {
    assert_eq!(Refusals::default().word(), 0);
    assert_eq!(Refusals::default().refused().0.granted().0.word(), 0);
    let full = Refusals::of(u32::MAX - 2);
    assert_eq!(full.answered(), full);
    assert!(full.is_pending());
}
