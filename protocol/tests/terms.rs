// SPDX-License-Identifier: Apache-2.0
//! Terms of device time: what is read, what is refused and how, that everything printed reads back, and what other
//! tools' variables mean.

use partage_protocol::terms::{
    Class, MAX_WEIGHT, WHOLE_PPM, format_measured, format_part, parse_cap, parse_class, parse_promise,
    parse_time_limit, parse_weight, ppm, ratio,
};
use partage_protocol::time_aliases::{TimeVariable, asked};
use partage_protocol::units::SECOND_NS;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A seed that is printed (with a failure, as all output of a test), or the one that is asked for.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    }
    println!("replay with PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

#[test]
fn parts_of_time_are_percentages_in_millionths() {
    for (text, millionths) in [
        ("30%", 300_000),
        ("12.5%", 125_000),
        ("0.0001%", 1),
        ("100%", 1_000_000),
    ] {
        assert_eq!(parse_promise(text), Ok(millionths), "{text}");
    }
    assert_eq!(parse_cap("50%"), Ok(Some(500_000)));
    assert_eq!(parse_cap("99.9999%"), Ok(Some(999_999)));
    assert_eq!(parse_cap("100%"), Ok(None), "the whole caps nothing");
}

#[test]
fn refusals_name_the_value_and_the_spelling_meant() {
    let part = |text: &str| {
        let why = parse_promise(text).expect_err(text).to_string();
        assert_eq!(parse_cap(text).expect_err(text).to_string(), why);
        why
    };
    for (text, said) in [
        ("30", "\"30\" has no unit: did you mean 30%?"),
        ("0.3", "\"0.3\" has no unit: did you mean 30%?"),
        ("130%", "\"130%\" is more than the whole: at most 100%"),
        ("-30%", "\"-30%\" is negative: use an amount above 0"),
        ("30 %", "\"30 %\" contains a blank: write 30%"),
        ("", "the value is empty: write 30% or 12.5%"),
        ("0%", "\"0%\" is zero: write 30% or 12.5%"),
    ] {
        assert_eq!(part(text), said, "{text}");
    }
    for text in ["0%", "30s", "8GiB", "%", "1e1%", "a third", "12.34567%"] {
        part(text);
    }
    for text in [
        "",
        "0",
        "10001",
        "-1",
        "+5",
        "1.5",
        "100%",
        "ten",
        " 7",
        "99999999999999",
    ] {
        let why = parse_weight(text).expect_err(text).to_string();
        assert!(
            why.contains("from 1 to 10000") && why.starts_with("bad weight \""),
            "{why}"
        );
    }
    for text in ["", "Normal", "urgent", "low ", "3"] {
        let why = parse_class(text).expect_err(text).to_string();
        assert!(why.ends_with("(use low, normal, high or realtime)"), "{why}");
    }
    assert_eq!(
        parse_time_limit("0s").expect_err("no time").to_string(),
        "\"0s\" leaves no time to run (use 90s, 90m or 1h30m)"
    );
    assert_eq!(
        parse_time_limit("90").expect_err("no unit").to_string(),
        "\"90\" has no unit: did you mean 90s?"
    );
}

#[test]
fn classes_weights_and_limits_are_read() {
    for class in Class::ALL {
        assert_eq!(parse_class(class.word()), Ok(class));
    }
    assert!(Class::ALL.is_sorted(), "a later one goes first");
    assert_eq!(
        (parse_weight("1"), parse_weight("0300"), parse_weight("10000")),
        (Ok(1), Ok(300), Ok(MAX_WEIGHT))
    );
    assert_eq!(parse_time_limit("1h30m"), Ok(5_400 * SECOND_NS));
}

#[test]
fn measured_parts_are_shown_to_a_tenth() {
    for (ppm, text) in [
        (0, "0.0 %"),
        (298_400, "29.8 %"),
        (298_500, "29.9 %"),
        (999_999, "100.0 %"),
    ] {
        assert_eq!(format_measured(ppm), text);
    }
    assert_eq!(
        (format_part(0), format_part(125_000)),
        ("0 %".to_owned(), "12.5 %".to_owned())
    );
}

fn variables(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

const SM: &str = "CUDA_DEVICE_SM_LIMIT";
const MPS: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
const PRIORITY: &str = "CUDA_TASK_PRIORITY";

#[test]
fn other_tools_variables_cap_and_class() {
    let read = |texts: &[(&str, &str)]| {
        let asked = asked(&variables(texts), |_| true).expect("valid");
        (
            asked.cap.map(|cap| (cap.value.millionths(), cap.text)),
            asked.class.map(|class| class.value),
        )
    };
    let cap = |millionths, text: &str| Some((millionths, text.to_owned()));
    assert_eq!(read(&[(SM, "50")]), (cap(500_000, "CUDA_DEVICE_SM_LIMIT=50"), None));
    assert_eq!(
        read(&[(SM, "50"), (MPS, "20")]).0,
        cap(500_000, "CUDA_DEVICE_SM_LIMIT=50")
    );
    let second = cap(125_000, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12.5");
    assert_eq!(
        read(&[(SM, "0"), (MPS, "12.5")]).0,
        second,
        "0 is how nothing is written there"
    );
    assert_eq!(read(&[(SM, ""), (MPS, " 12.5 ")]).0, second);
    assert_eq!(
        read(&[(SM, "100"), (MPS, "20")]).0,
        cap(1_000_000, "CUDA_DEVICE_SM_LIMIT=100")
    );
    for (value, class) in [
        ("0", Class::High),
        ("1", Class::Normal),
        ("2", Class::Low),
        ("77", Class::Low),
    ] {
        assert_eq!(read(&[(PRIORITY, value)]), (None, Some(class)));
    }
    assert_eq!(read(&[("CUDA_DEVICE_MEMORY_LIMIT", "1g"), ("PATH", "x")]), (None, None));
}

#[test]
fn a_variable_that_cannot_be_read_is_an_error_unless_it_is_switched_off() {
    for (name, value) in [
        (SM, "101"),
        (SM, "50%"),
        (SM, "-1"),
        (SM, "12.5"),
        (SM, "99999999999"),
        (MPS, "0"),
        (MPS, "100.5"),
        (MPS, "50%"),
        (MPS, "0=50"),
        (PRIORITY, "high"),
        (PRIORITY, "-1"),
        (PRIORITY, "\x1b"),
    ] {
        let found = variables(&[(name, value)]);
        let why = asked(&found, |_| true).expect_err(value).to_string();
        assert!(why.starts_with(&format!("{name}=")) && !why.contains('\x1b'), "{why}");
        let off = TimeVariable::of(name.as_bytes());
        assert_eq!(
            asked(&found, |variable| Some(variable) != off),
            Ok(Default::default()),
            "{why}"
        );
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_printed_reads_back(millionths in 1..=WHOLE_PPM) {
        let written = format_part(millionths).replace(' ', "");
        prop_assert_eq!(parse_promise(&written), Ok(millionths));
        prop_assert_eq!(parse_cap(&written), Ok(Some(millionths).filter(|ppm| *ppm < WHOLE_PPM)));
        prop_assert_eq!(ppm(ratio(millionths)), millionths);
    }

    #[test]
    fn weights_read_back_and_no_other_number_does(weight in any::<u32>()) {
        let is_weight = (1..=MAX_WEIGHT).contains(&weight);
        prop_assert_eq!(parse_weight(&weight.to_string()).ok(), Some(weight).filter(|_| is_weight));
    }

    #[test]
    fn no_text_is_ever_a_panic(text in ".{0,60}", name in 0..3_usize) {
        let _ = (parse_promise(&text), parse_cap(&text), parse_weight(&text));
        let _ = (parse_class(&text), parse_time_limit(&text));
        let _ = asked(&variables(&[([SM, MPS, PRIORITY][name], &text)]), |_| true);
    }
}
