// SPDX-License-Identifier: Apache-2.0
//! What keeps a job from leaving: each reason with its remedy, alone and together.

use partage_policy::{HostRoom, Intent, JobFacts, Obstacle, Process, ProcessFacts, Residence, Tie, obstacles};
use partage_protocol::units::{GIB, JobId};

pub fn fine() -> JobFacts {
    JobFacts {
        job: JobId(1),
        uid: 1000,
        residence: Residence::Here,
        driver_level: Some(580),
        mig: None,
        has_mps: false,
        can_act_as_owner: true,
        processes: vec![ProcessFacts {
            process: Process { pid: 7, start: 1 },
            uid: 1000,
            is_stopped: false,
            has_library: true,
            is_unreachable: false,
            is_away: false,
            is_uncounted: false,
            ties: Vec::new(),
            lacks_node: None,
        }],
        bytes: 8 * GIB,
        host: HostRoom {
            available: 16 * GIB,
            cgroup: Some(("/user.slice".into(), 16 * GIB, 2 * GIB)),
        },
    }
}

fn moving() -> Intent {
    let card = |name: &str| (name.to_owned(), 80 * GIB);
    Intent::Move {
        from: card("H100"),
        to: card("H100"),
        is_own: false,
        mig: None,
    }
}

#[test]
fn nothing_is_in_the_way_of_a_plain_job() {
    for intent in [Intent::Leave, moving()] {
        assert_eq!(obstacles(&intent, &fine()), []);
    }
    // Nothing on the device needs no host memory.
    let mut empty = fine();
    (empty.bytes, empty.host) = (0, HostRoom::default());
    assert_eq!(obstacles(&Intent::Leave, &empty), []);
}

type Change = fn(&mut JobFacts);

/// What is changed in a plain job, the reason and the remedy.
const REASONS: [(Change, &str, &str); 14] = [
    (
        |f| f.residence = Residence::Away,
        "j1 is suspended now",
        "to bring it back: partage resume j1",
    ),
    (
        |f| f.residence = Residence::Saving,
        "j1 is saving now",
        "wait until that is over (partage ps j1)",
    ),
    (
        |f| f.driver_level = Some(565),
        "the driver is 565, and this needs 570 or later",
        "install driver 570 or later",
    ),
    (
        |f| f.mig = Some("MIG-1".into()),
        "MIG-1 is in MIG mode, where the driver cannot checkpoint",
        "use whole GPUs for jobs that are to be suspended",
    ),
    (
        |f| f.has_mps = true,
        "MPS shares the GPU, and the driver cannot checkpoint its clients",
        "stop the MPS daemon (echo quit | nvidia-cuda-mps-control), and start the job again",
    ),
    (
        |f| f.processes[0].uid = 1001,
        "pid 7 runs as uid 1001, and the job belongs to uid 1000",
        "start the whole job as one user",
    ),
    (
        |f| f.processes[0].is_stopped = true,
        "pid 7 is stopped, and the driver would wait for it without end",
        "let it go on first: kill -CONT 7",
    ),
    (
        |f| f.processes[0].has_library = false,
        "pid 7 uses the GPU without Partage, so its threads cannot be held",
        "start it with partage run, or end it",
    ),
    (
        |f| f.processes[0].is_unreachable = true,
        "pid 7 turned Partage off or closed what it shares with the broker, so its threads cannot be held",
        "start the job again; partage why says what happened",
    ),
    (
        |f| f.processes[0].is_away = true,
        "pid 7 has no connection to the broker at the moment",
        "try again in a few seconds; partage why says if it does not come back",
    ),
    (
        |f| f.processes[0].is_uncounted = true,
        "pid 7 had more threads inside driver calls at a time than Partage can tell apart, so they cannot be held",
        "start it again, with fewer threads that use the GPU (384 at a time)",
    ),
    (
        |f| f.processes[0].lacks_node = Some("/dev/nvidia1".into()),
        "pid 7 does not see that GPU: its container has no /dev/nvidia1",
        "choose a GPU of its container, or start the container with that GPU too",
    ),
    (
        |f| f.host.available = 8 * GIB,
        "the job's memory would take 8.3 GiB of host memory, and 8 GiB are available",
        "free host memory, or suspend a smaller job",
    ),
    (
        |f| f.host.cgroup = Some(("/job".into(), 9 * GIB, 2 * GIB)),
        "the job's memory would take 8.3 GiB of host memory, and its memory cgroup /job has 7 GiB left of 9 GiB",
        "raise its limit (memory.max) by 1.3 GiB at least",
    ),
];

#[test]
fn each_reason_has_its_sentence_and_its_remedy() {
    for (change, reason, remedy) in REASONS {
        let mut facts = fine();
        change(&mut facts);
        let found = obstacles(&Intent::Leave, &facts);
        let said: Vec<_> = found
            .iter()
            .map(|obstacle| (obstacle.to_string(), obstacle.remedy()))
            .collect();
        assert_eq!(said, [(reason.to_owned(), remedy.to_owned())]);
    }
    let mut other = fine();
    other.can_act_as_owner = false;
    let found = obstacles(&Intent::Leave, &other);
    assert_eq!(found, [Obstacle::NotOwner(1000)]);
    assert_eq!(found[0].remedy(), "use a managed broker, which root starts");
}

#[test]
fn every_tie_is_named_and_several_are_one_sentence() {
    for tie in Tie::ALL {
        let mut facts = fine();
        facts.processes[0].ties = vec![tie];
        let found = obstacles(&Intent::Leave, &facts);
        assert_eq!(
            found[0].to_string(),
            format!("pid 7 has {}, which the driver cannot save", tie.text())
        );
    }
    let mut facts = fine();
    facts.processes[0].ties = vec![Tie::Managed, Tie::DmaBuf];
    let text = "pid 7 has managed memory and memory shared with another device (dma-buf), which the driver cannot save";
    assert_eq!(obstacles(&Intent::Leave, &facts)[0].to_string(), text);
}

#[test]
fn a_move_asks_for_more() {
    let with = |change: fn(&mut (String, u64), &mut bool, &mut Option<String>)| {
        let Intent::Move {
            from,
            mut to,
            mut is_own,
            mut mig,
        } = moving()
        else {
            panic!("a move")
        };
        change(&mut to, &mut is_own, &mut mig);
        let intent = Intent::Move { from, to, is_own, mig };
        let found = obstacles(&intent, &fine());
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].to_string()
    };
    assert_eq!(with(|_, own, _| *own = true), "the job has that GPU already");
    assert_eq!(
        with(|to, _, _| to.0 = "A100".into()),
        "a job on a H100 cannot go on on a A100"
    );
    assert_eq!(
        with(|to, _, _| to.1 = 40 * GIB),
        "the job's GPU has 80 GiB in all, and that one 40 GiB"
    );
    assert_eq!(
        with(|_, _, mig| *mig = Some("MIG-1".into())),
        "MIG-1 is in MIG mode, where the driver cannot checkpoint"
    );
    let mut old = fine();
    old.driver_level = Some(575);
    assert_eq!(obstacles(&Intent::Leave, &old), []);
    let text = "the driver is 575, and this needs 580 or later";
    assert_eq!(obstacles(&moving(), &old)[0].to_string(), text);
}
