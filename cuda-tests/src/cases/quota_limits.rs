// SPDX-License-Identifier: Apache-2.0
//! Limits beside the job's: of each process, of one process alone, and of several jobs together.

use std::time::Duration;

use super::races::siblings;
use super::ruled_host::{Host, bare, exhausted, said};
use super::views::figures;
use super::{Case, Random, tenth};
use crate::client::Client;
use crate::rig::{GIB, MIB, Rig};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("quota_limits::each_process_gets_its_limit_and_no_more", each_process),
        Case::new("quota_limits::a_process_limit_is_the_programs_card", card),
        Case::new(
            "quota_limits::a_process_limit_holds_in_races_and_without_the_broker",
            races,
        ),
        Case::new("quota_limits::the_limit_of_one_process_touches_no_sibling", one_process).simulated(NUMBERS),
        Case::new(
            "quota_limits::of_two_jobs_that_ask_for_sixty_percent_of_a_total_one_gets_it",
            race_of_jobs,
        ),
        Case::new(
            "quota_limits::no_second_job_or_environment_gets_more_than_a_total",
            every_way,
        )
        .simulated(BOOKS),
        Case::new(
            "quota_limits::who_waits_for_a_total_is_told_rule_numbers_and_holders",
            queue,
        ),
        Case::new("quota_limits::a_total_is_lowered_and_loosened_under_programs", reloaded).simulated(NUMBERS),
    ]
}

const BOOKS: &str = "compares with the simulator's books";
const NUMBERS: &str = "its numbers are those of a GPU of 16 GiB";
/// Nothing is timed by it; it only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(60);

fn each_process(rig: &Rig) {
    let mut job = siblings(
        rig,
        &["-m", "8GiB", "--process-mem", "1GiB", "-g", "0", "--name", "four"],
        4,
    );
    for client in &mut job.members {
        let info = client.numbers("info");
        assert_eq!(info[2], GIB, "{info:?}");
        let room = client.room();
        // In two parts: the second one asks the broker for the rest.
        client.expect(&format!("alloc {} a", room / 1024 * 512), "alloc 0");
        let rest = client.room();
        client.expect(&format!("alloc {} much", rest + 512), "alloc 2");
        client.expect(&format!("alloc {rest} b"), "alloc 0");
        client.expect("alloc 512 c", "alloc 2");
        assert_eq!(client.numbers("info")[1], 0);
    }
    let view = rig.json(&["get", "four"])["job"].clone();
    let device = &view["devices"][0];
    assert_eq!(device["process_limit_bytes"], GIB);
    assert_eq!(
        (&device["denied"]["process_limit"], &device["denied"]["limit"]),
        (&8.into(), &0.into())
    );
    assert!(device["used_bytes"].as_u64() <= Some(4 * GIB), "{device}");
    let why = rig.json(&["why", "four"]).to_string();
    assert!(
        why.contains("each process at most 1 GiB by --process-mem 1GiB") && why.contains("\"process limit\""),
        "{why}"
    );
    job.shell.kill();
}

fn card(rig: &Rig) {
    let mut client = rig.client(&["-m", "4GiB", "--process-mem", "1GiB", "-g", "0"]);
    client.ready();
    client.expect("nvml", "nvml 0");
    let room = client.room();
    assert_eq!(figures(&mut client), [[GIB, room]; 3]);
    assert_eq!(client.numbers("total 0"), [0, GIB]);
    client.expect(&format!("alloc {room} all"), "alloc 0");
    assert_eq!(figures(&mut client), [[GIB, 0]; 3]);
    // The second in a row is said.
    client.expect(&format!("alloc {} more", 256 * MIB), "alloc 2");
    client.expect(&format!("alloc {} more", 256 * MIB), "alloc 2");
    let line = client.wait_for_stderr("256 MiB asked, process limit 1 GiB, ");
    let raise = format!("partage set process:{} mem=1280MiB", client.pid());
    assert!(
        line.contains(&format!("1 GiB in use by pid {} (GPU 0)", client.pid())) && line.contains(&raise),
        "{line}"
    );
    // The command works as it is written there.
    let words: Vec<&str> = raise.split(' ').skip(1).collect();
    assert!(rig.output(rig.partage(&words)).status.success());
    assert_eq!(figures(&mut client), [[1280 * MIB, 256 * MIB]; 3]);
    client.expect(&format!("alloc {} more", 256 * MIB), "alloc 0");
    client.expect("alloc 512 again", "alloc 2");
}

