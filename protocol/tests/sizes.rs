// SPDX-License-Identifier: Apache-2.0
//! Sizes, shares and durations: what is read, what is refused and how, and that everything printed reads back.

use partage_protocol::size::{
    Amount, SizeError, format_bytes, format_duration, parse_amount, parse_duration, parse_share,
};
use partage_protocol::units::{DeviceUuid, GIB, KIB, MIB, SECOND_NS, Share, TIB};
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

fn share(millionths: u32) -> Amount {
    Amount::Share(Share::new(millionths).expect("a part"))
}

#[test]
fn sizes_are_base_1024_in_every_spelling() {
    for text in [
        "8GiB",
        "8G",
        "8GB",
        "8Gi",
        "8gib",
        "8g",
        "8192M",
        "8192MiB",
        "8388608K",
        "8589934592B",
        "8.0G",
    ] {
        assert_eq!(parse_amount(text), Ok(Amount::Bytes(8 * GIB)), "{text}");
    }
    assert_eq!(parse_amount("1.5GiB"), Ok(Amount::Bytes(1536 * MIB)));
    assert_eq!(parse_amount("0.5T"), Ok(Amount::Bytes(TIB / 2)));
    assert_eq!(parse_amount("1K"), Ok(Amount::Bytes(KIB)));
    assert_eq!(parse_amount("16777215T"), Ok(Amount::Bytes(16_777_215 * TIB)));
    assert_eq!(parse_amount("18446744073709551615B"), Ok(Amount::Bytes(u64::MAX)));
    assert_eq!(parse_amount("25%"), Ok(share(250_000)));
    assert_eq!(parse_amount("12.5%"), Ok(share(125_000)));
    assert_eq!(parse_amount("0.0001%"), Ok(share(1)));
    assert_eq!(parse_amount("100%"), Ok(share(1_000_000)));
    assert_eq!(parse_share("33.3333%"), Ok(Share::new(333_333).expect("a part")));
}

#[test]
fn refusals_name_the_value_and_the_fix() {
    for (text, said) in [
        ("8", "\"8\" has no unit: did you mean 8% or 8GiB?"),
        ("40.5", "\"40.5\" has no unit: did you mean 40.5% or 40.5GiB?"),
        ("8192", "\"8192\" has no unit: did you mean 8192MiB?"),
        ("8589934592", "\"8589934592\" has no unit: did you mean 8589934592B?"),
        ("0.25", "\"0.25\" has no unit: did you mean 25%?"),
        ("0", "\"0\" is zero: write 8GiB, 8192MiB or 25%"),
        ("0GiB", "\"0GiB\" is zero: write 8GiB, 8192MiB or 25%"),
        ("0.0000001K", "\"0.0000001K\" is zero: write 8GiB, 8192MiB or 25%"),
        ("0%", "\"0%\" is zero: write 8GiB, 8192MiB or 25%"),
        ("200%", "\"200%\" is more than the whole: at most 100%"),
        ("100.0001%", "\"100.0001%\" is more than the whole: at most 100%"),
        ("-8GiB", "\"-8GiB\" is negative: use an amount above 0"),
        ("8 GiB", "\"8 GiB\" contains a blank: write 8GiB"),
        (" 8G", "\" 8G\" contains a blank: write 8G"),
        ("16777216T", "\"16777216T\" is more than 64 bits can hold"),
        (
            "99999999999999999999999999G",
            "\"99999999999999999999999999G\" is more than 64 bits can hold",
        ),
        ("8X", "\"8X\" has an unknown unit \"X\": write 8GiB, 8192MiB or 25%"),
        (
            "8GiBs",
            "\"8GiBs\" has an unknown unit \"GiBs\": write 8GiB, 8192MiB or 25%",
        ),
        (
            "1e3G",
            "\"1e3G\" has an unknown unit \"e3G\": write 8GiB, 8192MiB or 25%",
        ),
        (
            "all",
            "\"all\" does not start with a number: write 8GiB, 8192MiB or 25%",
        ),
        (
            ".5G",
            "\".5G\" does not start with a number: write 8GiB, 8192MiB or 25%",
        ),
        (
            "5.G",
            "\"5.G\" does not start with a number: write 8GiB, 8192MiB or 25%",
        ),
        (
            "1.00001%",
            "\"1.00001%\" has too many decimals: at most 4 of a percent, 9 of a size",
        ),
        ("", "the value is empty: write 8GiB, 8192MiB or 25%"),
        (
            "8G\u{1b}[2J",
            "\"8G\\u{1b}[2J\" has an unknown unit \"G\\u{1b}[2J\": write 8GiB, 8192MiB or 25%",
        ),
    ] {
        assert_eq!(parse_amount(text).expect_err(text).to_string(), said);
    }
    assert_eq!(
        parse_share("30").expect_err("bare").to_string(),
        "\"30\" has no unit: did you mean 30%?"
    );
    assert_eq!(
        parse_share("0.3").expect_err("bare").to_string(),
        "\"0.3\" has no unit: did you mean 30%?"
    );
    assert!(matches!(parse_share("8GiB"), Err(SizeError::UnknownUnit { .. })));
}

