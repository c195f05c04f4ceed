// SPDX-License-Identifier: Apache-2.0
//! Processes that come back to other devices than they left, or to a machine that was made anew.

use partage_abi::types::*;
use partage_machine::spec::MapRule;
use partage_machine::{Machine, Spec};

use super::away::{books, comes_back, leaves};
use super::families::Everything;
use super::*;

fn uuids() -> Vec<[u8; 16]> {
    let machine = Machine::open(&folder()).expect("the machine is there");
    machine.devices().iter().map(|device| device.uuid).collect()
}

#[test]
fn a_process_goes_where_the_pairs_say_with_all_it_has() {
    const TEST: &str = "checkpoint::moves::a_process_goes_where_the_pairs_say_with_all_it_has";
    run_on(
        TEST,
        |spec| *spec = Spec::new(3, "h200", Some(1 << 30)),
        |driver| {
            let (here, devices) = (own_pid(), uuids());
            let mut all = Everything::make(driver);
            let mut extra = CuContext::NULL;
            call!(driver, cuCtxCreate_v2(&mut extra, 0, 2));
            all.work();
            let before = all.seen();
            // Where each of the process's devices is.
            let mut at = [0, 1, 2];
            for to in [[1, 0, 2], [1, 2, 0], [0, 1, 2], [2, 1, 0], [0, 2, 1]] {
                let held = books();
                let pairs: Vec<_> = (0..3).map(|place| (devices[place], devices[to[place]])).collect();
                leaves(driver, here);
                comes_back(driver, here, &pairs);
                let now = books();
                (0..3).for_each(|place| assert_eq!(now[to[place]], held[place], "{to:?}"));
                at = at.map(|place| to[place]);
                for (ordinal, place) in at.iter().enumerate() {
                    let mut uuid = CuUuid::default();
                    call!(driver, cuDeviceGetUuid(&mut uuid, ordinal as c_int));
                    assert_eq!(uuid.bytes.map(|byte| byte as u8), devices[*place]);
                    assert_eq!(pci_bus(driver, ordinal as c_int), 0x10 + 0x0d * *place as i32);
                }
                all.work();
                assert_eq!(all.seen(), before, "{to:?}");
            }
            // What it says of PCI may be of the devices from before.
            set_faults("stale");
            let was = pci_bus(driver, 0);
            leaves(driver, here);
            comes_back(
                driver,
                here,
                &[
                    (devices[0], devices[1]),
                    (devices[1], devices[2]),
                    (devices[2], devices[0]),
                ],
            );
            assert_eq!(pci_bus(driver, 0), was);
        },
    );
}

/// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`.
fn pci_bus(driver: &Driver, ordinal: c_int) -> c_int {
    let mut bus = 0;
    call!(driver, cuDeviceGetAttribute(&mut bus, 33, ordinal));
    bus
}

#[test]
fn a_process_enters_the_machine_that_there_is() {
    const TEST: &str = "checkpoint::moves::a_process_enters_the_machine_that_there_is";
    run_on(
        TEST,
        |spec| *spec = Spec::new(2, "h200", Some(1 << 30)),
        |driver| {
            let (here, old, held) = (own_pid(), uuids(), books());
            let mut all = Everything::make(driver);
            let before = all.seen();
            leaves(driver, here);
            // Without a machine it stays away, and so with another one that it was not mapped to.
            let folder = folder();
            Machine::remove(&folder).expect("it is ours");
            assert_eq!(restore(driver, here, &[]), CuResult::OPERATING_SYSTEM);
            assert_eq!(state_of(driver, here), CHECKPOINTED);
            Machine::create(&folder, &Spec::new(2, "l4", Some(1 << 30))).expect("a machine can be made");
            let other = uuids();
            assert_eq!(
                restore(driver, here, &[(old[0], other[0]), (old[1], other[1])]),
                CuResult::INVALID_VALUE,
                "another model"
            );
            Machine::remove(&folder).expect("it is ours");
            Machine::create(&folder, &Spec::new(2, "h200", Some(1 << 30))).expect("a machine can be made");
            let new = uuids();
            assert_ne!(new, old);
            assert_eq!(
                restore(driver, here, &[]),
                CuResult::INVALID_VALUE,
                "those devices are gone"
            );
            assert_eq!(state_of(driver, here), CHECKPOINTED);
            comes_back(driver, here, &[(old[0], new[1]), (old[1], new[0])]);
            all.work();
            let mut counted = all.seen();
            counted.retain(|name, _| before.contains_key(name));
            let expected = before.into_iter().map(|(name, value)| {
                // Its memory is written by the work alone.
                let value = if name == "0 result" { 0xabcd } else { value };
                (name, value)
            });
            assert_eq!(counted, expected.collect());
            let now = books();
            assert!(
                now.iter()
                    .all(|(bytes, pids)| *bytes > held[1].0 && pids[..] == [here as u32])
            );
        },
    );
}

