// SPDX-License-Identifier: Apache-2.0
//! The table of capture rules, row by row, and random histories that must keep the state coherent.

use super::*;
use proptest::prelude::*;

const LEGACY: StreamFacts = StreamFacts {
    key: 1,
    context: 1,
    is_legacy: true,
    is_blocking: false,
};
const A: StreamFacts = StreamFacts {
    key: 2,
    context: 1,
    is_legacy: false,
    is_blocking: true,
};
const B: StreamFacts = StreamFacts { key: 3, ..A };
const FREE: StreamFacts = StreamFacts {
    key: 4,
    is_blocking: false,
    ..A
};
const OTHER_CONTEXT: StreamFacts = StreamFacts {
    key: 5,
    context: 2,
    ..A
};
const OTHER_LEGACY: StreamFacts = StreamFacts {
    key: 6,
    context: 2,
    ..LEGACY
};
const EVENT: u64 = 100;
const THREAD: u64 = 7;
const OTHER_THREAD: u64 = 8;

fn capturing(stream: StreamFacts, mode: Mode) -> Captures {
    let mut captures = Captures::default();
    captures.begin(stream, mode, THREAD, Vec::new()).expect("begins");
    captures
}

fn is_invalid(captures: &Captures, stream: StreamFacts) -> bool {
    matches!(captures.status(stream), Ok(Status::Invalidated(_)))
}

fn finish(captures: &mut Captures, stream: StreamFacts) -> Result<(), CuResult> {
    captures
        .end(stream, THREAD, |node| {
            vec![node - 1].into_iter().filter(|&parent| parent > 0).collect()
        })
        .1
}

#[test]
fn legacy_stream_cannot_be_captured_nor_used_beside_a_blocking_capture() {
    assert_eq!(
        Captures::default().begin(LEGACY, Mode::Relaxed, THREAD, vec![]),
        Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
    );
    let mut captures = capturing(A, Mode::Relaxed);
    assert_eq!(captures.status(LEGACY), Err(CuResult::STREAM_CAPTURE_IMPLICIT));
    assert!(!is_invalid(&captures, A), "asking for the status harms nothing");
    assert_eq!(captures.admit(LEGACY), Err(CuResult::STREAM_CAPTURE_IMPLICIT));
    assert!(is_invalid(&captures, A));
    assert_eq!(
        capturing(FREE, Mode::Relaxed).admit(LEGACY),
        Ok(None),
        "non-blocking streams do not mind"
    );
    assert_eq!(
        capturing(A, Mode::Relaxed).admit(OTHER_LEGACY),
        Ok(None),
        "nor do other contexts"
    );
}

#[test]
fn begin_twice_and_end_without_begin_are_illegal_states() {
    let mut captures = capturing(A, Mode::Global);
    assert_eq!(
        captures.begin(A, Mode::Global, THREAD, vec![]),
        Err(CuResult::ILLEGAL_STATE)
    );
    assert!(!is_invalid(&captures, A));
    assert_eq!(finish(&mut captures, B), Err(CuResult::ILLEGAL_STATE));
    assert_eq!(finish(&mut captures, A), Ok(()));
    assert_eq!(finish(&mut captures, A), Err(CuResult::ILLEGAL_STATE));
    assert_eq!(captures.status(A), Ok(Status::Idle));
}

#[test]
fn fork_and_join_by_events() {
    let mut captures = capturing(A, Mode::Global);
    captures.set_tips(A, vec![1]).expect("captured");
    assert_eq!(captures.record(EVENT, A), Ok(true));
    assert_eq!(captures.wait(B, EVENT), Ok(true));
    assert_eq!(captures.admit(B), Ok(Some((1, vec![1]))));
    captures.set_tips(B, vec![2]).expect("captured");
    assert_eq!(captures.record(EVENT + 1, B), Ok(true));
    assert_eq!(captures.wait(A, EVENT + 1), Ok(true));
    assert_eq!(captures.tips(A), [1, 2]);
    assert_eq!(finish(&mut captures, A), Ok(()));
    assert_eq!(captures.status(B), Ok(Status::Idle), "members leave with the capture");
}

