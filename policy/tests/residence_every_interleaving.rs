// SPDX-License-Identifier: Apache-2.0
//! Every way in which a passage can be disturbed once, and every death of a broker after that, on a model of driver,
//! ledger and record; then random ones.

use partage_policy::{
    Answer, InBooks, Mark, Outcome, Passage, Patience, Plan, ProcessState, Residence, Stage, Step, stages,
};
use proptest::prelude::*;

use crate::host::uuid;
use crate::residence::{Fault, Run, When, plans, process};

/// Codes of the driver's table of refusals, and one that it never had.
const CODES: [i32; 9] = [1, 2, 3, 201, 304, 401, 600, 801, 999];
const WHENS: [When; 3] = [When::Before, When::Inside, When::After];

/// What can happen at a step.
fn faults(step: &Step, processes: usize) -> Vec<Fault> {
    let mut all: Vec<Fault> = WHENS.map(Fault::Broker).to_vec();
    if matches!(step, Step::LedgerLeave(_) | Step::LedgerCome(_) | Step::LedgerBack) {
        all.extend((0..5 * processes).map(Fault::BrokerCut));
    }
    for who in 0..processes {
        all.extend(WHENS.map(|when| Fault::Kill(who, when)));
        all.extend([When::Before, When::Inside].map(|when| Fault::Stop(who, when)));
    }
    for completes in [true, false] {
        all.push(Fault::Helper { completes });
        all.push(Fault::Late { completes });
    }
    // The broker's own questions and writes fail too, with a code of their own.
    let refused = CODES.into_iter().filter(|code| is_possible(step, *code));
    all.extend(refused.map(Fault::Refuse));
    all.extend([Fault::Greedy, Fault::Steal(0), Fault::Steal(1), Fault::Gap]);
    all
}

/// A driver that works refuses nothing that it has to grant: *no CUDA there* (3) of a process that has it.
fn is_possible(step: &Step, code: i32) -> bool {
    let is_call = matches!(
        step,
        Step::Lock { .. } | Step::State(_) | Step::Checkpoint(_) | Step::Unlock(_)
    );
    let is_quiet = matches!(step, Step::Pause { .. });
    !(is_quiet || code == 3 && is_call)
}

/// The steps of a passage that nothing disturbs.
fn steps_of(plan: Plan, processes: usize) -> Vec<Step> {
    let mut run = Run::with(plan, processes, &[]);
    run.steps.truncate(run.length);
    run.steps
}

#[test]
fn an_undisturbed_passage_takes_exactly_the_stages_of_its_plan() {
    for plan in plans() {
        for processes in [1, 3] {
            let mut seen: Vec<Stage> = steps_of(plan, processes).iter().filter_map(Step::stage).collect();
            seen.dedup();
            let mut expected = Vec::new();
            for stage in stages(&plan) {
                match stage {
                    Stage::RoomProve => (0..processes).for_each(|_| expected.extend([*stage, Stage::Restore])),
                    Stage::Restore => {}
                    stage => expected.push(*stage),
                }
            }
            assert_eq!(seen, expected, "{plan:?} of {processes}");
        }
    }
}

#[test]
fn a_mark_precedes_the_first_step_of_each_stage() {
    for plan in plans() {
        let mut written = None;
        for step in steps_of(plan, 3) {
            match (&step, step.stage()) {
                (Step::Write(mark), _) => written = mark.stage,
                (_, Some(Stage::RoomAsk) | None) => {}
                // Its mark is that of the restore, which follows at once.
                (_, Some(Stage::RoomProve)) => assert_eq!(written, Some(Stage::Restore)),
                (_, stage) => assert_eq!(written, stage, "{plan:?}: {step:?}"),
            }
        }
    }
}

#[test]
fn each_stage_that_changes_something_has_its_undo() {
    for plan in plans() {
        for stage in stages(&plan) {
            let changes = !matches!(
                stage,
                Stage::RoomAsk
                    | Stage::Barrier
                    | Stage::NobodyInside
                    | Stage::NvmlClear
                    | Stage::Commit
                    | Stage::End
                    | Stage::RoomProve
                    | Stage::Unlock
                    | Stage::Unpark
                    | Stage::Placement
                    | Stage::Open
            );
            assert_eq!(stage.undo().is_some(), changes, "{stage:?}");
            assert!(!stage.text().is_empty() && !stage.leaves().is_empty());
        }
    }
}