#[test]
fn a_map_that_is_refused_leaves_the_process_where_it_is() {
    const TEST: &str = "checkpoint::moves::a_map_that_is_refused_leaves_the_process_where_it_is";
    let three = |spec: &mut Spec| *spec = Spec::new(3, "h200", Some(1 << 30));
    run_on(TEST, three, |driver| {
        let (here, devices) = (own_pid(), uuids());
        let (a, b, c, nobody) = (devices[0], devices[1], devices[2], [7; 16]);
        leaves(driver, here);
        for pairs in [
            vec![(a, b)],
            vec![(a, b), (b, a)],
            vec![(a, a), (b, b), (c, nobody)],
            vec![(nobody, a), (b, b), (c, c)],
            vec![(a, b), (b, b), (c, c)],
            vec![(a, a); 65],
        ] {
            assert_eq!(restore(driver, here, &pairs), CuResult::INVALID_VALUE, "{pairs:?}");
            assert_eq!(state_of(driver, here), CHECKPOINTED);
        }
        comes_back(driver, here, &[]);
        call!(driver, cuCtxSynchronize());
    });
}

#[test]
fn what_a_masked_process_may_be_told_is_the_machines_to_say() {
    const TEST: &str = "checkpoint::moves::what_a_masked_process_may_be_told_is_the_machines_to_say";
    if role().as_deref() == Some("target") {
        return target();
    }
    if role().is_some() {
        let driver = &Driver::open();
        let rule = Machine::open(&folder()).expect("it is there").spec().map;
        // This process sees one of the two devices.
        let (here, devices, mut count) = (own_pid(), uuids(), 0);
        call!(driver, cuDeviceGetCount(&mut count));
        assert_eq!(count, 1);
        let swap = [(devices[0], devices[1]), (devices[1], devices[0])];
        leaves(driver, here);
        let answer = restore(driver, here, &swap);
        match rule {
            MapRule::Machine => assert_eq!(answer, CuResult::SUCCESS),
            MapRule::Unmasked => {
                assert_eq!(answer, CuResult::INVALID_VALUE);
                let same = devices.iter().map(|uuid| (*uuid, *uuid)).collect::<Vec<_>>();
                assert_eq!(restore(driver, here, &same), CuResult::INVALID_VALUE, "any pairs");
                assert_eq!(restore(driver, here, &[]), CuResult::SUCCESS);
            }
        }
        assert_eq!(unlock(driver, here), CuResult::SUCCESS);
        let used: Vec<bool> = books().iter().map(|(bytes, _)| *bytes > 0).collect();
        assert_eq!(used, [rule == MapRule::Unmasked, rule == MapRule::Machine]);
        return;
    }
    for rule in [MapRule::Machine, MapRule::Unmasked] {
        let mut spec = Spec::new(2, "h200", Some(1 << 30));
        spec.map = rule;
        let folder = make_of(spec);
        let mut masked = crate::machine::command(TEST, &folder.0, "body");
        masked.env("CUDA_VISIBLE_DEVICES", "0");
        finish(masked.spawn().expect("a child starts"), TEST);
    }
}
