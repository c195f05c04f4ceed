// SPDX-License-Identifier: Apache-2.0
//! The overhead of clients on devices, measurements that wait, and contradictions with NVML.
//!
//! How overhead is measured stands in `decisions/overhead.rs`; here is what one poll leaves for the next.

use std::collections::BTreeMap;

use partage_protocol::units::{ClientId, DeviceUuid, JobId, SECOND_NS};

use super::drift::{Contradiction, Drift};
use crate::machine::{Machine, Reading, overhead_of};

/// A client that was not quiet for this long is shown as unaudited, and judged by the least that it can hold.
pub const UNAUDITED_NS: u64 = 5 * SECOND_NS;
/// A client that announced or made a context this long ago is being measured, and explains itself.
const EXPLAINED_NS: u64 = 5 * SECOND_NS;

/// What is known of one client on one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverheadState {
    /// The reading when the look that is under way was asked for.
    before: Option<Reading>,
    /// O as last measured, without what is announced.
    measured: u64,
    announced: Option<Announced>,
    /// Since when no reading was quiet.
    busy_since_ns: Option<u64>,
    /// The least overhead that the readings since then allow.
    least: u64,
    /// Not quiet for [`UNAUDITED_NS`].
    is_unaudited: bool,
    /// NVML lists the process without its bytes, or does not know it by this pid although it holds memory.
    is_unmeasured: bool,
    /// NVML has listed the process at some time.
    was_listed: bool,
    /// What it said last.
    last: Option<Reading>,
    /// It announced or made a context not long ago.
    explained_until_ns: Option<u64>,
    /// It contradicts NVML, or itself.
    drift: Option<Drift>,
}

impl OverheadState {
    /// O: what was measured, or what is announced where that is more.
    pub(crate) fn overhead(&self) -> u64 {
        let announced = self.announced.as_ref().map_or(0, Announced::floor);
        self.measured.max(announced)
    }

    /// O as last measured, without what is announced.
    pub(crate) const fn measured(&self) -> u64 {
        self.measured
    }

    /// O before the contexts that are announced.
    pub(crate) fn baseline(&self) -> u64 {
        self.announced
            .as_ref()
            .map_or(self.measured, |announced| announced.base)
    }

    pub(crate) const fn is_unaudited(&self) -> bool {
        self.is_unaudited
    }

    pub(crate) const fn is_unmeasured(&self) -> bool {
        self.is_unmeasured
    }

    /// What the client said when it was last compared with NVML.
    pub(crate) const fn last(&self) -> Option<&Reading> {
        self.last.as_ref()
    }

    pub(crate) const fn drift(&self) -> Option<&Drift> {
        self.drift.as_ref()
    }

    /// What is announced with one more context, which costs so much, until then.
    pub(crate) fn one_more(&self, each: u64, until_ns: u64) -> Announced {
        let known = self.announced.as_ref();
        Announced {
            base: known.map_or(self.measured, |known| known.base),
            each: known.map_or(each, |known| known.each.max(each)),
            count: known.map_or(0, |known| known.count) + 1,
            until_ns,
        }
    }

    /// Contexts are about to be made: they count from now on.
    pub(crate) fn announce(&mut self, announced: Announced) {
        self.announced = Some(announced);
    }

    /// One of the announced contexts was made and measured.
    pub(crate) fn settle_announced(&mut self) {
        let measured = self.measured;
        if let Some(announced) = &mut self.announced {
            announced.count = announced.count.saturating_sub(1);
            announced.base = measured;
        }
        self.announced.take_if(|announced| announced.count == 0);
    }

    /// The client is about to be measured, so that what NVML shows for it may grow for a good reason.
    pub(crate) fn explain(&mut self, now_ns: u64) {
        self.explained_until_ns = Some(now_ns.saturating_add(EXPLAINED_NS));
    }

    /// Its growth has a good reason still.
    pub(crate) fn is_explained(&self, now_ns: u64) -> bool {
        self.explained_until_ns.is_some_and(|until| now_ns < until)
    }

    /// A look is about to begin: what the client says now belongs to it.
    pub(crate) fn note_before(&mut self, reading: Option<Reading>) {
        self.before = reading;
    }

