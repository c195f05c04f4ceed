// SPDX-License-Identifier: Apache-2.0
//! Suspend and resume: a job's memory leaves its device, others use the room, and it comes back as it was.

use std::time::{Duration, Instant};

use super::gate::prepare;
use super::races::siblings;
use super::{Case, Random, tenth};
use crate::client::{Client, PATIENCE};
use crate::rig::{GIB, MIB, Rig};
use said::{filled, kill_broker, no, ok, state, used_by};

mod again;
mod behind;
mod drained;
mod faults;
mod files;
mod habits;
mod kills;
mod linked;
mod main_thread;
mod mapped;
mod moved;
mod of_three;
mod periodic;
mod polled;
mod preempted;
mod promised;
mod ranks;
mod refusals;
mod restored;
mod rights;
pub(super) mod said;
mod saved;
mod saved_trees;
mod stuck;
mod trained;
mod users;

pub fn cases() -> Vec<Case> {
    const SIZE: &str = "its numbers are those of a GPU of 16 GiB";
    let mut cases = vec![
        Case::new(
            "residence::a_suspended_job_leaves_its_room_to_others_and_comes_back",
            room,
        )
        .simulated(SIZE),
        Case::new("residence::threads_are_suspended_at_random_moments", threads),
        Case::new("residence::a_job_that_leaves_again_at_once_needs_as_much_room", at_once),
        Case::new("residence::all_processes_of_a_job_leave_together", several),
        Case::new(
            "residence::no_allocation_within_the_limit_is_denied_by_a_suspend",
            no_denials,
        ),
        Case::new("residence::two_jobs_that_fill_a_card_take_turns_on_it", turns).simulated("fills a device"),
        Case::new(
            "residence::a_limit_set_below_a_suspended_job_holds_when_it_is_back",
            lowered,
        ),
        Case::new("residence::a_process_that_waits_to_begin_outlives_the_broker", begins),
        Case::new("residence::what_cannot_leave_is_refused_and_goes_on", refusals)
            .simulated("only the simulated driver makes every tie"),
        Case::new("residence::a_brokers_death_loses_no_suspended_job", broker),
        Case::new("residence::a_process_that_ends_while_suspended_is_gone", ends).simulated(SIZE),
        Case::new("residence::a_process_stopped_while_suspended_is_waited_for", stopped),
    ];
    cases.extend(behind::cases());
    cases.extend(faults::cases());
    cases.extend(files::cases());
    cases.extend(habits::cases());
    cases.extend(main_thread::cases());
    cases.extend(mapped::cases());
    cases.extend(moved::cases());
    cases.extend(polled::cases());
    cases.extend(drained::cases());
    cases.extend(preempted::cases());
    cases.extend(promised::cases());
    cases.extend(saved::cases());
    cases.extend(saved_trees::cases());
    cases.extend(linked::cases());
    cases.extend(restored::cases());
    cases.extend(again::cases());
    cases.extend(periodic::cases());
    cases.extend(stuck::cases());
    cases.extend(trained::cases());
    cases.extend(refusals::cases());
    cases.extend(kills::cases());
    cases.extend(of_three::cases());
    cases.extend(users::cases());
    cases.extend(ranks::cases());
    cases.extend(rights::cases());
    cases
}

