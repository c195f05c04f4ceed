// SPDX-License-Identifier: Apache-2.0
//! The auditor of device time: what is taken for time past Partage, what is charged for it and to whom, and what each
//! rule does about it.

use std::collections::BTreeMap;

use crate::host::{Host, caller, mem, uuid};
use partage_policy::{
    Action, Audit, Cause, Config, Event, JobTime, Policy, Process, Regime, Response, TIME_CONFIRM_NS, TimeState,
};
use partage_protocol::units::{ClientId, GIB, JobId, MIB, SECOND_NS};

/// Two jobs with a client each, that share device 0; what each was charged by its marks, and what it was corrected by.
struct Bench {
    host: Host,
    jobs: [(JobId, ClientId, u32); 2],
    seen_ns: [i64; 2],
    corrected_ns: BTreeMap<JobId, i64>,
    stretch: u32,
}

impl Bench {
    fn new(drift: Response) -> Self {
        let mut host = Host::new(&[16]);
        let audit = Audit {
            drift,
            ..Audit::default()
        };
        host.policy = Policy::new(Config {
            audit,
            ..Config::default()
        });
        host.enumerate();
        host.measure();
        let jobs = [1, 2].map(|uid| {
            let (job, process) = host.admitted(uid, mem("4GiB"));
            let client = host.attach(job, process);
            assert!(host.allocate(client, 0, GIB));
            (job, client, process.pid)
        });
        Self {
            host,
            jobs,
            seen_ns: [0; 2],
            corrected_ns: BTreeMap::new(),
            stretch: 1,
        }
    }

    /// A second in which the marks of the two told so much of the device's time, in percent, and NVML shows so much.
    /// Answers the corrections that this gave, in percent of the second.
    fn second(&mut self, seen: [u32; 2], shown: [Option<u32>; 2]) -> Vec<(JobId, i64)> {
        for _ in 0..2 {
            self.host.pass(SECOND_NS / 2);
            for ((_, _, pid), part) in self.jobs.iter().zip(shown) {
                match part {
                    Some(part) => self.host.busy.insert(*pid, part * 10_000),
                    None => self.host.busy.remove(pid),
                };
            }
            self.host.measure();
        }
        self.view(seen, SECOND_NS)
    }

    /// A view of what was charged, at the end of a look of `over`.
    fn view(&mut self, seen: [u32; 2], over: u64) -> Vec<(JobId, i64)> {
        let mut times = Vec::new();
        for (at, (job, _, _)) in self.jobs.iter().enumerate() {
            self.seen_ns[at] += i64::from(seen[at]) * (SECOND_NS / 100) as i64;
            let corrected_ns = self.corrected_ns.get(job).copied().unwrap_or(0);
            times.push(JobTime {
                job: *job,
                device: uuid(1),
                asked_ppm: 500_000,
                got_1s_ppm: 0,
                got_60s_ppm: 0,
                used_ns: u64::try_from(self.seen_ns[at] + corrected_ns).unwrap_or(0),
                corrected_ns,
                stretch: self.stretch,
                waited_ns: 0,
                state: TimeState::Open,
                waits_for: Cause::None,
                wanted_60s_ppm: 0,
                unit_ns: 0,
                regime: Regime::Overlap,
                is_not_draining: false,
            });
        }
        let mut corrections = Vec::new();
        for command in self.host.step(Event::Time(times)) {
            if let Action::CorrectTime { charges, over_ns, .. } = command {
                assert_eq!(over_ns, over);
                for (job, ns) in charges {
                    *self.corrected_ns.entry(job).or_default() += ns;
                    corrections.push((job, ns / (SECOND_NS / 100) as i64));
                }
            }
        }
        corrections
    }

    fn events(&self, kind: &str) -> Vec<String> {
        let text = |command: &Action| match command {
            Action::Publish { kind: found, text, .. } if *found == kind => Some(text.clone()),
            _ => None,
        };
        self.host.commands.iter().filter_map(text).collect()
    }

    fn notes(&self, at: usize) -> String {
        let view = self
            .host
            .policy
            .job_view(self.jobs[at].0, &caller(0), &self.host.board)
            .expect("known");
        view.notes.join("\n")
    }
}

#[test]
fn time_that_marks_do_not_show_is_charged_to_who_had_it_and_taken_from_who_paid() {
    let mut bench = Bench::new(Response::Report);
    let [(liar, ..), (victim, ..)] = bench.jobs;
    // The victim is all that is seen, and has a quarter of the device.
    let look = |bench: &mut Bench| bench.second([0, 100], [Some(75), Some(25)]);
    for first in 0..3 {
        assert_eq!(look(&mut bench), [], "{first}: nothing to compare, and then one look");
    }
    assert!(bench.events("drift").is_empty() && bench.notes(0).is_empty());
    // Two looks of the liar; what the victim was charged for it in this one.
    assert_eq!(look(&mut bench), [(liar, 150), (victim, -100)]);
    assert_eq!(look(&mut bench), [(liar, 75), (victim, -75)]);
    assert_eq!(look(&mut bench), [(liar, 75), (victim, -75)]);
    let text = "NVML shows GPU 0 at work for it for 75 % of the time, and its own marks for 0 %: it goes past \
                Partage, its kernels take longer than when they were timed, or it has work from before it was \
                measured; the difference is charged to it";
    assert_eq!(bench.events("drift"), [format!("{liar}: {text}")], "said once");
    assert_eq!(bench.notes(0), text);
    assert!(bench.notes(1).is_empty());
    // Nothing is denied to it.
    assert!(bench.host.allocate(bench.jobs[0].1, 0, MIB));
    for _ in 0..31 {
        assert_eq!(bench.second([50, 50], [Some(50), Some(50)]), []);
    }
    assert_eq!(bench.events("drift-over").len(), 1);
    assert!(bench.notes(0).is_empty());
}

