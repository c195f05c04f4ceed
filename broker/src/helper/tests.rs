// SPDX-License-Identifier: Apache-2.0
//! Helpers that are shell scripts: dying, deaf, talking garbage or without end. Time is the test's.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags, poll};

use super::channel::{Channel, ChannelError, LONGEST_LINE, serve_at};
use super::process::{BackOff, Helper, HelperCommand, Killed, User};

fn start(script: &str) -> Helper<String> {
    let program = "/bin/sh".into();
    let arguments = vec!["-c".into(), script.into()];
    Helper::start(&HelperCommand { program, arguments }).expect("a shell")
}

/// The first answer or error.
fn answer<A: serde::de::DeserializeOwned>(helper: &mut Helper<String>) -> Result<A, ChannelError> {
    loop {
        if let Some(answer) = helper.channel.answer().transpose() {
            return answer;
        }
        let mut polled = [PollFd::new(helper.channel.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, 5000u16);
    }
}

/// Kills a helper and waits for its end.
fn end(helper: Helper<String>) {
    let held = crate::host::pidfd::PidFd::open(helper.pid()).expect("not reaped yet");
    let mut killed = Killed::default();
    killed.kill(helper);
    let mut polled = [PollFd::new(held.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, 5000u16), Ok(1), "ended");
    assert_eq!(killed.reap(), 0);
}

#[test]
fn an_answer_finishes_its_request_and_the_next_one_has_a_deadline_of_its_own() {
    let mut helper = start("while read ask; do echo 7 >&0; done");
    helper.channel.ask("first".to_owned(), 10, 5);
    assert!(!helper.channel.is_late(14) && helper.channel.is_late(15));
    assert_eq!(answer::<u32>(&mut helper).expect("answered"), 7);
    let request = helper.channel.finish().expect("under way");
    assert_eq!((request.what.as_str(), request.asked_ns), ("first", 10));
    assert!(!helper.channel.is_late(u64::MAX), "nothing is under way");
    helper.channel.ask("second".to_owned(), 20, 30);
    assert_eq!(helper.channel.request().map(|request| request.deadline_ns), Some(50));
    assert_eq!(answer::<u32>(&mut helper).expect("answered"), 7);
    end(helper);
}

#[test]
fn a_deaf_helper_is_late_at_its_deadline_and_can_be_killed() {
    let mut helper = start("trap '' TERM; exec sleep 1000");
    helper.channel.ask("anyone".to_owned(), 100, 50);
    assert!(matches!(helper.channel.answer::<u32>(), Ok(None)), "no wait");
    assert!(!helper.channel.is_late(149) && helper.channel.is_late(150));
    end(helper);
}

#[test]
fn a_helper_that_dies_has_ended_whatever_it_said_before() {
    let mut helper = start("read ask; echo 1 >&0; printf 2 >&0; exit 3");
    helper.channel.ask("last words".to_owned(), 0, 1);
    assert_eq!(answer::<u32>(&mut helper).expect("a whole line"), 1);
    assert!(
        matches!(answer::<u32>(&mut helper), Err(ChannelError::Ended)),
        "half a line"
    );
    end(helper);
}

#[test]
fn garbage_is_said_to_be_garbage_and_a_line_without_end_is_not_kept() {
    let mut helper = start("read ask; echo '{nonsense' >&0; exec sleep 1000");
    helper.channel.ask("a number".to_owned(), 0, 1);
    let error = answer::<u32>(&mut helper).expect_err("no number");
    assert!(matches!(error, ChannelError::Nonsense(_)) && error.to_string().contains("nonsense"));
    end(helper);
    let script = format!("head -c {} /dev/zero >&0; exec sleep 1000", LONGEST_LINE + 65536);
    let mut helper = start(&script);
    assert!(matches!(answer::<u32>(&mut helper), Err(ChannelError::Endless)));
    end(helper);
}

#[test]
fn a_helper_cannot_be_started_without_its_program() {
    let command = HelperCommand {
        program: "/nonexistent/helper".into(),
        arguments: Vec::new(),
    };
    assert!(Helper::<String>::start(&command).is_err());
}

#[test]
fn pauses_double_up_to_the_longest_and_begin_anew_with_a_success() {
    let mut back_off = BackOff::new(0, (5, 30));
    assert!(back_off.is_over(0));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        back_off.fail(100);
        pauses.push(back_off.at_ns() - 100);
    }
    assert_eq!(pauses, [5, 10, 20, 30, 30]);
    assert!(!back_off.is_over(129) && back_off.is_over(130));
    back_off.hurry(110);
    assert_eq!(back_off.at_ns(), 115, "somebody waits");
    back_off.hurry(300);
    assert_eq!(back_off.at_ns(), 115, "never later");
    back_off.start_at(50);
    assert!(back_off.is_over(50));
    back_off.succeed();
    back_off.fail(200);
    assert_eq!(back_off.at_ns(), 205);
}

#[test]
fn the_helpers_side_answers_each_line_and_ends_at_garbage() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let served = std::thread::spawn(move || serve_at(theirs, |request: String| request.len() as u32));
    let mut channel: Channel<String> = Channel::new(ours.try_clone().expect("a descriptor")).expect("a channel");
    let mut next = || {
        loop {
            if let Some(answer) = channel.answer::<u32>().transpose() {
                return answer;
            }
            let mut polled = [PollFd::new(ours.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut polled, 5000u16);
        }
    };
    std::io::Write::write_all(&mut &ours, b"\"four\"\n\"seventh\"\n{}\n\"never\"\n").expect("sent");
    assert_eq!(next().expect("answered"), 4);
    assert_eq!(next().expect("answered"), 7);
    assert!(matches!(next(), Err(ChannelError::Ended)));
    assert!(served.join().is_ok());
}

#[test]
fn a_helper_of_another_user_is_told_whose_it_becomes() {
    let other = User {
        uid: 65_533,
        gid: 65_532,
        groups: vec![44, 65_530],
    };
    let own = HelperCommand::own("--checkpoint-helper", None);
    let arguments = own.clone().of_user(&other).arguments;
    assert_eq!(arguments[1..], ["--as", "65533:65532:44,65530"]);
    assert_eq!(
        own.clone().of_user(&User::own()).arguments,
        own.arguments,
        "nothing to change"
    );
}

proptest::proptest! {
    #[test]
    fn a_user_is_read_as_it_was_written(uid: u32, gid: u32, groups: Vec<u32>) {
        let user = User { uid, gid, groups };
        proptest::prop_assert_eq!(User::parse(&user.text()), Some(user));
    }

    #[test]
    fn what_is_no_user_is_refused(text in "[0-9:,a ]{0,16}") {
        if let Some(user) = User::parse(&text) {
            // Zeros before a number, or a comma too many.
            proptest::prop_assert_eq!(User::parse(&user.text()), Some(user));
        }
        let longer = format!("{}:", text);
        proptest::prop_assert!(text.matches(':').count() != 2 || User::parse(&longer).is_none());
    }
}