#[test]
fn durations_are_read() {
    for (text, seconds) in [
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5_400),
        ("2d", 172_800),
        ("0s", 0),
        ("1d1h1m1s", 90_061),
    ] {
        assert_eq!(parse_duration(text), Ok(seconds * SECOND_NS), "{text}");
    }
    assert_eq!(parse_duration("1s500ms"), Ok(SECOND_NS * 3 / 2));
    for (text, said) in [
        ("90", "\"90\" has no unit: did you mean 90s?"),
        ("1h30", "\"1h30\" has no unit: did you mean 1h30s?"),
        ("30m1h", "\"30m1h\" has an unknown unit \"h\": write 90s, 90m or 1h30m"),
        (
            "1.5h",
            "\"1.5h\" has decimals, and durations have whole units: write 90s, 90m or 1h30m",
        ),
        ("-5s", "\"-5s\" is negative: use an amount above 0"),
        ("5 s", "\"5 s\" contains a blank: write 5s"),
        (
            "forever",
            "\"forever\" does not start with a number: write 90s, 90m or 1h30m",
        ),
        ("300000000000d", "\"300000000000d\" is more than 64 bits can hold"),
    ] {
        assert_eq!(parse_duration(text).expect_err(text).to_string(), said);
    }
}

#[test]
fn people_are_shown_one_decimal() {
    for (bytes, shown) in [
        (0, "0 B"),
        (1_023, "1023 B"),
        (8 * GIB, "8 GiB"),
        (512 * MIB, "512 MiB"),
        (35 * GIB + 205 * MIB, "35.2 GiB"),
        (GIB - 1, "1.0 GiB"),
        (MIB + 1, "1.0 MiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(format_bytes(bytes), shown);
    }
    for (ns, shown) in [
        (0, "0ms"),
        (20_000_000, "20ms"),
        (1_500_000_000, "1.5s"),
        (90 * SECOND_NS, "90s"),
        (600 * SECOND_NS, "10m"),
        (5_400 * SECOND_NS, "1h30m"),
        (90_000 * SECOND_NS, "1d1h"),
    ] {
        assert_eq!(format_duration(ns), shown);
    }
}

#[test]
fn uuids_have_one_spelling() {
    let text = "GPU-8f3c2b1a-0011-2233-4455-66778899aabb";
    let uuid = DeviceUuid::parse(text).expect("a UUID");
    assert_eq!(
        (uuid.to_string().as_str(), uuid.is_mig, uuid.bytes[0]),
        (text, false, 0x8f)
    );
    assert!(DeviceUuid::parse("MIG-8f3c2b1a-0011-2233-4455-66778899AABB").is_some_and(|uuid| uuid.is_mig));
    for text in [
        "",
        "GPU-",
        "gpu-8f3c2b1a-0011-2233-4455-66778899aabb",
        "GPU-8f3c2b1a00112233445566778899aabb",
        "GPU-8f3c2b1a-0011-2233-4455-66778899aab",
        "GPU-8f3c2b1a-0011-2233-4455-66778899aabbc",
        "GPÜ-x",
        "GPU-+f3c2b1a-0011-2233-4455-66778899aabb",
    ] {
        assert_eq!(DeviceUuid::parse(text), None, "{text}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn bytes_read_back(bytes in 1..u64::MAX) {
        prop_assert_eq!(parse_amount(&Amount::Bytes(bytes).to_string()), Ok(Amount::Bytes(bytes)));
    }

    #[test]
    fn round_bytes_read_back_shortly(count in 1..1_024u64, unit in prop::sample::select(vec![KIB, MIB, GIB, TIB])) {
        let text = Amount::Bytes(count * unit).to_string();
        prop_assert!(text.len() <= 7, "{}", text);
        prop_assert_eq!(parse_amount(&text), Ok(Amount::Bytes(count * unit)));
    }

    #[test]
    fn shares_read_back(millionths in 1..=1_000_000u32) {
        prop_assert_eq!(parse_amount(&share(millionths).to_string()), Ok(share(millionths)));
    }

    #[test]
    fn parts_of_a_whole_fit_together(parts in prop::collection::vec(1..1_000u32, 1..12), whole in any::<u64>()) {
        // Parts that add up to exactly the whole, as near as millionths allow.
        let sum: u32 = parts.iter().sum();
        let shares = parts.iter().filter_map(|part| Share::new((u64::from(*part) * 1_000_000 / u64::from(sum)) as u32));
        let taken: u128 = shares.map(|share| u128::from(share.of(whole))).sum();
        prop_assert!(taken <= u128::from(whole));
    }

    #[test]
    fn a_share_is_at_most_a_step_short(millionths in 1..=1_000_000u32, whole in any::<u64>()) {
        let share = Share::new(millionths).expect("a part");
        let exact = u128::from(whole) * u128::from(millionths) / 1_000_000;
        let got = u128::from(share.of(whole));
        prop_assert!(got <= exact && exact - got < u128::from(Share::STEP_BYTES));
        prop_assert!(got > 0 || exact == 0);
    }

    #[test]
    fn no_text_is_a_panic_and_errors_name_it(text in any::<String>()) {
        let errors = [parse_amount(&text).err(), parse_share(&text).err(), parse_duration(&text).err()];
        for error in errors.into_iter().flatten() {
            let said = error.to_string();
            prop_assert!(!said.chars().any(char::is_control), "{:?}", said);
            prop_assert!(said.len() < 500);
        }
        let _uuid = DeviceUuid::parse(&text);
    }

    #[test]
    fn near_misses_are_no_panic(
        text in "[-+]?[0-9]{0,25}(\\.[0-9]{0,12})?[ ]?[KMGTPkmgtp%smhd]{0,2}(iB|B|i)?[0-9]{0,3}[smh]?",
    ) {
        if let Ok(amount) = parse_amount(&text) {
            prop_assert_eq!(parse_amount(&amount.to_string()), Ok(amount));
        }
        if let Ok(ns) = parse_duration(&text) {
            prop_assert!(!format_duration(ns).is_empty());
        }
    }

    #[test]
    fn uuids_read_back(bytes in any::<[u8; 16]>(), is_mig in any::<bool>()) {
        let uuid = DeviceUuid { bytes, is_mig };
        prop_assert_eq!(DeviceUuid::parse(&uuid.to_string()), Some(uuid));
    }
}
