// SPDX-License-Identifier: Apache-2.0
//! For what a job waits, in virtual time: what is shown holds at any instant, however often its gate moves, and a job
//! that asks for little is told from one that is kept waiting.

mod model;

use model::measure::row;
use model::programs::{bursts, saturating};
use model::{MS, S, US, World};
use partage_scheduling::{Cause, Class, DeviceKey, Event, JobId, JobView, Terms};

/// Views of a job at instants that no period of anything divides, after two seconds.
fn views(world: &mut World, job: JobId) -> Vec<JobView> {
    world.run_until(2 * S);
    let next = |_| {
        world.run_until(world.now + 37 * MS + 113 * US);
        let view = world.scheduler.as_ref().map(|scheduler| scheduler.view(world.now));
        *row(&view.unwrap_or_default(), job)
    };
    (0..60).map(next).collect()
}

#[test]
fn what_holds_a_job_back_is_shown_at_every_instant() {
    let mut world = World::new(11, 1, true);
    let capped = world.job(Terms {
        cap_ppm: Some(250_000),
        ..Terms::default()
    });
    world.client(capped, 0, saturating(200 * US));
    for view in views(&mut world, capped) {
        assert_eq!(view.waits_for, Cause::Cap, "{view:?}");
        assert!(view.wanted_ppm_60s > 980_000, "{view:?}");
    }

    let mut world = World::new(12, 1, true);
    let jobs = [0, 1].map(|_| world.job(Terms::default()));
    for job in jobs {
        world.client(job, 0, saturating(500 * US));
    }
    for view in views(&mut world, jobs[0]) {
        assert_eq!(view.waits_for, Cause::Neighbour(jobs[1]), "{view:?}");
    }

    let mut world = World::new(13, 1, true);
    let [low, high] = [Class::Low, Class::High].map(|class| {
        world.job(Terms {
            class,
            ..Terms::default()
        })
    });
    for job in [low, high] {
        world.client(job, 0, saturating(500 * US));
    }
    for view in views(&mut world, low) {
        assert_eq!(view.waits_for, Cause::Priority(high), "{view:?}");
    }
}

#[test]
fn a_job_that_asks_for_little_waits_for_nothing_and_is_seen_to_want_little() {
    let mut world = World::new(14, 1, true);
    let job = world.job(Terms {
        cap_ppm: Some(900_000),
        ..Terms::default()
    });
    world.client(job, 0, bursts(MS, 1, 9 * MS, u64::MAX));
    for view in views(&mut world, job) {
        assert_eq!(view.waits_for, Cause::None, "{view:?}");
        // A tenth, and what two looks miss of each burst at most.
        assert!((80_000..200_000).contains(&view.wanted_ppm_60s), "{view:?}");
    }
}

#[test]
fn what_was_seen_before_clients_mark_their_work_is_no_measure() {
    let mut world = World::new(15, 1, true);
    let terms = Terms {
        cap_ppm: Some(100_000),
        ..Terms::default()
    };
    let job = world.job(terms);
    world.client(job, 0, saturating(200 * US));
    let last = views(&mut world, job)[59];
    assert!(last.got_ppm_60s < 110_000 && last.waits_for == Cause::Cap, "{last:?}");
    let cap_ppm = Some(900_000);
    world.set(job, Terms { cap_ppm, ..terms });
    world.run_until(world.now + 200 * MS);
    world.step(Event::Marked { device: DeviceKey(0) });
    let view = views(&mut world, job)[30];
    assert!(view.got_ppm_60s > 850_000 && view.wanted_ppm_60s > 950_000, "{view:?}");
    assert!(view.waited_ns >= last.waited_ns, "that is of all its time: {view:?}");
}
