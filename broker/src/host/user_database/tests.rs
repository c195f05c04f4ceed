// SPDX-License-Identifier: Apache-2.0
//! Helpers that are shell scripts, and time that is the test's: answers, deadlines, deaths, rest.

use nix::poll::{PollFd, PollFlags, poll};
use partage_protocol::units::SECOND_NS;

use super::adapter::{ANSWER_NS, MOST_WAITING, PAUSE_NS, USER_REST_NS, UserEvent, UserHelper};
use super::messages::{Account, Answer, Ask};
use super::serve::answer;
use crate::helper::process::HelperCommand;

fn helper(script: &str) -> UserHelper {
    UserHelper::new(HelperCommand {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
    })
    .expect("an epoll set")
}

/// Events until there are so many. Time jumps to the next deadline when nothing is to be read for 50 ms.
fn events(helper: &mut UserHelper, now_ns: &mut u64, count: usize) -> Vec<UserEvent> {
    let mut seen = Vec::new();
    for _ in 0..200 {
        seen.extend(helper.events(*now_ns));
        if seen.len() >= count {
            return seen;
        }
        let mut polled = [PollFd::new(helper.descriptor(), PollFlags::POLLIN)];
        if poll(&mut polled, 50u16) == Ok(0)
            && let Some(deadline_ns) = helper.deadline_ns()
        {
            *now_ns = deadline_ns.max(*now_ns);
        }
    }
    panic!("never happened; seen {seen:?}");
}

fn alice() -> Answer {
    Answer::User(Some(Account {
        name: "alice".to_owned(),
        groups: vec![(100, Some("students".to_owned())), (7, None)],
    }))
}

const ALICE: &str = r#"echo '{"user":{"name":"alice","groups":[[100,"students"],[7,null]]}}' >&0"#;

#[test]
fn questions_are_answered_in_turn_and_each_is_asked_once() {
    let mut helper = helper(&format!(
        r#"while read ask; do case "$ask" in *group*) echo '{{"group":27}}' >&0 ;; *) {ALICE} ;; esac; done"#
    ));
    for ask in [Ask::User(1000), Ask::Group("staff".into()), Ask::User(1000)] {
        helper.ask(ask);
    }
    let mut now_ns = 5;
    let seen = events(&mut helper, &mut now_ns, 2);
    let group = UserEvent::Answered(Ask::Group("staff".into()), Answer::Group(Some(27)));
    assert_eq!(seen, [UserEvent::Answered(Ask::User(1000), alice()), group]);
    assert_eq!(now_ns, 5, "no deadline was waited for");
    assert_eq!(helper.deadline_ns(), Some(5 + USER_REST_NS), "the helper rests");
    assert!(helper.events(5 + USER_REST_NS).is_empty());
    assert_eq!(helper.deadline_ns(), None, "and is gone");
}

#[test]
fn a_question_that_hangs_is_given_up_at_its_deadline_and_the_others_come_first() {
    let mut helper = helper(&format!(
        r#"while read ask; do case "$ask" in *666*) exec sleep 1000 ;; *) {ALICE} ;; esac; done"#
    ));
    helper.ask(Ask::User(666));
    helper.ask(Ask::User(1000));
    let mut now_ns = 0;
    let seen = events(&mut helper, &mut now_ns, 2);
    let silent = UserEvent::Silent("no answer within 5 s".to_owned());
    assert_eq!(seen, [silent.clone(), UserEvent::Answered(Ask::User(1000), alice())]);
    assert_eq!(now_ns, ANSWER_NS + PAUSE_NS.0, "the deadline, and the first pause");
    assert_eq!(events(&mut helper, &mut now_ns, 1), [silent], "it is asked again");
}

#[test]
fn a_database_that_never_answers_is_asked_ever_more_rarely() {
    let mut helper = helper("exec sleep 1000");
    helper.ask(Ask::User(1000));
    let mut now_ns = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        events(&mut helper, &mut now_ns, 1);
        let next_ns = helper.deadline_ns().expect("it is asked again");
        pauses.push((next_ns - now_ns) / SECOND_NS);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn a_helper_that_dies_fails_or_does_not_start_is_silent_for_a_reason() {
    let mut now_ns = 0;
    for (script, why) in [
        ("read ask; exit 1", "helper ended"),
        ("echo nonsense >&0; exec sleep 1000", "nonsense"),
        (r#"while read ask; do echo '{"failed":"EIO"}' >&0; done"#, "EIO"),
    ] {
        let mut helper = helper(script);
        helper.ask(Ask::User(1));
        let seen = events(&mut helper, &mut now_ns, 1);
        assert!(
            matches!(&seen[..], [UserEvent::Silent(text)] if text.contains(why)),
            "{seen:?}"
        );
    }
    let mut absent = UserHelper::new(HelperCommand {
        program: "/nonexistent/helper".into(),
        arguments: Vec::new(),
    })
    .expect("an epoll set");
    absent.ask(Ask::User(1));
    assert!(matches!(
        &events(&mut absent, &mut now_ns, 1)[..],
        [UserEvent::Silent(_)]
    ));
}

#[test]
fn questions_do_not_pile_up() {
    let mut helper = helper("exec sleep 1000");
    for uid in 0..10_000 {
        helper.ask(Ask::User(uid));
    }
    let debug = format!("{helper:?}");
    assert_eq!(debug.matches("User(").count(), MOST_WAITING);
}

/// The database of this machine.
#[test]
fn the_helper_answers_with_what_the_database_has() {
    let Answer::User(Some(root)) = answer(&Ask::User(0)) else {
        panic!("no root");
    };
    assert_eq!(root.name, "root");
    assert!(
        root.groups.iter().any(|(gid, name)| *gid == 0 && name.is_some()),
        "{root:?}"
    );
    assert_eq!(answer(&Ask::User(4_000_000_123)), Answer::User(None));
    assert_eq!(answer(&Ask::Group("no-such-group".into())), Answer::Group(None));
}
