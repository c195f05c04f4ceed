// SPDX-License-Identifier: Apache-2.0
//! A GPU in virtual time: contexts in native round-robin slices of 2 ms, 20 µs to switch between them.
//!
//! A context without work gives its slice up at once. The first units of all its streams run together while it has the
//! slice. Units: plain ones take their time; a *part* of a collective spins until all parts have begun, then takes its
//! time; a *waiter* spins until a signal has ended; a hung one never ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const SLICE_NS: u64 = 2_000_000;
pub const TAX_NS: u64 = 20_000;

/// What a unit does besides taking time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Of the collective with this number, of so many parts.
    Part {
        collective: u64,
        parts: u32,
    },
    /// Lets the waiters on this tag end when it ends.
    Signal {
        tag: u64,
    },
    /// Ends no sooner than a signal with this tag has.
    Waiter {
        tag: u64,
    },
    Hung,
}

/// One kernel or graph.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    pub number: u64,
    pub length_ns: u64,
    pub kind: Kind,
    left_ns: u64,
    begun_ns: Option<u64>,
}

impl Unit {
    pub fn new(number: u64, length_ns: u64, kind: Kind) -> Self {
        Self {
            number,
            length_ns,
            kind,
            left_ns: length_ns,
            begun_ns: None,
        }
    }
}

/// Units that ended: of which client, which, and when it began to run.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub client: usize,
    pub unit: Unit,
    pub begun_ns: u64,
}

/// What units may wait for, over all GPUs.
#[derive(Clone, Debug, Default)]
pub struct Rendezvous {
    begun: BTreeMap<u64, u32>,
    signalled: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Context {
    streams: BTreeMap<u32, VecDeque<Unit>>,
    /// Units in flight, and their time in all.
    pub count: usize,
    pub in_flight_ns: u64,
    /// Truth: device time that its units occupied.
    pub busy_ns: u64,
    /// Device time of the units that have ended.
    pub retired_ns: u64,
    /// Truth: time for which the device did nothing but switch to it.
    pub tax_ns: u64,
}

impl Context {
    pub fn is_busy(&self) -> bool {
        self.count > 0
    }
}

/// One GPU.
#[derive(Clone, Debug, Default)]
pub struct Gpu {
    pub contexts: BTreeMap<usize, Context>,
    now: u64,
    current: Option<usize>,
    loaded: Option<usize>,
    slice_end_ns: u64,
    /// The current context does not run before.
    ready_ns: u64,
    /// Truth: time for which some context had work and none ran (switches), and time without any work.
    pub tax_ns: u64,
    pub idle_ns: u64,
    pub slice_ns: u64,
}

impl Gpu {
    pub fn new() -> Self {
        Self {
            slice_ns: SLICE_NS,
            ..Self::default()
        }
    }

    pub fn submit(&mut self, client: usize, stream: u32, unit: Unit, rendezvous: &mut Rendezvous) {
        let context = self.contexts.entry(client).or_default();
        context.streams.entry(stream).or_default().push_back(unit);
        context.count += 1;
        context.in_flight_ns += unit.length_ns;
        self.choose();
        self.begin(rendezvous);
    }

    /// The context is destroyed with all its work.
    pub fn destroy(&mut self, client: usize, rendezvous: &mut Rendezvous) {
        if let Some(context) = self.contexts.get_mut(&client) {
            context.streams.clear();
            (context.count, context.in_flight_ns) = (0, 0);
        }
        self.choose();
        self.begin(rendezvous);
    }

    /// When something changes if nothing is submitted. Precondition: the time is that of the last `advance`.
    pub fn next_ns(&self, rendezvous: &Rendezvous) -> Option<u64> {
        let current = self.current?;
        if self.now < self.ready_ns {
            return Some(self.ready_ns);
        }
        let heads = self.contexts[&current].streams.values().filter_map(VecDeque::front);
        let ends = heads
            .filter(|unit| can_end(unit, rendezvous))
            .map(|unit| self.now + unit.left_ns)
            .min();
        let others = self
            .contexts
            .iter()
            .any(|(client, context)| *client != current && context.is_busy());
        let slice = others.then_some(self.slice_end_ns.max(self.now));
        [ends, slice].into_iter().flatten().min()
    }

