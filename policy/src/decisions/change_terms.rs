// SPDX-License-Identifier: Apache-2.0
//! What `partage set` makes of a job's terms of time, before the rules.

use partage_protocol::size::NONE;
use partage_protocol::terms::{parse_cap, parse_class, parse_promise, parse_time_limit, parse_weight};

use crate::caller::Caller;
use crate::event::Change;
use crate::refusal::{Refusal, unreadable};
use crate::rules::AskedTerms;

/// What is asked after `partage set`; `None` where the change says nothing about it.
pub(crate) fn changed_terms(
    asked: &AskedTerms,
    change: &Change,
    caller: &Caller,
) -> Result<Option<AskedTerms>, Refusal> {
    let change_of = &change.terms;
    if change_of.is_empty() {
        return Ok(None);
    }
    let mut terms = asked.clone();
    if let Some(text) = &change_of.compute {
        let value = match text.as_str() {
            NONE => 0,
            text => parse_promise(text).map_err(unreadable("compute: "))?,
        };
        terms.set_promise(change.said("compute", text, value, caller));
    }
    if let Some(text) = &change_of.compute_max {
        let value = match text.as_str() {
            NONE => None,
            text => parse_cap(text).map_err(unreadable("compute-max: "))?,
        };
        terms.set_cap(change.said("compute-max", text, value, caller));
    }
    if let Some(text) = &change_of.weight {
        let value = parse_weight(text).map_err(unreadable("weight: "))?;
        terms.set_weight(change.said("weight", text, value, caller));
    }
    if let Some(text) = &change_of.priority {
        let value = parse_class(text).map_err(unreadable("priority: "))?;
        terms.set_priority(change.said("priority", text, value, caller));
    }
    if let Some(text) = &change_of.time_limit {
        let value = match text.as_str() {
            NONE => None,
            text => Some(parse_time_limit(text).map_err(unreadable("time-limit: "))?),
        };
        terms.set_time_limit(change.said("time-limit", text, value, caller));
    }
    Ok(Some(terms))
}