fn races(rig: &Rig) {
    let rounds = 1000 / tenth();
    let mut random = Random::new(29);
    let mut job = siblings(rig, &["-m", "8GiB", "--process-mem", "1GiB", "-g", "0"], 4);
    let sixty: Vec<u64> = job
        .members
        .iter_mut()
        .map(|client| client.room() * 6 / 10 / 512 * 512)
        .collect();
    let race = |members: &mut Vec<Client>| {
        for (client, bytes) in members.iter_mut().zip(&sixty) {
            client.tell(&format!("race 2 {rounds} {bytes}"));
        }
    };
    race(&mut job.members);
    for client in &mut job.members {
        // One of the two threads of each, whatever the siblings do: the job has room for all.
        assert_eq!(client.answer(), format!("race none=0 one={rounds} two=0 other=0"));
    }
    let mut kills = 0;
    for _ in 0..if tenth() == 1 { 20 } else { 3 } {
        rig.eventually(SOON, "a broker", || rig.broker_pid_quick().is_some());
        race(&mut job.members);
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        if let Some(pid) = rig.broker_pid_quick() {
            // SAFETY: a broker of this rig's own folder; killing it is the point of the test.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            kills += 1;
        }
        for client in &mut job.members {
            let answer = client.answer();
            assert!(answer.contains(" two=0 other=0"), "never two of sixty: {answer}");
        }
    }
    assert!(kills > 0, "the broker was killed at least once");
    rig.note(format!(
        "{rounds} rounds of two threads in four processes, broker killed {kills} times"
    ));
    rig.eventually(SOON, "a broker", || rig.broker_pid_quick().is_some());
    for client in &mut job.members {
        rig.eventually(SOON, "the next broker has the same limit", || {
            let info = client.numbers("info");
            info[0] == 0 && info[2] == GIB
        });
    }
    job.shell.kill();
}

fn one_process(rig: &Rig) {
    let mut job = siblings(rig, &["-m", "4GiB", "-g", "0", "--name", "two"], 2);
    let [one, two] = &mut job.members[..] else {
        panic!("two siblings")
    };
    for client in [&mut *one, &mut *two] {
        client.expect("nvml", "nvml 0");
        client.expect(&format!("alloc {} a", 512 * MIB), "alloc 0");
    }
    let before = figures(one);
    let set = |pid: u32, setting: &str| {
        rig.output(rig.partage(&["set", &format!("process:{pid}"), setting]))
            .status
            .code()
    };
    assert_eq!(set(two.pid(), "mem=1GiB"), Some(0));
    assert_eq!(figures(one), before, "a sibling's card is what it was");
    let room = two.room();
    assert_eq!(figures(two), [[GIB, room]; 3]);
    two.expect(&format!("alloc {} b", room + 512), "alloc 2");
    two.expect(&format!("alloc {room} b"), "alloc 0");
    one.expect(&format!("alloc {GIB} b"), "alloc 0");
    // Below use nothing is taken away and nothing grows; then it holds.
    assert_eq!(set(two.pid(), "mem=768MiB"), Some(0));
    two.expect("free b", "free 0");
    let room = two.room();
    assert_eq!(figures(two), [[768 * MIB, room]; 3]);
    two.expect(&format!("alloc {} c", room + 512), "alloc 2");
    two.expect(&format!("alloc {room} c"), "alloc 0");
    assert_eq!(set(two.pid(), "weight=50"), Some(2), "all else is the job's");
    assert_eq!(set(job.shell.pid(), "mem=1GiB"), Some(4), "the shell uses no GPU");
    let view = rig.json(&["why", "two"]).to_string();
    assert!(view.contains(&format!("pid {} at most 768 MiB", two.pid())), "{view}");
    job.shell.kill();
}

fn each_user(total: &str) -> String {
    format!("schema = 1\n[[rule]]\nname = \"students\"\neach_user = {{ {total} }}\n")
}

/// What clients of different jobs may still have of a total together, in units of what an allocation takes.
pub(super) fn room_together(clients: &mut [Client], total: u64) -> u64 {
    let held: u64 = clients.iter_mut().map(|client| total - client.numbers("info")[1]).sum();
    (total - held) / 512 * 512
}

