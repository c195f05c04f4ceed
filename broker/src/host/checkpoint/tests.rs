// SPDX-License-Identifier: Apache-2.0
//! Helpers that are shell scripts, and time that is the test's: turns, deadlines, deaths, rest.

use std::collections::{BTreeMap, BTreeSet};

use nix::poll::{PollFd, PollFlags, poll};
use partage_policy::Process;
use partage_protocol::units::JobId;

use super::adapter::{CheckpointHelpers, INIT_DEADLINE_NS, Number, Outcome, REST_NS};
use super::messages::{Answer, Ask, Call, State};
use super::serve::why_not;
use crate::helper::process::{HelperCommand, User};
use crate::host::proc::{Processes, Stat};

const TARGET: Process = Process { pid: 7, start: 70 };
const JOB: JobId = JobId(1);
const PATIENCE_NS: u64 = 1_000;

fn helpers(script: &str) -> CheckpointHelpers {
    let command = HelperCommand {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
    };
    CheckpointHelpers::new(command).expect("an epoll set")
}

/// Opens, then does what a line says for each call.
fn script(each: &str) -> String {
    format!(r#"while read ask; do case "$ask" in *open*) echo '{{"ready":13000}}' >&0 ;; {each} esac; done"#)
}

fn ask(call: Call) -> Ask {
    Ask::Call { target: TARGET, call }
}

/// Outcomes until there are so many. Time jumps to the next deadline when nothing is to be read for 50 ms.
fn outcomes(helpers: &mut CheckpointHelpers, now_ns: &mut u64, count: usize) -> Vec<(Number, Outcome)> {
    let mut seen = Vec::new();
    for _ in 0..200 {
        seen.extend(helpers.outcomes(*now_ns));
        if seen.len() >= count {
            return seen;
        }
        let mut polled = [PollFd::new(helpers.descriptor(), PollFlags::POLLIN)];
        if poll(&mut polled, 50u16) == Ok(0)
            && let Some(deadline_ns) = helpers.deadline_ns()
        {
            *now_ns = deadline_ns.max(*now_ns);
        }
    }
    panic!("never happened; seen {seen:?}");
}

#[test]
fn questions_of_a_user_are_answered_in_their_order_by_one_helper() {
    let each =
        r#"*state*) echo '{"state":"locked"}' >&0 ;; *lock*) echo '"done"' >&0 ;; *) echo '{"code":401}' >&0 ;;"#;
    let mut helpers = helpers(&script(each));
    let mut now_ns = 5;
    let asked = [Call::Lock { timeout_ms: 9 }, Call::State, Call::Checkpoint]
        .map(|call| helpers.ask(User::own(), JOB, ask(call), PATIENCE_NS));
    let seen = outcomes(&mut helpers, &mut now_ns, 3);
    let expected = [Answer::Done, Answer::State(State::Locked), Answer::Code(401)];
    let expected = expected.map(Outcome::Answered);
    assert_eq!(seen, asked.into_iter().zip(expected).collect::<Vec<_>>());
    assert_eq!(now_ns, 5, "no deadline was waited for");
}

#[test]
fn a_deadline_ends_the_helper_and_the_next_question_has_a_new_one() {
    let each = r#"*checkpoint*) exec sleep 1000 ;; *) echo '{"state":"checkpointed"}' >&0 ;;"#;
    let mut helpers = helpers(&script(each));
    let mut now_ns = 0;
    let late = helpers.ask(User::own(), JOB, ask(Call::Checkpoint), PATIENCE_NS);
    let next = helpers.ask(User::own(), JOB, ask(Call::State), PATIENCE_NS);
    let seen = outcomes(&mut helpers, &mut now_ns, 2);
    assert_eq!(now_ns, PATIENCE_NS);
    let state = Outcome::Answered(Answer::State(State::Checkpointed));
    assert_eq!(seen, [(late, Outcome::Late), (next, state)]);
}

#[test]
fn a_call_that_hangs_keeps_no_other_job_waiting() {
    let each = r#"*checkpoint*) exec sleep 1000 ;; *) echo "{\"code\":$$}" >&0 ;;"#;
    let mut helpers = helpers(&script(each));
    let mut now_ns = 0;
    let late = helpers.ask(User::own(), JOB, ask(Call::Checkpoint), PATIENCE_NS);
    let others = [2, 3].map(|job| helpers.ask(User::own(), JobId(job), ask(Call::State), PATIENCE_NS));
    let seen = outcomes(&mut helpers, &mut now_ns, 2);
    assert_eq!(now_ns, 0, "they waited for it");
    let pid = |number: Number| {
        seen.iter().find_map(|(other, outcome)| match outcome {
            Outcome::Answered(Answer::Code(pid)) if *other == number => Some(*pid),
            _ => None,
        })
    };
    let [one, two] = others.map(pid);
    assert!(one.is_some() && two.is_some() && one != two, "{seen:?}");
    // A helper with nothing to do takes the next one.
    let next = helpers.ask(User::own(), JobId(4), ask(Call::State), PATIENCE_NS);
    let again = outcomes(&mut helpers, &mut now_ns, 1);
    assert_eq!(again, [(next, Outcome::Answered(Answer::Code(one.unwrap_or(0))))]);
    assert_eq!(outcomes(&mut helpers, &mut now_ns, 1), [(late, Outcome::Late)]);
}

#[test]
fn a_driver_that_hangs_at_its_start_costs_one_question_its_deadline() {
    let mut helpers = helpers("exec sleep 1000");
    let mut now_ns = 0;
    let asked = helpers.ask(User::own(), JOB, ask(Call::State), PATIENCE_NS);
    assert_eq!(outcomes(&mut helpers, &mut now_ns, 1), [(asked, Outcome::Late)]);
    assert_eq!(now_ns, INIT_DEADLINE_NS);
    assert_eq!(helpers.deadline_ns(), None, "no helper is started for nobody");
}

#[test]
fn a_helper_that_dies_or_has_no_driver_says_so_to_each_question() {
    let mut now_ns = 0;
    let mut dying = helpers(&script("*) exit 1 ;;"));
    let asked = [0, 1].map(|_| dying.ask(User::own(), JOB, ask(Call::Unlock), PATIENCE_NS));
    let seen = outcomes(&mut dying, &mut now_ns, 2);
    assert_eq!(seen.iter().map(|(number, _)| *number).collect::<Vec<_>>(), asked);
    assert!(
        seen.iter().all(|(_, outcome)| matches!(outcome, Outcome::Failed(_))),
        "{seen:?}"
    );
    let mut without = helpers(r#"while read ask; do echo '{"no-driver":"none here"}' >&0; done"#);
    let asked = without.ask(User::own(), JOB, ask(Call::Unlock), PATIENCE_NS);
    let why = Outcome::Answered(Answer::NoDriver("none here".to_owned()));
    assert_eq!(outcomes(&mut without, &mut now_ns, 1), [(asked, why)]);
    let mut absent = CheckpointHelpers::new(HelperCommand {
        program: "/nonexistent/helper".into(),
        arguments: Vec::new(),
    })
    .expect("an epoll set");
    let asked = absent.ask(User::own(), JOB, ask(Call::State), PATIENCE_NS);
    let seen = outcomes(&mut absent, &mut now_ns, 1);
    assert!(
        matches!(&seen[..], [(number, Outcome::Failed(_))] if *number == asked),
        "{seen:?}"
    );
}

#[test]
fn a_helper_rests_a_while_and_is_known_as_one_of_ours() {
    let mut helpers = helpers(&script(r#"*) echo "{\"code\":$$}" >&0 ;;"#));
    let mut now_ns = 7;
    helpers.ask(User::own(), JOB, ask(Call::State), PATIENCE_NS);
    let seen = outcomes(&mut helpers, &mut now_ns, 1);
    let [(_, Outcome::Answered(Answer::Code(pid)))] = seen[..] else {
        panic!("{seen:?}");
    };
    let pid = u32::try_from(pid).expect("a process");
    assert!(helpers.is_own(pid) && !helpers.is_own(std::process::id()));
    assert_eq!(helpers.deadline_ns(), Some(7 + REST_NS));
    assert_eq!(helpers.outcomes(7 + REST_NS - 1), []);
    assert!(helpers.is_own(pid));
    assert_eq!(helpers.outcomes(7 + REST_NS), []);
    assert_eq!(helpers.deadline_ns(), None);
    // Ours until it is gone.
    for _ in 0..1_000 {
        if !helpers.is_own(pid) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(helpers.outcomes(7 + REST_NS), []);
    }
    panic!("it does not end");
}

#[test]
fn a_helper_that_dies_while_nothing_is_asked_is_let_go_at_once() {
    let mut helpers = helpers(&script(
        r#"*state*) echo '"done"' >&0; exit 0 ;; *) echo '"done"' >&0 ;;"#,
    ));
    let mut now_ns = 7;
    let asked = helpers.ask(User::own(), JOB, ask(Call::State), PATIENCE_NS);
    assert_eq!(
        outcomes(&mut helpers, &mut now_ns, 1),
        [(asked, Outcome::Answered(Answer::Done))]
    );
    // Its end is what makes the set readable; time stands still.
    for _ in 0..200 {
        if helpers.deadline_ns().is_none() {
            break;
        }
        let mut polled = [PollFd::new(helpers.descriptor(), PollFlags::POLLIN)];
        poll(&mut polled, 50u16).expect("polled");
        assert_eq!(helpers.outcomes(now_ns), []);
    }
    assert_eq!(helpers.deadline_ns(), None);
    let mut polled = [PollFd::new(helpers.descriptor(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, 0u16), Ok(0), "nothing is left to be read");
    // The next question has a new one.
    let asked = helpers.ask(User::own(), JOB, ask(Call::Unlock), PATIENCE_NS);
    let done = Outcome::Answered(Answer::Done);
    assert_eq!(outcomes(&mut helpers, &mut now_ns, 1), [(asked, done)]);
}

#[test]
fn messages_read_back_as_they_were_said() {
    let map = vec![("GPU-a".to_owned(), "GPU-b".to_owned())];
    let calls = [
        Call::State,
        Call::Lock { timeout_ms: 3 },
        Call::Checkpoint,
        Call::Restore { map },
        Call::Unlock,
    ];
    let mut asks: Vec<Ask> = calls.map(ask).into();
    asks.extend([
        Ask::Open,
        Ask::Room {
            uuid: "GPU-a".to_owned(),
            bytes: 1 << 40,
        },
    ]);
    for asked in asks {
        let text = serde_json::to_string(&asked).expect("text");
        assert_eq!(serde_json::from_str::<Ask>(&text).expect("read back"), asked, "{text}");
    }
    assert_eq!(
        [0, 1, 2, 3, 4, -1].map(State::of)[..3],
        [State::Running, State::Locked, State::Checkpointed]
    );
    assert!([3, 4, -1].map(State::of).iter().all(|state| *state == State::Failed));
}

/// A table of processes.
struct Table(BTreeMap<u32, Stat>);

impl Processes for Table {
    fn stat(&self, pid: u32) -> Option<Stat> {
        self.0.get(&pid).copied()
    }
    fn uid(&self, _: u32) -> Option<u32> {
        None
    }
    fn name(&self, _: u32) -> Option<String> {
        None
    }
    fn program(&self, _: u32) -> Option<String> {
        None
    }
    fn gid(&self, _: u32) -> Option<u32> {
        None
    }
    fn groups(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }
    fn has_thread(&self, _: u32, _: &str) -> bool {
        false
    }
    fn private_brokers(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }
    fn cgroup(&self, _: u32) -> Option<String> {
        None
    }
    fn all(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }
}

#[test]
fn a_process_that_is_gone_or_stopped_is_not_called() {
    let stat = |start, is_exiting, is_stopped| Stat {
        id: Process { pid: TARGET.pid, start },
        parent: 1,
        is_exiting,
        is_stopped,
        image: (0, 0),
        terminal: 0,
    };
    let judge = |stat: Option<Stat>| {
        why_not(
            &Table(stat.map(|stat| (TARGET.pid, stat)).into_iter().collect()),
            TARGET,
        )
    };
    assert_eq!(judge(Some(stat(TARGET.start, false, false))), None);
    assert_eq!(judge(Some(stat(TARGET.start, false, true))), Some(Answer::Stopped));
    assert_eq!(judge(Some(stat(TARGET.start, true, true))), Some(Answer::Gone));
    assert_eq!(
        judge(Some(stat(TARGET.start + 1, false, false))),
        Some(Answer::Gone),
        "another one of its number"
    );
    assert_eq!(judge(None), Some(Answer::Gone));
}