fn room(rig: &Rig) {
    let mut client = filled(rig, "one", "10GiB");
    let used = used_by(rig, "one");
    let said = ok(rig, &["suspend", "one"]);
    assert!(
        said.contains(" is suspended: its ") && said.contains("in host memory, after "),
        "{said}"
    );
    assert_eq!(state(rig, "one"), "suspended");
    assert_eq!(used_by(rig, "one"), 0);
    assert_eq!(ok(rig, &["suspend", "one"]), "j1 is suspended already");
    let why = ok(rig, &["why", "one"]);
    assert!(why.contains("it is suspended: its "), "{why}");
    // The driver has nothing of it: its room is another job's, whose promise would not have fitted beside it.
    let mut other = rig.client(&["-m", "12GiB", "-g", "0", "--name", "other", "--on-full", "fail"]);
    other.ready();
    other.expect(&format!("alloc {} b", 11 * GIB), "alloc 0");
    // What the suspended program asks for stands.
    client.tell("check a 165");
    let (code, said) = no(rig, &["resume", "one", "--on-full", "fail"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("j1 stays suspended: the job needs 10 GiB on GPU 0") && said.contains("j2"),
        "{said}"
    );
    let (code, said) = no(rig, &["resume", "one", "--wait-timeout", "300ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("waiting: ") && said.contains("no room within "), "{said}");
    assert_eq!(client.try_answer(), None, "it runs while it is suspended");
    let mut resume = rig.partage(&["resume", "one"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    assert!(resume.try_wait().expect("ours").is_none(), "there is no room yet");
    let why = ok(rig, &["why", "one"]);
    assert!(why.contains("to come back: the job needs 10 GiB on GPU 0"), "{why}");
    assert!(other.finish().success());
    assert!(resume.wait().expect("ours").success());
    assert_eq!(client.answer(), "check 0 0");
    assert_eq!(state(rig, "one"), "running");
    rig.eventually(PATIENCE, "its contexts are measured again", || {
        used_by(rig, "one") == used
    });
    assert_eq!(ok(rig, &["resume", "one"]), "j1 is not suspended");
    client.expect(&format!("alloc {MIB} more"), "alloc 0");
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

/// Its context counts before anybody measured it again: a restore that lacked its bytes would lose the job.
fn at_once(rig: &Rig) {
    let mut client = filled(rig, "one", "4GiB");
    rig.wait_for_overhead();
    let left = || {
        let said = ok(rig, &["suspend", "one"]);
        let (bytes, _) = said.split_once(" are in host memory").expect("it says how many");
        bytes.to_owned()
    };
    let first = left();
    for _ in 0..10 {
        ok(rig, &["resume", "one"]);
        assert_eq!(left(), first);
    }
    ok(rig, &["resume", "one"]);
    client.expect("check a 165", "check 0 0");
}

/// Threads that launch, wait, ask, allocate, free and capture.
fn threads(rig: &Rig) {
    let mut client = prepare(rig.client(&["-m", "4GiB", "-g", "0", "--name", "t"]));
    let mut random = Random::new(17);
    // A tenth of the count would take the default run half a minute.
    let rounds = if tenth() == 1 { 1_000 } else { 50 };
    let (mut suspended, mut pauses) = (0, Duration::ZERO);
    client.tell("holdthreads 8 1000000");
    while suspended < rounds {
        let began = Instant::now();
        ok(rig, &["suspend", "t"]);
        ok(rig, &["resume", "t"]);
        pauses += began.elapsed();
        suspended += 1;
        std::thread::sleep(Duration::from_millis(random.below(40)));
        if let Some(answer) = client.try_answer() {
            assert_eq!(answer, "holdthreads 0", "after {suspended} times");
            client.tell("holdthreads 8 1000000");
        }
    }
    rig.note(format!(
        "suspended {suspended} times, {} ms each",
        (pauses / suspended).as_millis()
    ));
    client.kill();
}

fn several(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "12GiB", "-g", "0", "--name", "three"], 3);
    for (client, value) in job.members.iter_mut().zip(6..) {
        client.expect(&format!("alloc {} a", 256 * MIB), "alloc 0");
        client.expect(&format!("fill a {value}"), &format!("fill 0 {value} {value}"));
    }
    let used = used_by(rig, "three");
    for _ in 0..3 {
        ok(rig, &["suspend", "three"]);
        job.members.iter_mut().for_each(|client| client.tell("ctxsync"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(job.members.iter_mut().all(|client| client.try_answer().is_none()));
        assert_eq!(used_by(rig, "three"), 0);
        // One that begins meanwhile waits, too.
        let mut late = job.start(rig);
        late.tell("init 0");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(late.try_answer(), None, "a process began in a suspended job");
        ok(rig, &["resume", "three"]);
        assert_eq!(late.answer(), "init 0");
        for client in &mut job.members {
            assert_eq!(client.answer(), "ctxsync 0");
        }
        assert!(late.finish().success());
        rig.eventually(PATIENCE, "its contexts are measured again", || {
            used_by(rig, "three") == used
        });
    }
    for (client, value) in job.members.iter_mut().zip(6..) {
        client.expect(&format!("check a {value}"), "check 0 0");
    }
}

/// Threads that allocate and free below the limit; and processes that begin at any moment of it.
fn no_denials(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "8GiB", "-g", "0", "--name", "grows"], 1);
    job.members[0].expect(&format!("alloc {} a", 64 * MIB), "alloc 0");
    job.members[0].tell(&format!("race 4 400000 {}", 20 * MIB));
    let (mut random, mut late, mut suspended) = (Random::new(18), Vec::new(), 0_u32);
    for round in 0..100 / tenth() + 10 {
        if round % 3 == 0 {
            let mut client = job.start(rig);
            client.tell("init 0");
            client.tell("ctx 0");
            std::thread::sleep(Duration::from_millis(random.below(12)));
            late.push(client);
        }
        // One that begins to use CUDA at the very moment makes it turn round.
        let output = rig.output(rig.partage(&["suspend", "grows"]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        suspended += u32::from(output.status.success());
        ok(rig, &["resume", "grows"]);
    }
    for client in &mut late {
        assert_eq!((client.answer(), client.answer()), ("init 0".into(), "ctx 0".into()));
    }
    rig.note(format!("suspended {suspended} times"));
    assert!(suspended >= 5, "it was suspended {suspended} times only");
    let view = rig.json(&["get", "grows"]);
    let denied = &view["job"]["denied"];
    assert!(
        denied.as_object().is_some_and(|by| by.values().all(|count| count == 0)),
        "{view}"
    );
    job.members.iter_mut().for_each(Client::kill);
}

/// Each has more than half of the card, to the last mebibytes.
fn turns(rig: &Rig) {
    let fill = |name: &str| {
        let mut client = rig.client(&["-m", "15GiB", "-g", "0", "--name", name]);
        client.ready();
        let room = client.room();
        client.expect(&format!("alloc {} big", room - 32 * MIB), "alloc 0");
        client.expect(&format!("alloc {} a", 16 * MIB), "alloc 0");
        client.expect("fill a 165", "fill 0 165 165");
        client
    };
    let mut one = fill("one");
    ok(rig, &["suspend", "one"]);
    let mut two = fill("two");
    for _ in 0..2 {
        ok(rig, &["suspend", "two"]);
        ok(rig, &["resume", "one"]);
        one.expect("check a 165", "check 0 0");
        ok(rig, &["suspend", "one"]);
        ok(rig, &["resume", "two"]);
        two.expect("check a 165", "check 0 0");
    }
}

/// What it had comes back, nothing more is given, and nobody takes it for memory past Partage.
fn lowered(rig: &Rig) {
    let mut client = filled(rig, "low", "2GiB");
    ok(rig, &["suspend", "low"]);
    let limit = rig.context_cost().div_ceil(MIB) + 128;
    let said = ok(rig, &["set", "low", &format!("mem={limit}MiB")]);
    assert!(
        said.contains("it is suspended, and what it has counts again when it is back"),
        "{said}"
    );
    ok(rig, &["resume", "low"]);
    client.expect("check a 165", "check 0 0");
    client.expect(&format!("alloc {MIB} b"), "alloc 2");
    rig.eventually(PATIENCE, "it is over its limit", || state(rig, "low") == "over limit");
    std::thread::sleep(Duration::from_secs(3));
    let events = ok(rig, &["events"]);
    assert!(!events.contains("drift"), "{events}");
    client.expect("free a", "free 0");
    client.expect(&format!("alloc {MIB} b"), "alloc 0");
}

/// It is at its first call when the broker dies; the next one knows it and lets it go on.
fn begins(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "8GiB", "-g", "0", "--name", "grows"], 1);
    let mut looks = job.start(rig);
    looks.expect("nvml", "nvml 0");
    let shown = looks.say("nvmlmem 0");
    ok(rig, &["suspend", "grows"]);
    let mut late = job.start(rig);
    late.tell("init 0");
    // One that only looks is answered.
    assert_eq!(looks.say("nvmlmem 0").split(' ').count(), shown.split(' ').count());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(late.try_answer(), None);
    kill_broker(rig);
    // Its next look brings it back, too.
    assert_eq!(looks.say("nvmlmem 0").split(' ').count(), shown.split(' ').count());
    // One that begins under the next broker waits like the others.
    let mut later = job.start(rig);
    later.tell("init 0");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(later.try_answer(), None);
    ok(rig, &["resume", "grows"]);
    assert_eq!((late.answer(), later.answer()), ("init 0".into(), "init 0".into()));
    late.expect("ctx 0", "ctx 0");
    late.expect(&format!("alloc {MIB} a"), "alloc 0");
    job.members[0].expect("ctxsync", "ctxsync 0");
    ok(rig, &["suspend", "grows"]);
    ok(rig, &["resume", "grows"]);
    late.expect("ctxsync", "ctxsync 0");
}

fn refusals(rig: &Rig) {
    let mut client = filled(rig, "tied", "2GiB");
    client.expect(&format!("managed {MIB} m"), "managed 0");
    let (code, said) = no(rig, &["suspend", "tied"]);
    assert_eq!(code, Some(1));
    let pid = client.pid();
    let text = format!(
        "pid {pid} has managed memory, which the driver cannot save; end that process first, or start the job without \
         that feature"
    );
    assert!(said.ends_with(&text), "{said}");
    client.expect("check a 165", "check 0 0");
    assert_eq!(state(rig, "tied"), "running");
    let mut stopped = filled(rig, "still", "2GiB");
    stopped.signal(libc::SIGSTOP);
    rig.eventually(PATIENCE, "it is stopped", || state(rig, "still") == "stopped");
    let (code, said) = no(rig, &["suspend", "still"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("is stopped, and the driver would wait for it without end"),
        "{said}"
    );
    stopped.signal(libc::SIGCONT);
    stopped.expect("check a 165", "check 0 0");
    let (code, said) = no(rig, &["suspend", "nobody"]);
    assert_eq!(code, Some(4), "{said}");
}

fn broker(rig: &Rig) {
    let mut client = filled(rig, "kept", "10GiB");
    ok(rig, &["suspend", "kept"]);
    client.tell("check a 165");
    kill_broker(rig);
    assert_eq!(state(rig, "kept"), "suspended");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(client.try_answer(), None, "a hold without a broker opened");
    let mut other = rig.client(&["-m", "12GiB", "-g", "0", "--on-full", "fail"]);
    other.ready();
    assert!(other.finish().success());
    ok(rig, &["resume", "kept"]);
    assert_eq!(client.answer(), "check 0 0");
    assert!(client.finish().success());
    rig.eventually(PATIENCE, "nothing is left", || rig.ledger_used() == 0);
}

fn ends(rig: &Rig) {
    let mut client = filled(rig, "ends", "10GiB");
    ok(rig, &["suspend", "ends"]);
    let mut big = rig.client(&["-m", "14GiB", "-g", "0", "--name", "big"]);
    big.ready();
    let mut resume = rig.partage(&["resume", "ends"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(200));
    client.kill();
    rig.eventually(PATIENCE, "it has ended", || {
        !["suspended", "running"].contains(&&*state(rig, "ends"))
    });
    let code = resume.wait().expect("ours").code();
    assert_ne!(code, Some(0), "there is nothing to come back");
    // What it was promised did not come back without room.
    big.expect(&format!("alloc {} b", 13 * GIB), "alloc 0");
}

/// The driver would wait for it without end: its job waits for it, and nobody else does.
fn stopped(rig: &Rig) {
    let mut client = filled(rig, "stopped", "10GiB");
    let pid = client.pid();
    ok(rig, &["suspend", "stopped"]);
    client.signal(libc::SIGSTOP);
    let text = format!("pid {pid} is stopped: kill -CONT {pid} lets it go on");
    let (code, said) = no(rig, &["resume", "stopped", "--on-full", "fail"]);
    assert!(code == Some(1) && said.contains(&text), "{said}");
    let mut resume = rig.partage(&["resume", "stopped"]).spawn().expect("it starts");
    let mut other = rig.client(&["-m", "1GiB", "-g", "0", "--on-full", "fail"]);
    other.ready();
    client.signal(libc::SIGCONT);
    assert!(resume.wait().expect("ours").success());
    client.expect("check a 165", "check 0 0");
}
