// SPDX-License-Identifier: Apache-2.0
//! Every short program over all kinds of streams, against the order that the CUDA manual prescribes.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const KINDS: [Kind; 5] = [
    Kind::Legacy,
    Kind::Blocking,
    Kind::Blocking,
    Kind::NonBlocking,
    Kind::NonBlocking,
];

/// The manual's rule for two operations of one context, the first submitted before the second: same stream, or one of
/// them in the legacy stream and the other in a blocking one.
fn is_ordered(first: usize, second: usize) -> bool {
    let pair = (KINDS[first], KINDS[second]);
    first == second || matches!(pair, (Kind::Legacy, Kind::Blocking) | (Kind::Blocking, Kind::Legacy))
}

struct Program {
    order: Order<usize>,
    lanes: Vec<LaneId>,
    ops: Vec<OpId>,
    ready: Vec<OpId>,
}

impl Program {
    fn new() -> Self {
        let mut order = Order::default();
        let (group, legacy) = order.open_group();
        let mut lanes = vec![legacy];
        lanes.extend(KINDS[1..].iter().map(|&kind| order.open_lane(group, kind)));
        Self {
            order,
            lanes,
            ops: Vec::new(),
            ready: Vec::new(),
        }
    }

    fn submit(&mut self, lane: usize, after: &[OpId]) {
        let submitted = self.order.submit(self.lanes[lane], self.ops.len(), after);
        self.ops.push(submitted.id);
        if submitted.is_ready {
            self.ready.push(submitted.id);
        }
    }

    fn complete(&mut self, op: OpId) {
        self.order.take(op).expect("ready once");
        self.ready.retain(|&ready| ready != op);
        let time = self.ops.iter().position(|&id| id == op).expect("submitted") as u64;
        self.ready.extend(self.order.complete(op, |_| time).ready);
    }

    fn number(&self, op: OpId) -> usize {
        self.ops.iter().position(|&id| id == op).expect("submitted")
    }
}

/// All operations that must be complete before each one may start: the transitive closure of the manual's rule.
fn prescribed(lanes: &[usize]) -> Vec<HashSet<usize>> {
    let mut before: Vec<HashSet<usize>> = Vec::new();
    for second in 0..lanes.len() {
        let direct: Vec<usize> = (0..second)
            .filter(|&first| is_ordered(lanes[first], lanes[second]))
            .collect();
        let mut all: HashSet<usize> = direct.iter().copied().collect();
        direct.iter().for_each(|&first| all.extend(before[first].clone()));
        before.push(all);
    }
    before
}

/// An operation may start exactly when what the manual puts before it is complete: tried by completing everything
/// else first.
fn check(lanes: &[usize]) {
    let before = prescribed(lanes);
    for (target, needed) in before.iter().enumerate() {
        let mut program = Program::new();
        lanes.iter().for_each(|&lane| program.submit(lane, &[]));
        let mut complete = HashSet::new();
        loop {
            let is_ready = program.ready.contains(&program.ops[target]);
            assert_eq!(is_ready, needed.is_subset(&complete), "operation {target} of {lanes:?}");
            let next = program.ready.iter().copied().filter(|&op| op != program.ops[target]);
            // What the target does not need goes first, so that a missing dependency would show.
            let Some(next) = next.min_by_key(|&op| (needed.contains(&program.number(op)), op)) else {
                break;
            };
            complete.insert(program.number(next));
            program.complete(next);
        }
        assert_eq!(program.ready, [program.ops[target]], "everything else could run");
    }
}

#[test]
fn every_program_of_five_operations_runs_in_the_prescribed_order() {
    for code in 0..KINDS.len().pow(5) {
        let lanes: Vec<usize> = (0..5)
            .map(|place| code / KINDS.len().pow(place) % KINDS.len())
            .collect();
        check(&lanes);
    }
}

#[test]
fn contexts_do_not_wait_for_each_other() {
    let mut order = Order::default();
    let (first, second) = (order.open_group().1, order.open_group().1);
    assert!(order.submit(first, (), &[]).is_ready);
    assert!(order.submit(second, (), &[]).is_ready);
}

