// SPDX-License-Identifier: Apache-2.0
//! The one function of precedence under random rule sets.

use crate::rules::{CARD, HOUR, NONE, USABLE, alice, class, said, written};
use partage_policy::{
    AskedMemory, AskedTerms, At, Ceiling, Facts, Judge, Lowered, Match, Max, Pattern, Per, Preset, Rule, Rules,
    Standing, Total,
};
use partage_protocol::size::Amount;
use partage_protocol::terms::Class;
use partage_protocol::units::GIB;
use proptest::prelude::*;

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    strategy: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    prop_oneof![2 => Just(None), 1 => strategy.prop_map(Some)].boxed()
}

fn a_max() -> impl Strategy<Value = Max> {
    let mem = prop_oneof![
        (1..48u64).prop_map(|gib| Amount::Bytes(gib * GIB)),
        (1..=20u32).prop_map(|part| Amount::Share(partage_protocol::units::Share::new(part * 50_000).expect("a part"))),
    ];
    let part = || (0..=10u32).prop_map(|part| part * 100_000);
    (
        (maybe(mem.clone()), maybe(mem)),
        maybe(part()),
        maybe(part()),
        maybe(1..400u32),
        maybe(0..4u64),
        maybe(1..4usize),
        maybe(1..9u64),
    )
        .prop_map(
            |((mem, process), compute, compute_max, weight, priority, gpus, hours)| Max {
                mem: mem.map(|value| written(value, 1)),
                process_mem: process.map(|value| written(value, 9)),
                compute_promise: compute.map(|value| written(value, 2)),
                compute_max: compute_max.map(|value| written(value, 3)),
                weight: weight.map(|value| written(value, 4)),
                priority: priority.map(|value| written(class(value), 5)),
                gpus: gpus.map(|value| written(value, 6)),
                time_limit: hours.map(|value| written(value * HOUR, 7)),
            },
        )
}

/// What a job may have of a total, too.
fn a_total() -> impl Strategy<Value = Total> {
    a_max().prop_map(|max| Total {
        mem: max.mem,
        compute_promise: max.compute_promise,
        gpus: max.gpus,
        jobs: None,
    })
}

fn a_preset(name: &'static str) -> impl Strategy<Value = Preset> {
    (a_max(), maybe(1..48u64)).prop_map(move |(max, request)| Preset {
        name: name.into(),
        at: At::default(),
        mem: max.mem,
        mem_request: request.map(|gib| written(Amount::Bytes(gib * GIB), 8)),
        process_mem: max.process_mem,
        compute_promise: max.compute_promise,
        compute_max: max.compute_max,
        weight: max.weight,
        priority: max.priority,
        time_limit: max.time_limit,
    })
}

fn a_rule() -> impl Strategy<Value = Rule> {
    let whom = prop::sample::select(vec![
        None,
        Some(("alice", "*")),
        Some(("*", "stud*")),
        Some(("bob", "*")),
    ]);
    let preset = maybe(prop::sample::select(vec!["small", "batch"]));
    let preset = (preset, prop::sample::select(Per::ALL.to_vec()));
    let totals = (a_total(), a_total());
    (whom, preset, a_max(), any::<bool>(), totals).prop_map(|(whom, (preset, per), max, is_strict, totals)| Rule {
        name: "r".into(),
        at: At::default(),
        matching: whom.map_or_else(Match::default, |(user, group)| Match {
            user: Some(vec![Pattern(user.into())]),
            group: Some(vec![Pattern(group.into())]),
            ..Match::default()
        }),
        preset: preset.map(str::to_owned),
        per,
        presets: None,
        gpu: None,
        max,
        is_strict,
        without_broker: None,
        each_user: totals.0,
        together: totals.1,
    })
}

fn some_rules() -> impl Strategy<Value = Rules> {
    (
        prop::collection::vec(a_rule(), 0..6),
        a_preset("small"),
        a_preset("batch"),
    )
        .prop_map(|(rules, small, batch)| Rules {
            presets: [("small".to_owned(), small), ("batch".to_owned(), batch)].into(),
            rules,
        })
}

/// Whatever an environment, an option or an accepted change can say.
fn some_asked() -> impl Strategy<Value = (AskedMemory, AskedTerms)> {
    let standing = prop::sample::select(vec![Standing::Firm, Standing::Soft]);
    let memory = (maybe(maybe(1..48u64)), maybe(0..48u64), maybe(maybe(1..48u64)));
    let time = (
        maybe(0..=10u32),
        maybe(maybe(1..10u32)),
        maybe(1..400u32),
        maybe(0..4u64),
        maybe(maybe(1..9u64)),
    );
    (standing, memory, time).prop_map(
        |(standing, (limit, request, process), (promise, cap, weight, priority, hours))| {
            let memory = AskedMemory {
                limit: limit.map(|limit| said(limit.map(|gib| gib * GIB), standing)),
                request: request.map(|gib| said(gib * GIB, standing)),
                process: process.map(|limit| said(limit.map(|gib| gib * GIB), standing)),
            };
            let terms = AskedTerms {
                promise: promise.map(|part| said(part * 100_000, standing)),
                cap: cap.map(|cap| said(cap.map(|part| part * 100_000), standing)),
                weight: weight.map(|weight| said(weight, standing)),
                priority: priority.map(|rank| said(class(rank), standing)),
                time_limit: hours.map(|hours| said(hours.map(|hours| hours * HOUR), standing)),
            };
            (memory, terms)
        },
    )
}