    /// A look came: does NVML list the process, and say its bytes? Answers what the client said before the look.
    pub(crate) fn take_poll(&mut self, is_listed: bool, has_bytes: bool) -> Option<Reading> {
        self.is_unmeasured = !has_bytes;
        self.was_listed |= is_listed;
        self.before.take()
    }

    /// NVML has listed the process at some time.
    pub(crate) const fn was_listed(&self) -> bool {
        self.was_listed
    }

    /// It holds memory, and NVML does not know it by this pid.
    pub(crate) fn note_unmeasured(&mut self) {
        self.is_unmeasured = true;
    }

    /// What it says in this look, for the next one.
    pub(crate) fn note_last(&mut self, reading: Reading) {
        self.last = Some(reading);
    }

    /// It was quiet: its overhead is this.
    pub(crate) fn take_quiet(&mut self, bytes: u64) {
        self.busy_since_ns = None;
        self.is_unaudited = false;
        self.measured = bytes;
    }

    /// It was not quiet, and its overhead, if it is this client's, is `least` or more: after [`UNAUDITED_NS`] it is at
    /// least what every look since then shows.
    pub(crate) fn take_busy(&mut self, least: u64, is_its_own: bool, now_ns: u64) {
        let is_first = self.busy_since_ns.is_none();
        let since_ns = *self.busy_since_ns.get_or_insert(now_ns);
        self.least = if is_first { least } else { self.least.min(least) };
        if now_ns >= since_ns.saturating_add(UNAUDITED_NS) {
            self.is_unaudited = true;
            if is_its_own {
                self.measured = self.measured.max(self.least);
            }
            // The next five seconds are judged for themselves.
            self.busy_since_ns = None;
        }
    }

    /// No quiet look came in time: its overhead is at least that.
    pub(crate) fn estimate(&mut self, least: u64) {
        self.measured = self.measured.max(least);
    }

    /// A look contradicts it; answers what is to be published.
    pub(crate) fn contradict(&mut self, found: Contradiction, now_ns: u64) -> Option<String> {
        let drift = self.drift.get_or_insert_with(|| Drift::new(found.kind, now_ns));
        drift.see(found, now_ns).then(|| drift.text().to_owned())
    }

    /// It and NVML agree; answers whether they did not before.
    pub(crate) fn agree(&mut self) -> bool {
        self.drift.take().is_some()
    }

    /// The drift that is to be answered now, once.
    pub(crate) fn take_answer(&mut self) -> Option<String> {
        let drift = self.drift.as_mut()?;
        drift.take_answer().then(|| drift.text().to_owned())
    }
}

/// Contexts that were announced and not measured yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// O when the first was announced, or when the last of them was measured.
    base: u64,
    each: u64,
    count: u64,
    until_ns: u64,
}

impl Announced {
    /// O with all of them.
    pub(crate) fn floor(&self) -> u64 {
        self.base.saturating_add(self.each.saturating_mul(self.count))
    }
}

/// What a client did that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// A context, module or heap, which may have to go again.
    Made,
    /// The end of a context.
    Ended,
}

/// A `MEASURE_AFTER` or `MEASURE_ENDED` that waits for a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measuring {
    pub client: ClientId,
    pub slot: usize,
    pub what: Measured,
    pub device: DeviceUuid,
    pub sequence: u32,
    pub until_ns: u64,
    polls: u32,
    /// The look that is under way was asked for afterwards.
    is_covered: bool,
    /// A look showed this, and it waits only for the memory of those who end.
    judged: Option<Seen>,
    /// O before the context was made.
    pub baseline: u64,
}

impl Measuring {
    /// Waits until then for a look that is asked for from now on.
    pub(crate) const fn new(
        (client, slot, sequence): (ClientId, usize, u32),
        what: Measured,
        device: DeviceUuid,
        baseline: u64,
        until_ns: u64,
    ) -> Self {
        Self {
            client,
            slot,
            what,
            device,
            sequence,
            until_ns,
            polls: 0,
            is_covered: false,
            judged: None,
            baseline,
        }
    }

    /// What a look showed before it waited for the memory of those who end.
    pub(crate) const fn judged(&self) -> Option<Seen> {
        self.judged
    }

    /// The same, which waits on after a look that showed this.
    pub(crate) fn judged_as(&self, seen: Seen) -> Self {
        Self {
            judged: Some(seen),
            ..self.clone()
        }
    }