#[test]
fn destroyed_stream_still_holds_up_the_legacy_stream() {
    let mut program = Program::new();
    program.submit(1, &[]);
    program.order.close_lane(program.lanes[1]);
    program.submit(0, &[]);
    assert_eq!(program.ready, [program.ops[0]]);
    program.complete(program.ops[0]);
    assert_eq!(program.ready, [program.ops[1]]);
}

#[test]
fn what_is_submitted_late_has_no_earlier_time() {
    for (submitted, ended, time) in [(50, 70, 70), (90, 70, 90)] {
        let mut program = Program::new();
        program.submit(1, &[]);
        program.submit(1, &[]);
        let [first, second] = program.ops[..] else {
            panic!("two")
        };
        program.order.not_before(second, submitted);
        program.order.complete(first, |_| ended);
        assert_eq!(program.order.take(second).expect("ready").1, time);
    }
}

#[test]
fn follower_starts_when_the_last_of_several_ends() {
    let mut program = Program::new();
    program.submit(3, &[]);
    program.submit(4, &[]);
    let both = program.ops.clone();
    let joined = program.order.submit_free(2, &both);
    assert_eq!(
        (joined.is_ready, program.order.directly_ahead(joined.id)),
        (false, None)
    );
    let first = program.order.complete(both[0], |_| 70);
    assert_eq!(
        first,
        Completed {
            ready: vec![],
            behind: vec![joined.id]
        }
    );
    assert_eq!(program.order.direct_follower(both[1]), Some(joined.id));
    assert_eq!(program.order.complete(both[1], |_| 40).ready, [joined.id]);
    assert_eq!(
        program.order.take(joined.id),
        Some((2, 70)),
        "its time is that of the latest, not of the last told"
    );
}

#[test]
fn idle_lane_and_group_have_nothing_ahead() {
    let mut program = Program::new();
    program.submit(1, &[]);
    program.submit(3, &[]);
    let (legacy, other) = (program.lanes[0], program.lanes[4]);
    assert_eq!(program.order.ahead_in(legacy), [program.ops[0]]);
    assert_eq!(program.order.ahead_in(other), []);
    assert_eq!(program.order.ahead_in_group(legacy.group).len(), 2);
    program.ops.clone().into_iter().for_each(|op| program.complete(op));
    assert_eq!(program.order.ahead_in_group(legacy.group), []);
    assert_eq!(program.order.nodes.len(), 0);
}

proptest! {
    /// With waits for arbitrary earlier operations added (events), whatever order the ready ones complete in,
    /// everything runs once and nothing runs early.
    #[test]
    fn everything_runs_once_and_never_early(
        steps in proptest::collection::vec(
            (0..KINDS.len(), proptest::collection::vec(any::<prop::sample::Index>(), 0..3)),
            1..40,
        ),
        choices in proptest::collection::vec(any::<prop::sample::Index>(), 200),
        mix in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let lanes: Vec<usize> = steps.iter().map(|(lane, _)| *lane).collect();
        let mut before = prescribed(&lanes);
        let mut program = Program::new();
        let mut complete: HashSet<usize> = HashSet::new();
        let mut choices = choices.into_iter();
        for (number, (lane, waits)) in steps.iter().enumerate() {
            let waits: Vec<usize> = waits.iter().filter(|_| number > 0).map(|index| index.index(number)).collect();
            before[number].extend(waits.iter());
            let after: Vec<OpId> = waits.iter().map(|&wait| program.ops[wait]).collect();
            program.submit(*lane, &after);
            if mix[number] && !program.ready.is_empty() {
                let op = program.ready[choices.next().unwrap().index(program.ready.len())];
                prop_assert!(before[program.number(op)].is_subset(&complete));
                complete.insert(program.number(op));
                program.complete(op);
            }
        }
        while !program.ready.is_empty() {
            let op = program.ready[choices.next().unwrap().index(program.ready.len())];
            prop_assert!(before[program.number(op)].is_subset(&complete));
            complete.insert(program.number(op));
            program.complete(op);
        }
        prop_assert_eq!(complete.len(), steps.len());
    }
}
