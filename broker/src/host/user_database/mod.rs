// SPDX-License-Identifier: Apache-2.0
//! The user database (NSS: LDAP, sssd and others), through a helper process that can be killed.
//!
//! A question to a database over the network can take minutes, or for ever. So the broker asks it nothing: a helper
//! (`serve.rs`) does, one question at a time, each with a deadline. Without questions there is no helper.
//!
//! ```text
//!   ask ──► waits its turn ──► helper started, if none runs ──► question ──► answer
//!              ▲                                                   │ deadline, error, death
//!              └── behind the others, after a pause ◄── killed ◄───┘
//! ```
//! A question that was not answered is asked again until it is.

mod adapter;
mod messages;
mod serve;
#[cfg(test)]
mod tests;

pub use adapter::{UserEvent, UserHelper, helper_command};
pub use messages::{Account, Answer, Ask};
pub use serve::serve;
