// SPDX-License-Identifier: Apache-2.0
//! Which operation waits for which: pure, no threads, no clock.
//!
//! Terms:
//! - *lane*: the queue of one stream; its operations run one after another.
//! - *group*: the lanes of one context. Its first lane is the legacy default stream. An operation there waits for
//!   all *blocking* lanes of the group, and operations of blocking lanes submitted later wait for it; a lane of
//!   another kind ([`Kind::NonBlocking`]) takes no part in that.
//! - *time*: when the last of the operations it waited for ended, on the clock of its own device, or when it was
//!   submitted, if that is known and was later; 0 if it waited for none.
//!
//! Invariants: an operation is ready exactly once, when everything it waits for is complete; an operation waits only
//! for operations submitted before it, so there is always one that can run.

use std::collections::HashMap;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(u64);

/// A group of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(u64);

/// A lane of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    group: GroupId,
    number: u64,
}

/// How a lane relates to the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is the legacy default stream.
    Legacy,
    /// It synchronises with it.
    Blocking,
    /// It does not.
    NonBlocking,
}

struct Node<T> {
    payload: Option<T>,
    waits_for: Vec<OpId>,
    followers: Vec<OpId>,
    time: u64,
}

struct Lane {
    kind: Kind,
    tail: Option<OpId>,
    is_closed: bool,
}

#[derive(Default)]
struct Group {
    lanes: HashMap<u64, Lane>,
}

/// The operations that are not complete, and what they wait for. `T` is what the caller runs.
pub struct Order<T> {
    nodes: HashMap<OpId, Node<T>>,
    groups: HashMap<GroupId, Group>,
    next: u64,
}

/// What submitting an operation led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The operation.
    pub id: OpId,
    /// It waits for nothing: run it.
    pub is_ready: bool,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self {
            nodes: HashMap::new(),
            groups: HashMap::new(),
            next: 1,
        }
    }
}

