// SPDX-License-Identifier: Apache-2.0
//! A job whose broker is gone, or there and not serving: the limit stays that of the job, and no process waits twice.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Case;
use super::races::{Siblings, siblings};
use crate::artefacts::built;
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    let why = "assumes the small contexts of the simulator";
    vec![
        Case::new("alone::without_a_broker_the_limit_is_the_jobs", absent).simulated(why),
        Case::new("alone::what_an_attached_process_holds_counts_without_a_broker", held).simulated(why),
        Case::new(
            "alone::what_a_process_of_no_job_holds_counts_without_a_broker",
            held_without_job,
        )
        .simulated(why),
        Case::new(
            "alone::a_limit_that_was_set_later_holds_without_a_broker",
            limited_later,
        )
        .simulated(why),
        Case::new("alone::without_permission_the_limit_of_the_environment_holds", barred).simulated(why),
        Case::new("alone::a_broker_that_came_is_seen_before_memory_is_given_out", came).simulated(why),
        Case::new("alone::a_stopped_broker_gives_out_nothing", stopped).simulated(why),
        Case::new("alone::a_deaf_broker_gives_out_nothing", deaf).simulated(why),
        Case::new("alone::a_full_broker_gives_out_nothing_to_those_without_a_place", full).simulated(why),
        Case::new("alone::a_process_without_descriptors_gets_nothing", no_descriptors).simulated(why),
        Case::new("alone::a_denial_for_want_of_descriptors_says_so", few_descriptors).simulated(why),
        Case::new("alone::a_hanging_broker_costs_one_wait", hanging).simulated(why),
    ]
}

/// More than half of [`LIMIT`].
const PART: u64 = 3276 * MIB;
const LIMIT: &[&str] = &["-m", "4GiB", "--name", "job"];
/// Nothing is timed by it; it only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(60);

/// A process of the job that starts no broker.
fn worker(rig: &Rig, job: &Siblings) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command
        .arg("dlopen")
        .envs(job.environment())
        .env_remove("PARTAGE_BROKER");
    Client::start(command)
}

/// Six of them, started together, each with a context.
fn workers(rig: &Rig, job: &Siblings) -> Vec<Client> {
    let (workers, others) = workers_and_those_without_context(rig, job);
    assert!(others.is_empty(), "each has its context");
    workers
}

