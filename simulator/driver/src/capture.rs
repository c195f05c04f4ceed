// SPDX-License-Identifier: Apache-2.0
//! Stream capture: work submitted to captured streams becomes nodes of graphs. The rules are in [`rules`]; this
//! module applies them to streams, events and graphs.
//!
//! Lock order: captures, then a graph.

pub mod rules;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use partage_abi::types::CuResult;

use self::rules::{Captures, Mode, NodeKey, Status};
use crate::context::Context;
use crate::event::Event;
use crate::graph::nodes::Edge;
use crate::graph::{Graph, Work};
use crate::state::Answer;
use crate::stream::{Stream, thread_key};

#[derive(Default)]
struct Sessions {
    rules: Captures,
    graphs: HashMap<u64, Target>,
}

/// The graph that a capture fills.
struct Target {
    graph: Arc<Graph>,
    /// It was made for the capture and ends with one that fails.
    is_own: bool,
}

impl Target {
    fn discard(&self) {
        if self.is_own {
            self.graph.discard_capture();
        }
    }
}

/// A capture as `cuStreamGetCaptureInfo` tells it.
pub struct Info {
    /// The session's number.
    pub session: u64,
    /// What it has become so far.
    pub graph: Arc<Graph>,
    /// The nodes that the stream's next operation depends on.
    pub tips: Vec<NodeKey>,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

fn sessions() -> MutexGuard<'static, Sessions> {
    // Leaked: captures may be asked about after the destructors of static objects.
    static LEAKED: OnceLock<&'static Mutex<Sessions>> = OnceLock::new();
    LEAKED
        .get_or_init(|| Box::leak(Box::default()))
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Exchanges the calling thread's capture mode.
pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// Asks whether the calling thread may make a call that may synchronise implicitly, as an allocation may. 900 if a
/// capture forbids it; that capture is then invalidated.
pub fn unsafe_call() -> Answer {
    sessions().rules.unsafe_call(thread_key(), MODE.get())
}

/// Begins a capture on a stream, into `graph`, after the nodes `tips`. `is_own` says that the graph was made for it.
pub fn begin(stream: &Stream, mode: Mode, graph: Arc<Graph>, is_own: bool, tips: Vec<NodeKey>) -> Answer {
    let mut sessions = sessions();
    let session = sessions.rules.begin(stream.facts(), mode, thread_key(), tips)?;
    sessions.graphs.insert(session, Target { graph, is_own });
    Ok(())
}

/// Ends the capture that was begun on a stream.
pub fn end(stream: &Stream) -> Answer<Arc<Graph>> {
    let mut sessions = sessions();
    let Sessions { rules, graphs } = &mut *sessions;
    let own = match rules.status(stream.facts())? {
        Status::Idle => None,
        Status::Active(session) | Status::Invalidated(session) => {
            graphs.get(&session).map(|target| Arc::clone(&target.graph))
        }
    };
    let parents = |node| own.as_ref().map(|graph| graph.lock().parents(node)).unwrap_or_default();
    let (session, answer) = rules.end(stream.facts(), thread_key(), parents);
    let target = session.and_then(|session| graphs.remove(&session));
    match answer {
        Ok(()) => target.map(|target| target.graph).ok_or(CuResult::ILLEGAL_STATE),
        Err(code) => {
            if let Some(target) = target {
                target.discard();
            }
            Err(code)
        }
    }
}

/// What a stream is doing.
pub fn status(stream: &Stream) -> Answer<Status> {
    sessions().rules.status(stream.facts())
}

/// The capture that a stream takes part in, if any and not invalidated.
pub fn info(stream: &Stream) -> Answer<Option<Info>> {
    let sessions = sessions();
    let Status::Active(session) = sessions.rules.status(stream.facts())? else {
        return Ok(None);
    };
    let target = sessions.graphs.get(&session).ok_or(CuResult::ILLEGAL_STATE)?;
    Ok(Some(Info {
        session,
        graph: Arc::clone(&target.graph),
        tips: sessions.rules.tips(stream.facts()),
    }))
}

/// Asks whether a stream that is not captured may run something now: 901 or 906 if not.
pub fn admit(stream: &Stream) -> Answer {
    sessions().rules.admit(stream.facts()).map(drop)
}

/// Adds work to the capture that the stream takes part in; gives it back if there is none.
pub fn take(stream: &Stream, work: Work) -> Answer<Option<Work>> {
    let mut sessions = sessions();
    let Some((session, tips)) = sessions.rules.admit(stream.facts())? else {
        return Ok(Some(work));
    };
    let graph = &sessions.graphs.get(&session).ok_or(CuResult::ILLEGAL_STATE)?.graph;
    let node = graph.add(work, &tips)?;
    sessions.rules.set_tips(stream.facts(), vec![node])?;
    Ok(None)
}

/// Adds a node in a way of its own to the capture that the stream takes part in: `add` is told the graph and what the
/// node comes after. `None` if there is no capture.
pub fn add<T>(
    stream: &Stream,
    add: impl FnOnce(&Arc<Graph>, &[(NodeKey, Edge)]) -> Answer<(NodeKey, T)>,
) -> Answer<Option<T>> {
    let mut sessions = sessions();
    let Some((session, tips)) = sessions.rules.admit(stream.facts())? else {
        return Ok(None);
    };
    let graph = &sessions.graphs.get(&session).ok_or(CuResult::ILLEGAL_STATE)?.graph;
    let after: Vec<(NodeKey, Edge)> = tips.into_iter().map(|tip| (tip, Edge::default())).collect();
    let (node, answer) = add(graph, &after)?;
    sessions.rules.set_tips(stream.facts(), vec![node])?;
    Ok(Some(answer))
}

/// Sets the nodes that the next operation of a captured stream depends on, or adds to them.
pub fn update_tips(stream: &Stream, nodes: &[NodeKey], replace: bool) -> Answer {
    let mut sessions = sessions();
    let mut tips = if replace {
        Vec::new()
    } else {
        sessions.rules.tips(stream.facts())
    };
    tips.extend(nodes);
    tips.sort_unstable();
    tips.dedup();
    sessions.rules.set_tips(stream.facts(), tips)
}

/// Records an event in a stream. True if that was captured.
pub fn record(stream: &Stream, event: &Event) -> Answer<bool> {
    sessions().rules.record(event.key, stream.facts())
}

/// Makes a stream wait for an event. True if that was captured.
pub fn wait(stream: &Stream, event: &Event) -> Answer<bool> {
    sessions().rules.wait(stream.facts(), event.key)
}

/// Refuses to tell the execution status of a captured event.
pub fn query_event(event: &Event) -> Answer {
    sessions().rules.query_event(event.key)
}

/// Refuses to tell the execution status of a captured stream.
pub fn query_stream(stream: &Stream) -> Answer {
    sessions().rules.query_stream(stream.facts())
}

/// Refuses to tell the execution status of a context with a captured stream.
pub fn query_context(context: &Context) -> Answer {
    sessions().rules.query_context(context.id)
}

/// The stream is gone.
pub fn forget_stream(stream: &Stream) {
    let mut sessions = sessions();
    if let Some(session) = sessions.rules.forget_stream(stream.facts())
        && let Some(target) = sessions.graphs.remove(&session)
    {
        target.discard();
    }
}

/// The event is gone.
pub fn forget_event(event: &Event) {
    sessions().rules.forget_event(event.key);
}