impl<T> Order<T> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// A new group, with its legacy lane.
    pub fn open_group(&mut self) -> (GroupId, LaneId) {
        let group = GroupId(self.number());
        self.groups.insert(group, Group::default());
        let legacy = self.open_lane(group, Kind::Legacy);
        (group, legacy)
    }

    /// A new lane. Precondition: the group exists.
    pub fn open_lane(&mut self, group: GroupId, kind: Kind) -> LaneId {
        let lane = LaneId {
            group,
            number: self.number(),
        };
        let lanes = &mut self.groups.entry(group).or_default().lanes;
        lanes.insert(
            lane.number,
            Lane {
                kind,
                tail: None,
                is_closed: false,
            },
        );
        lane
    }

    /// Nothing more is submitted to the lane; what it holds still runs, and still holds up the legacy lane.
    pub fn close_lane(&mut self, lane: LaneId) {
        if let Some(lane) = self.lane_mut(lane) {
            lane.is_closed = true;
        }
        self.forget_closed(lane.group);
    }

    /// Drops an empty group.
    pub fn close_group(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    /// Appends an operation to a lane; it also waits for those of `after` that are not complete.
    pub fn submit(&mut self, lane: LaneId, payload: T, after: &[OpId]) -> Submitted {
        let mut waits_for = self.ahead_in(lane);
        waits_for.extend_from_slice(after);
        let submitted = self.submit_free(payload, &waits_for);
        if let Some(lane) = self.lane_mut(lane) {
            lane.tail = Some(submitted.id);
        }
        submitted
    }

    /// Adds an operation that belongs to no lane: a node of a graph.
    pub fn submit_free(&mut self, payload: T, after: &[OpId]) -> Submitted {
        let mut waits_for: Vec<OpId> = after.iter().copied().filter(|op| self.nodes.contains_key(op)).collect();
        waits_for.sort_unstable();
        waits_for.dedup();
        let id = OpId(self.number());
        for op in &waits_for {
            if let Some(node) = self.nodes.get_mut(op) {
                node.followers.push(id);
            }
        }
        let submitted = Submitted {
            id,
            is_ready: waits_for.is_empty(),
        };
        self.nodes.insert(
            id,
            Node {
                payload: Some(payload),
                waits_for,
                followers: Vec::new(),
                time: 0,
            },
        );
        submitted
    }

    /// An operation was submitted at a time of its device's clock: what it waits for may have ended before.
    pub fn not_before(&mut self, op: OpId, time: u64) {
        if let Some(node) = self.nodes.get_mut(&op) {
            node.time = node.time.max(time);
        }
    }

    /// Takes what a ready operation runs, with its time.
    pub fn take(&mut self, op: OpId) -> Option<(T, u64)> {
        let node = self.nodes.get_mut(&op)?;
        Some((node.payload.take()?, node.time))
    }

    /// What an operation that was not taken yet runs.
    pub fn payload(&self, op: OpId) -> Option<&T> {
        self.nodes.get(&op)?.payload.as_ref()
    }

    /// The operation ended; `time` gives when, on the clock of the follower that it is shown. Returns those that are
    /// ready now, oldest first, and those that wait for exactly one other now.
    pub fn complete(&mut self, op: OpId, time: impl Fn(&T) -> u64) -> Completed {
        let mut completed = Completed::default();
        let Some(node) = self.nodes.remove(&op) else {
            return completed;
        };
        for id in node.followers {
            let Some(follower) = self.nodes.get_mut(&id) else {
                continue;
            };
            follower.waits_for.retain(|&ahead| ahead != op);
            let ended = follower.payload.as_ref().map_or(0, &time);
            follower.time = follower.time.max(ended);
            match follower.waits_for[..] {
                [] => completed.ready.push(id),
                [_] => completed.behind.push(id),
                _ => {}
            }
        }
        completed
    }

    /// The oldest operation that waits for this one and for nothing else.
    pub fn direct_follower(&self, op: OpId) -> Option<OpId> {
        let followers = &self.nodes.get(&op)?.followers;
        let is_direct = |id: &&OpId| self.nodes.get(id).is_some_and(|follower| follower.waits_for.len() == 1);
        followers.iter().find(is_direct).copied()
    }

    /// The one operation that this one waits for, if it is exactly one.
    pub fn directly_ahead(&self, op: OpId) -> Option<OpId> {
        match self.nodes.get(&op)?.waits_for[..] {
            [ahead] => Some(ahead),
            _ => None,
        }
    }

    /// All operations that are not complete.
    pub fn incomplete(&self) -> Vec<OpId> {
        self.nodes.keys().copied().collect()
    }

    /// Whether the operation is complete.
    pub fn is_complete(&self, op: OpId) -> bool {
        !self.nodes.contains_key(&op)
    }

    /// What must complete before the lane is idle. For the legacy lane that includes all blocking lanes.
    pub fn ahead_in(&self, lane: LaneId) -> Vec<OpId> {
        let Some(group) = self.groups.get(&lane.group) else {
            return Vec::new();
        };
        let Some(own) = group.lanes.get(&lane.number) else {
            return Vec::new();
        };
        let lanes = group.lanes.iter().filter(|&(&number, other)| {
            number == lane.number
                || match own.kind {
                    Kind::Legacy => other.kind == Kind::Blocking,
                    Kind::Blocking => other.kind == Kind::Legacy,
                    Kind::NonBlocking => false,
                }
        });
        lanes
            .filter_map(|(_, lane)| lane.tail)
            .filter(|&op| !self.is_complete(op))
            .collect()
    }

    /// What must complete before the whole group is idle.
    pub fn ahead_in_group(&self, group: GroupId) -> Vec<OpId> {
        let lanes = self
            .groups
            .get(&group)
            .into_iter()
            .flat_map(|group| group.lanes.values());
        lanes
            .filter_map(|lane| lane.tail)
            .filter(|&op| !self.is_complete(op))
            .collect()
    }

    /// The lanes of a group to which more may be submitted.
    pub fn lanes_of(&self, group: GroupId) -> Vec<LaneId> {
        let lanes = self.groups.get(&group).into_iter().flat_map(|group| &group.lanes);
        lanes
            .filter(|(_, lane)| !lane.is_closed)
            .map(|(&number, _)| LaneId { group, number })
            .collect()
    }

    fn lane_mut(&mut self, lane: LaneId) -> Option<&mut Lane> {
        self.groups.get_mut(&lane.group)?.lanes.get_mut(&lane.number)
    }

    fn forget_closed(&mut self, group: GroupId) {
        let nodes = &self.nodes;
        let is_over = |lane: &Lane| lane.is_closed && lane.tail.is_none_or(|op| !nodes.contains_key(&op));
        if let Some(group) = self.groups.get_mut(&group) {
            group.lanes.retain(|_, lane| !is_over(lane));
        }
    }
}

/// What completing an operation led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Run these.
    pub ready: Vec<OpId>,
    /// Operations that wait for exactly one other now.
    pub behind: Vec<OpId>,
}

#[cfg(test)]
mod tests;