#[test]
fn forked_work_that_is_not_joined_is_an_error() {
    let mut captures = capturing(A, Mode::Global);
    captures.set_tips(A, vec![1]).expect("captured");
    captures.record(EVENT, A).expect("captured");
    captures.wait(B, EVENT).expect("captured");
    captures.set_tips(B, vec![2]).expect("captured");
    assert_eq!(finish(&mut captures, A), Err(CuResult::STREAM_CAPTURE_UNJOINED));
    assert_eq!(captures.status(A), Ok(Status::Idle), "the capture is over all the same");
}

#[test]
fn fork_that_did_nothing_needs_no_join() {
    let mut captures = capturing(A, Mode::Global);
    captures.set_tips(A, vec![1]).expect("captured");
    captures.record(EVENT, A).expect("captured");
    captures.wait(B, EVENT).expect("captured");
    captures.set_tips(A, vec![2]).expect("captured");
    assert_eq!(finish(&mut captures, A), Ok(()));
}

#[test]
fn only_the_origin_ends_a_capture() {
    let mut captures = capturing(A, Mode::Global);
    captures.record(EVENT, A).expect("captured");
    captures.wait(B, EVENT).expect("captured");
    assert_eq!(finish(&mut captures, B), Err(CuResult::STREAM_CAPTURE_UNMATCHED));
    assert_eq!(finish(&mut captures, A), Err(CuResult::STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn only_a_relaxed_capture_may_end_in_another_thread() {
    for (mode, expected) in [
        (Mode::Global, Err(CuResult::STREAM_CAPTURE_WRONG_THREAD)),
        (Mode::ThreadLocal, Err(CuResult::STREAM_CAPTURE_WRONG_THREAD)),
        (Mode::Relaxed, Ok(())),
    ] {
        assert_eq!(capturing(A, mode).end(A, OTHER_THREAD, |_| vec![]).1, expected);
    }
}

#[test]
fn two_captures_cannot_merge() {
    let mut captures = capturing(A, Mode::Global);
    captures.begin(B, Mode::Global, THREAD, vec![]).expect("begins");
    captures.record(EVENT, A).expect("captured");
    assert_eq!(captures.wait(B, EVENT), Err(CuResult::STREAM_CAPTURE_MERGE));
    assert!(is_invalid(&captures, A) && is_invalid(&captures, B));
}

#[test]
fn captured_stream_cannot_wait_for_work_outside() {
    let mut captures = capturing(A, Mode::Global);
    assert_eq!(captures.record(EVENT, FREE), Ok(false));
    assert_eq!(captures.wait(A, EVENT), Err(CuResult::STREAM_CAPTURE_ISOLATION));
    assert!(is_invalid(&captures, A));
}

#[test]
fn execution_status_of_what_is_captured_cannot_be_asked() {
    let mut captures = capturing(A, Mode::Relaxed);
    captures.record(EVENT, A).expect("captured");
    assert_eq!(captures.query_event(EVENT), Err(CuResult::CAPTURED_EVENT));
    assert!(is_invalid(&captures, A));
    let mut captures = capturing(A, Mode::Relaxed);
    assert_eq!(captures.query_stream(A), Err(CuResult::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(captures.query_stream(A), Err(CuResult::STREAM_CAPTURE_INVALIDATED));
    let mut captures = capturing(A, Mode::Relaxed);
    assert_eq!(captures.query_context(2), Ok(()));
    assert_eq!(captures.query_context(1), Err(CuResult::STREAM_CAPTURE_UNSUPPORTED));
    assert!(is_invalid(&captures, A));
    assert_eq!(capturing(A, Mode::Relaxed).query_stream(FREE), Ok(()));
}

#[test]
fn event_recorded_anew_outside_is_free_again() {
    let mut captures = capturing(A, Mode::Relaxed);
    captures.record(EVENT, A).expect("captured");
    finish(&mut captures, A).expect("ends");
    assert_eq!(captures.query_event(EVENT), Err(CuResult::CAPTURED_EVENT));
    assert_eq!(captures.wait(B, EVENT), Err(CuResult::CAPTURED_EVENT));
    assert_eq!(captures.record(EVENT, B), Ok(false));
    assert_eq!(captures.query_event(EVENT), Ok(()));
    assert!(captures.sessions.is_empty() && captures.events.is_empty());
}

#[test]
fn unsafe_calls_by_mode_of_capture_and_of_thread() {
    use Mode::{Global, Relaxed, ThreadLocal};
    // Capture's mode, thread's mode, allowed in the thread that captures, allowed in another.
    for (capture, thread, own, other) in [
        (Global, Global, false, false),
        (Global, ThreadLocal, false, true),
        (Global, Relaxed, true, true),
        (ThreadLocal, Global, false, true),
        (ThreadLocal, ThreadLocal, false, true),
        (ThreadLocal, Relaxed, true, true),
        (Relaxed, Global, true, true),
        (Relaxed, ThreadLocal, true, true),
        (Relaxed, Relaxed, true, true),
    ] {
        for (who, is_allowed) in [(THREAD, own), (OTHER_THREAD, other)] {
            let mut captures = capturing(A, capture);
            let answer = captures.unsafe_call(who, thread);
            let expected = if is_allowed {
                Ok(())
            } else {
                Err(CuResult::STREAM_CAPTURE_UNSUPPORTED)
            };
            assert_eq!(answer, expected, "{capture:?} {thread:?} {who}");
            assert_eq!(is_invalid(&captures, A), !is_allowed);
        }
    }
}

#[test]
fn a_destroyed_stream_ends_the_capture_that_it_began_and_leaves_another_its_work() {
    let forked = |joins: bool| {
        let mut captures = capturing(A, Mode::Global);
        captures.record(EVENT, A).expect("captured");
        captures.wait(B, EVENT).expect("captured");
        captures.set_tips(B, vec![7]).expect("captured");
        if joins {
            captures.record(EVENT + 1, B).expect("captured");
            captures.wait(A, EVENT + 1).expect("captured");
        }
        assert_eq!(captures.forget_stream(B), None);
        assert!(!is_invalid(&captures, A));
        captures.end(A, THREAD, |_| vec![])
    };
    assert_eq!(forked(true), (Some(1), Ok(())));
    assert_eq!(forked(false), (Some(1), Err(CuResult::STREAM_CAPTURE_UNJOINED)));
    let mut captures = capturing(A, Mode::Global);
    assert_eq!(captures.forget_stream(A), Some(1));
    assert_eq!(captures.forget_stream(FREE), None);
    assert_eq!(captures.status(A), Ok(Status::Idle));
}

#[test]
fn another_device_may_join() {
    let mut captures = capturing(A, Mode::Global);
    captures.record(EVENT, A).expect("captured");
    assert_eq!(captures.wait(OTHER_CONTEXT, EVENT), Ok(true));
    assert_eq!(captures.status(OTHER_CONTEXT), Ok(Status::Active(1)));
}

proptest! {
    /// Whatever is tried: a member belongs to a living session, an invalidated session never becomes valid, and
    /// ending every origin leaves no member behind.
    #[test]
    fn any_history_is_coherent(steps in proptest::collection::vec((0..9u8, 0..6usize, 0..3u64), 0..60)) {
        let streams = [LEGACY, A, B, FREE, OTHER_CONTEXT, OTHER_LEGACY];
        let mut captures = Captures::default();
        let mut node = 0;
        let mut spoilt: HashSet<u64> = HashSet::new();
        for (what, stream, event) in steps {
            let stream = streams[stream];
            match what {
                0 => drop(captures.begin(stream, Mode::Global, THREAD + event % 2, vec![])),
                1 => drop(captures.end(stream, THREAD + event % 2, |_| vec![]).1),
                2 => drop(captures.record(event, stream)),
                3 => drop(captures.wait(stream, event)),
                4 => drop(captures.query_stream(stream)),
                5 => drop(captures.query_event(event)),
                6 => drop(captures.unsafe_call(THREAD, Mode::Global)),
                7 => drop(captures.forget_stream(stream)),
                _ => if captures.admit(stream).is_ok_and(|captured| captured.is_some()) {
                    node += 1;
                    captures.set_tips(stream, vec![node]).expect("captured");
                },
            }
            for member in captures.members.values() {
                prop_assert!(captures.sessions.contains_key(&member.session));
            }
            for (number, session) in &captures.sessions {
                prop_assert!(session.is_invalid || !spoilt.contains(number));
                if session.is_invalid { spoilt.insert(*number); }
                prop_assert!(captures.members.get(&session.origin).is_some_and(|member| member.session == *number));
            }
        }
        for stream in streams {
            for thread in [THREAD, THREAD + 1] { let _ = captures.end(stream, thread, |_| vec![]); }
            captures.forget_stream(stream);
        }
        prop_assert!(captures.members.is_empty() && captures.sessions.is_empty());
    }
}
