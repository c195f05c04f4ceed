// SPDX-License-Identifier: Apache-2.0
//! The one function of precedence: the parts of its tables (`rules_table.rs`), and what no table says.

use partage_policy::{
    AskedMemory, AskedTerms, At, CardSize, Facts, GpuName, Judge, Max, NotAllowed, Pattern, Preset, Rule, Rules, Said,
    Standing, Terms, Written,
};
use partage_protocol::size::Amount;
use partage_protocol::terms::Class;
use partage_protocol::units::GIB;

pub const USABLE: u64 = 40 * GIB;
pub const CARD: CardSize = CardSize {
    usable: USABLE,
    total: 41 * GIB,
};
pub const HOUR: u64 = 3_600_000_000_000;

pub fn written<T>(value: T, line: usize) -> Written<T> {
    let file = "r".to_owned();
    Written {
        value,
        text: "?".into(),
        at: At { file, line },
    }
}

pub fn said<T>(value: T, standing: Standing) -> Said<T> {
    Said {
        value,
        words: "asked".into(),
        standing,
        is_by_admin: false,
    }
}

pub fn alice() -> Facts {
    Facts {
        uid: 1,
        user: "alice".into(),
        groups: vec!["students".into()],
        ..Facts::default()
    }
}

/// The numbers of a job, so that a table can be about all of them: limits and promise of memory in GiB, promise and cap
/// of time and the weight as they are, the priority by its rank, the time limit in hours. `u64::MAX` is none.
pub const NONE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Mem,
    ProcessMem,
    Compute,
    ComputeMax,
    Weight,
    Priority,
    TimeLimit,
}

impl Key {
    pub const ALL: [Self; 7] = [
        Self::Mem,
        Self::ProcessMem,
        Self::Compute,
        Self::ComputeMax,
        Self::Weight,
        Self::Priority,
        Self::TimeLimit,
    ];

    /// Four values of this key, the lowest first, in its own unit.
    pub fn value(self, step: u64) -> u64 {
        match self {
            Self::Mem | Self::ProcessMem => step * 4,
            Self::Compute | Self::ComputeMax => step * 200_000,
            Self::Weight => step * 50,
            Self::Priority => step,
            Self::TimeLimit => step,
        }
    }

    /// What holds where nothing is asked and nothing is ruled.
    pub fn usual(self) -> u64 {
        match self {
            Self::Compute => 0,
            Self::Weight => 100,
            Self::Priority => 1,
            Self::Mem | Self::ProcessMem | Self::ComputeMax | Self::TimeLimit => NONE,
        }
    }
}

pub fn class(rank: u64) -> Class {
    Class::ALL[rank as usize]
}

pub fn max(key: Key, value: u64, line: usize) -> Max {
    let ppm = value as u32;
    let mut max = Max::default();
    match key {
        Key::Mem => max.mem = Some(written(Amount::Bytes(value * GIB), line)),
        Key::ProcessMem => max.process_mem = Some(written(Amount::Bytes(value * GIB), line)),
        Key::Compute => max.compute_promise = Some(written(ppm, line)),
        Key::ComputeMax => max.compute_max = Some(written(ppm, line)),
        Key::Weight => max.weight = Some(written(ppm, line)),
        Key::Priority => max.priority = Some(written(class(value), line)),
        Key::TimeLimit => max.time_limit = Some(written(value * HOUR, line)),
    }
    max
}

pub fn preset(key: Key, value: u64) -> Preset {
    let max = max(key, value, 1);
    Preset {
        name: "small".into(),
        at: At::default(),
        mem: max.mem,
        mem_request: None,
        process_mem: max.process_mem,
        compute_promise: max.compute_promise,
        compute_max: max.compute_max,
        weight: max.weight,
        priority: max.priority,
        time_limit: max.time_limit,
    }
}

pub fn rule(name: &str, max: Max) -> Rule {
    Rule {
        name: name.into(),
        max,
        ..Rule::default()
    }
}

pub fn asked(key: Key, value: u64, standing: Standing) -> (AskedMemory, AskedTerms) {
    let (mut memory, mut terms) = (AskedMemory::default(), AskedTerms::default());
    let ppm = value as u32;
    match key {
        Key::Mem => memory.limit = Some(said(Some(value * GIB), standing)),
        Key::ProcessMem => memory.process = Some(said(Some(value * GIB), standing)),
        Key::Compute => terms.promise = Some(said(ppm, standing)),
        Key::ComputeMax => terms.cap = Some(said(Some(ppm), standing)),
        Key::Weight => terms.weight = Some(said(ppm, standing)),
        Key::Priority => terms.priority = Some(said(class(value), standing)),
        Key::TimeLimit => terms.time_limit = Some(said(Some(value * HOUR), standing)),
    }
    (memory, terms)
}

pub fn number(key: Key, memory: &partage_policy::Memory, terms: &Terms) -> (u64, String) {
    let said = &terms.origin;
    match key {
        Key::Mem => (
            memory.limit.map_or(NONE, |limit| limit / GIB),
            memory.limit_words.clone(),
        ),
        Key::ProcessMem => (
            memory.process.map_or(NONE, |limit| limit / GIB),
            memory.process_words.clone(),
        ),
        Key::Compute => (terms.promise_ppm.into(), said.promise.clone()),
        Key::ComputeMax => (terms.cap_ppm.map_or(NONE, u64::from), said.cap.clone()),
        Key::Weight => (terms.weight.into(), said.weight.clone()),
        Key::Priority => (terms.class as u64, said.class.clone()),
        Key::TimeLimit => (
            terms.time_limit_ns.map_or(NONE, |limit| limit / HOUR),
            said.time_limit.clone(),
        ),
    }
}