/// Every number, each so that less is less; what there is no limit of is the greatest.
fn judged(rules: &Rules, named: Option<&str>, asked: &(AskedMemory, AskedTerms)) -> Option<[u64; 8]> {
    judged_of(&alice(), rules, named, asked)
}

fn judged_of(facts: &Facts, rules: &Rules, named: Option<&str>, asked: &(AskedMemory, AskedTerms)) -> Option<[u64; 8]> {
    let judge = Judge::new(rules, Class::Realtime, facts, named).ok()?;
    let memory = judge.memory(&asked.0, CARD).ok()?;
    let terms = judge.terms(&asked.1).ok()?;
    Some([
        memory.limit.unwrap_or(NONE),
        memory.request,
        terms.promise_ppm.into(),
        terms.cap_ppm.map_or(1_000_000, u64::from),
        terms.weight.into(),
        terms.class as u64,
        terms.time_limit_ns.unwrap_or(NONE),
        memory.process.unwrap_or(NONE),
    ])
}

fn on_card(amount: &Amount) -> Option<u64> {
    Some(amount.on(USABLE)).filter(|mem| *mem < CARD.total)
}

/// The most that any request can get: found without the function, key by key.
fn mosts(rules: &Rules) -> [u64; 8] {
    let facts = alice();
    let lowest = |most: fn(&Max) -> Option<u64>| rules.matching(&facts).filter_map(|rule| most(&rule.max)).min();
    let totals = || {
        rules
            .matching(&facts)
            .flat_map(|rule| [&rule.each_user, &rule.together])
    };
    let of_totals = totals().filter_map(|total| on_card(&total.mem.as_ref()?.value)).min();
    let mem = lowest(|max| on_card(&max.mem.as_ref()?.value))
        .into_iter()
        .chain(of_totals)
        .min()
        .unwrap_or(NONE);
    let process = lowest(|max| on_card(&max.process_mem.as_ref()?.value)).unwrap_or(NONE);
    let cap = lowest(|max| Some(max.compute_max.as_ref()?.value.into())).unwrap_or(1_000_000);
    let of_totals = totals()
        .filter_map(|total| Some(total.compute_promise.as_ref()?.value.into()))
        .min();
    let promise = lowest(|max| Some(max.compute_promise.as_ref()?.value.into()));
    let promise = promise.into_iter().chain(of_totals).min().unwrap_or(1_000_000);
    [
        mem,
        mem,
        promise.min(cap),
        cap,
        lowest(|max| Some(max.weight.as_ref()?.value.into())).unwrap_or(NONE),
        lowest(|max| Some(max.priority.as_ref()?.value as u64)).unwrap_or(NONE),
        lowest(|max| Some(max.time_limit.as_ref()?.value)).unwrap_or(NONE),
        process,
    ]
}

fn soft(asked: &(AskedMemory, AskedTerms)) -> (AskedMemory, AskedTerms) {
    let (mut memory, mut terms) = asked.clone();
    for standing in [
        memory.limit.as_mut().map(|said| &mut said.standing),
        memory.request.as_mut().map(|said| &mut said.standing),
        memory.process.as_mut().map(|said| &mut said.standing),
        terms.promise.as_mut().map(|said| &mut said.standing),
        terms.cap.as_mut().map(|said| &mut said.standing),
        terms.weight.as_mut().map(|said| &mut said.standing),
        terms.priority.as_mut().map(|said| &mut said.standing),
        terms.time_limit.as_mut().map(|said| &mut said.standing),
    ]
    .into_iter()
    .flatten()
    {
        *standing = Standing::Soft;
    }
    (memory, terms)
}

