// SPDX-License-Identifier: Apache-2.0
//! The one function of precedence against tables written by hand.

use crate::rules::{CARD, Key, NONE, alice, asked, max, number, preset, rule, written};
use partage_policy::{AskedMemory, AskedTerms, Judge, Max, NotAllowed, Rule, Rules, Standing, Total};
use partage_protocol::terms::Class;

/// Where a number comes from. `partage set` is an option, another tool's variable a variable: what becomes of a number
/// above a rule depends on how it stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Nothing,
    Option(u64),
    Variable(u64),
    Forced(u64),
    NamedPreset(u64),
    FirstPreset(u64),
}

/// The columns of the table.
const SOURCES: [From; 16] = [
    From::Nothing,
    From::Option(1),
    From::Option(2),
    From::Option(3),
    From::Variable(1),
    From::Variable(2),
    From::Variable(3),
    From::Forced(1),
    From::Forced(2),
    From::Forced(3),
    From::NamedPreset(1),
    From::NamedPreset(2),
    From::NamedPreset(3),
    From::FirstPreset(1),
    From::FirstPreset(2),
    From::FirstPreset(3),
];

/// Every pair of two rules' steps of a key (0 for a rule that says nothing about it) by every source of a number, which
/// are: nothing, an option of step 1 to 3, a variable, `set --force`, a preset that is named, the preset of a rule. A
/// cell has the step that results and whose words it has: `o` the first rule's, `t` the second one's, `c` the preset's,
/// none those of what was asked. `-` is the usual number; `Xo` and `Xt` are a refusal by that rule.
#[rustfmt::skip]
const TABLE: [(u64, u64, &str); 16] = [
    //     nothing  option      variable    forced   named       first
    (0, 0, "-       1  2  3     1  2  3     1 2 3    1c 2c 3c    1c 2c 3c"),
    (0, 1, "1t      1  Xt Xt    1  1t 1t    1 2 3    1c 1t 1t    1c 1t 1t"),
    (0, 2, "2t      1  2  Xt    1  2  2t    1 2 3    1c 2c 2t    1c 2c 2t"),
    (0, 3, "3t      1  2  3     1  2  3     1 2 3    1c 2c 3c    1c 2c 3c"),
    (1, 0, "1o      1  Xo Xo    1  1o 1o    1 2 3    1c 1o 1o    1c 1o 1o"),
    (1, 1, "1o      1  Xo Xo    1  1o 1o    1 2 3    1c 1o 1o    1c 1o 1o"),
    (1, 2, "1o      1  Xo Xo    1  1o 1o    1 2 3    1c 1o 1o    1c 1o 1o"),
    (1, 3, "1o      1  Xo Xo    1  1o 1o    1 2 3    1c 1o 1o    1c 1o 1o"),
    (2, 0, "2o      1  2  Xo    1  2  2o    1 2 3    1c 2c 2o    1c 2c 2o"),
    (2, 1, "1t      1  Xt Xt    1  1t 1t    1 2 3    1c 1t 1t    1c 1t 1t"),
    (2, 2, "2o      1  2  Xo    1  2  2o    1 2 3    1c 2c 2o    1c 2c 2o"),
    (2, 3, "2o      1  2  Xo    1  2  2o    1 2 3    1c 2c 2o    1c 2c 2o"),
    (3, 0, "3o      1  2  3     1  2  3     1 2 3    1c 2c 3c    1c 2c 3c"),
    (3, 1, "1t      1  Xt Xt    1  1t 1t    1 2 3    1c 1t 1t    1c 1t 1t"),
    (3, 2, "2t      1  2  Xt    1  2  2t    1 2 3    1c 2c 2t    1c 2c 2t"),
    (3, 3, "3o      1  2  3     1  2  3     1 2 3    1c 2c 3c    1c 2c 3c"),
];

/// Which table of a rule says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    Max,
    EachUser,
    Together,
}

impl Under {
    const ALL: [Self; 3] = [Self::Max, Self::EachUser, Self::Together];

    const fn word(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::EachUser => "each_user",
            Self::Together => "together",
        }
    }

    /// Has this table this key?
    fn has(self, key: Key) -> bool {
        self == Self::Max || matches!(key, Key::Mem | Key::Compute)
    }

    fn rule(self, name: &str, limits: Max) -> Rule {
        let total = Total {
            mem: limits.mem.clone(),
            compute_promise: limits.compute_promise.clone(),
            ..Total::default()
        };
        match self {
            Self::Max => rule(name, limits),
            Self::EachUser => Rule {
                each_user: total,
                ..rule(name, Max::default())
            },
            Self::Together => Rule {
                together: total,
                ..rule(name, Max::default())
            },
        }
    }
}

