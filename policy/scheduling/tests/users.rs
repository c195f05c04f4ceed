// SPDX-License-Identifier: Apache-2.0
//! Time split between users first, in virtual time: how many jobs a user runs changes no other user's part.

mod model;

use model::client::Program;
use model::measure::shares;
use model::programs::saturating;
use model::{MS, S, US, World};
use partage_scheduling::Terms;

/// What a user's part of one second may be off, in percentage points, beside a unit.
const ERROR_PP: f64 = 1.0;
const SECONDS: u64 = 4;

fn of_user(world: &mut World, user: u32, terms: Terms, program: Program) -> usize {
    let job = world.job(Terms {
        user: Some(user),
        ..terms
    });
    world.client(job, 0, program)
}

/// One job of user 1 with units of `one`, ten of user 2 with units of `many`: what the one job has of each second.
fn one_against_ten(is_known: bool, one: u64, many: u64) {
    let mut world = World::new(11, 1, true);
    let mut clients = vec![of_user(&mut world, 1, Terms::default(), saturating(one))];
    for _ in 0..10 {
        clients.push(of_user(&mut world, 2, Terms::default(), saturating(many)));
    }
    if is_known {
        world.know(clients.iter().copied());
    }
    let mut wanted = vec![0.5];
    wanted.extend([0.05; 10]);
    world.run_until(3 * S);
    let unit_pp = one.max(many) as f64 / S as f64 * 100.0;
    let (mut worst, mut used) = (0f64, 1f64);
    for _ in 0..SECONDS {
        let measured = shares(&mut world, &clients, &wanted, 1);
        worst = worst.max((measured.mean[0] - 0.5).abs() * 100.0);
        used = used.min(measured.used);
    }
    println!("units of {one} and {many} ns, known {is_known}: {worst:.2} pp off, {used:.3} used");
    assert!(worst <= ERROR_PP + unit_pp, "{worst} pp");
    assert!(used >= 0.97, "{used}");
}

#[test]
fn one_job_has_half_beside_ten_of_another_user() {
    one_against_ten(false, 200 * US, 200 * US);
    one_against_ten(false, 2 * MS, 100 * US);
    one_against_ten(true, 200 * US, 200 * US);
    one_against_ten(true, 50 * US, MS);
}

/// A promise and a cap are their jobs' own: the promise is kept, the capped job has its cap, and only the rest is split
/// between the users.
#[test]
fn promises_and_caps_hold_as_before() {
    let mut world = World::new(12, 1, true);
    let promised = Terms {
        promise_ppm: 300_000,
        ..Terms::default()
    };
    let capped = Terms {
        cap_ppm: Some(100_000),
        ..Terms::default()
    };
    let mut clients = vec![
        of_user(&mut world, 2, promised, saturating(200 * US)),
        of_user(&mut world, 1, capped, saturating(200 * US)),
    ];
    for _ in 0..4 {
        clients.push(of_user(&mut world, 2, Terms::default(), saturating(200 * US)));
    }
    world.know(clients.iter().copied());
    world.run_until(3 * S);
    // The capped job has less than its user's half of what is not promised. While it waits for its next period it wants
    // nothing, and the other user's four jobs have all of that.
    let wanted = [0.3, 0.1, 0.15, 0.15, 0.15, 0.15];
    let measured = shares(&mut world, &clients, &wanted, SECONDS);
    println!("{measured:?}");
    for (got, wanted) in measured.mean.iter().zip(&wanted) {
        assert!((got - wanted).abs() * 100.0 <= ERROR_PP, "{measured:?}");
    }
}
