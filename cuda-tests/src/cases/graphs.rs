// SPDX-License-Identifier: Apache-2.0
//! Graphs that allocate: nothing is charged for a capture, what the device's graphs reserve is charged when one runs.

use super::pools::even;
use super::{Case, Random, tenth};
use crate::client::Client;
use crate::rig::{MIB, Rig};

pub fn cases() -> Vec<Case> {
    let simulated = |name, body| Case::new(name, body).simulated("the simulator's books tell graphs from overhead");
    vec![
        simulated("graphs::a_thousand_launches_and_a_destruction_leave_nothing", thousand),
        simulated("graphs::a_capture_is_neither_denied_nor_charged", capture),
        simulated(
            "graphs::a_launch_beyond_the_limit_is_denied_and_a_later_one_runs",
            beyond,
        ),
        simulated("graphs::graphs_that_take_turns_share_their_memory", turns),
        simulated("graphs::uploads_are_charged_like_launches", uploads),
        simulated("graphs::idle_graph_memory_makes_room", makes_room),
        simulated("graphs::random_steps_keep_ledger_and_truth_equal", random_steps),
        simulated("graphs::failures_in_the_driver_leave_nothing_behind", injected),
    ]
}

fn thousand(rig: &Rig) {
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    client.expect("stream s", "stream 0");
    client.expect(&format!("graph g {} 3", 64 * MIB), "graph 0");
    even(rig, "instantiated");
    assert_eq!(rig.ledger_used(), 0, "nothing is taken before it runs");
    client.expect("graphlaunch g 1 s", "graphlaunch 0");
    even(rig, "launched");
    let once = rig.ledger_used();
    assert!(once >= 192 * MIB, "{once} for three of 64 MiB");
    client.expect("graphlaunch g 1000 s", "graphlaunch 0");
    client.expect("streamsync s", "streamsync 0");
    even(rig, "launched a thousand times");
    assert_eq!(rig.ledger_used(), once);
    client.expect("graphdestroy g", "graphdestroy 0");
    even(rig, "destroyed");
    for _ in 0..10 {
        client.expect(&format!("captureabort {}", 64 * MIB), "captureabort 901");
    }
    even(rig, "captures that came to nothing");
    client.expect("graphtrim", "graphtrim 0");
    even(rig, "trimmed");
    assert_eq!(rig.ledger_used(), 0);
}

fn capture(rig: &Rig) {
    let mut client = rig.client(&["-m", "512MiB"]);
    client.ready();
    // More than the limit in one capture: only a launch would take it.
    client.expect(&format!("graph g {} 4", 256 * MIB), "graph 0");
    client.expect("graphlaunch g 1", "graphlaunch 2");
    even(rig, "not launched");
    assert_eq!(rig.ledger_used(), 0);
    // Ordinary allocations go on as before a capture, and are charged.
    client.expect(&format!("allocasync {} a", 128 * MIB), "allocasync 0");
    even(rig, "beside a graph");
    client.expect(&format!("allocasync {} b", 512 * MIB), "allocasync 2");
    client.expect("freeasync a", "freeasync 0");
    client.expect("graphdestroy g", "graphdestroy 0");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "at the end");
    assert_eq!(rig.ledger_used(), 0);
}

fn beyond(rig: &Rig) {
    let mut client = rig.client(&["-m", "512MiB"]);
    client.ready();
    client.expect(&format!("alloc {} held", 320 * MIB), "alloc 0");
    client.expect(&format!("graph g {} 2", 128 * MIB), "graph 0");
    client.expect("graphlaunch g 1", "graphlaunch 2");
    even(rig, "denied");
    assert_eq!(rig.ledger_used(), 320 * MIB);
    client.expect("free held", "free 0");
    client.expect("graphlaunch g 5", "graphlaunch 0");
    even(rig, "launched");
    // While it waits in its stream, its memory is nobody else's.
    client.expect("stream s", "stream 0");
    client.expect("hold s", "hold 0");
    client.expect("graphlaunch g 1 s", "graphlaunch 0");
    client.expect(&format!("alloc {} more", 384 * MIB), "alloc 2");
    client.expect("unhold", "unhold");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "launched again");
}

fn turns(rig: &Rig) {
    // Room for one of them beside a context, not for two.
    let mut client = rig.client(&["-m", "400MiB"]);
    client.ready();
    client.expect("stream s", "stream 0");
    client.expect(&format!("graph g {} 2", 100 * MIB), "graph 0");
    client.expect(&format!("graph h {} 2", 100 * MIB), "graph 0");
    client.expect("hold s", "hold 0");
    // Both wait in one stream: they never run at the same time, and nothing that is idle could be trimmed.
    client.expect("graphlaunch g 1 s", "graphlaunch 0");
    client.expect("graphlaunch h 1 s", "graphlaunch 0");
    even(rig, "one behind the other");
    client.expect("graphlaunch g 1 s", "graphlaunch 0");
    client.expect("unhold", "unhold");
    for _ in 0..20 {
        client.expect("graphlaunch g 1 s", "graphlaunch 0");
        client.expect("graphlaunch h 1 s", "graphlaunch 0");
    }
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "taking turns");
    assert!(rig.ledger_used() <= 400 * MIB);
    // In two streams at once they need memory of their own, which the limit does not allow.
    client.expect("stream t", "stream 0");
    client.expect("hold s", "hold 0");
    client.expect("graphlaunch g 1 s", "graphlaunch 0");
    let answer = client.say("graphlaunch h 1 t");
    assert!(
        ["graphlaunch 0", "graphlaunch 2"].contains(&answer.as_str()),
        "{answer}"
    );
    client.expect("unhold", "unhold");
    client.expect("ctxsync", "ctxsync 0");
    for name in ["g", "h"] {
        client.expect(&format!("graphdestroy {name}"), "graphdestroy 0");
    }
    client.expect("graphtrim", "graphtrim 0");
    even(rig, "at the end");
    assert_eq!(rig.ledger_used(), 0);
}

