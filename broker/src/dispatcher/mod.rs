// SPDX-License-Identifier: Apache-2.0
//! The dispatcher: the thread that samples the clients' marks and opens and closes their gates.
//!
//! A thread of its own, because a gate has to move within some ten microseconds of its reason, and the event loop may
//! write a file meanwhile. It owns the scheduler and everything it decides about. The event loop tells it of jobs,
//! terms and clients; it reports what it measured and which clients do not drain. Neither waits for the other, and
//! there is no lock between them. The thread sleeps for as long as no device has anything to judge.
//!
//! ```text
//!   event loop ── Message ──► Dispatcher (scheduler, clients' pages) ── gate words, futex wakes ──► clients
//!        ▲                        │          ▲
//!        └─── Report (queue) ◄────┘          └── thread slots, marks (sampled every 50 us .. 5 ms while contended)
//! ```
//! The drop of the [`thread::DispatcherThread`] ends the thread; it opens every gate before it goes. A broker that is
//! killed leaves gates as they are: clients open them by themselves when the heartbeat stops.

mod client;
mod device;
mod gates;
pub mod kernel;
pub mod message;
pub mod report;
pub mod thread;
mod view;

#[cfg(test)]
mod tests;
