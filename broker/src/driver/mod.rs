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
//! Nothing here waits. `state_driver.rs` has the state and its one step, which no part calls while it is under way:
//! what is found meanwhile is told to the [`site`](crate::site), and heard in its turn. Each other file has one part:
//! clients that attach (`attach.rs`), speak (`messages.rs`) and end (`deaths.rs`), commands (`requests.rs`), processes
//! that become jobs (`registering.rs`), devices and measured time.

mod apply;
mod attach;
mod auditing;
mod deaths;
mod devices;
mod held;
mod messages;
mod published;
mod reading;
mod registering;
mod reload;
mod requests;
pub mod state_driver;
mod times;
mod user_database;
mod users;
mod word_left;