/// Views and polls have clocks of their own: in some second NVML may say nothing.
#[test]
fn a_second_without_a_figure_acquits_nobody() {
    let mut bench = Bench::new(Response::Report);
    let [(liar, ..), (victim, ..)] = bench.jobs;
    for _ in 0..3 {
        assert_eq!(bench.second([0, 100], [Some(75), Some(25)]), []);
    }
    bench.host.pass(SECOND_NS);
    assert_eq!(bench.view([0, 100], SECOND_NS), []);
    bench.host.pass(SECOND_NS / 2);
    bench.host.measure();
    bench.host.pass(SECOND_NS / 2);
    // Of the liar the look before, and one of two seconds; of the victim all that it was charged in this one.
    let charged = bench.view([0, 100], 2 * SECOND_NS);
    assert_eq!(charged, [(liar, 75 + 150), (victim, -200)]);
    assert_eq!(bench.events("drift").len(), 1);
}

/// A job that is alone for half of each second is not measured then: NVML shows what nobody was to charge.
#[test]
fn a_look_across_a_pause_of_measuring_accuses_nobody() {
    let mut bench = Bench::new(Response::Report);
    for _ in 0..20 {
        bench.stretch += 1;
        assert_eq!(bench.second([35, 15], [Some(65), Some(15)]), []);
    }
    assert!(bench.events("drift").is_empty() && bench.notes(0).is_empty());
    // Within one stretch the same figures are a drift.
    for _ in 0..4 {
        bench.second([35, 15], [Some(65), Some(15)]);
    }
    assert_eq!(bench.events("drift").len(), 1);
}

/// Where NVML shows all jobs at work for longer than they are charged, nobody goes past Partage.
#[test]
fn what_is_shown_too_much_of_everybody_accuses_nobody() {
    let mut bench = Bench::new(Response::Report);
    for _ in 0..20 {
        assert_eq!(bench.second([55, 16], [Some(77), Some(23)]), []);
    }
    assert!(bench.events("drift").is_empty());
}

/// NVML's figures are coarse, late, cut and sometimes no split at all.
#[test]
fn figures_that_can_be_honest_accuse_nobody() {
    // What it is, and of two looks what marks told and what NVML shows of two jobs, in percent.
    type Looks = (&'static str, [[u32; 2]; 2], [[Option<u32>; 2]; 2]);
    let looks: [Looks; 7] = [
        ("nine points", [[40, 60]; 2], [[Some(49), Some(51)]; 2]),
        ("less than charged", [[50, 50]; 2], [[Some(5), Some(5)]; 2]),
        (
            "every other look",
            [[50, 50]; 2],
            [[Some(95), Some(5)], [Some(50), Some(50)]],
        ),
        (
            "a second late",
            [[100, 0], [0, 100]],
            [[Some(0), Some(100)], [Some(100), Some(0)]],
        ),
        ("figures that overlap", [[30, 30]; 2], [[Some(60), Some(60)]; 2]),
        ("no figures", [[0, 100]; 2], [[None, None]; 2]),
        ("no figure of one", [[0, 0]; 2], [[None, Some(100)], [None, Some(0)]]),
    ];
    for (what, seen, shown) in looks {
        let mut bench = Bench::new(Response::Kill);
        for round in 0..20 {
            assert_eq!(bench.second(seen[round % 2], shown[round % 2]), [], "{what}, {round}");
        }
        assert!(bench.events("drift").is_empty(), "{what}");
    }
}

#[test]
fn rules_bar_the_jobs_grants_or_kill_the_process_after_a_while() {
    let seconds = TIME_CONFIRM_NS / SECOND_NS;
    let look = |bench: &mut Bench| bench.second([0, 100], [Some(75), Some(25)]);
    let mut bench = Bench::new(Response::DenyNew);
    let [(liar, client, _), (_, other, _)] = bench.jobs;
    let sibling = bench.host.attach(liar, Process { pid: 4_000, start: 1 });
    bench.host.busy.insert(4_000, 0);
    // Two looks before the first that is compared.
    for _ in 0..2 + seconds - 1 {
        look(&mut bench);
        assert!(bench.host.allocate(sibling, 0, MIB));
    }
    look(&mut bench);
    look(&mut bench);
    assert!(!bench.host.allocate(sibling, 0, GIB) && !bench.host.allocate(client, 0, 2 * GIB));
    assert!(
        bench.host.allocate(other, 0, 2 * GIB),
        "others have what they were promised"
    );
    for _ in 0..32 {
        bench.second([50, 50], [Some(50), Some(50)]);
    }
    assert!(bench.host.allocate(sibling, 0, GIB), "it agrees again");

    let mut bench = Bench::new(Response::Kill);
    let (liar, _, pid) = bench.jobs[0];
    for _ in 0..2 + seconds + 2 {
        look(&mut bench);
    }
    let killed = bench.host.commands.iter().filter_map(|command| match command {
        Action::KillProcess(process) => Some(process.pid),
        _ => None,
    });
    assert_eq!(killed.collect::<Vec<_>>(), [pid], "the one at work, once");
    let said = bench.events("drift-killed");
    assert!(
        said.len() == 1 && said[0].starts_with(&format!("pid {pid} of {liar} is killed: audit.drift = kill")),
        "{said:?}"
    );
}