/// One cell, against what the function says.
fn judge_cell(key: Key, under: Under, (one, two): (u64, u64), from: From, cell: &str) {
    let limits = |step, line| match step {
        0 => Max::default(),
        step => max(key, key.value(step), line),
    };
    let mut rules = Rules {
        rules: vec![under.rule("one", limits(one, 1)), under.rule("two", limits(two, 2))],
        ..Rules::default()
    };
    let (mut memory, mut terms) = (AskedMemory::default(), AskedTerms::default());
    let mut named = None;
    match from {
        From::Nothing => {}
        From::Option(step) => (memory, terms) = asked(key, key.value(step), Standing::Firm),
        From::Variable(step) => (memory, terms) = asked(key, key.value(step), Standing::Soft),
        From::Forced(step) => (memory, terms) = asked(key, key.value(step), Standing::Forced),
        From::NamedPreset(step) | From::FirstPreset(step) => {
            rules.presets.insert("small".into(), preset(key, key.value(step)));
            named = Some("small").filter(|_| from == From::NamedPreset(step));
            rules.rules[1].preset = Some("small".into()).filter(|_| named.is_none());
        }
    }
    let judge = Judge::new(&rules, Class::Realtime, &alice(), named).expect("a preset that there is");
    let judged = judge
        .memory(&memory, CARD)
        .and_then(|memory| Ok((memory, judge.terms(&terms)?)));
    let context = format!("{key:?} under {under:?}, {one} and {two}, {from:?}, {cell}: {judged:?}");
    let by = match cell.chars().last() {
        Some('o') => format!("rule one, {}.", under.word()),
        Some('t') => format!("rule two, {}.", under.word()),
        Some('c') => "class small, ".to_owned(),
        _ => "asked".to_owned(),
    };
    let step: Option<u64> = cell.get(..1).and_then(|step| step.parse().ok());
    match (step, judged) {
        (None, Ok((memory, terms))) if cell == "-" => {
            assert_eq!(number(key, &memory, &terms), (key.usual(), String::new()), "{context}");
        }
        (None, Err(NotAllowed::Above(words, rule, _))) if cell != "-" => {
            assert_eq!(words, "asked", "{context}");
            assert!(rule.starts_with(&by), "{context}");
        }
        // A promise, a weight and a priority of which nothing is asked are the usual ones, lowered.
        (Some(step), Ok((memory, terms))) if from == From::Nothing && key.usual() != NONE => {
            let (number, words) = number(key, &memory, &terms);
            assert_eq!(number, key.usual().min(key.value(step)), "{context}");
            assert_eq!(words.is_empty(), number == key.usual(), "{context}");
        }
        (Some(step), Ok((memory, terms))) => {
            let (number, words) = number(key, &memory, &terms);
            assert_eq!(number, key.value(step), "{context}");
            assert!(words.starts_with(&by), "{context}");
        }
        _ => panic!("{context}"),
    }
}

#[test]
fn two_rules_by_every_key_by_every_source_give_what_the_table_says() {
    let mut cells = 0;
    for key in Key::ALL {
        for under in Under::ALL.into_iter().filter(|under| under.has(key)) {
            for (one, two, row) in TABLE {
                let row: Vec<&str> = row.split_whitespace().collect();
                assert_eq!(row.len(), SOURCES.len());
                for (from, cell) in SOURCES.into_iter().zip(row) {
                    judge_cell(key, under, (one, two), from, cell);
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, (7 + 2 * 2) * 16 * 16);
}

/// `max.gpus` of two rules, the GPUs that a request has, and who refuses it.
#[rustfmt::skip]
const GPUS: [(usize, usize, [&str; 3]); 9] = [
    (0, 0, ["ok", "ok",  "ok"]),
    (0, 1, ["ok", "two", "two"]),
    (0, 2, ["ok", "ok",  "two"]),
    (1, 0, ["ok", "one", "one"]),
    (1, 1, ["ok", "one", "one"]),
    (1, 2, ["ok", "one", "one"]),
    (2, 0, ["ok", "ok",  "one"]),
    (2, 1, ["ok", "two", "two"]),
    (2, 2, ["ok", "ok",  "one"]),
];

#[test]
fn two_rules_by_every_number_of_gpus_give_what_the_table_says() {
    for (one, two, row) in GPUS {
        let limits = |most: usize, line| Max {
            gpus: (most > 0).then(|| written(most, line)),
            ..Max::default()
        };
        let rules = Rules {
            rules: vec![rule("one", limits(one, 1)), rule("two", limits(two, 2))],
            ..Rules::default()
        };
        let judge = Judge::new(&rules, Class::Realtime, &alice(), None).expect("judged");
        for (count, then) in (1..).zip(row) {
            let judged = match judge.gpus(count, "asked") {
                Ok(()) => "ok".to_owned(),
                Err(NotAllowed::Above(_, rule, _)) => rule,
                Err(other) => panic!("{other:?}"),
            };
            let is_it = judged == then || judged.starts_with(&format!("rule {then}, max.gpus"));
            assert!(is_it, "{one} and {two}, {count}: {judged}");
        }
    }
}
