// SPDX-License-Identifier: Apache-2.0
//! Other tools' variables: each spelling, each precedence, each mistake; and no text at all is ever a panic.

use partage_protocol::aliases::{Asked, Family, Fault, Gpu, Variable, asked, entries, lowest, pinned};
use partage_protocol::message::MAX_DEVICES;
use partage_protocol::units::{GIB, KIB, MIB, TIB};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A seed that is printed (with a failure, as all output of a test), or the one that is asked for.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0));
    }
    println!("replay with PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

fn variables(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

fn read(texts: &[(&str, &str)]) -> Asked {
    asked(&variables(texts), |_| true).expect("valid").expect("something")
}

fn packed(texts: &[(&str, &str)]) -> Vec<u8> {
    texts
        .iter()
        .flat_map(|(name, value)| format!("{name}={value}\0").into_bytes())
        .collect()
}

#[test]
fn each_variable_has_its_units() {
    let device = |value: &str| Variable::Device.amount(value.as_bytes());
    for (value, bytes) in [
        ("1g", GIB),
        ("1024m", GIB),
        ("3G", 3 * GIB),
        ("2GiB", 2 * GIB),
        ("2gb", 2 * GIB),
        ("5Ki", 5 * KIB),
        ("1t", TIB),
        ("4096", 4096),
        ("4096B", 4096),
    ] {
        assert_eq!(device(value), Ok(Some(bytes)), "{value}");
    }
    for (value, fault) in [
        ("0", Fault::Zero),
        ("0g", Fault::Zero),
        ("8x", Fault::Unit),
        ("1.5g", Fault::Unit),
        ("25%", Fault::Unit),
        ("8 g", Fault::Unit),
        ("8gg", Fault::Unit),
        ("8Bib", Fault::Unit),
        ("-1g", Fault::NotANumber),
        ("g", Fault::NotANumber),
        ("unlimited", Fault::NotANumber),
        ("18446744073709551616", Fault::TooLarge),
        ("18446744073709551615k", Fault::TooLarge),
        ("99999999999999999999999999", Fault::TooLarge),
    ] {
        assert_eq!(device(value), Err(fault), "{value}");
    }
    let nvidia = |value: &str| Variable::NvidiaLimit.amount(value.as_bytes());
    assert_eq!(nvidia("8192"), Ok(Some(8 * GIB)));
    assert_eq!(nvidia("8192MiB"), Err(Fault::Unit));
    assert_eq!(nvidia("0"), Err(Fault::Zero));
    assert_eq!(nvidia("18446744073709551615"), Err(Fault::TooLarge));
}

#[test]
fn a_list_names_devices_and_needs_units() {
    let list: Vec<_> = pinned(b"0=2G, GPU-ab12=512M,mig-3f=1g").collect();
    assert_eq!(
        list,
        [
            Ok((Gpu::Visible(0), 2 * GIB)),
            Ok((Gpu::Uuid(b"GPU-ab12"), 512 * MIB)),
            Ok((Gpu::Uuid(b"mig-3f"), GIB)),
        ]
    );
    for (text, fault) in [
        ("0=2", Fault::NoUnit),
        ("2G", Fault::Entry),
        ("", Fault::Entry),
        ("0=2G,", Fault::Entry),
        ("x=2G", Fault::Gpu),
        ("GPU-=2G", Fault::Gpu),
        ("99999999999=2G", Fault::Gpu),
        ("-1=2G", Fault::Gpu),
        ("0=", Fault::NotANumber),
        ("0=0G", Fault::Zero),
    ] {
        assert_eq!(pinned(text.as_bytes()).find_map(Result::err), Some(fault), "{text}");
    }
}

#[test]
fn names_are_read_exactly() {
    assert_eq!(Variable::of(b"CUDA_DEVICE_MEMORY_LIMIT_3"), Some(Variable::DeviceAt(3)));
    for name in [
        "CUDA_DEVICE_MEMORY_LIMIT_",
        "CUDA_DEVICE_MEMORY_LIMIT_x",
        "CUDA_DEVICE_MEMORY_LIMIT_0x",
        "CUDA_DEVICE_MEMORY_LIMIT_16",
        "CUDA_DEVICE_MEMORY_LIMITS",
        "cuda_device_memory_limit",
        "NVIDIA_GPU_MEMORY",
        "CUDA_DISABLE_CONTROL",
        "",
    ] {
        assert_eq!(Variable::of(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn the_first_family_that_speaks_counts() {
    let all = [
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=3G"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1024"),
    ];
    let first = |from: usize, off: &[Family]| {
        let found = asked(&variables(&all[..from]), |family| !off.contains(&family)).expect("valid");
        found.map(|asked| (asked.family, asked.limit(Some(0), "GPU-a").map(|said| said.bytes)))
    };
    assert_eq!(first(3, &[]), Some((Family::Nvidia, Some(GIB))));
    assert_eq!(first(2, &[]), Some((Family::Device, Some(2 * GIB))));
    assert_eq!(first(1, &[]), Some((Family::Pinned, Some(3 * GIB))));
    assert_eq!(first(0, &[]), None);
    assert_eq!(first(3, &[Family::Nvidia]), Some((Family::Device, Some(2 * GIB))));
    assert_eq!(first(3, &Family::ALL), None);
    // Empty is unset, and garbage in a family that does not count is nobody's business.
    let texts = [
        ("NVIDIA_GPU_MEMORY_LIMIT", ""),
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
        all[0],
    ];
    assert_eq!(read(&texts).family, Family::Device);
    let texts = [
        ("NVIDIA_GPU_MEMORY_LIMIT", "1"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "garbage"),
    ];
    assert_eq!(read(&texts).family, Family::Nvidia);
}

#[test]
fn request_and_limit_copy_each_other() {
    let request = [("NVIDIA_GPU_MEMORY_REQUEST", "1024")];
    let both = |asked: &Asked| {
        let bytes = |said: &Option<partage_protocol::aliases::Said>| said.as_ref().map(|said| said.bytes);
        (bytes(&asked.request), bytes(&asked.everywhere))
    };
    assert_eq!(both(&read(&request)), (Some(GIB), Some(GIB)));
    assert_eq!(
        both(&read(&[request[0], ("NVIDIA_GPU_MEMORY_LIMIT", "2048")])),
        (Some(GIB), Some(2 * GIB))
    );
    // A limit alone is promised too, as with --mem: whoever reads this defaults the request to it.
    assert_eq!(
        both(&read(&[("NVIDIA_GPU_MEMORY_LIMIT", "2048")])),
        (None, Some(2 * GIB))
    );
    let wrong = asked(&variables(&[request[0], ("NVIDIA_GPU_MEMORY_LIMIT", "512")]), |_| true);
    let text = wrong.expect_err("a request above its limit").to_string();
    assert!(text.contains("REQUEST=1024") && text.contains("LIMIT=512"), "{text}");
}

#[test]
fn the_most_specific_limit_of_a_device_holds() {
    let asked = read(&[("CUDA_DEVICE_MEMORY_LIMIT", "8g"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "1g")]);
    let bytes = |visible, uuid: &str| asked.limit(visible, uuid).map(|said| said.bytes);
    assert_eq!(
        (bytes(Some(0), "GPU-a"), bytes(Some(1), "GPU-b")),
        (Some(8 * GIB), Some(GIB))
    );
    assert_eq!(bytes(None, "GPU-c"), Some(8 * GIB));
    assert_eq!(
        asked.limit(Some(1), "GPU-b").map(|said| said.text.as_str()),
        Some("CUDA_DEVICE_MEMORY_LIMIT_1=1g")
    );
    let list = read(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,GPU-AB=4G")]);
    let bytes = |visible, uuid: &str| list.limit(visible, uuid).map(|said| said.bytes);
    assert_eq!(bytes(Some(0), "GPU-ab01"), Some(4 * GIB));
    assert_eq!(
        (bytes(Some(0), "GPU-cd"), bytes(Some(1), "GPU-cd")),
        (Some(2 * GIB), None)
    );
    assert_eq!(list.lowest().map(|said| said.bytes), Some(2 * GIB));
}

#[test]
fn an_unknown_device_of_a_list_is_an_error() {
    let uuids = ["GPU-ab01".to_owned(), "GPU-ab02".to_owned()];
    let check = |value: &str| read(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value)]).check_devices(&uuids);
    assert_eq!(check("0=1G,1=2G,GPU-AB02=3G"), Ok(()));
    for (value, part) in [("2=1G", "GPU 2"), ("GPU-ff=1G", "gpu-ff"), ("GPU-ab=1G", "several")] {
        let text = check(value).expect_err(value).to_string();
        assert!(text.contains(part) && text.contains(value), "{text}");
    }
    let beyond = read(&[("CUDA_DEVICE_MEMORY_LIMIT_7", "1g")]);
    assert_eq!(beyond.check_devices(&uuids), Ok(()), "limits nothing, frees nothing");
}

#[test]
fn mistakes_name_the_variable_and_hide_control_characters() {
    let wrong = asked(&variables(&[("CUDA_DEVICE_MEMORY_LIMIT_2", "8\x1b[2Jx")]), |_| true);
    let text = wrong.expect_err("no size").to_string();
    assert_eq!(
        text,
        "CUDA_DEVICE_MEMORY_LIMIT_2=8\\u{1b}[2Jx has a unit that this variable does not take"
    );
}

#[test]
fn the_lowest_of_the_first_family_holds_while_nobody_knows_the_devices() {
    let of = |texts: &[(&str, &str)]| lowest(&packed(texts));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("CUDA_VISIBLE_DEVICES", "0")]), None);
    assert_eq!(
        of(&[("CUDA_DEVICE_MEMORY_LIMIT_1", "2g"), ("CUDA_DEVICE_MEMORY_LIMIT", "3g")]),
        Some(Ok(2 * GIB))
    );
    assert_eq!(
        of(&[
            ("NVIDIA_GPU_MEMORY_REQUEST", "1024"),
            ("NVIDIA_GPU_MEMORY_LIMIT", "2048")
        ]),
        Some(Ok(2 * GIB))
    );
    assert_eq!(of(&[("NVIDIA_GPU_MEMORY_REQUEST", "1024")]), Some(Ok(GIB)));
    assert_eq!(of(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=1G")]), Some(Ok(GIB)));
    assert_eq!(
        of(&[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1")]),
        Some(Err(Fault::Entry))
    );
    let texts = [("CUDA_DEVICE_MEMORY_LIMIT", "x"), ("NVIDIA_GPU_MEMORY_LIMIT", "1024")];
    assert_eq!(of(&texts), Some(Ok(GIB)));
}

fn near() -> impl Strategy<Value = (String, String)> {
    let names = prop::sample::select(vec![
        "NVIDIA_GPU_MEMORY_REQUEST",
        "NVIDIA_GPU_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT_0",
        "CUDA_DEVICE_MEMORY_LIMIT_15",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        "PATH",
    ]);
    let values = prop_oneof![
        3 => "[0-9]{0,21}[kKmMgGtTbBi%. ]{0,3}",
        3 => "(([0-9]{1,3}|GPU-[0-9a-f-]{0,6}|MIG-|x)?=?[0-9]{0,20}[kKmMgG]?,?){0,4}",
        1 => "[^\\x00]*",
    ];
    (names.prop_map(str::to_owned), values)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_text_is_a_panic(name in any::<Vec<u8>>(), value in any::<Vec<u8>>()) {
        let _ = Variable::of(&name).map(|variable| variable.amount(&value));
        let _ = pinned(&value).count();
        let _ = entries(&value).count();
        let _ = lowest(&value);
    }

    /// The library's one number is never above any limit that the broker would set from the same variables, and where
    /// one of them cannot be read the other cannot either.
    #[test]
    fn the_two_readers_agree(variables in prop::collection::vec(near(), 0..5)) {
        let mut seen = std::collections::BTreeMap::new();
        // An environment has each name once.
        for (name, value) in variables {
            seen.insert(name, value);
        }
        let variables: Vec<(String, String)> = seen.into_iter().collect();
        let pack = |(name, value): &_| format!("{name}={value}\0").into_bytes();
        let packed: Vec<u8> = variables.iter().flat_map(pack).collect();
        match (lowest(&packed), asked(&variables, |_| true)) {
            (None, found) => prop_assert_eq!(found, Ok(None)),
            (Some(Ok(bytes)), Ok(Some(asked))) => {
                for index in 0..MAX_DEVICES as u32 {
                    if let Some(said) = asked.limit(Some(index), "GPU-0") {
                        prop_assert!(bytes <= said.bytes);
                    }
                }
                prop_assert_eq!(Some(bytes), asked.lowest().map(|said| said.bytes));
            }
            (Some(Err(_)), Err(_)) => {}
            // A request above its limit: the library need not see that, the limit holds.
            (Some(Ok(_)), Err(error)) => prop_assert!(error.why.contains("more than the limit"), "{}", error),
            (one, other) => prop_assert!(false, "{one:?} and {other:?}"),
        }
    }

    #[test]
    fn a_number_with_a_unit_is_what_it_says(count in 1..1_000_000u64, unit in 0..4usize) {
        let text = format!("{count}{}", ["k", "M", "Gi", "b"][unit]);
        let factor = [KIB, MIB, GIB, 1][unit];
        prop_assert_eq!(Variable::Device.amount(text.as_bytes()), Ok(Some(count * factor)));
    }
}
