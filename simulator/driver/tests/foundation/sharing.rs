// SPDX-License-Identifier: Apache-2.0
//! Several processes on one machine: capacity is common, and what a dead process held is free again.

use partage_abi::types::CuResult;

use crate::child::{Cuda, Folder, MIB, listen, role, say};

const DONE: u8 = 0xf1;
const GO: u8 = 0xf2;

/// Holds `mebibytes` from its first word on until it is told to end.
fn hold(mebibytes: u64) {
    let cuda = Cuda::load();
    cuda.context(0);
    cuda.allocate(mebibytes * MIB).expect("room");
    say(DONE);
    listen();
}

#[test]
fn what_one_process_holds_another_cannot_have() {
    const TEST: &str = "sharing::what_one_process_holds_another_cannot_have";
    match role().as_deref() {
        Some("holder") => return hold(600),
        Some(_) => {
            let cuda = Cuda::load();
            cuda.context(0);
            assert_eq!(cuda.used(), (600 + 2 * 16) * MIB);
            assert_eq!(cuda.allocate(500 * MIB), Err(CuResult::OUT_OF_MEMORY));
            cuda.allocate(392 * MIB).expect("exactly the rest");
            return;
        }
        None => {}
    }
    let folder = Folder::new(1);
    let mut holder = folder.start(TEST, "holder");
    holder.hear(DONE);
    folder.run(TEST, "other", &[]);
    assert_eq!(folder.machine().used(0), 616 * MIB, "the other has left");
    let occupants = folder.machine().occupants(0);
    assert_eq!(occupants.len(), 1);
    assert_eq!(
        (occupants[0].pid, occupants[0].used, occupants[0].contexts),
        (holder.child.id(), 616 * MIB, 1)
    );
    holder.finish();
    assert_eq!(folder.machine().used(0), 0);
}

#[test]
fn a_killed_process_gives_everything_back_at_the_next_look() {
    const TEST: &str = "sharing::a_killed_process_gives_everything_back_at_the_next_look";
    if role().is_some() {
        return hold(900);
    }
    let folder = Folder::new(1);
    for _ in 0..10 {
        let mut holder = folder.start(TEST, "holder");
        holder.hear(DONE);
        assert_eq!(folder.machine().used(0), 916 * MIB);
        holder.kill();
        assert_eq!(folder.machine().used(0), 0);
    }
}

#[test]
fn a_process_killed_at_any_instant_leaves_nothing_wrong() {
    const TEST: &str = "sharing::a_process_killed_at_any_instant_leaves_nothing_wrong";
    if role().is_some() {
        let cuda = Cuda::load();
        cuda.context(0);
        say(DONE);
        loop {
            let address = cuda.allocate(5 * MIB).expect("room");
            partage_free(&cuda, address);
        }
    }
    let folder = Folder::new(1);
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = seed;
    for _ in 0..25 {
        let mut loops = folder.start(TEST, "loop");
        loops.hear(DONE);
        // A place in the loop that differs every time: so many questions to the machine later.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let machine = folder.machine();
        for _ in 0..random >> 25 {
            assert!(machine.used(0) <= 21 * MIB);
        }
        loops.kill();
        assert_eq!(machine.used(0), 0);
    }
}

fn partage_free(cuda: &Cuda, address: u64) {
    crate::child::ok!(cuda, cuMemFree_v2(address));
}

#[test]
fn of_two_that_ask_for_sixty_percent_one_gets_it() {
    const TEST: &str = "sharing::of_two_that_ask_for_sixty_percent_one_gets_it";
    const ROUNDS: usize = 200;
    const GOT: u8 = 0xf3;
    const NOT: u8 = 0xf4;
    if role().is_some() {
        let cuda = Cuda::load();
        cuda.context(0);
        say(DONE);
        while listen() == Some(GO) {
            let got = cuda.allocate(600 * MIB);
            say(if got.is_ok() { GOT } else { NOT });
            // Kept until both have asked.
            listen();
            if let Ok(address) = got {
                partage_free(&cuda, address);
            }
            say(DONE);
        }
        return;
    }
    let folder = Folder::new(1);
    let mut both = [folder.start(TEST, "one"), folder.start(TEST, "two")];
    both.iter_mut().for_each(|partner| partner.hear(DONE));
    for round in 0..ROUNDS {
        both.iter_mut().for_each(|partner| partner.tell(GO));
        let got = both
            .iter_mut()
            .map(|partner| partner.hear_one_of([GOT, NOT]))
            .filter(|said| *said == GOT)
            .count();
        assert_eq!(got, 1, "round {round}");
        both.iter_mut().for_each(|partner| partner.tell(GO));
        both.iter_mut().for_each(|partner| partner.hear(DONE));
    }
    both.into_iter().for_each(|partner| partner.finish());
}
