// SPDX-License-Identifier: Apache-2.0
//! A machine is made, opened, filled and refused.

use super::device::growth;
use super::*;
use crate::spec::{Bounds, MachineCode};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("partage-machine-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_machine_keeps_its_identity_and_its_devices_differ() {
    let folder = Folder::new("identity");
    let made = Machine::create(&folder.0, &Spec::new(3, "h200", Some(1 << 30))).expect("made");
    let again = Machine::open(&folder.0).expect("opened");
    let uuids = |machine: &Machine| machine.devices().iter().map(Device::uuid_text).collect::<Vec<_>>();
    assert_eq!(uuids(&made), uuids(&again));
    let mut distinct = uuids(&made);
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 3);
    assert!(matches!(
        Machine::create(&folder.0, &Spec::default()),
        Err(Error::Exists { .. })
    ));
}

#[test]
fn a_machine_with_a_name_has_the_same_devices_each_time() {
    let uuids = |name: &str| {
        let folder = Folder::new(&format!("named-{name}"));
        let mut spec = Spec::new(2, "h200", Some(1 << 30));
        spec.id = id_of(name);
        let made = Machine::create(&folder.0, &spec).expect("made");
        made.devices().iter().map(Device::uuid_text).collect::<Vec<_>>()
    };
    assert_eq!(uuids("default"), uuids("default"));
    assert_ne!(uuids("default"), uuids("default2"));
    assert_ne!(id_of("ab"), id_of("ba"));
    assert!(
        ["", "a", "default"]
            .iter()
            .all(|name| (1..=i64::MAX as u64).contains(&id_of(name)))
    );
}

#[test]
fn how_strict_a_machine_is_stands_in_its_file() {
    let folder = Folder::new("strict");
    let mut spec = Spec::new(1, "h200", Some(1 << 30));
    assert_eq!((spec.machine_code, spec.bounds), (MachineCode::Refuse, Bounds::Exact));
    (spec.machine_code, spec.bounds) = (MachineCode::NoOp, Bounds::Granule);
    let made = Machine::create(&folder.0, &spec).expect("made");
    let text = std::fs::read_to_string(made.folder().join("machine.toml")).expect("it is there");
    assert!(
        text.contains("machine_code = \"no-op\"") && text.contains("bounds = \"granule\""),
        "{text}"
    );
    // A file of an older machine says nothing of either.
    let older: String = text
        .lines()
        .filter(|line| !line.contains("\"no-op\"") && !line.contains("\"granule\""))
        .fold(String::new(), |all, line| all + line + "\n");
    std::fs::write(folder.0.join("machine.toml"), older).expect("writable");
    let opened = Machine::open(&folder.0).expect("opened");
    assert_eq!(
        (opened.spec().machine_code, opened.spec().bounds),
        (MachineCode::Refuse, Bounds::Exact)
    );
}

#[test]
fn memory_is_reserved_whole_or_not_at_all() {
    let folder = Folder::new("reserve");
    let mut spec = Spec::new(2, "l4", Some(1 << 30));
    spec.devices[0].context_bytes = Some(1 << 20);
    let machine = Machine::create(&folder.0, &spec).expect("made");
    let seat = machine.take_seat().expect("a seat");
    machine.open_context(seat, 0).expect("room");
    let rest = (1 << 30) - (1 << 20);
    assert_eq!(
        machine.reserve(seat, 0, rest + 1),
        Err(Shortage::Device(Full { free: rest }))
    );
    machine.reserve(seat, 0, rest).expect("exactly");
    assert_eq!((machine.free(0), machine.free(1)), (0, 1 << 30));
    machine.release(seat, 0, rest);
    machine.close_context(seat, 0);
    assert_eq!((machine.used(0), machine.occupants(0)), (0, vec![]));
    machine.reserve(seat, 1, 5).expect("room");
    machine.leave_seat(seat);
    assert_eq!(machine.used(1), 0);
}

#[test]
fn only_a_device_that_is_to_keep_pace_does() {
    let folder = Folder::new("pace");
    let mut spec = Spec::new(2, "l4", Some(1 << 30));
    spec.devices[1].keeps_pace = true;
    Machine::create(&folder.0, &spec).expect("made");
    let machine = Machine::open(&folder.0).expect("opened");
    let limits = machine
        .devices()
        .iter()
        .map(|device| device::settings(device).wake_limit_ns);
    assert_eq!(limits.collect::<Vec<_>>(), [Settings::default().wake_limit_ns, 0]);
}

#[test]
fn a_profile_file_becomes_part_of_the_machine() {
    let folder = Folder::new("profile");
    let file = Folder::new("profile-file");
    std::fs::create_dir_all(&file.0).expect("folder");
    let path = file.0.join("mine.toml");
    let text = "inherits = \"l4\"\nname = \"Mine\"\nmemory = 1_073_741_824\n[kernel_ns]\nspin = 5\n";
    std::fs::write(&path, text).expect("written");
    let asked = path.to_str().expect("utf-8");
    Machine::create(&folder.0, &Spec::new(1, asked, None)).expect("made");
    std::fs::remove_file(&path).expect("no longer needed");
    let machine = Machine::open(&folder.0).expect("opened");
    let Device { profile, memory, .. } = &machine.devices()[0];
    assert_eq!(
        (profile.name.as_str(), *memory, profile.kernel_ns["spin"]),
        ("Mine", 1 << 30, 5)
    );
    assert_eq!(profile.attribute(16), Some(58), "inherited");
}

#[test]
fn pools_of_small_devices_grow_in_small_steps() {
    let mib = |bytes: u64| bytes << 20;
    assert_eq!(growth(None, mib(32), mib(1 << 17)), mib(32));
    assert_eq!(growth(None, mib(32), mib(1024)), mib(16));
    assert_eq!(growth(None, mib(32), mib(200)), mib(2), "a whole number of pages");
    assert_eq!(growth(None, mib(32), mib(64)), mib(2));
    assert_eq!(growth(Some(1), mib(32), mib(1024)), mib(2));
    assert_eq!(growth(Some(mib(64)), mib(32), mib(1024)), mib(64));
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let folder = Folder::new("refused");
    let refused = |spec: &Spec| Machine::create(&folder.0, spec).err().expect("refused").to_string();
    assert!(refused(&Spec::new(0, "h200", None)).contains("1 to 16"));
    assert!(
        refused(&Spec {
            driver: 999,
            ..Spec::default()
        })
        .contains("550, 570, 580")
    );
    assert!(refused(&Spec::new(1, "h900", None)).contains("h200"));
    assert!(Machine::open(&folder.0).is_err());
}