fn uploads(rig: &Rig) {
    let mut client = rig.client(&["-m", "512MiB"]);
    client.ready();
    client.expect(&format!("graph g {} 1", 128 * MIB), "graph 0");
    client.expect("graphupload g", "graphupload 0");
    even(rig, "uploaded");
    assert!(rig.ledger_used() >= 128 * MIB);
    client.expect("graphlaunch g 3", "graphlaunch 0");
    even(rig, "launched");
    client.expect(&format!("graph big {} 4", 256 * MIB), "graph 0");
    client.expect("graphupload big", "graphupload 2");
    client.expect("ctxsync", "ctxsync 0");
    even(rig, "too much to upload");
}

fn makes_room(rig: &Rig) {
    let mut client = rig.client(&["-m", "512MiB"]);
    client.ready();
    client.expect(&format!("graph g {} 2", 128 * MIB), "graph 0");
    client.expect("graphlaunch g 1", "graphlaunch 0");
    client.expect("ctxsync", "ctxsync 0");
    client.expect("graphdestroy g", "graphdestroy 0");
    even(rig, "kept by the driver");
    assert!(rig.ledger_used() >= 256 * MIB);
    client.expect(&format!("alloc {} a", 384 * MIB), "alloc 0");
    even(rig, "given up for an allocation");
    assert_eq!(rig.ledger_used(), 384 * MIB);
}

fn random_steps(rig: &Rig) {
    let mut random = Random::new(31);
    let mut client = rig.client(&["-m", "1GiB"]);
    client.ready();
    for stream in ["s", "t"] {
        client.expect(&format!("stream {stream}"), "stream 0");
    }
    let mut graphs: Vec<u64> = Vec::new();
    let mut alive: Vec<u64> = Vec::new();
    for step in 0..2000 / tenth() as u64 {
        let stream = ["s", "t"][random.below(2) as usize];
        let bytes = 1 + random.below(150 * MIB);
        match random.below(12) {
            0 if graphs.len() < 8 => {
                client.expect(&format!("graph g{step} {bytes} {}", 1 + random.below(4)), "graph 0");
                graphs.push(step);
            }
            1..5 if !graphs.is_empty() => {
                let name = graphs[random.below(graphs.len() as u64) as usize];
                let answer = client.say(&format!("graphlaunch g{name} {} {stream}", 1 + random.below(5)));
                assert!(
                    ["graphlaunch 0", "graphlaunch 2"].contains(&answer.as_str()),
                    "{answer}"
                );
            }
            5 if !graphs.is_empty() => {
                let name = graphs.swap_remove(random.below(graphs.len() as u64) as usize);
                client.expect("ctxsync", "ctxsync 0");
                client.expect(&format!("graphdestroy g{name}"), "graphdestroy 0");
            }
            6 => client.expect("graphtrim", "graphtrim 0"),
            7 => client.expect("ctxsync", "ctxsync 0"),
            8 if !alive.is_empty() => {
                let name = alive.swap_remove(0);
                client.expect(&format!("freeasync n{name} {stream}"), "freeasync 0");
            }
            _ => {
                if client.say(&format!("allocasync {bytes} n{step} {stream}")) == "allocasync 0" {
                    alive.push(step);
                }
            }
        }
        if step % 40 == 0 {
            client.expect("ctxsync", "ctxsync 0");
            even(rig, &format!("step {step}"));
        }
    }
    client.expect("ctxsync", "ctxsync 0");
    for name in graphs {
        client.expect(&format!("graphdestroy g{name}"), "graphdestroy 0");
    }
    for name in alive {
        client.expect(&format!("freeasync n{name} s"), "freeasync 0");
    }
    client.expect("ctxsync", "ctxsync 0");
    client.expect("graphtrim", "graphtrim 0");
    even(rig, "at the end");
    assert_eq!(rig.ledger_used(), 0);
}

fn injected(rig: &Rig) {
    let mut command = rig.run(&["-m", "1GiB"], &crate::artefacts::client(), &["dlopen"]);
    command.env(
        "PARTAGE_SIM_FAULTS",
        "oom:cuGraphLaunch:%3;code:cuGraphInstantiateWithFlags:%4:999;code:cuGraphExecDestroy:%5:999",
    );
    let mut client = Client::start(command);
    client.ready();
    let mut failed = 0;
    for round in 0..40 {
        let made = client.say(&format!("graph g{round} {} 2", 32 * MIB)) == "graph 0";
        failed += u32::from(!made);
        if !made {
            continue;
        }
        for _ in 0..4 {
            failed += u32::from(client.say(&format!("graphlaunch g{round} 1")) != "graphlaunch 0");
        }
        client.expect("ctxsync", "ctxsync 0");
        while client.say(&format!("graphdestroy g{round}")) != "graphdestroy 0" {
            failed += 1;
        }
        let _ = client.say("graphtrim");
        even(rig, &format!("round {round}"));
    }
    assert!(failed > 20, "only {failed} failures");
    assert_eq!(rig.ledger_used(), 0);
}
