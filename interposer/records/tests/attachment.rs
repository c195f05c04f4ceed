// SPDX-License-Identifier: Apache-2.0
//! A process attaches once, and comes back as the client that it was.

use partage_records::attachment::{Transition, welcomed};

#[test]
fn the_first_welcome_attaches_if_it_brings_the_pages() {
    assert_eq!(welcomed(0, 7, true, false), Transition::Attach);
    assert_eq!(welcomed(0, 7, false, false), Transition::Refuse);
}

#[test]
fn a_client_comes_back_under_its_own_id_only() {
    for has_files in [false, true] {
        assert_eq!(welcomed(7, 7, has_files, false), Transition::Reattach);
        assert_eq!(welcomed(7, 8, has_files, false), Transition::Refuse);
    }
}

#[test]
fn a_welcome_for_nobody_is_refused() {
    for (own, has_files) in [(0, false), (0, true), (7, false), (7, true)] {
        assert_eq!(welcomed(own, 0, has_files, false), Transition::Refuse);
    }
}

#[test]
fn a_parked_process_comes_back_with_pages_alone_and_under_any_id() {
    for given in [7, 8] {
        assert_eq!(welcomed(7, given, true, true), Transition::Return);
        assert_eq!(welcomed(7, given, false, true), Transition::Refuse);
    }
    assert_eq!(welcomed(7, 0, true, true), Transition::Refuse);
}

/// Whatever welcomes come, in whatever order: attached once, and the id never changes after.
#[test]
fn no_order_of_welcomes_attaches_twice() {
    let welcomes: Vec<(u64, bool)> = (0..3).flat_map(|id| [(id, false), (id, true)]).collect();
    let mut orders: Vec<Vec<(u64, bool)>> = vec![Vec::new()];
    for _ in 0..4 {
        orders = orders
            .into_iter()
            .flat_map(|order| welcomes.iter().map(move |next| [order.as_slice(), &[*next]].concat()))
            .collect();
    }
    for order in orders {
        let (mut own, mut attached) = (0, 0);
        for (given, has_files) in order {
            match welcomed(own, given, has_files, false) {
                Transition::Attach => {
                    attached += 1;
                    own = given;
                }
                Transition::Reattach => assert_eq!(own, given),
                Transition::Return => panic!("nobody was parked"),
                Transition::Refuse => {}
            }
        }
        assert!(attached <= 1 && (attached == 1) == (own != 0));
    }
}
