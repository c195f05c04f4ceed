// SPDX-License-Identifier: Apache-2.0
//! A file system too small for what is asked: refused with the numbers, never a SIGBUS.

use std::path::{Path, PathBuf};
use std::process::Command;

use partage_abi::types::CuResult;
use partage_machine::{Error, Machine, Spec};

use crate::child::{Cuda, MIB, again, ok, role};

const TEST: &str = "file_system::memory_that_could_not_be_written_is_refused";

#[test]
fn memory_that_could_not_be_written_is_refused() {
    if role().is_some() {
        return body(&PathBuf::from(
            std::env::var_os("PARTAGE_SIM_DIR").expect("set by the test"),
        ));
    }
    let folder = std::env::temp_dir().join(format!("partage-small-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // A file system of the test's own needs a name space of its own.
    let mount = "mount -t tmpfs -o size=300m tmpfs \"$0\" && exec \"$@\"";
    let mut inside = Command::new("unshare");
    inside
        .args(["--map-root-user", "--mount", "sh", "-c", mount])
        .arg(&folder);
    let may = inside.arg("true").output().is_ok_and(|output| output.status.success());
    if may {
        let mut inside = Command::new("unshare");
        inside
            .args(["--map-root-user", "--mount", "sh", "-c", mount])
            .arg(&folder);
        again(&mut inside, TEST, "body");
        let output = inside
            .env("PARTAGE_SIM_DIR", folder.join("machine"))
            .output()
            .expect("a child starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(
            said.matches("bytes left and").count(),
            1,
            "the numbers are said once: {said}"
        );
    } else {
        println!("skipped: file_system (no user name spaces here)");
    }
    std::fs::remove_dir(&folder).expect("nothing was left outside the name space");
}

fn body(folder: &Path) {
    let mut spec = Spec::new(1, "h200", Some(1024 * MIB));
    spec.devices[0].context_bytes = Some(0);
    Machine::create(folder, &spec).expect("there is room for a small one");
    let cuda = Cuda::load();
    cuda.context(0);
    let address = cuda.allocate(200 * MIB).expect("room on both");
    assert_eq!(
        cuda.allocate(200 * MIB),
        Err(CuResult::OUT_OF_MEMORY),
        "room on the device only"
    );
    assert_eq!(cuda.used(), 200 * MIB);
    let bytes = vec![1_u8; 200 * MIB as usize];
    ok!(cuda, cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
    // What is written needs no room a second time.
    let more = cuda.allocate(60 * MIB).expect("room");
    ok!(cuda, cuMemcpyHtoD_v2(more, bytes.as_ptr().cast(), 60 * MIB as usize));
    let other = Machine::create(&folder.with_file_name("other"), &spec)
        .err()
        .expect("the rest is too little");
    assert!(
        matches!(other, Error::FileSystemTooSmall { total, .. } if total == 1024 * MIB),
        "{other}"
    );
}
