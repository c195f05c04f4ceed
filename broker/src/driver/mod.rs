// SPDX-License-Identifier: Apache-2.0
//! The single owner of the broker's state: what happens comes in, the policy decides, effects go out.
//!
//! ```text
//!   server (sockets, epoll) ──► hello / message / request / closed / ended / gpu / times / tick
//!                                   │ Event
//!                                   ▼
//!                              Policy::step ──► Commands ──► words, records, signals (done here: apply.rs)
//!                                   ▲                   └──► Effects (done by the server: packets, watches, exit)
//!                                   └── facts found while a command was carried out
//! ```
//! Nothing here waits. `state_driver.rs` has the state and its one step; each other file has one part of it: clients
//! that attach (`attach.rs`), speak (`messages.rs`) and end (`deaths.rs`), commands (`requests.rs`), containers that
//! become jobs (`registering.rs`), devices, signals
//! to jobs, measured time and events.

mod apply;
mod attach;
mod auditing;
mod deaths;
mod devices;
pub mod effect;
mod held;
mod messages;
mod publish;
mod reading;
mod registering;
mod reload;
mod requests;
mod residence;
mod signals;
pub mod state_driver;
mod times;
mod user_database;
mod users;
mod watches;
mod word_left;
