// SPDX-License-Identifier: Apache-2.0
//! What a peer sends is never a panic: binary messages, JSON frames and requests, with arbitrary, cut and bent bytes.

use partage_protocol::admin::{Reply, Request, RunRequest};
use partage_protocol::frame::{Assembler, CHUNK, FrameError, MAX_DOCUMENT, is_json, packets};
use partage_protocol::message::{
    Answer, Ask, DecodeError, Devices, Header, Hello, MAGIC, MAJOR, MAX_DEVICES, MAX_PACKET, Measure, Notice, Refused,
    ToBroker, ToClient, Usage, VERDICT_GRANTED, Welcome,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use zerocopy::IntoBytes;

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

fn header(kind: u16, length: usize) -> Header {
    Header {
        magic: MAGIC,
        major: MAJOR,
        minor: 7,
        kind,
        length: length as u16,
        sequence: 3,
    }
}

/// Packets that are nearly right: a known kind and any body of any length.
fn nearly(body: &[u8], kind: u16) -> Vec<u8> {
    let mut packet = header(kind, size_of::<Header>() + body.len()).as_bytes().to_vec();
    packet.extend_from_slice(body);
    packet
}

#[test]
fn kinds_have_a_number_each_and_fit_a_packet() {
    let kinds = [
        (Hello::KIND, size_of::<Hello>()),
        (Devices::KIND, size_of::<Devices>()),
        (Ask::KIND, size_of::<Ask>()),
        (Usage::KIND, size_of::<Usage>()),
        (Notice::KIND, size_of::<Notice>()),
        (Measure::KIND, size_of::<Measure>()),
        (Welcome::KIND, size_of::<Welcome>()),
        (Refused::KIND, size_of::<Refused>()),
        (Answer::KIND, size_of::<Answer>()),
    ];
    for (at, (kind, size)) in kinds.iter().enumerate() {
        assert!(kinds[..at].iter().all(|(other, _)| other != kind));
        assert!(*size <= MAX_PACKET && *size <= usize::from(u16::MAX));
        let whole = nearly(&vec![0; size - size_of::<Header>()], *kind);
        // Each kind is of one direction.
        assert_ne!(ToBroker::decode(&whole).is_ok(), ToClient::decode(&whole).is_ok());
        // A newer minor's longer body is read, a shorter one is not.
        let longer = nearly(&vec![0; size - size_of::<Header>() + 9], *kind);
        assert!(ToBroker::decode(&longer).is_ok() || ToClient::decode(&longer).is_ok());
        let shorter = nearly(&vec![0; size - size_of::<Header>() - 1], *kind);
        assert!(ToBroker::decode(&shorter).is_err() && ToClient::decode(&shorter).is_err());
    }
}

#[test]
fn each_defect_of_a_header_is_told() {
    let ask = Ask {
        header: Ask::header(1),
        slot: 0,
        reserved: 0,
        wanted: 5,
        request: 5,
    };
    assert_eq!(ToBroker::decode(ask.as_bytes()), Ok(ToBroker::Ask(ask)));
    let with = |change: fn(&mut Header)| {
        let mut ask = ask;
        change(&mut ask.header);
        ToBroker::decode(ask.as_bytes())
    };
    assert_eq!(with(|header| header.magic = 0), Err(DecodeError::Magic));
    assert_eq!(
        with(|header| header.major = MAJOR + 1),
        Err(DecodeError::Major(MAJOR + 1))
    );
    assert_eq!(with(|header| header.length += 1), Err(DecodeError::Length));
    assert_eq!(with(|header| header.kind = 63), Err(DecodeError::Kind(63)));
    assert!(with(|header| header.minor += 1).is_ok(), "a newer minor is understood");
    assert_eq!(
        ToClient::decode(ask.as_bytes()),
        Err(DecodeError::Kind(Ask::KIND)),
        "the other direction"
    );
    assert_eq!(ToBroker::decode(&[]), Err(DecodeError::TooShort));
}

#[test]
fn a_document_without_end_is_refused_in_time() {
    let mut assembler = Assembler::default();
    let packet = packets(&vec![b' '; 2 * CHUNK]).next().expect("a first part");
    let refused_at = (0..)
        .find(|_| assembler.push(&packet) == Err(FrameError::TooLong))
        .expect("refused");
    assert_eq!(refused_at, MAX_DOCUMENT / CHUNK);
}

#[test]
fn requests_with_unknown_fields_are_refused() {
    assert!(serde_json::from_str::<Request>(r#"{"verb":"ps","all":true}"#).is_ok());
    for text in [
        r#"{"verb":"ps","all":true,"more":1}"#,
        r#"{"verb":"format"}"#,
        r#"{"verb":"run","meM":"8GiB"}"#,
        "[]",
        "",
    ] {
        assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn arbitrary_bytes_are_an_error_or_a_message(packet in prop::collection::vec(any::<u8>(), 0..1_500)) {
        let _ = (ToBroker::decode(&packet), ToClient::decode(&packet), is_json(&packet));
        let _ = Assembler::default().push(&packet);
        let _ = serde_json::from_slice::<Request>(&packet);
        let _ = serde_json::from_slice::<Reply>(&packet);
    }

    #[test]
    fn any_body_of_any_kind_is_an_error_or_a_message(
        body in prop::collection::vec(any::<u8>(), 0..1_500),
        kind in prop_oneof![0..8u16, 60..70u16, any::<u16>()],
    ) {
        let packet = nearly(&body, kind);
        for decoded in [ToBroker::decode(&packet).is_ok(), ToClient::decode(&packet).is_ok()] {
            // Only whole bodies decode; the smallest message has eight bytes of body.
            prop_assert!(!decoded || body.len() >= 8);
        }
        // Bent by one byte it is still no panic.
        for at in 0..packet.len().min(size_of::<Header>()) {
            let mut bent = packet.clone();
            bent[at] ^= 0x55;
            let _ = (ToBroker::decode(&bent), ToClient::decode(&bent));
        }
    }

    #[test]
    fn messages_read_back(
        wanted in any::<u64>(), request in any::<u64>(), slot in any::<u32>(), sequence in any::<u32>(),
    ) {
        let ask = Ask { header: Ask::header(sequence), slot, reserved: 0, wanted, request };
        prop_assert_eq!(ToBroker::decode(ask.as_bytes()), Ok(ToBroker::Ask(ask)));
        let header = Answer::header(sequence);
        let (granted, limit, job_used, physical_free) = (wanted, request, wanted ^ request, u64::MAX);
        let answer = Answer { header, verdict: VERDICT_GRANTED, slot, granted, limit, job_used, physical_free };
        prop_assert_eq!(ToClient::decode(answer.as_bytes()), Ok(ToClient::Answer(answer)));
    }

    #[test]
    fn devices_read_back(
        uuids in any::<[[u8; 16]; MAX_DEVICES]>(),
        pci in any::<[[u8; 16]; MAX_DEVICES]>(),
        count in any::<u32>()) {
        let devices = Devices { header: Devices::header(1), count, reserved: 0, uuids, pci };
        prop_assert_eq!(ToBroker::decode(devices.as_bytes()), Ok(ToBroker::Devices(devices)));
    }

    #[test]
    fn documents_survive_being_cut(length in 0..3 * CHUNK, salt in any::<u8>()) {
        let document: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(31) ^ salt).collect();
        let mut assembler = Assembler::default();
        let mut whole = None;
        for packet in packets(&document) {
            prop_assert!(is_json(&packet) && packet.len() <= MAX_PACKET);
            prop_assert_eq!(whole.take(), None);
            whole = assembler.push(&packet).expect("our own packet");
        }
        prop_assert_eq!(whole, Some(document));
    }

    #[test]
    fn requests_read_back(
        mem in any::<Option<String>>(), name in any::<Option<String>>(),
        command in prop::collection::vec(any::<String>(), 0..5),
        labels in prop::collection::vec(any::<(String, String)>(), 0..4),
        wait in any::<bool>(), wait_timeout_ns in any::<Option<u64>>(),
    ) {
        let run = RunRequest { mem, name, command, labels, wait, wait_timeout_ns, ..RunRequest::default() };
        let text = serde_json::to_string(&Request::Run(Box::new(run.clone()))).expect("a document");
        prop_assert_eq!(serde_json::from_str::<Request>(&text).expect("our own"), Request::Run(Box::new(run)));
    }
}