#[test]
fn a_death_in_a_stage_leaves_what_its_row_says() {
    for plan in plans() {
        for processes in [1, 3] {
            for at in 0..steps_of(plan, processes).len() {
                for when in WHENS {
                    let run = Run::with(plan, processes, &[(at, Fault::Broker(when))]);
                    let Some((stage, states)) = run.found else { continue };
                    for state in states {
                        assert!(
                            stage.leaves().contains(&state),
                            "{plan:?}, {stage:?}, {when:?}: {state:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn one_fault_at_every_step_of_every_plan() {
    let mut runs = 0u64;
    for plan in plans() {
        for processes in [1, 3] {
            for (at, step) in steps_of(plan, processes).iter().enumerate() {
                for fault in faults(step, processes) {
                    let trace = Trace(plan, processes, vec![(at, fault)]);
                    Run::with(plan, processes, &trace.2);
                    runs += 1;
                }
            }
        }
    }
    println!("{runs} runs");
    assert!(runs > 5_000);
}

#[test]
fn a_broker_killed_at_every_step_after_every_fault() {
    let mut runs = 0u64;
    for plan in plans() {
        let processes = 2;
        for (at, step) in steps_of(plan, processes).iter().enumerate() {
            for fault in faults(step, processes) {
                let length = Run::with(plan, processes, &[(at, fault)]).length;
                for later in at + 1..length {
                    for when in [When::Before, When::After] {
                        let trace = Trace(plan, processes, vec![(at, fault), (later, Fault::Broker(when))]);
                        Run::with(plan, processes, &trace.2);
                        runs += 1;
                    }
                }
            }
        }
    }
    println!("{runs} runs");
    assert!(runs > 50_000);
}

#[test]
fn of_three_processes_one_that_fails_leaves_the_job_whole() {
    let stays = |plan, fault: &dyn Fn(&Step) -> Option<Fault>| {
        let steps = steps_of(plan, 3);
        let at = steps.iter().enumerate().find_map(|(at, step)| Some((at, fault(step)?)));
        let run = Run::with(plan, 3, &[at.expect("such a step")]);
        (run.first, run.states)
    };
    let second = |step: &Step| step.process() == Some(process(1));
    // One never leaves the driver, one dies after Lock, one refuses Checkpoint: it runs whole.
    let inside = stays(Plan::Leave, &|step| {
        matches!(step, Step::NobodyInside { .. }).then_some(Fault::Late { completes: false })
    });
    let dies = stays(Plan::Leave, &|step| {
        (second(step) && matches!(step, Step::Lock { .. })).then_some(Fault::Kill(1, When::After))
    });
    let refuses = stays(Plan::Leave, &|step| {
        (second(step) && matches!(step, Step::Checkpoint(_))).then_some(Fault::Refuse(801))
    });
    for outcome in [inside, dies, refuses] {
        assert_eq!(
            outcome,
            (Some(Outcome::Here), vec![ProcessState::Running; outcome.1.len()])
        );
    }
    // One fails Restore for good: it is away whole.
    let lost = stays(Plan::Come, &|step| {
        (second(step) && matches!(step, Step::RoomProve { .. })).then_some(Fault::Steal(0))
    });
    assert_eq!(lost, (Some(Outcome::Away), vec![ProcessState::Checkpointed; 3]));
    // One is lost by the driver: the others are away.
    let poisoned = stays(Plan::Come, &|step| {
        (second(step) && matches!(step, Step::Restore { .. })).then_some(Fault::Gap)
    });
    assert_eq!(poisoned, (Some(Outcome::Poisoned), vec![ProcessState::Checkpointed; 3]));
}

#[test]
fn a_map_that_the_driver_refuses_and_a_target_that_filled_up_leave_the_job_at_home() {
    for fault in [Fault::Refuse(1), Fault::Steal(1)] {
        for nth in 0..3 {
            let steps = steps_of(Plan::Move(crate::residence::TARGET), 3);
            let is_it = |step: &Step| match fault {
                Fault::Steal(_) => matches!(step, Step::RoomProve { .. }),
                _ => matches!(step, Step::Restore { .. }),
            };
            let at = steps.iter().enumerate().filter(|(_, step)| is_it(step)).nth(nth);
            let (at, _) = at.expect("one of each process");
            let run = Run::with(Plan::Move(crate::residence::TARGET), 3, &[(at, fault)]);
            assert_eq!(run.world.device, 0, "{fault:?}");
            assert_eq!(run.first, Some(Outcome::Here));
        }
    }
    assert_eq!(Run::with(Plan::Move(crate::residence::TARGET), 3, &[]).world.device, 1);
}

/// Prints the run when an assertion fails in it.
struct Trace(Plan, usize, Vec<(usize, Fault)>);

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?} of {} processes, {:?}", self.0, self.1, self.2);
        }
    }
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let when = || prop::sample::select(WHENS.to_vec());
    prop_oneof![
        4 => when().prop_map(Fault::Broker),
        1 => (0..12usize).prop_map(Fault::BrokerCut),
        1 => any::<bool>().prop_map(|completes| Fault::Helper { completes }),
        1 => (0..3usize, when()).prop_map(|(who, when)| Fault::Kill(who, when)),
        1 => (0..3usize, when()).prop_map(|(who, when)| Fault::Stop(who, when)),
        2 => prop::sample::select(CODES.to_vec()).prop_map(Fault::Refuse),
        1 => any::<bool>().prop_map(|completes| Fault::Late { completes }),
        1 => Just(Fault::Greedy),
        1 => (0..2usize).prop_map(Fault::Steal),
        1 => Just(Fault::Gap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn any_faults_in_any_order(
        plan in prop::sample::select(plans().to_vec()),
        processes in 1..4usize,
        faults in prop::collection::vec((0..60usize, any_fault()), 0..7),
    ) {
        let faults = faults.into_iter().filter(|(_, fault)| !matches!(fault, Fault::Refuse(3)));
        Run::with(plan, processes, &faults.collect::<Vec<_>>());
    }
}

/// A driver that refuses one of its calls for ever: the passage ends, or says that it stands, and does not go round.
#[test]
fn a_call_that_is_refused_each_time_ends_or_is_named() {
    let away = Mark {
        residence: Residence::Away,
        books: InBooks::Left,
        ..Mark::default()
    };
    let both = [process(0), process(1)];
    let home = (Mark::default(), ProcessState::Running);
    let plans = plans().map(|plan| {
        (
            plan,
            if plan == Plan::Come {
                (away.clone(), ProcessState::Checkpointed)
            } else {
                home.clone()
            },
        )
    });
    let is_call = |step: &Step| match step {
        Step::Lock { .. } => Some(0),
        Step::Checkpoint(_) => Some(1),
        Step::Restore { .. } => Some(2),
        Step::Unlock(_) => Some(3),
        _ => None,
    };
    for (plan, (mark, began)) in &plans {
        for (call, code) in (0..4)
            .flat_map(|call| CODES.map(|code| (call, code)))
            .filter(|(_, code)| *code != 3)
        {
            let mut states = [*began; 2];
            let mut passage =
                Passage::begin(*plan, mark, &[uuid(0)], &both, Patience::default()).expect("it may begin");
            let mut steps = 0;
            while let Some(step) = passage.next_step() {
                let refused = is_call(&step) == Some(call);
                let of = step.process().map_or(0, |of| usize::from(of == both[1]));
                passage.take(match &step {
                    Step::State(_) => Answer::Is(states[of]),
                    Step::Locate(_) => Answer::At(partage_policy::Place::Source),
                    _ if refused => Answer::Refused(code),
                    _ => {
                        states[of] = match is_call(&step) {
                            Some(0 | 2) => ProcessState::Locked,
                            Some(1) => ProcessState::Checkpointed,
                            Some(3) => ProcessState::Running,
                            _ => states[of],
                        };
                        Answer::Done
                    }
                });
                steps += 1;
                assert!(steps < 1_000, "{plan:?}: {step:?} is refused with {code} for ever");
                if passage.stuck().is_some() {
                    break;
                }
            }
        }
    }
}

/// Of a job whose processes do not use the driver: what leaves, comes or moves is its promise, in marks alone.
#[test]
fn a_promise_alone_leaves_comes_and_moves_without_the_driver() {
    use Stage::{Barrier, HoldHard, HoldSoft, LedgerBack, LedgerCome, LedgerLeave, NobodyInside, Open, Placement};
    let devices = [uuid(0)];
    // Carried out without a failure; `answer` is that to a question for room.
    let run = |plan, mark: &Mark, answer| {
        let mut passage = Passage::begin(plan, mark, &devices, &[], Patience::default()).expect("it may begin");
        let (mut stages, mut last) = (Vec::new(), Mark::default());
        while let Some(step) = passage.next_step() {
            match step {
                Step::Write(mark) => last = mark,
                _ => stages.extend(step.stage()),
            }
            let is_room = stages.last() == Some(&Stage::RoomAsk) && last.stage != Some(Stage::RoomAsk);
            passage.take(if is_room && answer == Answer::NoRoom {
                answer
            } else {
                Answer::Done
            });
        }
        (stages, passage.outcome(), last)
    };
    let hold = [HoldSoft, Barrier, NobodyInside, HoldHard];
    let (stages, outcome, away) = run(Plan::Leave, &Mark::default(), Answer::Done);
    assert_eq!(stages, [&hold[..], &[LedgerLeave]].concat());
    assert_eq!((outcome, away.residence), (Some(Outcome::Away), Residence::Away));
    let (stages, outcome, here) = run(Plan::Come, &away, Answer::Done);
    assert_eq!(stages, [Stage::RoomAsk, LedgerCome, LedgerBack, Open]);
    assert_eq!((outcome, here.residence), (Some(Outcome::Here), Residence::Here));
    let target = Plan::Move(crate::residence::TARGET);
    let (stages, outcome, _) = run(target, &Mark::default(), Answer::Done);
    assert_eq!(stages, [&hold[..], &[Stage::RoomAsk, Placement, Open]].concat());
    assert_eq!(outcome, Some(Outcome::Here));
    // Without room it stays where it is.
    let (stages, outcome, _) = run(Plan::Come, &away, Answer::NoRoom);
    assert_eq!((stages, outcome), (vec![Stage::RoomAsk], Some(Outcome::Away)));
    let (stages, outcome, last) = run(target, &Mark::default(), Answer::NoRoom);
    assert_eq!(stages, [&hold[..], &[Stage::RoomAsk, Open]].concat());
    assert_eq!((outcome, last.residence), (Some(Outcome::Here), Residence::Here));
}

/// Of two processes of a job that is away one runs: another program restored it.
#[test]
fn what_another_program_restored_is_taken_in_or_sent_away_again() {
    let away = Mark {
        residence: Residence::Away,
        books: InBooks::Left,
        ..Mark::default()
    };
    let both = [process(0), process(1)];
    let run = |room: Answer, states: [ProcessState; 2]| {
        let mut passage = Passage::restored_behind(&away, &[uuid(0)], &both, Patience::default());
        let mut stages = Vec::new();
        while let Some(step) = passage.next_step() {
            stages.extend(step.stage());
            passage.take(match step {
                Step::State(of) => Answer::Is(states[usize::from(of == both[1])]),
                Step::RoomAsk(_) => room,
                _ => Answer::Done,
            });
        }
        (stages, passage.outcome())
    };
    use ProcessState::{Checkpointed, Locked, Running};
    use Stage::{Barrier, Checkpoint, LedgerBack, LedgerCome, NobodyInside, NvmlClear, Placement, RoomAsk};
    let (stages, outcome) = run(Answer::Done, [Checkpointed, Running]);
    let come = [
        RoomAsk,
        LedgerCome,
        Stage::RoomProve,
        Stage::Restore,
        LedgerBack,
        Stage::Unlock,
        Placement,
        Stage::Open,
    ];
    assert_eq!((stages, outcome), (come.to_vec(), Some(Outcome::Here)));
    let (stages, outcome) = run(Answer::NoRoom, [Checkpointed, Running]);
    let leave = [RoomAsk, Barrier, NobodyInside, Stage::Lock, Checkpoint, NvmlClear];
    assert_eq!((stages, outcome), (leave.to_vec(), Some(Outcome::Away)));
    // Restored and not yet unlocked.
    let (stages, outcome) = run(Answer::NoRoom, [Locked, Checkpointed]);
    assert_eq!(
        (stages, outcome),
        (vec![RoomAsk, Checkpoint, NvmlClear], Some(Outcome::Away))
    );
    // NVML was late: nothing is touched.
    assert_eq!(run(Answer::NoRoom, [Checkpointed; 2]), (vec![], Some(Outcome::Away)));
}