    /// Runs until `to`, no later than `next_ns`; returns what ended.
    pub fn advance(&mut self, to: u64, rendezvous: &mut Rendezvous) -> Vec<Ended> {
        let dt = to - self.now;
        self.now = to;
        let Some(current) = self.current else {
            self.idle_ns += dt;
            return Vec::new();
        };
        let before = to - dt;
        if before < self.ready_ns {
            self.tax_ns += dt;
            self.contexts.get_mut(&current).expect("current").tax_ns += dt;
        } else {
            let context = self.contexts.get_mut(&current).expect("current");
            context.busy_ns += dt;
            for unit in context.streams.values_mut().filter_map(VecDeque::front_mut) {
                if can_end(unit, rendezvous) {
                    unit.left_ns = unit.left_ns.saturating_sub(dt);
                }
            }
        }
        let ended = if to >= self.ready_ns {
            self.end(current, rendezvous)
        } else {
            Vec::new()
        };
        self.choose();
        self.begin(rendezvous);
        ended
    }

    /// Takes away what is finished.
    fn end(&mut self, current: usize, rendezvous: &mut Rendezvous) -> Vec<Ended> {
        let mut ended = Vec::new();
        let context = self.contexts.get_mut(&current).expect("current");
        for stream in context.streams.values_mut() {
            let is_over = |unit: &Unit| unit.begun_ns.is_some() && unit.left_ns == 0;
            if stream
                .front()
                .is_some_and(|unit| is_over(unit) && can_end(unit, rendezvous))
                && let Some(unit) = stream.pop_front()
            {
                if let Kind::Signal { tag } = unit.kind {
                    rendezvous.signalled.insert(tag);
                }
                context.count -= 1;
                context.in_flight_ns -= unit.length_ns;
                context.retired_ns += unit.length_ns;
                ended.push(Ended {
                    client: current,
                    unit,
                    begun_ns: unit.begun_ns.unwrap_or(self.now),
                });
            }
        }
        ended
    }

    /// The first units of the current context begin.
    fn begin(&mut self, rendezvous: &mut Rendezvous) {
        let Some(current) = self.current.filter(|_| self.now >= self.ready_ns) else {
            return;
        };
        let streams = self.contexts.get_mut(&current).expect("current").streams.values_mut();
        for unit in streams
            .filter_map(VecDeque::front_mut)
            .filter(|unit| unit.begun_ns.is_none())
        {
            unit.begun_ns = Some(self.now);
            if let Kind::Part { collective, .. } = unit.kind {
                *rendezvous.begun.entry(collective).or_default() += 1;
            }
        }
    }

    /// Chooses who runs: the next context with work, in order, when the current one has none or its slice is over.
    fn choose(&mut self) {
        let is_busy = |client: &usize| self.contexts.get(client).is_some_and(Context::is_busy);
        let keeps = self.current.filter(is_busy);
        let next = || {
            let after = self.contexts.range(self.current.map_or(0, |client| client + 1)..);
            let mut round = after
                .chain(self.contexts.iter())
                .filter(|(_, context)| context.is_busy());
            round.next().map(|(client, _)| *client)
        };
        match keeps {
            Some(_) if self.now < self.slice_end_ns => {}
            Some(current) => {
                let others = self
                    .contexts
                    .iter()
                    .any(|(client, context)| *client != current && context.is_busy());
                if others {
                    self.switch(next());
                } else {
                    // Nobody else: slices follow one another.
                    let over = (self.now - self.slice_end_ns) / self.slice_ns + 1;
                    self.slice_end_ns += over * self.slice_ns;
                }
            }
            None => self.switch(next()),
        }
    }

    fn switch(&mut self, to: Option<usize>) {
        self.current = to;
        // The last context stays loaded; coming back to it costs nothing.
        if to.is_some() && self.loaded != to {
            self.ready_ns = self.now + TAX_NS;
            self.loaded = to;
        }
        self.slice_end_ns = self.ready_ns.max(self.now) + self.slice_ns;
    }

    /// Whether work runs that comes to an end, or a switch to some is under way.
    pub fn is_useful(&self, rendezvous: &Rendezvous) -> bool {
        let Some(current) = self.current else { return false };
        let mut heads = self.contexts[&current].streams.values().filter_map(VecDeque::front);
        self.now < self.ready_ns || heads.any(|unit| can_end(unit, rendezvous))
    }
}

fn can_end(unit: &Unit, rendezvous: &Rendezvous) -> bool {
    match unit.kind {
        Kind::Plain | Kind::Signal { .. } => true,
        Kind::Part { collective, parts } => rendezvous.begun.get(&collective).is_some_and(|begun| *begun >= parts),
        Kind::Waiter { tag } => rendezvous.signalled.contains(&tag),
        Kind::Hung => false,
    }
}