/// `--at-most` as it is written, and its numbers.
fn an_at_most() -> impl Strategy<Value = (Ceiling, [u64; 8])> {
    let part = || maybe(1..=10u64);
    (
        (maybe(1..48u64), maybe(1..48u64), maybe(1..48u64)),
        (part(), part(), maybe(1..400u64)),
        (maybe(0..4u64), maybe(1..9u64)),
    )
        .prop_map(|((mem, request, process), (promise, cap, weight), (priority, hours))| {
            let size = |gib: Option<u64>| gib.map(|gib| format!("{gib}GiB"));
            let percent = |part: Option<u64>| part.map(|part| format!("{}%", part * 10));
            let at_most = Ceiling {
                mem: size(mem),
                mem_request: size(request),
                process_mem: size(process),
                promise: percent(promise),
                cap: percent(cap),
                weight: weight.map(|weight| weight.to_string()),
                priority: priority.map(|rank| class(rank).to_string()),
                time_limit: hours.map(|hours| format!("{hours}h")),
            };
            // A most beyond the card limits nothing.
            let on_card = |gib: Option<u64>| gib.map(|gib| gib * GIB).filter(|mem| *mem < CARD.total).unwrap_or(NONE);
            let ppm = |part: Option<u64>| part.map_or(1_000_000, |part| part * 100_000);
            let most = [
                on_card(mem),
                request.map_or(NONE, |gib| gib * GIB),
                ppm(promise),
                ppm(cap),
                weight.unwrap_or(NONE),
                priority.unwrap_or(NONE),
                hours.map_or(NONE, |hours| hours * HOUR),
                on_card(process),
            ];
            (at_most, most)
        })
}

/// 100,000 rule sets with the soak, a tenth of them otherwise.
fn many() -> ProptestConfig {
    let cases = if std::env::var_os("PARTAGE_SOAK").is_some() {
        100_000
    } else {
        10_000
    };
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

fn is_within(numbers: &[u64; 8], most: &[u64; 8]) -> bool {
    numbers.iter().zip(most).all(|(number, most)| number <= most)
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn nothing_that_is_asked_raises_a_number_above_a_rule(
        rules in some_rules(),
        asked in some_asked(),
        named in maybe(prop::sample::select(vec!["small", "batch"])),
    ) {
        if let Some(numbers) = judged(&rules, named, &asked) {
            prop_assert!(is_within(&numbers, &mosts(&rules)), "{numbers:?} above {:?}", mosts(&rules));
        }
        // What was accepted is never refused later, unless it contradicts itself.
        let is_whole = asked.0.limit.is_none() && asked.1.cap.is_none();
        if is_whole {
            let later = judged(&rules, named, &soft(&asked));
            prop_assert!(later.is_some_and(|numbers| is_within(&numbers, &mosts(&rules))));
        }
    }

    #[test]
    fn what_a_registration_has_at_most_lowers_and_never_raises(
        rules in some_rules(),
        asked in some_asked(),
        named in maybe(prop::sample::select(vec!["small", "batch"])),
        (at_most, most) in an_at_most(),
    ) {
        let lowered = Lowered { at_most, ..Lowered::default() };
        let registered = Facts { lowered, ..alice() };
        if let Some(numbers) = judged_of(&registered, &rules, named, &asked) {
            prop_assert!(is_within(&numbers, &most), "{numbers:?} above {most:?}");
            prop_assert!(is_within(&numbers, &mosts(&rules)), "{numbers:?} above {:?}", mosts(&rules));
        }
        let asked = soft(&asked);
        let (without, with) = (judged(&rules, named, &asked), judged_of(&registered, &rules, named, &asked));
        if let (Some(without), Some(with)) = (without, with) {
            prop_assert!(is_within(&with, &without), "{with:?} above {without:?}");
        }
    }

    #[test]
    fn another_rule_raises_no_number(rules in some_rules(), added in a_rule(), at in 0..6usize, asked in some_asked()) {
        let added = Rule { preset: None, ..added };
        let mut more = rules.clone();
        more.rules.insert(at.min(rules.rules.len()), added);
        prop_assert!(is_within(&mosts(&more), &mosts(&rules)));
        let asked = soft(&asked);
        if let (Some(before), Some(after)) = (judged(&rules, None, &asked), judged(&more, None, &asked)) {
            prop_assert!(is_within(&after, &before), "{after:?} above {before:?}");
        }
    }

    #[test]
    fn the_order_of_rules_changes_the_preset_of_jobs_that_name_none_alone(
        rules in some_rules(),
        asked in some_asked(),
        turn in 0..6usize,
    ) {
        let mut turned = rules.clone();
        let turn = turn % turned.rules.len().max(1);
        turned.rules.rotate_left(turn);
        turned.rules.reverse();
        for named in ["small", "batch"] {
            prop_assert_eq!(judged(&rules, Some(named), &asked), judged(&turned, Some(named), &asked));
        }
        prop_assert_eq!(mosts(&rules), mosts(&turned));
    }

    #[test]
    fn rules_only_lower_and_without_them_what_was_asked_is_back(rules in some_rules(), asked in some_asked()) {
        let asked = soft(&asked);
        let free = Rules { presets: rules.presets.clone(), rules: Vec::new() };
        let (without, within) = (judged(&free, Some("small"), &asked), judged(&rules, Some("small"), &asked));
        if let (Some(without), Some(within)) = (without, within) {
            prop_assert!(is_within(&within, &without), "{within:?} above {without:?}");
        }
    }
}