    /// Polls that came while it waited.
    pub(crate) const fn polls(&self) -> u32 {
        self.polls
    }
}

/// A client on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub job: JobId,
    pub client: ClientId,
    pub slot: usize,
}

/// What a look said of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Quiet,
    /// The least that its overhead can be, as far as this look tells.
    Busy(u64),
    /// Nothing can be said: NVML shows no bytes, or the pages are lost.
    Nothing,
}

/// What is known of the overhead of every client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overheads {
    by_client: BTreeMap<(ClientId, usize), OverheadState>,
    /// Clients that wait for a measurement.
    waiting: Vec<Measuring>,
}

impl Overheads {
    /// What is known of a client on a slot; none before anything was measured or announced.
    pub(crate) fn get(&self, client: ClientId, slot: usize) -> Option<&OverheadState> {
        self.by_client.get(&(client, slot))
    }

    /// Likewise, to be changed.
    pub(crate) fn get_mut(&mut self, client: ClientId, slot: usize) -> Option<&mut OverheadState> {
        self.by_client.get_mut(&(client, slot))
    }

    /// Likewise; it begins with what the broker before knew.
    pub(crate) fn of<M: Machine>(&mut self, member: Member, machine: &M) -> &mut OverheadState {
        self.by_client
            .entry((member.client, member.slot))
            .or_insert_with(|| OverheadState {
                measured: overhead_of(machine, member.client, member.slot),
                ..OverheadState::default()
            })
    }

    /// Of whom anything is known.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &ClientId> {
        self.by_client.keys().map(|(client, _)| client)
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.waiting.retain(|waiting| waiting.client != client);
        self.by_client.retain(|(other, _), _| *other != client);
    }

    /// A client waits for a measurement.
    pub(crate) fn wait(&mut self, waiting: Measuring) {
        self.waiting.push(waiting);
    }

    /// Measurements that a client waits for.
    pub(crate) fn waiting_of(&self, client: ClientId) -> usize {
        self.waiting.iter().filter(|waiting| waiting.client == client).count()
    }

    /// A look at the device is about to begin: it answers those that wait now.
    pub(crate) fn cover(&mut self, device: DeviceUuid) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.device == device) {
            waiting.is_covered = true;
        }
    }

    /// Those whom a look that came answers, each with one look more.
    pub(crate) fn take_answered(&mut self, device: DeviceUuid) -> Vec<Measuring> {
        let is_answered = |waiting: &mut Measuring| waiting.device == device && waiting.is_covered;
        let answered = self.waiting.extract_if(.., is_answered);
        let one_more = |waiting: Measuring| Measuring {
            polls: waiting.polls + 1,
            ..waiting
        };
        answered.map(one_more).collect()
    }

    /// It waits for one more look.
    pub(crate) fn wait_on(&mut self, waiting: Measuring) {
        self.waiting.push(Measuring {
            is_covered: false,
            ..waiting
        });
    }

    /// Those who waited long enough.
    pub(crate) fn take_late(&mut self, now_ns: u64) -> Vec<Measuring> {
        let is_late = |waiting: &mut Measuring| now_ns >= waiting.until_ns;
        self.waiting.extract_if(.., is_late).collect()
    }

    /// Those who wait for a device that does not answer.
    pub(crate) fn take_waiting_on(&mut self, device: DeviceUuid) -> Vec<Measuring> {
        let is_here = |waiting: &mut Measuring| waiting.device == device;
        self.waiting.extract_if(.., is_here).collect()
    }

    /// Drops announcements that nobody measured in time; answers whose.
    pub(crate) fn drop_old_announcements(&mut self, now_ns: u64) -> Vec<(ClientId, usize)> {
        let is_over = |announced: &mut Announced| now_ns >= announced.until_ns;
        let over = self
            .by_client
            .iter_mut()
            .filter_map(|(at, state)| state.announced.take_if(is_over).map(|_| *at));
        over.collect()
    }

    /// When one of the two has something to do next.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let waiting = self.waiting.iter().map(|waiting| waiting.until_ns);
        let announced = self.by_client.values().filter_map(|state| state.announced.as_ref());
        waiting.chain(announced.map(|announced| announced.until_ns)).min()
    }
}