/// The same, and apart those whose context was denied.
fn workers_and_those_without_context(rig: &Rig, job: &Siblings) -> (Vec<Client>, Vec<Client>) {
    let mut workers: Vec<Client> = (0..6).map(|_| worker(rig, job)).collect();
    for worker in &mut workers {
        worker.tell("init 0");
        worker.tell("ctx 0");
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for mut worker in workers {
        assert_eq!(worker.answer(), "init 0");
        match worker.answer().as_str() {
            "ctx 0" => with.push(worker),
            "ctx 2" => without.push(worker),
            other => panic!("neither made nor denied: {other}"),
        }
    }
    (with, without)
}

/// Six for whom a broker is there that does not serve: neither a context nor the primary one, now and later.
fn closed_workers(rig: &Rig, job: &Siblings) -> Vec<Client> {
    let (with, mut without) = workers_and_those_without_context(rig, job);
    assert!(with.is_empty(), "{} contexts that nobody counts", with.len());
    for worker in &mut without {
        worker.expect("ctx 0", "ctx 2");
        worker.expect("primary 0", "primary 2");
    }
    without
}

/// As soon as a broker serves, each gets its context.
fn contexts_when_served(rig: &Rig, workers: &mut [Client]) {
    for worker in workers {
        rig.eventually(SOON, "it gets its context", || worker.say("ctx 0") == "ctx 0");
    }
}

/// All ask for [`PART`] at once: who got it.
fn ask_all(workers: &mut [Client]) -> Vec<usize> {
    for worker in workers.iter_mut() {
        worker.tell(&format!("alloc {PART} part"));
    }
    let answers: Vec<String> = workers.iter_mut().map(Client::answer).collect();
    let is_known = |answer: &String| ["alloc 0", "alloc 2"].contains(&answer.as_str());
    assert!(answers.iter().all(is_known), "{answers:?}");
    let got = |(at, answer): (usize, &String)| (answer == "alloc 0").then_some(at);
    answers.iter().enumerate().filter_map(got).collect()
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: the broker of this rig's own folder.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

fn kill_broker(rig: &Rig) {
    let pid = rig.broker_pid_quick().expect("a broker serves this rig");
    signal(pid, libc::SIGKILL);
    rig.eventually(SOON, "the broker is gone", || rig.broker_pid_quick().is_none());
}

/// Does the broker count [`PART`], and no more than the limit? What it measured of a process before that one attached
/// is counted as overhead first, and as charged little by little.
fn is_counted(rig: &Rig) -> bool {
    let jobs = rig.jobs();
    let used = jobs
        .iter()
        .filter_map(|job| job["devices"][0]["used_bytes"].as_u64())
        .sum();
    (PART..=4 * GIB).contains(&used)
}

/// As soon as a broker serves, exactly one has its part, and the broker knows.
fn exactly_one_when_served(rig: &Rig, workers: &mut [Client]) {
    let mut winners = Vec::new();
    rig.eventually(SOON, "one of them gets its part", || {
        winners = ask_all(workers);
        !winners.is_empty()
    });
    assert_eq!(winners.len(), 1, "{winners:?}");
    rig.eventually(SOON, "the broker counts it", || is_counted(rig));
    assert!(ask_all(workers).is_empty(), "and nobody else");
}

fn absent(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    kill_broker(rig);
    let mut workers = workers(rig, &job);
    let winners = ask_all(&mut workers);
    assert_eq!(winners.len(), 1, "of six, one: {winners:?}");
    // What is free is what the others left, and no byte more.
    let other = (winners[0] + 1) % workers.len();
    let room = workers[other].room();
    assert_eq!(room, 4 * GIB - PART, "the others' part is shown as used");
    workers[other].expect(&format!("alloc {} rest", room + 1), "alloc 2");
    workers[other].expect(&format!("alloc {room} rest"), "alloc 0");
    workers[other].expect("free rest", "free 0");
    // A free is the next one's to take, and so is what a killed process held, at once.
    workers[winners[0]].expect("free part", "free 0");
    let winners = ask_all(&mut workers);
    assert_eq!(winners.len(), 1, "after a free, one: {winners:?}");
    workers[winners[0]].kill();
    workers.remove(winners[0]);
    let winners = ask_all(&mut workers);
    assert_eq!(winners.len(), 1, "after a death, one: {winners:?}");
    // A forked child counts for itself: it has nothing, and what its parent has is taken.
    workers[winners[0]].tell("fork");
    workers[winners[0]].expect("init 0", "init 3");
    workers[winners[0]].expect("exit 0", "forked 0");
    assert!(ask_all(&mut workers).is_empty(), "still the parent's");
    // A broker comes: it adopts what is there.
    assert!(rig.output(rig.partage(&["broker", "start"])).status.success());
    rig.eventually(SOON, "the broker adopted the job", || is_counted(rig));
    assert!(ask_all(&mut workers).is_empty(), "the same limit with a broker");
    workers[winners[0]].expect("free part", "free 0");
    exactly_one_when_served(rig, &mut workers);
}

fn held(rig: &Rig) {
    let mut job = siblings(rig, LIMIT, 1);
    job.members[0].expect(&format!("alloc {PART} a"), "alloc 0");
    let folder = rig.socket_dir();
    kill_broker_for_good(rig, &folder);
    let mut late = worker(rig, &job);
    late.ready();
    late.expect(&format!("alloc {PART} b"), "alloc 2");
}

/// Limited by its environment alone: no token says which job.
fn worker_of_no_job(rig: &Rig, job: &Siblings) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").envs(job.environment());
    command.env_remove("PARTAGE_BROKER").env_remove("PARTAGE_TOKEN");
    let mut client = Client::start(command);
    client.ready();
    client
}

fn held_without_job(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    let mut first = worker_of_no_job(rig, &job);
    first.expect(&format!("alloc {PART} a"), "alloc 0");
    kill_broker_for_good(rig, &rig.socket_dir());
    // It has looked for three seconds when it is ready; the first looks all the time.
    let mut late = worker_of_no_job(rig, &job);
    late.expect(&format!("alloc {PART} b"), "alloc 2");
    first.kill();
    late.expect(&format!("alloc {PART} b"), "alloc 0");
}

fn limited_later(rig: &Rig) {
    let mut job = siblings(rig, &["--name", "job"], 1);
    job.members[0].expect(&format!("alloc {PART} a"), "alloc 0");
    assert!(rig.output(rig.partage(&["set", "job", "mem=4GiB"])).status.success());
    rig.eventually(SOON, "the limit came", || job.members[0].room() < GIB);
    kill_broker_for_good(rig, &rig.socket_dir());
    let mut late = worker(rig, &job);
    late.ready();
    late.expect(&format!("alloc {PART} b"), "alloc 2");
    job.members[0].kill();
    late.expect(&format!("alloc {PART} b"), "alloc 0");
}

/// A process of the job that may not enter what is closed to its user, though it be root's.
fn barred_worker(rig: &Rig, job: &Siblings) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command.arg("dlopen").envs(job.environment());
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for capability in [1, 2] {
                // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH; who is not root has neither.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        })
    };
    Client::start(command)
}