#[test]
fn a_preset_is_named_only_where_every_rule_lists_it() {
    let mut rules = Rules::default();
    for name in ["small", "batch"] {
        rules.presets.insert(
            name.into(),
            Preset {
                name: name.into(),
                ..Preset::default()
            },
        );
    }
    let list = |names: &[&str]| Some(written(names.iter().map(|name| (*name).to_owned()).collect(), 3));
    rules.rules = vec![rule("one", Max::default()), rule("two", Max::default())];
    rules.rules[1].presets = list(&["batch"]);
    let judge = |rules: &Rules, name| Judge::new(rules, Class::Realtime, &alice(), Some(name));
    assert!(judge(&rules, "batch").is_ok());
    assert!(matches!(judge(&rules, "small"), Err(NotAllowed::PresetNotAllowed(..))));
    assert!(matches!(judge(&rules, "smal"), Err(NotAllowed::UnknownPreset(_, known)) if known.len() == 2));
    rules.rules[1].matching.user = Some(vec![Pattern("bob".into())]);
    assert!(judge(&rules, "small").is_ok(), "a rule about another user");
}

#[test]
fn gpus_are_those_that_every_rule_lists() {
    let mut rules = Rules {
        rules: vec![rule("one", Max::default()), rule("two", Max::default())],
        ..Rules::default()
    };
    rules.rules[0].gpu = Some(written(vec![GpuName::Index(0), GpuName::Index(1)], 1));
    rules.rules[1].gpu = Some(written(vec![GpuName::Uuid("gpu-01".into()), GpuName::Index(2)], 2));
    rules.rules[1].max.gpus = Some(written(1, 2));
    let judge = Judge::new(&rules, Class::Realtime, &alice(), None).expect("judged");
    assert!(judge.gpu(0, "GPU-00").is_err() && judge.gpu(1, "GPU-01").is_ok() && judge.gpu(2, "GPU-02").is_err());
    assert!(judge.gpus(1, "--gpu auto").is_ok() && judge.gpus(2, "--gpu auto:2").is_err());
    assert_eq!(judge.most_gpus(), 1);
}

#[test]
fn promises_stay_within_what_the_rules_leave() {
    let rules = Rules {
        rules: vec![rule(
            "cap",
            Max {
                mem: Some(written(Amount::Bytes(2 * GIB), 1)),
                compute_max: Some(written(300_000, 1)),
                ..Max::default()
            },
        )],
        ..Rules::default()
    };
    let judge = Judge::new(&rules, Class::Realtime, &alice(), None).expect("judged");
    let request = |standing| AskedMemory {
        process: None,
        limit: None,
        request: Some(said(4 * GIB, standing)),
    };
    assert!(matches!(
        judge.memory(&request(Standing::Firm), CARD),
        Err(NotAllowed::Above(..))
    ));
    let lowered = judge.memory(&request(Standing::Soft), CARD).expect("lowered");
    assert_eq!((lowered.limit, lowered.request), (Some(2 * GIB), 2 * GIB));
    let promise = |standing| AskedTerms {
        promise: Some(said(500_000, standing)),
        ..AskedTerms::default()
    };
    assert!(matches!(
        judge.terms(&promise(Standing::Firm)),
        Err(NotAllowed::Above(..))
    ));
    let lowered = judge.terms(&promise(Standing::Soft)).expect("lowered");
    assert_eq!((lowered.promise_ppm, lowered.cap_ppm), (300_000, Some(300_000)));
    let nothing = judge.memory(&AskedMemory::default(), CARD).expect("the limit");
    assert_eq!(
        (nothing.limit, nothing.request),
        (Some(2 * GIB), 0),
        "a most is no promise"
    );
}

#[test]
fn a_card_without_a_limit_that_a_rule_caps_is_not_promised() {
    let rules = Rules {
        rules: vec![rule("cap", max(Key::Mem, 1, 1))],
        ..Rules::default()
    };
    let judge = Judge::new(&rules, Class::Realtime, &alice(), None).expect("judged");
    let asked = AskedMemory {
        limit: Some(said(None, Standing::Soft)),
        ..AskedMemory::default()
    };
    let memory = judge.memory(&asked, CARD).expect("lowered");
    assert_eq!((memory.limit, memory.request), (Some(GIB), 0));
}

#[test]
fn numbers_of_the_file_beyond_a_card_are_the_card() {
    let mut rules = Rules {
        rules: vec![rule("wide", max(Key::Mem, 100, 1))],
        ..Rules::default()
    };
    let judged = |rules: &Rules, named| {
        let judge = Judge::new(rules, Class::Realtime, &alice(), named).expect("judged");
        let memory = judge.memory(&AskedMemory::default(), CARD).expect("a limit");
        (memory.limit, memory.request)
    };
    assert_eq!(judged(&rules, None), (None, 0), "a most beyond the card limits nothing");
    rules.presets.insert("small".into(), preset(Key::Mem, 100));
    assert_eq!(judged(&rules, Some("small")), (Some(USABLE), USABLE));
}
