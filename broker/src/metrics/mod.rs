// SPDX-License-Identifier: Apache-2.0
//! What a monitoring system scrapes: an HTTP listener that owns nothing.
//!
//! ```text
//!   Prometheus ──GET /metrics──► listener ──► request: may it have an answer?
//!                                   │
//!                                   ▼
//!                                scrape ──admin.sock──► event loop ──► views ──► partage-metrics
//!                                     a text for everybody who asks within half a second
//! ```
//! Its threads are clients of the broker's own socket: nothing that they do, and nobody who connects to them, can keep
//! the event loop. There are [`listener::MOST_CONNECTIONS`] at most, each for [`listener::PATIENCE`].

mod ask;
mod listener;
mod names;
mod request;
mod scrape;

pub use listener::Listener;