fn barred(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    let folder = rig.socket_dir().join("client");
    let former = std::fs::metadata(&folder).expect("the broker's folder").permissions();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o000)).expect("our folder");
    let mut workers: Vec<Client> = (0..2).map(|_| barred_worker(rig, &job)).collect();
    workers.iter_mut().for_each(Client::ready);
    let winners = ask_all(&mut workers);
    assert_eq!(winners.len(), 1, "one within the limit: {winners:?}");
    std::fs::set_permissions(&folder, former).expect("our folder");
    rig.eventually(SOON, "let in, it is counted", || is_counted(rig));
}

/// Between two attempts of a process that found nobody a broker comes, and does not answer yet.
fn came(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    kill_broker(rig);
    // In their three seconds of looking the pauses between two attempts have grown to two.
    let mut workers = workers(rig, &job);
    let path = rig.socket_dir().join("client/client.sock");
    std::fs::remove_file(&path).expect("a dead broker's socket");
    let listener = listen(&path);
    assert!(ask_all(&mut workers).is_empty(), "memory is closed at once");
    workers[0].expect("ctx 0", "ctx 2");
    drop(listener);
    assert!(rig.output(rig.partage(&["broker", "start"])).status.success());
    exactly_one_when_served(rig, &mut workers);
}

/// Ends the broker and keeps its lock, so that none that is started comes up.
fn kill_broker_for_good(rig: &Rig, folder: &Path) {
    let lock = std::fs::File::open(folder.join("broker.lock")).expect("the broker's lock");
    // A process that is attached may start the next one at once. The lock is held until the case ends, with the
    // process.
    rig.eventually(SOON, "the lock is ours", || {
        if let Some(pid) = rig.broker_pid_quick() {
            signal(pid, libc::SIGKILL);
        }
        lock.try_lock().is_ok()
    });
    rig.eventually(SOON, "no broker is left", || rig.broker_pid_quick().is_none());
    std::mem::forget(lock);
}

fn stopped(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    let broker = rig.broker_pid_quick().expect("a broker serves this rig");
    partage_machine::process::stop(broker);
    let mut workers = closed_workers(rig, &job);
    signal(broker, libc::SIGCONT);
    contexts_when_served(rig, &mut workers);
    exactly_one_when_served(rig, &mut workers);
}

/// Listens as a broker does and never answers.
fn listen(path: &Path) -> OwnedFd {
    // SAFETY: plain system calls; the descriptor is this function's own.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        let length = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(fd, 64), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn deaf(rig: &Rig) {
    let job = siblings(rig, LIMIT, 0);
    kill_broker(rig);
    let path = rig.socket_dir().join("client/client.sock");
    std::fs::remove_file(&path).expect("a dead broker's socket");
    let listener = listen(&path);
    let mut workers = closed_workers(rig, &job);
    drop(listener);
    assert!(rig.output(rig.partage(&["broker", "start"])).status.success());
    contexts_when_served(rig, &mut workers);
    exactly_one_when_served(rig, &mut workers);
}

fn full(rig: &Rig) {
    let config = rig.dir.join("partage.toml");
    std::fs::write(&config, "schema = 1\n[broker]\nclients_per_user = 1\n").expect("writable");
    let mut command = rig.command(built("partaged"));
    command.arg("--managed").arg("--config").arg(&config);
    command.arg("--socket-dir").arg(rig.socket_dir());
    let mut broker = command.spawn().expect("the broker starts");
    let socket = rig.socket_dir().join("client/client.sock");
    rig.eventually(SOON, "the broker listens", || socket.exists());
    let job = siblings(rig, LIMIT, 0);
    let (mut placed, mut others) = workers_and_those_without_context(rig, &job);
    assert_eq!(placed.len(), 1, "the one that has a place");
    assert_eq!(ask_all(&mut placed).len(), 1);
    assert!(ask_all(&mut placed).is_empty());
    for other in &mut others {
        other.expect("ctx 0", "ctx 2");
    }
    for worker in placed {
        worker.finish();
    }
    let mut next = None;
    rig.eventually(SOON, "the place is another's", || {
        next = others.iter_mut().position(|other| other.say("ctx 0") == "ctx 0");
        next.is_some()
    });
    let mut next = vec![others.remove(next.expect("just seen"))];
    exactly_one_when_served(rig, &mut next);
    for other in &mut others {
        other.expect("ctx 0", "ctx 2");
    }
    drop((next, others));
    let _ = broker.kill();
    let _ = broker.wait();
}