fn race_of_jobs(rig: &Rig) {
    let rounds = 1000 / tenth();
    let _host = Host::start(rig, &each_user("mem = \"1GiB\""));
    let mut clients = [rig.client(&["-g", "0"]), rig.client(&["-g", "0"])];
    clients.iter_mut().for_each(Client::ready);
    rig.wait_for_overhead();
    let room = room_together(&mut clients, GIB);
    let sixty = room * 6 / 10 / 512 * 512;
    let arena = rig.dir.join("arena");
    for client in &mut clients {
        client.tell(&format!("prace {} 2 {rounds} {sixty}", arena.display()));
    }
    for client in &mut clients {
        let answer = client.answer();
        assert!(
            answer.contains("odd=0") && answer.ends_with(&format!("none=0 one={rounds} two=0 other=0")),
            "{answer}"
        );
    }
    // All of it, by one or by both, and not 512 bytes more.
    let [one, two] = &mut clients;
    one.expect(&format!("alloc {sixty} a"), "alloc 0");
    two.expect(&format!("alloc {} a", room - sixty), "alloc 0");
    one.expect("alloc 512 b", "alloc 2");
    two.expect("alloc 512 b", "alloc 2");
    rig.note(format!("{rounds} rounds of two jobs under one total"));
}

fn every_way(rig: &Rig) {
    let _host = Host::start(rig, &each_user("mem = \"2GiB\""));
    let limited = [("CUDA_DEVICE_MEMORY_LIMIT", "1g")];
    let mut clients = [
        rig.client(&["-g", "0"]),
        rig.client(&["-g", "0", "-m", "2GiB", "--mem-request", "none"]),
        bare(rig, &[]),
        bare(rig, &limited),
        bare(rig, &[("PARTAGE_MEM_BYTES", "8589934592")]),
    ];
    clients.iter_mut().for_each(Client::ready);
    let all = exhausted(rig, &mut clients);
    assert!((2 * GIB - 256 * MIB..=2 * GIB).contains(&all), "{} MiB", all / MIB);
    let (_, text) = said(rig, &["why", "j1", "--json"]);
    let text = text.split_whitespace().collect::<String>();
    assert!(
        text.contains("rulestudents,each_user.mem=2GiB(") && text.contains("\"reason\":\"rulestudents\""),
        "{text}"
    );
}

fn queue(rig: &Rig) {
    let _host = Host::start(rig, &each_user("mem = \"4GiB\", jobs = 2"));
    let mut first = rig.client(&["-g", "0", "-m", "3GiB"]);
    first.ready();
    let fails = |options: &[&str]| {
        let mut words = vec!["run", "-g", "0", "--on-full", "fail"];
        words.extend(options);
        words.extend(["--", "/bin/true"]);
        let (code, text) = said(rig, &words);
        assert_ne!(code, Some(0), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = fails(&["-m", "2GiB"]);
    assert!(
        text.contains("rule students, each_user.mem = 4GiB (")
            && text.contains("leaves 1 GiB on GPU 0; held by j1 3 GiB"),
        "{text}"
    );
    let mut second = rig.client(&["-g", "0", "-m", "1GiB"]);
    second.ready();
    let text = fails(&[]);
    assert!(
        text.contains("rule students, each_user.jobs = 2 (") && text.contains("2 run (j1, "),
        "{text}"
    );
    // Whoever waits begins once there is room.
    let mut third = rig.client(&["-g", "0", "-m", "3GiB"]);
    rig.eventually(SOON, "the third waits", || {
        rig.json(&["status"])["queue"]
            .as_array()
            .is_some_and(|queue| queue.len() == 1)
    });
    first.kill();
    third.ready();
}

fn reloaded(rig: &Rig) {
    let host = Host::start(rig, &each_user("mem = \"4GiB\""));
    let mut clients = [rig.client(&["-g", "0"]), rig.client(&["-g", "0"])];
    for client in &mut clients {
        client.ready();
        client.expect(&format!("alloc {GIB} a"), "alloc 0");
    }
    assert!(host.reload(&each_user("mem = \"2GiB\"")));
    for client in &mut clients {
        client.expect("alloc 512 b", "alloc 2");
    }
    let [one, two] = &mut clients;
    one.expect("free a", "free 0");
    two.expect(&format!("alloc {} b", 512 * MIB), "alloc 0");
    one.expect(&format!("alloc {GIB} b"), "alloc 2");
    assert!(host.reload(&each_user("mem = \"4GiB\"")));
    one.expect(&format!("alloc {GIB} b"), "alloc 0");
}
