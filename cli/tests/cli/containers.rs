// SPDX-License-Identifier: Apache-2.0
//! `partage verify` and `register`: what is said of a wrapper, and the documents against their schemas.

use partage_protocol::admin::Reply;
use partage_protocol::units::GIB;

use crate::bench::{Bench, result};
use crate::played_broker::{admitted, play};
use crate::schema;

#[test]
fn verify_says_what_is_known_against_a_wrapper() {
    let bench = Bench::new();
    let verify = |wrapper: &[&str]| {
        let (code, out, err) = result(bench.partage(&[&["--json", "verify", "--"], wrapper].concat()));
        assert_eq!(code, 1, "{err}");
        let document = schema::judge("verify", &out);
        assert_eq!(document["is_bound"], false, "{document}");
        document["message"].as_str().expect("a sentence").to_owned()
    };
    let outside = "the library is not in the program, so no limit holds for it";
    let own = env!("CARGO_BIN_EXE_partage");
    let silent = format!("the probe did not run there: WRAPPER has to start this very program, {own}");
    // Its place is said before; the tests may run in a container themselves.
    assert!(verify(&[]).ends_with(outside));
    let sudo = bench.script("sudo", "exec \"$@\"");
    let sudo = sudo.to_str().expect("utf-8");
    let known = " (sudo: it changes the user and drops the preloaded library; put it first: sudo partage run ...)";
    assert!(verify(&[sudo]).ends_with(&format!("{outside}{known}")));
    assert!(verify(&["env", "-i"]).contains("without LD_PRELOAD"));
    // 64 bytes of ELF header without program headers.
    let mut elf = vec![0_u8; 64];
    elf[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    elf[18..20].copy_from_slice(&machine.to_le_bytes());
    let program = bench.file("static", &elf, 0o755);
    let program = program.to_str().expect("utf-8");
    assert_eq!(verify(&["true"]), silent);
    // As from an image without the file: the device may have been given.
    let podman = bench.script("podman", "echo no such file >&2; exit 127");
    assert_eq!(verify(&[podman.to_str().expect("utf-8"), "run", "IMAGE"]), silent);
    let said = verify(&["nice", program]);
    let why = "the program is statically linked and loads no library; use a dynamically linked build";
    assert_eq!(said, format!("{silent} ({program}: {why})"));
}

#[test]
fn verify_says_where_a_limit_bit() {
    let bench = Bench::new();
    let met = serde_json::json!({
        "place": "a container of podman (3f2a91c0d4e5)",
        "preload": "file",
        "job": "j3",
        "limit_bytes": GIB,
        "limit_from": "class small",
        "total_bytes": GIB,
        "denied_at_bytes": GIB,
        "code": 2,
    });
    let wrapper = bench.script("wrapper", &format!("echo a banner; echo 'partage-verify: {met}'"));
    let (code, out, err) = result(bench.partage(&["--json", "verify", "--", wrapper.to_str().expect("utf-8")]));
    assert_eq!((code, err.as_str()), (0, "a banner\n"));
    let document = schema::judge("verify", &out);
    assert_eq!(
        document["message"].as_str().map(|text| text.contains("j3 is bound")),
        Some(true)
    );
    assert_eq!(
        (&document["limit_bytes"], &document["job"]),
        (&GIB.into(), &"j3".into())
    );
}

#[test]
fn a_registration_is_a_document() {
    let bench = Bench::new();
    let _requests = play(&bench.socket_dir(), vec![vec![Reply::Admitted(admitted())]; 2]);
    let (code, out, err) = result(bench.partage(&["register", "--pid", "77", "-m", "1GiB", "--json"]));
    assert_eq!((code, err.as_str()), (0, ""));
    let document = schema::judge("registered", &out);
    assert_eq!(document["job"], "j42", "{document}");
}