fn no_descriptors(rig: &Rig) {
    let mut job = siblings(rig, LIMIT, 1);
    job.members[0].expect(&format!("alloc {PART} a"), "alloc 0");
    let mut late = worker(rig, &job);
    // It meets the library without a descriptor left, and has them again later.
    late.expect("present cuInit", "present 1");
    let former = set_descriptors(late.pid(), 3);
    let refused = late.say("init 0");
    assert_ne!(refused, "init 0", "the driver needs descriptors too");
    set_descriptors(late.pid(), former);
    late.expect("init 0", "init 0");
    // It could not look for a broker, and does so again soon.
    contexts_when_served(rig, std::slice::from_mut(&mut late));
    late.expect(&format!("alloc {PART} b"), "alloc 2");
    rig.eventually(SOON, "it has what its sibling left", || {
        late.say(&format!("alloc {MIB} c")) == "alloc 0"
    });
}

fn few_descriptors(rig: &Rig) {
    let job = siblings(rig, LIMIT, 1);
    // Enough for the driver, and not for the broker's two pages beside the socket that they come through.
    let mut late = (4..16)
        .find_map(|count| {
            let mut late = worker_that_logs(rig, &job);
            late.expect("present cuInit", "present 1");
            set_descriptors(late.pid(), count);
            (late.say("init 0") == "init 0").then_some(late)
        })
        .expect("the driver needs less");
    late.expect("ctx 0", "ctx 2");
    let said = late.wait_for_stderr("a context is denied");
    assert!(
        said.contains("no descriptor or no memory left to reach the broker"),
        "{said}"
    );
    assert!(!said.contains("refuses"), "the broker would serve it: {said}");
    set_descriptors(late.pid(), 1024);
    contexts_when_served(rig, std::slice::from_mut(&mut late));
}

fn worker_that_logs(rig: &Rig, job: &Siblings) -> Client {
    let mut command = rig.command(crate::artefacts::client());
    command
        .arg("dlopen")
        .envs(job.environment())
        .env_remove("PARTAGE_BROKER")
        .env("PARTAGE_LOG", "stderr");
    Client::start(command)
}

/// Sets how many descriptors a process may have; answers how many it might.
fn set_descriptors(pid: u32, count: u64) -> u64 {
    let mut former = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both pointers are to live structures or null.
    unsafe {
        assert_eq!(
            libc::prlimit(pid as libc::pid_t, libc::RLIMIT_NOFILE, std::ptr::null(), &mut former),
            0
        );
        let new = libc::rlimit {
            rlim_cur: count,
            rlim_max: former.rlim_max,
        };
        assert_eq!(
            libc::prlimit(pid as libc::pid_t, libc::RLIMIT_NOFILE, &new, std::ptr::null_mut()),
            0
        );
    }
    former.rlim_cur
}

fn hanging(rig: &Rig) {
    let mut job = siblings(rig, LIMIT, 2);
    rig.wait_for_overhead();
    let [first, second] = &mut job.members[..] else {
        panic!("two clients")
    };
    first.expect(&format!("alloc {PART} a"), "alloc 0");
    let broker = rig.broker_pid_quick().expect("a broker serves this rig");
    partage_machine::process::stop(broker);
    let start = Instant::now();
    second.expect(&format!("alloc {PART} b"), "alloc 2");
    let one_wait = start.elapsed();
    // Whatever would have to ask: forty waits, if each waited.
    let start = Instant::now();
    for round in 1..=10 {
        let _ = second.room();
        second.expect(&format!("alloc {PART} b"), "alloc 2");
        second.expect(&format!("ctx {round}"), "ctx 101");
        second.expect(&format!("ctx {round} 0"), "ctx 2");
    }
    let rest = start.elapsed();
    signal(broker, libc::SIGCONT);
    assert!(
        rest < one_wait,
        "one wait took {one_wait:?}, what came after it {rest:?}"
    );
    first.expect("free a", "free 0");
    rig.eventually(SOON, "heard again, it is asked again", || {
        second.say(&format!("alloc {PART} b")) == "alloc 0"
    });
}
